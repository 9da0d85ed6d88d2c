//! Questions about single machines, asked together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::{sleep, timeout};

use super::lock;
use crate::ids::MachineId;
use crate::provider::{MachineStatus, Provider};

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

type Answer = BoxFuture<'static, Arc<States>>;
type States = BTreeMap<MachineId, MachineStatus>;

impl Looks {
    /// The state of a machine; unknown where the provider cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// Others who asked at the same moment get their answer.
    pub(super) async fn state(&self, provider: &Arc<dyn Provider>, machine: &MachineId) -> MachineStatus {
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
        answer.await.get(machine).copied().unwrap_or(MachineStatus::Unknown)
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

async fn ask(provider: &dyn Provider, machines: Vec<MachineId>) -> States {
    match timeout(ANSWER, provider.inspect(&machines)).await {
        Ok(Ok(states)) if states.len() == machines.len() => machines.into_iter().zip(states).collect(),
        Ok(Ok(_)) => States::new(),
        Ok(Err(error)) => {
            tracing::debug!(provider = provider.name(), %error, "the state of machines is not known");
            States::new()
        }
        Err(_) => {
            tracing::debug!(provider = provider.name(), "the provider did not report the state of machines in time");
            States::new()
        }
    }
}

/// How long others have to join a question.
const GATHER: Duration = Duration::from_millis(10);
/// What a provider gets to answer.
const ANSWER: Duration = Duration::from_secs(60);
