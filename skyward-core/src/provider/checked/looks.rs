//! Inspections of single machines, combined into one call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::{sleep, timeout};

use super::lock;
use super::pace::Pace;
use super::timing::INSPECTION;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MachineId;
use crate::provider::timing::GATHER;
use crate::provider::{MachineReport, MachineState, Provider};

/// Combines inspections of machines at nearly the same moment into one call of the provider: many
/// machines start together, and many connections end together.
#[derive(Debug, Default)]
pub(super) struct Looks {
    open: Mutex<Option<Look>>,
}

/// A call that is about to be made.
#[derive(Debug)]
struct Look {
    /// The machines; none once the call was made.
    machines: Arc<Mutex<Option<Vec<MachineId>>>>,
    /// The answer for all waiters. It is dropped when nobody waits: a future that is not polled may
    /// hold a lock that others wait for.
    answer: WeakShared<Answer>,
}

type Answer = BoxFuture<'static, Arc<Result<Reports>>>;
type Reports = BTreeMap<MachineId, MachineReport>;

impl Looks {
    /// Inspects one machine alone, at once, where the provider has no pace.
    ///
    /// # Errors
    ///
    /// As [`report`](Self::report).
    pub(super) async fn now(
        &self,
        provider: &Arc<dyn Provider>,
        pace: &Pace,
        machine: &MachineId,
    ) -> Result<MachineReport> {
        if !provider.capabilities().pace.is_zero() {
            return self.report(provider, pace, machine).await;
        }
        ask(provider.as_ref(), pace, || vec![machine.clone()])
            .await
            .map(|mut reports| reports.remove(machine).unwrap_or_else(unknown))
    }

    /// Inspects a machine, together with others that are inspected at the same moment, or while the
    /// call waits for its turn.
    ///
    /// # Errors
    ///
    /// The provider cannot be asked, temporarily or at all, or returns a wrong number of reports.
    ///
    /// # Cancel safety
    ///
    /// Others that inspect at the same moment still get their answer.
    pub(super) async fn report(
        &self,
        provider: &Arc<dyn Provider>,
        pace: &Pace,
        machine: &MachineId,
    ) -> Result<MachineReport> {
        let answer = {
            let mut open = lock(&self.open);
            match open.as_ref().and_then(|look| look.join(machine)) {
                Some(answer) => answer,
                None => {
                    let (look, answer) = Look::begin(Arc::clone(provider), pace.clone(), machine.clone());
                    *open = look;
                    answer
                }
            }
        };
        match answer.await.as_ref() {
            Ok(reports) => Ok(reports.get(machine).cloned().unwrap_or_else(unknown)),
            Err(error) => Err(error.clone()),
        }
    }
}

impl Look {
    fn begin(provider: Arc<dyn Provider>, pace: Pace, machine: MachineId) -> (Option<Self>, Shared<Answer>) {
        let machines = Arc::new(Mutex::new(Some(vec![machine])));
        let asked = Arc::clone(&machines);
        let answer = async move {
            sleep(GATHER).await;
            let machines = || lock(&asked).take().unwrap_or_default();
            Arc::new(ask(provider.as_ref(), &pace, machines).await)
        };
        let answer = answer.boxed().shared();
        (answer.downgrade().map(|answer| Self { machines, answer }), answer)
    }

    /// Adds a machine, if somebody waits for the answer and the call was not made yet.
    fn join(&self, machine: &MachineId) -> Option<Shared<Answer>> {
        let answer = self.answer.upgrade()?;
        lock(&self.machines).as_mut()?.push(machine.clone());
        Some(answer)
    }
}

fn unknown() -> MachineReport {
    MachineReport::new(MachineState::Unknown)
}

/// Inspects the machines that there are when the call has its turn.
async fn ask(provider: &dyn Provider, pace: &Pace, machines: impl FnOnce() -> Vec<MachineId>) -> Result<Reports> {
    let name = provider.name();
    let most = INSPECTION + provider.capabilities().pace.min(INSPECTION);
    let answer = async {
        pace.turn(provider, INSPECT).await?;
        let machines = machines();
        let reports = provider.inspect(&machines).await?;
        let (asked, returned) = (machines.len(), reports.len());
        if asked == returned {
            return Ok(machines.into_iter().zip(reports).collect());
        }
        let what = format!(
            "the provider {name} broke its contract: `inspect` of {asked} machines returned {returned} reports"
        );
        Err(Error::new(ErrorKind::Provider, what))
    };
    timeout(most, answer).await.unwrap_or_else(|_| {
        let what = format!("the provider {name} did not report the state of its machines within {most:?}");
        Err(Error::new(ErrorKind::Timeout, what).temporary())
    })
}

/// What `inspect` does, in messages; the name of the line in which its calls wait for their turns.
pub(super) const INSPECT: &str = "report the state of its machines";
