//! What all parts of a running pool share: the scheduler, the callers that wait, and the links to
//! the workers, behind one lock.
//!
//! A call goes from its caller through the scheduler into the worker's socket without waking
//! another task of the runtime; its answer goes from the reader of the link to the caller. The lock
//! is never held across an await or across a system call that can block.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, Semaphore, mpsc};

use super::after::After;
use super::events::EventBuffer;
use super::lock::Locked;
use super::outbox::Outbox;
use super::poison::Refused;
use super::state::State;
use super::timing::LAST_ANSWERS;
use super::waiters::Waiters;
use super::worker::WorkerRow;
use crate::compute::{CallsStatus, PoolPhase, PoolStatus, WorkerStatus};
use crate::error::{Error, LastWords, WorkerExit};
use crate::event::{Events, PoolEvent};
use crate::ids::{Generation, NodeIndex, PoolId, Rank};
use crate::payload::{Source, TaskOptions, TraceSource};
use crate::pool::command::Command;
use crate::pool::data::DataSets;
use crate::pool::fleet::Verdict;
use crate::pool::fleet::account::Account;
use crate::pool::foreign::foreign;
use crate::pool::metrics::Metrics;
use crate::pool::mover::{Movers, News};
use crate::provider::{Machine, clock};
use crate::spec::{Limits, Secrets};
use crate::storage::Storage;
use crate::worker::link::Sender;
use crate::worker::message::Signal;

pub(crate) struct Shared {
    pub(crate) pool: PoolId,
    pub(crate) limits: Limits,
    /// Whether nodes may have different environments. Then workers make no calls.
    pub(crate) is_mixed: bool,
    /// Options for tasks that do not set their own.
    pub(crate) defaults: TaskOptions,
    /// Secrets, which reach only the environment of the workers.
    pub(crate) secrets: Secrets,
    /// The requirements of the image, for hints.
    pub(crate) requirements: Vec<String>,
    /// The payloads that workers import before they are ready.
    pub(crate) imports: Vec<Arc<Source>>,
    /// The source of the trace context for tasks that do not set their own.
    pub(crate) trace: Option<TraceSource>,
    pub(crate) metrics: Metrics,
    /// The account of the machines' cost.
    pub(crate) account: Arc<Mutex<Account>>,
    /// Notifies that the account has changed.
    pub(crate) spending: Notify,
    state: Mutex<State>,
    pub(crate) refused: Mutex<Refused>,
    pub(crate) events: Arc<EventBuffer>,
    pub(crate) outbox: Outbox,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) next_task: AtomicU64,
    /// Numbers the connections to agents.
    pub(crate) next_connection: AtomicU64,
    commands: mpsc::UnboundedSender<Command>,
    /// Wakes the pool's own task: the scheduler has an earlier deadline than the task sleeps for,
    /// or another thread has left work.
    pub(crate) background: Notify,
    /// Those who wait for another phase of the pool, or until a world that was held takes tasks.
    pub(super) waiters: Waiters,
    /// The connections to the movers of nodes.
    pub(super) movers: Movers,
    /// Where checkpoints are stored, if the pool has a storage.
    pub(crate) storage: Option<Storage>,
    pub(crate) data: DataSets,
    /// Where the news of movers go, if workers may have requests.
    pub(crate) news: Option<mpsc::UnboundedSender<News>>,
}

/// The settings with which a pool starts.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) is_mixed: bool,
    pub(crate) defaults: TaskOptions,
    pub(crate) secrets: Secrets,
    pub(crate) requirements: Vec<String>,
    pub(crate) imports: Vec<Arc<Source>>,
    pub(crate) trace: Option<TraceSource>,
    pub(crate) metrics: Metrics,
    pub(crate) account: Arc<Mutex<Account>>,
    pub(crate) events: Arc<EventBuffer>,
    pub(crate) storage: Option<Storage>,
    pub(crate) data: DataSets,
    pub(crate) news: Option<mpsc::UnboundedSender<News>>,
}

impl Shared {
    pub(crate) fn new(pool: PoolId, settings: Settings, commands: mpsc::UnboundedSender<Command>) -> Arc<Self> {
        let Settings {
            limits,
            is_mixed,
            defaults,
            secrets,
            requirements,
            imports,
            trace,
            metrics,
            account,
            events,
            storage,
            data,
            news,
        } = settings;
        Arc::new(Self {
            pool,
            state: Mutex::new(State::new(limits)),
            refused: Mutex::default(),
            is_mixed,
            defaults,
            secrets,
            requirements,
            imports,
            trace,
            metrics,
            account,
            spending: Notify::new(),
            events,
            outbox: Outbox::default(),
            room: Arc::new(Semaphore::new(limits.max_queued.min(Semaphore::MAX_PERMITS))),
            next_task: AtomicU64::new(1),
            next_connection: AtomicU64::new(1),
            limits,
            commands,
            background: Notify::new(),
            waiters: Waiters::default(),
            movers: Movers::default(),
            storage,
            data,
            news,
        })
    }

    /// Changes the state, carries out the actions of the scheduler, and delivers reports: a slice
    /// of each, because the caller may be any thread, and most of the work may be that of others.
    /// The pool's own task does the rest.
    pub(crate) fn act<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let (result, more) = self.act_once(change);
        if more {
            self.leave_rest();
        }
        result
    }

    /// The same as [`act`](Self::act), except that this waits until all work is done. Other tasks
    /// of the runtime run between the slices.
    pub(crate) async fn act_in_slices<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let (result, mut more) = self.act_once(change);
        while more {
            // Without a driver, this task may end at any await point.
            if self.is_driven() {
                tokio::task::yield_now().await;
            }
            more = self.act_once(|_, _| ()).1;
        }
        result
    }

    /// Leaves work to the pool's own task. That task ends with the driver: without a driver the
    /// work is done here. The order matters: whoever leaves work looks for the driver after that,
    /// and whoever ends the driver looks for work after that.
    pub(super) fn leave_rest(&self) {
        if self.is_driven() {
            return self.background.notify_one();
        }
        while self.act_once(|_, _| ()).1 {}
    }

    fn is_driven(&self) -> bool {
        self.lock().life.is_driven()
    }

    /// Makes a change, and does a slice of the scheduler's work and of the reports. Returns whether
    /// more is left.
    fn act_once<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> (T, bool) {
        // The runtime's clock, which tests can pause.
        let now = tokio::time::Instant::now().into_std();
        let mut after = After::default();
        let changed = catch_unwind(AssertUnwindSafe(|| {
            let mut state = self.lock();
            let held = state.scheduler.is_held();
            let result = change(&mut state, now);
            let more = self.perform(&mut state, now, &mut after);
            state.emit_held(now);
            state.emit_calls(now);
            let released = held && !state.scheduler.is_held();
            let timeout = state.next_timeout();
            let earlier = timeout.is_some_and(|at| state.timeout.is_none_or(|armed| at < armed));
            state.timeout = timeout;
            let State { effects, tasks, .. } = &mut *state;
            self.outbox.put(effects.drain(|| tasks.numbers()));
            (result, more, earlier, released)
        }));
        let (result, more, earlier, released) = changed.unwrap_or_else(|panic| self.on_interrupted(panic));
        if released {
            self.waiters.wake();
        }
        for sender in &after.flush {
            sender.flush();
        }
        let undelivered = self.deliver();
        if earlier {
            self.background.notify_one();
        }
        (result, more || undelivered)
    }

    /// The payloads that are refused.
    pub(crate) fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn events(&self) -> Events {
        // In this order, so that a reader that subscribes before the pool is closed also receives
        // the last event.
        let events = self.events.subscribe();
        match self.lock().life.phase() {
            PoolPhase::Closed => Events::new(futures_util::stream::empty()),
            _ => events,
        }
    }

    /// Returns which node each machine is now. A machine that is no node of the pool has its number
    /// instead.
    pub(crate) fn node_of(&self) -> impl Fn(&Machine) -> NodeIndex + use<> {
        let state = self.lock();
        let nodes: BTreeMap<_, _> = state.nodes.iter().map(|(node, row)| (row.machine.id.clone(), node)).collect();
        move |machine| nodes.get(&machine.id).copied().unwrap_or(NodeIndex(machine.number.0))
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let state = self.lock();
        let workers = state.workers.iter().map(|(rank, row)| WorkerStatus {
            rank,
            node: state.scheduler.node_of(rank),
            ready: state.scheduler.is_ready(rank),
            pid: row.process.pid(),
            task: state.scheduler.sent(rank).next(),
            helps: state.scheduler.helped(rank).collect(),
        });
        let mut status = PoolStatus::new(self.pool.clone(), state.life.phase());
        status.failure = state.life.failure().cloned();
        status.workers = workers.collect();
        status.generation = state.rendezvous.generation();
        status.nodes = state.node_statuses().collect();
        status.waiting_for = state.waiting_for();
        status.spent = self.account().spent(clock::now());
        status.queued = state.scheduler.queued();
        status.running = status.workers.iter().filter(|worker| worker.task.is_some()).count();
        status.calls = CallsStatus {
            waiting: state.tasks.numbers().calls_waiting,
            running: state.tasks.numbers().calls_running,
            helped: status.workers.iter().map(|worker| worker.helps.len()).sum(),
        };
        status
    }

    /// Whether the budget still covers the machines; nobody renews a lease after that.
    pub(crate) fn is_paid(&self) -> bool {
        !self.account().is_spent(clock::now())
    }

    /// The account of the machines' cost.
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked::of(&self.state)
    }

    /// Sends the driver a command. A driver that is gone takes no commands: see
    /// [`Life`](super::life::Life).
    pub(crate) fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Waits until this worker has exited. Returns how, and what it wrote last on standard error.
    pub(crate) async fn exited(&self, rank: Rank, generation: Generation) -> (WorkerExit, LastWords) {
        let exit = self.until_worker(rank, |row| match row.generation() == generation {
            true => row.process.end(),
            false => Some((WorkerExit::WorldEnded, LastWords::default())),
        });
        exit.await.unwrap_or((WorkerExit::WorldEnded, LastWords::default()))
    }

    /// Waits until all output of the exited workers of these ranks has arrived.
    pub(crate) async fn output_ended(&self, ranks: impl IntoIterator<Item = Rank>) {
        let has_ended = |row: &WorkerRow| row.output.has_ended() || !row.process.has_ended();
        self.until_workers(ranks, has_ended).await;
    }

    /// Waits for another phase of the pool, or for a world that was held.
    pub(crate) async fn until<T>(&self, mut reached: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.waiters.wait();
            if let Some(value) = reached(&mut self.lock()) {
                return value;
            }
            let _ = changed.await;
        }
    }

    /// Waits for something of the worker of a rank; `None` if the pool has no such rank.
    async fn until_worker<T>(&self, rank: Rank, mut reached: impl FnMut(&WorkerRow) -> Option<T>) -> Option<T> {
        loop {
            let changed = Arc::clone(&self.lock().workers.get(rank)?.changed);
            let mut changed = std::pin::pin!(changed.notified());
            changed.as_mut().enable();
            if let Some(value) = reached(self.lock().workers.get(rank)?) {
                return Some(value);
            }
            changed.await;
        }
    }

    /// Waits for something of each of the workers of these ranks, as far as the pool has them: an agent
    /// whose node is not in the pool yet has no workers.
    async fn until_workers(&self, ranks: impl IntoIterator<Item = Rank>, reached: impl Fn(&WorkerRow) -> bool) {
        for rank in ranks {
            self.until_worker(rank, |row| reached(row).then_some(())).await;
        }
    }

    /// Waits until all answers of the workers of these ranks have been handled, up to the ends of
    /// their connections. The wait is short, since the connections of living workers do not end.
    pub(crate) async fn heard(&self, ranks: impl IntoIterator<Item = Rank>) {
        let heard = self.until_workers(ranks, |row| !row.connection.is_read());
        let _ = tokio::time::timeout(LAST_ANSWERS, heard).await;
    }

    /// A connection to a worker has been read to its end.
    pub(crate) fn on_read(&self, rank: Rank, generation: Generation, connection: u64) {
        if let Some(row) = self.lock().row(rank, generation) {
            row.connection.on_read(connection);
            row.changed.notify_waiters();
        }
    }

    /// A node's machine is given up: its workers are gone for the pool, whatever becomes of them.
    /// Returns what the fleet decides about that.
    pub(crate) fn on_node_lost(&self, node: NodeIndex, cause: &Error) -> Verdict {
        let (lost, verdict) = self.act(|state, now| {
            let lasted = state.scheduler.lasted(now, node);
            let verdict = state.fleet.on_node_lost(node, lasted, cause, state.scheduler.returns());
            state.scheduler.follow(state.fleet.eligible());
            let mut lost = Vec::new();
            let exit = cause.exit().filter(|exit| exit.is_node_loss()).cloned().unwrap_or(WorkerExit::AgentGone);
            for (rank, row) in state.workers.of(node, state.scheduler.layout()) {
                state.held.release(rank);
                if row.process.pid().is_some() {
                    lost.push(rank);
                }
                row.leave(exit.clone());
            }
            state.nodes.clear(node);
            state.scheduler.on_node_lost(now, node, cause);
            (lost.into_iter().map(move |rank| (rank, exit.clone())), verdict)
        });
        for (rank, exit) in lost {
            self.emit(PoolEvent::WorkerExited { rank, exit });
        }
        verdict
    }

    /// Ends a worker's process tree, for this reason.
    pub(crate) fn kill(&self, rank: Rank, reason: WorkerExit) {
        self.send(|state, after| state.kill(rank, reason, after));
    }

    /// Makes a worker that computes look at its connection.
    pub(crate) fn attend(&self, rank: Rank) {
        self.send(|state, after| state.signal(rank, Signal::Attend, after));
    }

    /// Recalls what a worker has not begun. Returns whether the worker has begun a run that it has
    /// not answered.
    pub(crate) async fn is_busy(&self, rank: Rank, generation: Generation) -> bool {
        let asked = self.lock().row(rank, generation).map_or(0, |row| row.session.last());
        self.send(|state, after| state.recall(rank, after));
        let busy = self.until_worker(rank, |row| {
            let answered = !row.requests.is_recalling() || row.process.has_ended();
            let is_same = row.generation() == generation;
            (answered || !is_same).then(|| is_same && row.session.sent().any(|(run, _)| run <= asked))
        });
        busy.await.unwrap_or(false)
    }

    /// Changes the state, and sends the messages that result.
    pub(super) fn send<T>(&self, change: impl FnOnce(&mut State, &mut After) -> T) -> T {
        let mut after = After::default();
        let result = change(&mut self.lock(), &mut after);
        after.flush.iter().for_each(Sender::flush);
        result
    }

    /// Closes the queue of a pool that ends, so that no caller waits for room any more.
    pub(crate) fn close_queue(&self) {
        foreign(|| self.room.close());
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("pool", &self.pool).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
