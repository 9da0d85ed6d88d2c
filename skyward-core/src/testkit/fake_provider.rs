//! A provider whose machines are in this process. A script decides what happens to them.

mod faults;
mod machine;
mod provider;
mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::machine::Fake;
use super::fake_worker::{FakeNode, Witness, lock};
use super::script::Script;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::{LaunchBatch, LaunchRequest, Machine, Place, PoolRequest, Reason};

pub use self::faults::{Arrival, Death, Faults, Forewarning, Turn};

/// A provider whose machines are in this process. Clones share the machines.
#[derive(Debug, Clone)]
pub struct FakeProvider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    script: Arc<Script>,
    witness: Arc<Witness>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The pools that were prepared and not torn down.
    pools: BTreeMap<PoolId, PoolRequest>,
    machines: BTreeMap<MachineId, Fake>,
    /// The machines of each node, in the order of their launches.
    of_node: BTreeMap<MachineNumber, Vec<MachineId>>,
    calls: BTreeMap<(&'static str, u32), u32>,
    /// The last launch of each machine number.
    asked: BTreeMap<MachineNumber, LaunchId>,
    /// The offers that were tried, in order.
    tried: Vec<OfferId>,
    /// The machines of each launch.
    batches: Vec<Vec<MachineNumber>>,
    refused: usize,
    lists: usize,
}

impl FakeProvider {
    /// A provider that follows a script.
    pub fn new(script: impl Into<Script>) -> Self {
        let script = Arc::new(script.into());
        Self(Arc::new(Inner { script, witness: Arc::default(), state: Mutex::default() }))
    }

    /// The machines that are not released.
    pub fn machines(&self) -> Vec<Machine> {
        let now = Instant::now();
        let state = lock(&self.0.state);
        state.machines.values().filter(|fake| !fake.is_gone(now)).map(|fake| fake.machine.clone()).collect()
    }

    /// How many machines were started.
    pub fn launched(&self) -> usize {
        lock(&self.0.state).machines.len()
    }

    /// How many machines took the place of another one.
    pub fn replaced(&self) -> usize {
        let state = lock(&self.0.state);
        let nodes: BTreeSet<_> = state.machines.values().map(|fake| fake.machine.number).collect();
        state.machines.len() - nodes.len()
    }

    /// The offers of all launches, in order; an offer is listed as often as it was tried.
    pub fn tried(&self) -> Vec<OfferId> {
        lock(&self.0.state).tried.clone()
    }

    /// The numbers of the machines of each call of `launch`, in order.
    pub fn batches(&self) -> Vec<Vec<MachineNumber>> {
        lock(&self.0.state).batches.clone()
    }

    /// The cost of all machines until now, in US dollars; each costs from its launch until it is
    /// released.
    pub fn spent(&self) -> f64 {
        let now = Instant::now();
        lock(&self.0.state).machines.values().map(|fake| fake.cost(now)).sum()
    }

    /// How long machines existed: from the launch of the first until the last was released, or
    /// until now.
    pub fn lived(&self) -> Duration {
        let now = Instant::now();
        let state = lock(&self.0.state);
        let first = state.machines.values().map(|fake| fake.launched).min();
        let last = state.machines.values().map(|fake| fake.gone.map_or(now, |gone| gone.min(now))).max();
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first))
    }

    /// How many launches were refused.
    pub fn refused(&self) -> usize {
        lock(&self.0.state).refused
    }

    /// How often the machines of a pool were listed.
    pub fn lists(&self) -> usize {
        lock(&self.0.state).lists
    }

    /// How many machines the provider gave notice of before they ended.
    pub fn forewarned(&self) -> usize {
        let now = Instant::now();
        let state = lock(&self.0.state);
        let warned = |fake: &&Fake| {
            fake.forewarning.is_some_and(|warned| fake.launched + warned.after <= fake.gone.unwrap_or(now))
        };
        state.machines.values().filter(warned).count()
    }

    /// The cost per hour of the machines that are not released, in US dollars.
    pub fn usd_per_hour(&self) -> f64 {
        let now = Instant::now();
        let state = lock(&self.0.state);
        state.machines.values().filter(|fake| !fake.is_gone(now)).map(|fake| fake.usd_per_hour).sum()
    }

    /// The machines on which an agent or a worker runs.
    pub fn running(&self) -> Vec<MachineId> {
        let state = lock(&self.0.state);
        state.machines.iter().filter(|(_, fake)| fake.node.is_running()).map(|(id, _)| id.clone()).collect()
    }

    /// The record of what the nodes have seen.
    pub fn witness(&self) -> &Witness {
        &self.0.witness
    }

    fn call(&self, what: &'static str, node: u32) -> u32 {
        let mut state = lock(&self.0.state);
        let calls = state.calls.entry((what, node)).or_default();
        *calls += 1;
        *calls - 1
    }

    /// Tries the offer for one machine.
    fn try_offer(&self, batch: &LaunchBatch) -> Result<()> {
        let offer = &batch.offer;
        let call = {
            let mut state = lock(&self.0.state);
            state.tried.push(offer.id.clone());
            state.tried.iter().filter(|tried| **tried == offer.id).count() as u32 - 1
        };
        let Some(refusal) = self.0.script.faults.refusal(offer, call) else { return Ok(()) };
        lock(&self.0.state).refused += 1;
        Err(Error::refused(refusal, format!("{} is not available", offer.id)))
    }

    /// The machine for a launch: the existing one, or a new one.
    fn start(&self, batch: &LaunchBatch, request: &LaunchRequest) -> Machine {
        let id = MachineId::new(request.launch.as_str());
        let mut state = lock(&self.0.state);
        if let Some(fake) = state.machines.get(&id) {
            return fake.machine.clone();
        }
        let pool = || PoolRequest::new(request.pool.clone(), request.lease).owner(&request.owner);
        state.pools.entry(request.pool.clone()).or_insert_with(pool);
        let index = request.number.0;
        let before = state.of_node.entry(request.number).or_default();
        before.push(id.clone());
        let before = before[..before.len() - 1].to_vec();
        let number = before.len() as u32;
        let node = FakeNode::new(index, Arc::clone(&self.0.script), Arc::clone(&self.0.witness));
        match state.asked.get(&request.number) == Some(&request.launch) {
            true => before.iter().filter_map(|id| state.machines.get(id)).for_each(|fake| fake.node.succeed()),
            // A machine that comes late may have been replaced already.
            false => node.succeed(),
        }
        let machine = Machine::of(batch, request, id.clone());
        let fake = Fake {
            machine: machine.clone(),
            nth: number,
            place: Place::new(format!("10.0.{number}.{}", index + 1), "/fake"),
            node: node.clone(),
            usd_per_hour: batch.offer.usd_per_hour.unwrap_or_default(),
            launched: Instant::now(),
            arrival: self.0.script.faults.arrival(index, number),
            forewarning: self.0.script.faults.forewarning(index, number),
            expires: request.ends_in.and_then(|ends_in| Instant::now().checked_add(ends_in)),
            lingers: self.0.script.faults.lingers(index, number),
            explains_after: self.0.script.faults.explains_after(index, number),
            gone: None,
            reason: None,
        };
        let ends = fake.ends();
        state.machines.insert(id.clone(), fake);
        for (at, reason) in ends {
            self.end_at(id.clone(), at, reason);
        }
        if let Some((after, death)) = self.0.script.faults.death(index, number) {
            let inner = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                sleep(after).await;
                let Some(inner) = inner.upgrade() else { return };
                match death {
                    Death::Freezes => node.freeze(),
                    Death::Agent => node.end(),
                    Death::Machine | Death::Preemption => {
                        node.end();
                        if let Some(fake) = lock(&inner.state).machines.get_mut(&id) {
                            let preempted = death == Death::Preemption;
                            fake.end(Instant::now(), if preempted { Reason::Preempted } else { Reason::Failed });
                        }
                    }
                }
            });
        }
        machine
    }

    /// Ends a machine at this time, if it still exists.
    fn end_at(&self, id: MachineId, at: Instant, reason: Reason) {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            let Some(inner) = inner.upgrade() else { return };
            if let Some(fake) = lock(&inner.state).machines.get_mut(&id) {
                fake.node.end();
                fake.end(Instant::now(), reason);
            }
        });
    }

    fn node_of(&self, machine: &MachineId) -> Option<u32> {
        lock(&self.0.state).machines.get(machine).map(|fake| fake.machine.number.0)
    }
}

/// Waits as long as a call takes by its script, and returns its outcome.
async fn take(turn: Turn, what: &str) -> Result<()> {
    match turn {
        Turn::Works(time) => {
            sleep(time).await;
            Ok(())
        }
        Turn::FailsForNow => Err(Error::new(ErrorKind::Provider, format!("could not {what} now")).temporary()),
        Turn::Fails => Err(Error::new(ErrorKind::Provider, format!("could not {what}"))),
        Turn::Never | Turn::Late(_) => std::future::pending().await,
    }
}
