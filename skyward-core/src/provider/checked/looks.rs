//! Inspections of single machines, combined into one call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::{sleep, timeout};

use super::lock;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MachineId;
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
    /// Inspects one machine alone, at once.
    ///
    /// # Errors
    ///
    /// As [`report`](Self::report).
    pub(super) async fn now(provider: &Arc<dyn Provider>, machine: &MachineId) -> Result<MachineReport> {
        ask(provider.as_ref(), vec![machine.clone()])
            .await
            .map(|mut reports| reports.remove(machine).unwrap_or_else(unknown))
    }

    /// Inspects a machine, together with others that are inspected at the same moment.
    ///
    /// # Errors
    ///
    /// The provider cannot be asked, temporarily or at all, or returns a wrong number of reports.
    ///
    /// # Cancel safety
    ///
    /// Others that inspect at the same moment still get their answer.
    pub(super) async fn report(&self, provider: &Arc<dyn Provider>, machine: &MachineId) -> Result<MachineReport> {
        let answer = {
            let mut open = lock(&self.open);
            match open.as_ref().and_then(|look| look.join(machine)) {
                Some(answer) => answer,
                None => {
                    let (look, answer) = Look::begin(Arc::clone(provider), machine.clone());
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
    fn begin(provider: Arc<dyn Provider>, machine: MachineId) -> (Option<Self>, Shared<Answer>) {
        let machines = Arc::new(Mutex::new(Some(vec![machine])));
        let asked = Arc::clone(&machines);
        let answer = async move {
            sleep(GATHER).await;
            let machines = lock(&asked).take().unwrap_or_default();
            Arc::new(ask(provider.as_ref(), machines).await)
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

async fn ask(provider: &dyn Provider, machines: Vec<MachineId>) -> Result<Reports> {
    let name = provider.name();
    match timeout(ANSWER, provider.inspect(&machines)).await {
        Ok(Ok(reports)) if reports.len() == machines.len() => Ok(machines.into_iter().zip(reports).collect()),
        Ok(Ok(reports)) => {
            let (asked, returned) = (machines.len(), reports.len());
            let what = format!(
                "the provider {name} broke its contract: `inspect` of {asked} machines returned {returned} reports"
            );
            Err(Error::new(ErrorKind::Provider, what))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            let what = format!("the provider {name} did not report the state of its machines within {ANSWER:?}");
            Err(Error::new(ErrorKind::Timeout, what).temporary())
        }
    }
}

/// How long further machines can join a call.
const GATHER: Duration = Duration::from_millis(10);
/// How long a provider may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
