//! Reaps of what dead clients have left at a provider that is a list in memory.

mod ends;
mod left_alone;
mod parts;
mod taken_up;
mod unrecorded;

use std::time::Duration;

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::error::ErrorKind;
use crate::pool::custody::ledger::tests::{Record, Scratch, head, intent, lines, machine};
use crate::provider::{
    Capabilities, LaunchBatch, MachineReport, MachineState, Offer, Part, Place, PoolRecord, PoolRequest, Requirements,
};
use crate::remote::Remote;

/// A provider with a list of machines.
#[derive(Debug, Default)]
pub(in crate::pool) struct Cloud {
    name: &'static str,
    identity: Option<&'static str>,
    machines: Mutex<Vec<Machine>>,
    /// How many looks at its list come before the list has the machines.
    lists_from: usize,
    looks: AtomicUsize,
    /// Reports that it ends machines, but does not end them.
    stuck: bool,
    /// Answers only with errors.
    pub(in crate::pool) silent: bool,
    pub(in crate::pool) outlives: bool,
    /// How long its machines lived, by its reports of those that are gone.
    pub(in crate::pool) lived: Option<Duration>,
    torn_down: AtomicUsize,
    /// Reports an ended machine as `Released`, and never as `Gone`.
    pub(in crate::pool) lingers: bool,
    /// How often something that the machines shared is still held when it should be removed.
    pub(in crate::pool) held: AtomicUsize,
    /// The id of each machine each time that it was ended.
    ended: Mutex<Vec<MachineId>>,
    /// The pools that it lists.
    pools: Mutex<Vec<PoolRecord>>,
    /// Its pools have live machines from the second look on.
    revives: bool,
    parts: Vec<Part>,
    /// Refuses to end machines, and then does not answer when it is asked for them.
    pub(in crate::pool) protects: bool,
}

#[async_trait]
impl Provider for Cloud {
    fn name(&self) -> &str {
        self.name
    }
    fn capabilities(&self) -> Capabilities {
        if self.outlives { Capabilities::new().outlives_client() } else { Capabilities::new() }
    }
    async fn identity(&self) -> Result<String> {
        self.answers()?;
        Ok(self.identity.unwrap_or("here").to_owned())
    }
    fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }
    async fn offers(&self, _: &Requirements) -> Result<Vec<Offer>> {
        Ok(Vec::new())
    }
    async fn prepare(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn adopt(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let refused = |_| Err(Error::new(ErrorKind::Provider, "nothing is launched here"));
        batch.requests.iter().map(refused).collect()
    }
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        if self.protects {
            std::future::pending::<()>().await;
        }
        let there = self.machines.lock().unwrap();
        let report = |id: &MachineId| match there.iter().any(|machine| machine.id == *id) {
            true => MachineReport::new(MachineState::Running),
            false => {
                let state = if self.lingers { MachineState::Released } else { MachineState::Gone };
                MachineReport { lived: self.lived, ..MachineReport::new(state) }
            }
        };
        Ok(machines.iter().map(report).collect())
    }
    async fn connect(&self, _: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        Err(Error::new(ErrorKind::Provider, "nothing is reached here"))
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        self.ended.lock().unwrap().extend_from_slice(machines);
        if !self.stuck {
            self.machines.lock().unwrap().retain(|other| !machines.contains(&other.id));
        }
        let protected = || Error::new(ErrorKind::Provider, "it is protected").with_hint("remove the protection");
        machines.iter().map(|_| if self.protects { Err(protected()) } else { Ok(()) }).collect()
    }
    async fn teardown(&self, _: &PoolId) -> Result<()> {
        let is_held = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if is_held {
            return Err(Error::new(ErrorKind::Provider, "a machine still holds the network").temporary());
        }
        self.torn_down.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
        // Behaves like an answer that takes time: the caller is pending at least once.
        tokio::task::yield_now().await;
        self.answers()?;
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        Ok(if look >= self.lists_from { self.machines.lock().unwrap().clone() } else { Vec::new() })
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        self.answers()?;
        let mut pools = self.pools.lock().unwrap();
        let listed = pools.clone();
        if self.revives {
            pools.iter_mut().for_each(|pool| pool.expires = SystemTime::now() + Duration::from_secs(60));
        }
        Ok(listed)
    }
}

impl Cloud {
    fn answers(&self) -> Result<()> {
        if self.silent { Err(Error::new(ErrorKind::Provider, "it is down")) } else { Ok(()) }
    }
}

/// A ledger with one pool of a dead owner at the provider `cloud` with the identity `here`. Machine
/// 0 is on record as launched, machine 1 only as intended.
fn left_behind() -> (Scratch, PoolId, Vec<Machine>) {
    left_behind_at(crate::pool::custody::ledger::now())
}

/// The same, written at this time of a clock that may have been set since.
fn left_behind_at(now: u64) -> (Scratch, PoolId, Vec<Machine>) {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let machines = vec![machine(&pool, 0), machine(&pool, 1)];
    scratch.write(
        &pool,
        &lines(vec![
            head(&pool, "cloud", Some("here")),
            intent(&machines[0], now),
            intent(&machines[1], now),
            crate::pool::custody::ledger::tests::fact(&machines[0]),
        ]),
    );
    (scratch, pool, machines)
}

async fn reap_with(scratch: &Scratch, clouds: &[&Arc<Cloud>]) -> Reaped {
    let providers = clouds.iter().map(|cloud| Arc::clone(*cloud) as Arc<dyn Provider>).collect();
    reap_in(scratch.0.clone(), providers).await.unwrap()
}
