//! A pool for the check of one clause.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::service::Service;
use super::timing::{CALL, LASTING_LEASE, LONGEST_LOOK_PAUSE, RECORD_PRECISION};
use crate::error::Result as Answer;
use crate::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use crate::provider::{
    Arriving, Checked, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Place, PoolRecord,
    PoolRequest, Provider, Requirements,
};
use crate::remote::Remote;
use crate::spec::Limits;
use crate::testkit::Violation;
use crate::testkit::timing::LOOK_PAUSE;

/// A pool for the check of one clause.
pub(super) struct Trial<'a> {
    clause: &'static str,
    provider: &'a dyn Provider,
    /// The same provider, wrapped as a pool wraps it.
    pub(super) checked: Checked,
    pub(super) pool: PoolId,
    /// The machines that `launch` has returned and that are not known to be gone. `list` may not
    /// have all of them yet.
    launched: Mutex<Vec<MachineId>>,
}

/// Checks a clause, and ends everything that was started for it.
pub(super) async fn trial<'a, P, F>(clause: &'static str, provider: &'a P, check: F) -> Result<(), Violation>
where
    P: Provider + Clone,
    F: AsyncFnOnce(&Trial<'a>) -> Result<(), Violation>,
{
    let checked = Checked::new(Arc::new(provider.clone())).deadline(Limits::default().start);
    let trial = Trial { clause, provider, checked, pool: PoolId::random(), launched: Mutex::default() };
    let checked = check(&trial).await;
    if checked.is_err() {
        // What the clause has started may not be listed yet.
        sleep(trial.settles_in()).await;
    }
    let ended = trial.end().await;
    // A failed end often has the same cause as the violation, so the violation comes first.
    checked.and(ended)
}

impl Trial<'_> {
    pub(super) fn prepared(&self) -> PoolRequest {
        PoolRequest::new(self.pool.clone(), LASTING_LEASE).owner(OWNER)
    }

    /// A batch of machines with these numbers, of the cheapest offer.
    pub(super) async fn batch(&self, numbers: &[u32]) -> Result<LaunchBatch, Violation> {
        self.ask("prepare", self.provider.prepare(&self.prepared())).await?;
        let offers = self.ask("offers", self.provider.offers(&Requirements::default())).await?;
        let price = |offer: &Offer| offer.usd_per_hour.unwrap_or(f64::MAX);
        let offer = offers.into_iter().min_by(|a, b| price(a).total_cmp(&price(b)));
        let offer = offer.ok_or_else(|| Violation::new(self.clause, "the provider offers nothing to launch"))?;
        Ok(self.batch_of(&offer, numbers))
    }

    /// A batch of machines with these numbers, of this offer.
    pub(super) fn batch_of(&self, offer: &Offer, numbers: &[u32]) -> LaunchBatch {
        let request = |number: &u32| {
            let number = MachineNumber(*number);
            LaunchRequest::new(LaunchId::of(&self.pool, number, Attempt(1)), self.pool.clone(), number, LASTING_LEASE)
                .owner(OWNER)
        };
        LaunchBatch::new(offer.clone(), numbers.iter().map(request).collect())
    }

    pub(super) fn provider(&self) -> &dyn Provider {
        self.provider
    }

    /// How long it can take, as the provider says, until `list` shows what was launched.
    pub(super) fn settles_in(&self) -> Duration {
        self.provider.capabilities().settles_in
    }

    pub(super) async fn launch(&self, number: u32) -> Result<Machine, Violation> {
        let batch = self.batch(&[number]).await?;
        self.launch_batch("launch", &batch).await.map(|mut machines| machines.remove(0))
    }

    /// Launches all machines of a batch.
    pub(super) async fn launch_batch(&self, what: &str, batch: &LaunchBatch) -> Result<Vec<Machine>, Violation> {
        self.launch_by(what, self.provider, batch).await
    }

    /// Launches all machines of a batch with another value of the provider.
    pub(super) async fn launch_by(
        &self,
        what: &str,
        provider: &dyn Provider,
        batch: &LaunchBatch,
    ) -> Result<Vec<Machine>, Violation> {
        let launched = self.ask(what, async { Ok(provider.launch(batch).await) }).await?;
        let (asked, told) = (batch.requests.len(), launched.len());
        self.require(asked == told, || format!("`{what}` of {asked} machines returned {told} answers"))?;
        let failed = |error| Violation::new(self.clause, format!("`{what}` failed: {error:#}"));
        self.note(launched.iter().flatten());
        launched.into_iter().map(|machine| machine.map_err(failed)).collect()
    }

    /// Remembers machines, so that the end of the trial ends them, listed or not.
    pub(super) fn note<'m>(&self, machines: impl IntoIterator<Item = &'m Machine>) {
        self.launched().extend(machines.into_iter().map(|machine| machine.id.clone()));
    }

    fn launched(&self) -> MutexGuard<'_, Vec<MachineId>> {
        self.launched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the machine runs, and returns its place.
    pub(super) async fn there(&self, machine: &Machine) -> Result<Place, Violation> {
        let there =
            self.checked.until_there(&machine.id, Arriving { queue: CALL, pause: LONGEST_LOOK_PAUSE }, |_| ()).await;
        let there = there.map(|(place, _)| place);
        there.map_err(|error| Violation::new(self.clause, format!("the machine never ran: {error:#}")))
    }

    /// Connects to the machine as a pool does: retries while the machine may still be starting,
    /// until the provider reports its end.
    pub(super) async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>, Violation> {
        let place = self.there(machine).await?;
        let reached = self.checked.connect(machine, &place).await;
        reached.map_err(|error| Violation::new(self.clause, format!("`connect` failed: {error:#}")))
    }

    /// The record of the pool that this value of the provider lists.
    pub(super) async fn record(&self, provider: &dyn Provider) -> Result<Option<PoolRecord>, Violation> {
        let pools = self.ask("pools", provider.pools()).await?;
        let mut of_pool = pools.into_iter().filter(|record| record.pool == self.pool);
        let (first, second) = (of_pool.next(), of_pool.next());
        self.require(second.is_none(), || format!("`pools` lists one pool as {first:?} and {second:?}"))?;
        Ok(first)
    }

    pub(super) fn violation(&self, found: impl Into<String>) -> Violation {
        Violation::new(self.clause, found)
    }

    pub(super) async fn list(&self) -> Result<Vec<Machine>, Violation> {
        self.ask("list", self.provider.list(&self.pool)).await
    }

    /// Lists the pool with this value of the provider until the list is right. The last call, whose
    /// list is returned as it is, begins when the time in which the provider's lists settle is over.
    pub(super) async fn listed(
        &self,
        what: &str,
        provider: &dyn Provider,
        right: impl Fn(&[Machine]) -> bool,
    ) -> Result<Vec<Machine>, Violation> {
        let end = Instant::now() + self.settles_in();
        let mut pause = LOOK_PAUSE;
        loop {
            let asked = Instant::now();
            let listed = self.ask(what, provider.list(&self.pool)).await?;
            if right(&listed) || asked >= end {
                return Ok(listed);
            }
            sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 2).min(LONGEST_LOOK_PAUSE);
        }
    }

    pub(super) async fn terminate(&self, machine: &MachineId) -> Result<(), Violation> {
        self.end_one("terminate", self.provider, machine).await
    }

    /// Ends one machine, with this or another value of the provider.
    pub(super) async fn end_one(
        &self,
        what: &str,
        provider: &dyn Provider,
        machine: &MachineId,
    ) -> Result<(), Violation> {
        let ended = self.ask(what, async { Ok(provider.terminate(std::slice::from_ref(machine)).await) }).await?;
        self.require(ended.len() == 1, || format!("`{what}` of one machine returned {} answers", ended.len()))?;
        let failed = ended.into_iter().find_map(Result::err);
        self.require(failed.is_none(), || {
            format!("`{what}` failed: {}", failed.map_or(String::new(), |error| format!("{error:#}")))
        })
    }

    pub(super) async fn report(&self, machine: &MachineId) -> Result<MachineReport, Violation> {
        let reports = self.ask("inspect", self.provider.inspect(std::slice::from_ref(machine))).await?;
        let report = reports.into_iter().next();
        report.ok_or_else(|| Violation::new(self.clause, "`inspect` of one machine returned no report"))
    }

    /// Requires that a machine lived for a time between these two, if its report says how long.
    pub(super) fn lived(
        &self,
        machine: &MachineId,
        report: &MachineReport,
        [least, most]: [Duration; 2],
    ) -> Result<(), Violation> {
        let is_true = |lived| lived + RECORD_PRECISION >= least && lived <= most + RECORD_PRECISION;
        self.require(report.lived.is_none_or(is_true), || {
            format!(
                "the machine {machine} lived for at least {least:?} and at most {most:?}, and is {report}, having \
                 lived for {:?}",
                report.lived.unwrap_or_default()
            )
        })
    }

    /// Waits until a terminated machine is reported as gone.
    pub(super) async fn gone(&self, machine: &MachineId) -> Result<(), Violation> {
        let end = Instant::now() + CALL;
        let mut pause = LOOK_PAUSE;
        loop {
            let report = self.report(machine).await?;
            if report.state == MachineState::Gone {
                self.launched().retain(|launched| launched != machine);
                return Ok(());
            }
            self.require(report.state.is_over() || report.state == MachineState::Unknown, || {
                format!("the machine {machine} was terminated and is {report}")
            })?;
            self.require(Instant::now() + pause < end, || format!("the machine {machine} is {report} after {CALL:?}"))?;
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK_PAUSE);
        }
    }

    /// Requires that nothing of the pool exists, as the service itself counts it, once everything
    /// listed has ended and the pool is torn down.
    pub(super) async fn nothing_left(&self, service: &dyn Service, done: &str) -> Result<(), Violation> {
        nothing_left(self.clause, service, &self.pool, self.settles_in(), done).await
    }

    pub(super) async fn ask<T>(&self, what: &str, call: impl Future<Output = Answer<T>>) -> Result<T, Violation> {
        ask(self.clause, what, call).await
    }

    pub(super) fn require(&self, holds: bool, found: impl FnOnce() -> String) -> Result<(), Violation> {
        require(self.clause, holds, found)
    }

    async fn end(&self) -> Result<(), Violation> {
        self.empty().await?;
        self.ask("teardown", self.provider.teardown(&self.pool)).await
    }

    /// Ends all machines of the pool, and waits until they are gone.
    pub(super) async fn empty(&self) -> Result<(), Violation> {
        let mut left: Vec<MachineId> = self.list().await?.into_iter().map(|machine| machine.id).collect();
        let launched = self.launched().clone();
        let hidden: Vec<MachineId> = launched.into_iter().filter(|machine| !left.contains(machine)).collect();
        if !hidden.is_empty() {
            let reports = self.ask("inspect", self.provider.inspect(&hidden)).await?;
            let lives = hidden.into_iter().zip(reports).filter(|(_, report)| report.state != MachineState::Gone);
            left.extend(lives.map(|(machine, _)| machine));
        }
        for machine in left {
            self.terminate(&machine).await?;
            self.gone(&machine).await?;
        }
        Ok(())
    }
}

/// Requires that nothing of a pool exists within this time, as the service itself counts it.
pub(super) async fn nothing_left(
    clause: &'static str,
    service: &dyn Service,
    pool: &PoolId,
    settles_in: Duration,
    done: &str,
) -> Result<(), Violation> {
    let end = Instant::now() + settles_in;
    loop {
        let asked = Instant::now();
        let left = service.leftovers(pool).await.unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        require(clause, asked < end, || {
            format!(
                "{done}, the pool {pool} was torn down, and nothing of it may exist: the service still has {left:?}"
            )
        })?;
        sleep(LONGEST_LOOK_PAUSE.min(end.saturating_duration_since(Instant::now()))).await;
    }
}

pub(in crate::testkit) fn require(
    clause: &'static str,
    holds: bool,
    found: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(clause, found())) }
}

/// Awaits an answer, which must come in time and be no error.
pub(in crate::testkit) async fn ask<T>(
    clause: &'static str,
    what: &str,
    call: impl Future<Output = Answer<T>>,
) -> Result<T, Violation> {
    match timeout(CALL, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Violation::new(clause, format!("`{what}` failed: {error:#}"))),
        Err(_) => Err(Violation::new(clause, format!("`{what}` was not done after {CALL:?}"))),
    }
}

/// The owner of the pools.
pub(super) const OWNER: &str = "ada at a workstation";
/// How often a clause looks for something that must not appear.
pub(super) const LOOKS: u32 = 10;
