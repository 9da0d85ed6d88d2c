//! A pool for the check of one clause.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::error::Result as Answer;
use crate::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use crate::provider::{
    Arriving, Checked, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Place, PoolRecord,
    PoolRequest, Provider, Requirements,
};
use crate::remote::Remote;
use crate::spec::Limits;
use crate::testkit::Violation;

/// A pool for the check of one clause.
pub(super) struct Trial<'a> {
    clause: &'static str,
    provider: &'a dyn Provider,
    /// The same provider, wrapped as a pool wraps it.
    pub(super) checked: Checked,
    pub(super) pool: PoolId,
}

/// Checks a clause, and ends everything that was started for it.
pub(super) async fn trial<'a, P, F>(clause: &'static str, provider: &'a P, check: F) -> Result<(), Violation>
where
    P: Provider + Clone,
    F: AsyncFnOnce(&Trial<'a>) -> Result<(), Violation>,
{
    let checked = Checked::new(Arc::new(provider.clone())).deadline(Limits::default().start);
    let trial = Trial { clause, provider, checked, pool: PoolId::random() };
    let checked = check(&trial).await;
    let ended = trial.end().await;
    // A failed end often has the same cause as the violation, so the violation comes first.
    checked.and(ended)
}

impl Trial<'_> {
    pub(super) fn prepared(&self) -> PoolRequest {
        PoolRequest::new(self.pool.clone(), LONGEST).owner(OWNER)
    }

    /// A batch of machines with these numbers, of the cheapest offer.
    pub(super) async fn batch(&self, numbers: &[u32]) -> Result<LaunchBatch, Violation> {
        self.ask("prepare", self.provider.prepare(&self.prepared())).await?;
        let offers = self.ask("offers", self.provider.offers(&Requirements::default())).await?;
        let price = |offer: &Offer| offer.usd_per_hour.unwrap_or(f64::MAX);
        let offer = offers.into_iter().min_by(|a, b| price(a).total_cmp(&price(b)));
        let offer = offer.ok_or_else(|| Violation::new(self.clause, "the provider offers nothing to launch"))?;
        let request = |number: &u32| {
            let number = MachineNumber(*number);
            LaunchRequest::new(LaunchId::of(&self.pool, number, Attempt(1)), self.pool.clone(), number, LONGEST)
        };
        Ok(LaunchBatch::new(offer, numbers.iter().map(request).collect()))
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
        launched.into_iter().map(|machine| machine.map_err(failed)).collect()
    }

    /// Waits until the machine runs, and returns its place.
    pub(super) async fn there(&self, machine: &Machine) -> Result<Place, Violation> {
        let there = self.checked.until_there(&machine.id, Arriving { queue: LONGEST, pause: PAUSE }, |_| ()).await;
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

    /// Waits until a terminated machine is reported as gone.
    pub(super) async fn gone(&self, machine: &MachineId) -> Result<(), Violation> {
        let end = Instant::now() + LONGEST;
        let mut pause = BRIEF;
        loop {
            let report = self.report(machine).await?;
            if report.state == MachineState::Gone {
                return Ok(());
            }
            self.require(report.state.is_over() || report.state == MachineState::Unknown, || {
                format!("the machine {machine} was terminated and is {report}")
            })?;
            self.require(Instant::now() + pause < end, || {
                format!("the machine {machine} is {report} after {LONGEST:?}")
            })?;
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE);
        }
    }

    pub(super) async fn ask<T>(&self, what: &str, call: impl Future<Output = Answer<T>>) -> Result<T, Violation> {
        ask(self.clause, what, call).await
    }

    pub(super) fn require(&self, holds: bool, found: impl FnOnce() -> String) -> Result<(), Violation> {
        require(self.clause, holds, found)
    }

    async fn end(&self) -> Result<(), Violation> {
        for machine in self.list().await? {
            self.terminate(&machine.id).await?;
            self.gone(&machine.id).await?;
        }
        self.ask("teardown", self.provider.teardown(&self.pool)).await
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
    match timeout(LONGEST, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Violation::new(clause, format!("`{what}` failed: {error:#}"))),
        Err(_) => Err(Violation::new(clause, format!("`{what}` was not done after {LONGEST:?}"))),
    }
}

/// The owner of the pools.
pub(super) const OWNER: &str = "ada at a workstation";
/// How long any call may take, and how long a machine may take from its end until it is gone.
pub(super) const LONGEST: Duration = Duration::from_secs(600);
pub(super) const PAUSE: Duration = Duration::from_secs(2);
pub(super) const BRIEF: Duration = Duration::from_millis(10);
/// How often a clause looks for something that must not appear.
pub(super) const LOOKS: u32 = 10;
