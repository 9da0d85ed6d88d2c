//! The node's side of the worker protocol in this process: an agent and its workers, over byte
//! streams in memory.

mod agent;
mod connection;
mod fate;
mod frames;
mod run;
mod session;
mod witness;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::worker::Worker;
use crate::testkit::script::Script;
use crate::worker::link::Sender;

pub use self::fate::{Fate, Faultless, Work};
pub(super) use self::frames::{Failure, number, pack, push, read, send};
pub use self::witness::{Calls, Witness};

/// A node: its agent and its workers. Clones are one node.
#[derive(Debug, Clone)]
pub struct FakeNode(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: u32,
    script: Arc<Script>,
    witness: Arc<Witness>,
    state: Mutex<State>,
    /// Whether the node was ever frozen; while frozen, it does nothing.
    froze: AtomicBool,
    /// Wakes the tasks that wait for a change of the node.
    changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether the agent runs.
    agent: bool,
    /// Whether the node is frozen: nothing on it answers, and nothing sends messages.
    frozen: bool,
    /// Whether another machine has taken the node's place.
    succeeded: bool,
    lease: Option<Instant>,
    pub(super) client: Option<Sender>,
    connections: u64,
    /// The most bytes of a frame, once the pool has greeted the agent.
    max_frame_bytes: Option<usize>,
    pids: u32,
    pub(super) workers: BTreeMap<u32, Worker>,
}

impl FakeNode {
    /// A node on which nothing runs yet.
    pub fn new(node: u32, script: Arc<Script>, witness: Arc<Witness>) -> Self {
        Self(Arc::new(Inner {
            node,
            script,
            witness,
            state: Mutex::default(),
            froze: AtomicBool::new(false),
            changed: Notify::new(),
        }))
    }

    /// Starts the agent, which ends by itself when its lease expires.
    pub fn start_agent(&self, lease: Duration) {
        {
            let mut state = lock(&self.0.state);
            state.agent = true;
            state.lease = Some(Instant::now() + lease);
        }
        let node = self.clone();
        tokio::spawn(async move { node.hold_lease().await });
    }

    /// Whether the agent or a worker of the node runs.
    pub fn is_running(&self) -> bool {
        let state = lock(&self.0.state);
        state.agent || state.workers.values().any(|worker| worker.alive)
    }

    /// Ends the agent and all workers at once, as the end of the machine does.
    pub fn end(&self) {
        let mut state = lock(&self.0.state);
        state.agent = false;
        state.frozen = false;
        state.lease = None;
        let client = state.client.take();
        let links = client.into_iter().chain(state.workers.values_mut().filter_map(|worker| {
            worker.alive = false;
            worker.client.take()
        }));
        links.for_each(|link| link.close());
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Another machine was launched for the node: this one must get no more tasks.
    pub fn succeed(&self) {
        lock(&self.0.state).succeeded = true;
    }

    /// From now on nothing on the node answers, and no connection ends: like a machine that is
    /// stopped, or cut off silently.
    pub fn freeze(&self) {
        // A node that has ended must not come back as a frozen one.
        let there = self.is_running();
        lock(&self.0.state).frozen = there;
        self.0.froze.fetch_or(there, Ordering::Relaxed);
    }

    pub(super) fn fate(&self) -> &dyn Fate {
        &*self.0.script.faults
    }

    /// Whether the node was ever frozen.
    pub(super) fn froze(&self) -> bool {
        self.0.froze.load(Ordering::Relaxed)
    }

    /// The index of the node.
    pub(super) fn node(&self) -> u32 {
        self.0.node
    }

    pub(super) fn witness(&self) -> &Witness {
        &self.0.witness
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Wakes the tasks that wait for a change of the node.
    pub(super) fn changed(&self) {
        self.0.changed.notify_waiters();
    }

    /// Ends the node when its lease expires.
    async fn hold_lease(&self) {
        loop {
            let Some(lease) = lock(&self.0.state).lease else { return };
            if lease <= Instant::now() {
                // A frozen node does not end itself either.
                self.until(|state| !state.frozen).await;
                return self.end();
            }
            tokio::select! {
                biased;
                () = sleep_until(lease) => {}
                () = self.until(|state| state.lease != Some(lease)) => {}
            }
        }
    }

    pub(super) async fn until(&self, mut reached: impl FnMut(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if reached(&lock(&self.0.state)) {
                return;
            }
            changed.await;
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
