//! Ends what a pool started, and confirms that it is gone. May run more than once, and without anything having finished.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::ledger::{Ledger, PoolLedger};
use super::node::Node;
use super::shared::Shared;
use super::sizing::MachineNumber;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{LaunchId, MachineId, PoolId};
use crate::provider::{Machine, MachineStatus, Provider};

/// What a pool has to end. Clones share one list of machines.
#[derive(Debug, Clone)]
pub(crate) struct Cleanup {
    provider: Arc<dyn Provider>,
    pool: PoolId,
    machines: Arc<Mutex<Vec<Machine>>>,
    prepared: Arc<Mutex<bool>>,
    /// None where there is nothing that another client could have to end.
    ledger: Option<PoolLedger>,
}

impl Cleanup {
    pub(crate) fn new(provider: Arc<dyn Provider>, pool: PoolId) -> Self {
        let ledger = provider.outlives_client().then(PoolLedger::default);
        Self { provider, pool, machines: Arc::default(), prepared: Arc::default(), ledger }
    }

    /// Machines that another client left. Its ledger is not this one's to write.
    pub(crate) fn of_orphan(provider: Arc<dyn Provider>, pool: PoolId, machines: Vec<Machine>) -> Self {
        Self { machines: Arc::new(Mutex::new(machines)), ledger: None, ..Self::new(provider, pool) }
    }

    /// From now on there may be something at the provider; on record first, so that another client can end it if this one cannot.
    pub(crate) async fn arm(&self) -> Result<()> {
        let Some(pool_ledger) = &self.ledger else {
            *lock(&self.prepared) = true;
            return Ok(());
        };
        let ledger = Ledger::of_user()?;
        *lock(&self.prepared) = true;
        let opened = pool_ledger.open(ledger, &self.pool, self.provider.as_ref()).await;
        if opened.is_err() {
            *lock(&self.prepared) = false;
        }
        opened
    }

    /// Machines are going to be launched.
    pub(crate) async fn intend(&self, launches: impl Iterator<Item = (LaunchId, MachineNumber)>) -> Result<()> {
        match &self.ledger {
            Some(ledger) => ledger.intend(launches.map(|(launch, number)| (launch, number.0)).collect()).await,
            None => Ok(()),
        }
    }

    /// Whether there is nothing left to end.
    pub(crate) fn is_done(&self) -> bool {
        !*lock(&self.prepared)
    }

    /// A machine was launched.
    pub(crate) async fn add(&self, machine: Machine) -> Result<()> {
        lock(&self.machines).push(machine.clone());
        match &self.ledger {
            Some(ledger) => ledger.fact(machine).await,
            None => Ok(()),
        }
    }

    /// Ends workers, agents and machines within the deadline.
    pub(crate) async fn end(&self, shared: &Arc<Shared>, nodes: Vec<Arc<Node>>, deadline: Duration) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        let end = Instant::now() + deadline;
        // The orderly way gets half of the time: what does not end by itself is ended with its machine.
        let orderly = tokio::time::timeout(deadline / 2, self.end_agents(shared, &nodes, deadline));
        if orderly.await.is_err() {
            tracing::warn!(pool = %self.pool, "workers did not end in time; their machines are ended");
        }
        drop(nodes);
        let gone = |machine: &Machine| {
            shared.emit(PoolEvent::NodeGone { node: machine.node, machine: machine.id.clone() });
        };
        self.end_all(end, gone).await
    }

    /// Ends the machines, and forgets the pool when they are gone.
    async fn end_all(&self, end: Instant, gone: impl Fn(&Machine)) -> Result<()> {
        self.end_machines(end, gone).await?;
        if let Some(ledger) = &self.ledger {
            ledger.forget().await;
        }
        *lock(&self.prepared) = false;
        Ok(())
    }

    /// Ends the pool's machines, waits until the provider confirms that they are gone, and removes what they shared.
    pub(crate) async fn end_machines(&self, end: Instant, gone: impl Fn(&Machine)) -> Result<()> {
        self.end_some(end, None, gone).await
    }

    /// Ends what there is of the machines of one number, and takes it off the record when it is confirmed gone.
    pub(crate) async fn retire(&self, number: MachineNumber, end: Instant, gone: impl Fn(&Machine)) -> Result<()> {
        let ended = Mutex::new(Vec::new());
        let note = |machine: &Machine| {
            lock(&ended).push(machine.id.clone());
            gone(machine);
        };
        let retired = self.end_some(end, Some(number), note).await;
        if let Some(ledger) = &self.ledger
            && let Err(error) = ledger.gone(ended.into_inner().unwrap_or_else(PoisonError::into_inner)).await
        {
            // What is gone and still on record is ended once more, which does no harm.
            tracing::warn!(pool = %self.pool, %error, "a machine that is gone stays in the ledger");
        }
        retired
    }

    async fn end_some(&self, end: Instant, only: Option<MachineNumber>, gone: impl Fn(&Machine)) -> Result<()> {
        let mut pause = Duration::from_millis(2);
        loop {
            let now = Instant::now();
            // A provider that cannot list all does not keep what is known from being ended.
            let (mut machines, unlisted) = self.live().await;
            let round = async {
                machines.retain(|machine| only.is_none_or(|number| machine.node == number.0));
                let ended = join_all(machines.iter().map(|machine| self.provider.terminate(&machine.id)));
                // One that cannot be reached does not keep the others from being seen to be gone.
                let ended =
                    tokio::time::timeout_at(now + end.saturating_duration_since(now) / 2 + LEAST / 2, ended).await;
                let failed = ended.unwrap_or_default().into_iter().find_map(Result::err);
                let ids: Vec<MachineId> = machines.iter().map(|machine| machine.id.clone()).collect();
                let states = self.provider.inspect(&ids).await?;
                let left: Vec<Machine> = machines
                    .into_iter()
                    .zip(states)
                    .filter_map(|(machine, state)| match state {
                        MachineStatus::Gone => {
                            gone(&machine);
                            lock(&self.machines).retain(|other| other.id != machine.id);
                            None
                        }
                        _ => Some(machine),
                    })
                    .collect();
                if left.is_empty() {
                    if let Some(error) = unlisted {
                        return Err(error);
                    }
                    return match only {
                        None => self.provider.teardown(&self.pool).await,
                        Some(_) => Ok(()),
                    };
                }
                let names: Vec<String> = left.iter().map(|machine| machine.id.to_string()).collect();
                let error = Error::new(
                    ErrorKind::Provider,
                    format!("{} of the pool's machines are not confirmed gone: {}", left.len(), names.join(", ")),
                )
                .with_context("provider", self.provider.name())
                .with_hint("their lease ends them; look at the provider's own list until it does");
                Err(match failed {
                    Some(cause) => error.with_source(cause),
                    None => error,
                })
            };
            let result = tokio::time::timeout_at(end.max(Instant::now() + LEAST), round).await;
            let error = match result {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => Error::new(
                    ErrorKind::Timeout,
                    "the provider did not confirm in time that the pool's machines are gone",
                )
                .with_context("provider", self.provider.name()),
            };
            if Instant::now() + pause >= end {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// What was launched, and what the provider knows beside it: a launch whose answer never came.
    async fn live(&self) -> (Vec<Machine>, Option<Error>) {
        let mut machines = lock(&self.machines).clone();
        let listed = match self.provider.list(&self.pool).await {
            Ok(listed) => listed,
            Err(error) => return (machines, Some(error)),
        };
        for machine in listed {
            if !machines.iter().any(|other| other.id == machine.id) {
                machines.push(machine);
            }
        }
        (machines, None)
    }

    async fn end_agents(&self, shared: &Arc<Shared>, nodes: &[Arc<Node>], deadline: Duration) {
        let (generation, per_node) = {
            let state = shared.lock();
            (state.generation, state.workers_per_node)
        };
        let grace = shared.limits.grace.min(deadline / 4);
        join_all(nodes.iter().map(|node| async move {
            let workers = (0..per_node).collect();
            if let Err(error) = node.agent.stop(generation, workers, grace, deadline).await {
                tracing::warn!(pool = %self.pool, node = node.index.0, %error, "the workers could not be stopped");
            }
        }))
        .await;
        // Output that does not arrive soon is not worth a machine that runs on.
        let _ = tokio::time::timeout(OUTPUT.min(deadline / 4), shared.output_ended()).await;
        join_all(nodes.iter().map(|node| async move {
            if let Err(error) = node.agent.shutdown(Duration::ZERO, deadline).await {
                tracing::warn!(pool = %self.pool, node = node.index.0, %error, "the agent did not say goodbye");
            }
        }))
        .await;
    }
}

/// Ends the machines from a thread of its own, and the waits of callers, when the pool's driver was dropped in the middle: its runtime ended.
#[derive(Debug)]
pub(crate) struct LastResort {
    pub(crate) cleanup: Cleanup,
    pub(crate) shared: Arc<Shared>,
}

impl Drop for LastResort {
    fn drop(&mut self) {
        let error =
            Error::new(ErrorKind::Closed, "the runtime in which the pool was started has ended, and the pool with it");
        self.shared.close_queue();
        self.shared.act(|state, _| state.scheduler.fail(error));
        if self.cleanup.is_done() {
            return;
        }
        let cleanup = self.cleanup.clone();
        // Without a thread or a runtime there is still the lease.
        let _ = std::thread::Builder::new().name("skyward-cleanup".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let _ = runtime.block_on(cleanup.end_all(Instant::now() + LAST_RESORT, |_| ()));
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ending the machines gets even when the deadline has passed already.
const LEAST: Duration = Duration::from_secs(2);
const OUTPUT: Duration = Duration::from_secs(5);
const LAST_RESORT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::super::reap::tests::Cloud;
    use super::*;

    #[tokio::test]
    async fn what_ends_with_the_client_is_not_put_into_the_ledger() {
        for outlives in [true, false] {
            let mut provider = Cloud::default();
            provider.outlives = outlives;
            let cleanup = Cleanup::new(Arc::new(provider), PoolId::random());
            assert_eq!(cleanup.ledger.is_some(), outlives);
            if !outlives {
                cleanup.arm().await.unwrap();
                assert!(!cleanup.is_done());
                cleanup.end_all(Instant::now() + LEAST, |_| ()).await.unwrap();
                assert!(cleanup.is_done());
            }
        }
    }
}
