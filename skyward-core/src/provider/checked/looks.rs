//! Questions about single machines, asked together.

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

/// Asks a provider once about all machines that are asked about at nearly the same moment: many machines start together, and many connections end together.
#[derive(Debug, Default)]
pub(super) struct Looks {
    open: Mutex<Option<Look>>,
}

/// A question that is about to be asked.
#[derive(Debug)]
struct Look {
    /// About whom; none once it was asked.
    machines: Arc<Mutex<Option<Vec<MachineId>>>>,
    /// Of those who wait for it. When nobody does, it is dropped: what is not polled may hold a lock that others wait for.
    answer: WeakShared<Answer>,
}

type Answer = BoxFuture<'static, Arc<Result<Reports>>>;
type Reports = BTreeMap<MachineId, MachineReport>;

impl Looks {
    /// What the provider reports of a machine, asked by itself and at once.
    ///
    /// # Errors
    ///
    /// As [`report`](Self::report).
    pub(super) async fn now(provider: &Arc<dyn Provider>, machine: &MachineId) -> Result<MachineReport> {
        ask(provider.as_ref(), vec![machine.clone()])
            .await
            .map(|mut reports| reports.remove(machine).unwrap_or_else(unknown))
    }

    /// What the provider reports of a machine.
    ///
    /// # Errors
    ///
    /// The provider cannot be asked, temporarily or at all, or does not answer for each machine.
    ///
    /// # Cancel safety
    ///
    /// Others who asked at the same moment get their answer.
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

    /// Adds a machine, if somebody waits for the answer and the question was not asked yet.
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
            let (asked, told) = (machines.len(), reports.len());
            let what =
                format!("the provider {name} broke its contract: `inspect` of {asked} machines gave {told} reports");
            Err(Error::new(ErrorKind::Provider, what))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            let what = format!("the provider {name} did not report the state of its machines within {ANSWER:?}");
            Err(Error::new(ErrorKind::Timeout, what).temporary())
        }
    }
}

/// How long others have to join a question.
const GATHER: Duration = Duration::from_millis(10);
/// What a provider gets to answer.
const ANSWER: Duration = Duration::from_secs(20);
