//! What all parts of a running pool share: the scheduler, the callers that wait, and the links to the workers, behind one lock.
//!
//! A call goes from its caller through the scheduler into the worker's socket without another task of the runtime having to wake; its answer goes from the link's reader to
//! the caller. The lock is never held across an await or a system call that can block.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::account::Account;
use super::calls::{CallCounts, Caller, Calls, Root};
use super::driver::Command;
use super::events::EventBuffer;
use super::held::{Held, Unread};
use super::life::Life;
use super::lock::Locked;
use super::metrics::Metrics;
use super::node::Node;
use super::outbox::{Outbox, Spans, Told};
use super::output::Marks;
use super::refused::Refused;
use super::status::{CallsStatus, NodeStatus, PoolPhase, PoolStatus, WorkerStatus};
use super::waiting::Waits;
use super::warning::Warnings;
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::{Events, PoolEvent};
use crate::ids::{Attempt, Generation, NodeIndex, PoolId, Rank, TaskId};
use crate::payload::{ItemSender, Task, TaskOptions, TaskReply, TraceSource};
use crate::scheduler::Scheduler;
use crate::scheduler::table::TaskTable;
use crate::spec::{Limits, Secrets};
use crate::worker::link::Sender;
use crate::worker::message::{Awaited, GangTry, Signal, ToAgent, ToWorker};
use crate::worker::session::{Call, Session};

pub(crate) struct Shared {
    pub(crate) pool: PoolId,
    pub(crate) limits: Limits,
    /// What tasks do not say themselves.
    pub(super) defaults: TaskOptions,
    /// What the workers' environment holds and nothing else.
    pub(crate) secrets: Secrets,
    /// Which trace tasks belong to that do not say it themselves.
    pub(super) trace: Option<TraceSource>,
    pub(crate) metrics: Metrics,
    /// What the machines cost.
    pub(super) account: Arc<Mutex<Account>>,
    /// That has changed.
    pub(super) spending: Notify,
    state: Mutex<State>,
    pub(super) refused: Mutex<Refused>,
    pub(super) events: EventBuffer,
    pub(super) outbox: Outbox,
    pub(super) room: Arc<Semaphore>,
    pub(super) next_task: AtomicU64,
    /// Numbers the connections to agents.
    pub(super) next_connection: AtomicU64,
    commands: mpsc::UnboundedSender<Command>,
    /// The scheduler has an earlier deadline than the driver sleeps for.
    pub(crate) earlier: Notify,
    /// A worker has exited, or its output has ended.
    pub(super) ended: Notify,
}

/// What a pool is told when it starts.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) defaults: TaskOptions,
    pub(crate) secrets: Secrets,
    pub(crate) trace: Option<TraceSource>,
    pub(crate) metrics: Metrics,
    pub(crate) account: Arc<Mutex<Account>>,
}

pub(crate) struct State {
    pub(crate) scheduler: Scheduler,
    pub(super) life: Life,
    /// Why the pool takes no tasks any more, where it ends by itself.
    pub(super) over: Option<Error>,
    pub(crate) generation: Generation,
    /// The port on the head at which a generation's workers meet.
    pub(crate) rendezvous: Option<(Generation, u16)>,
    pub(crate) nodes: Vec<NodeStatus>,
    pub(crate) workers: Vec<WorkerSlot>,
    pub(crate) workers_per_node: u32,
    /// The agents' links, by node.
    pub(crate) agents: Vec<Option<Sender>>,
    pub(super) tasks: TaskTable<Entry>,
    /// How many of them a worker has begun.
    pub(super) running: usize,
    /// Those of them that payloads have called.
    pub(super) calls: CallCounts,
    pub(crate) waits: Waits,
    pub(super) warnings: Warnings,
    /// Outcomes whose output has not arrived.
    pub(super) held: Held<Told>,
    /// How many bytes the workers of ranks that have left had written, in which generation.
    written: BTreeMap<u32, (Generation, [u64; 2])>,
    timeout: Option<Instant>,
    /// What is to be told when it is unlocked.
    pub(super) told: Vec<Told>,
    /// Bytes that were sent and received since that was told.
    pub(super) bytes: (usize, usize),
    /// How many tasks were said to wait and run, and how many calls of them.
    counted: [usize; 4],
}

/// What the client knows of the worker of a rank.
pub(crate) struct WorkerSlot {
    pub(crate) session: Session,
    pub(crate) link: Option<Sender>,
    /// Counts the connections to the rank's workers, so that the end of one is not taken for the end of the one after it.
    pub(crate) connection: u64,
    pub(crate) generation: Generation,
    pub(crate) pid: Option<u32>,
    /// The process before this one on the same machine, whose end may be told once more.
    pub(super) before: Option<u32>,
    /// Reads what it sends.
    pub(crate) reader: Option<AbortHandle>,
    /// The connection that is being read.
    pub(super) reading: Option<u64>,
    /// Where it listens on its node.
    pub(crate) socket: String,
    pub(super) exited: Option<WorkerExit>,
    /// Up to which run its agent was asked to recall, and has not answered.
    pub(super) recall: Option<u64>,
    /// Why it was told to be killed.
    pub(super) killed: Option<WorkerExit>,
    pub(super) output_ended: bool,
    /// How many bytes of each descriptor have arrived from this machine.
    pub(crate) received: [u64; 2],
    /// How many of them have been emitted.
    pub(super) told: [u64; 2],
    /// Output did not arrive in time: nothing waits for it until some does.
    pub(super) mute: bool,
    /// How many had arrived from the machines before it, in the same generation.
    pub(super) earlier: [u64; 2],
    pub(super) marks: [Marks; 2],
    /// What it calls and helps with, from its first call on.
    pub(super) calls: Option<Box<Calls>>,
}

pub(crate) struct Entry {
    pub(super) task: Task,
    pub(super) reply: Reply,
    /// How many callers stand above it; 0 for what Rust has submitted.
    pub(super) depth: u32,
    pub(super) items: Option<ItemSender>,
    pub(super) next_item: u64,
    /// Which worker has it, as which run.
    pub(super) run: Option<(Rank, u64)>,
    /// The first task of those that all ranks run at the same time.
    pub(super) gang: Option<TaskId>,
    /// The next try, or the one that runs.
    pub(super) attempt: Attempt,
    /// Since when it waits for a worker to begin.
    pub(super) since: Instant,
    /// When the worker began that has it.
    pub(super) began: Option<Instant>,
    /// How long the payload ran, when its worker has said so.
    pub(super) ran: Option<Duration>,
    /// What its worker had written when it ended, if some of that is still to come.
    pub(super) unread: Option<Unread>,
    pub(super) spans: Option<Arc<Spans>>,
    /// A call has none: its caller would wait for room that it occupies itself.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

/// Who gets the outcome of a task.
pub(super) enum Reply {
    /// The handle that Rust holds.
    Handle(TaskReply),
    /// The payload that called it, below this root.
    Caller(Caller, Root),
}

/// What is done after the lock is released.
#[derive(Default)]
pub(crate) struct After {
    pub(super) flush: Vec<Sender>,
}

impl Shared {
    pub(crate) fn new(pool: PoolId, settings: Settings, commands: mpsc::UnboundedSender<Command>) -> Arc<Self> {
        let Settings { limits, defaults, secrets, trace, metrics, account } = settings;
        let state = State {
            scheduler: Scheduler::new(0, 0, false, limits),
            life: Life::default(),
            over: None,
            generation: Generation(0),
            rendezvous: None,
            nodes: Vec::new(),
            workers: Vec::new(),
            workers_per_node: 0,
            agents: Vec::new(),
            tasks: TaskTable::default(),
            running: 0,
            calls: CallCounts::default(),
            waits: Waits::default(),
            warnings: Warnings::default(),
            held: Held::default(),
            written: BTreeMap::new(),
            timeout: None,
            told: Vec::new(),
            bytes: (0, 0),
            counted: [0; 4],
        };
        Arc::new(Self {
            pool,
            state: Mutex::new(state),
            refused: Mutex::default(),
            defaults,
            secrets,
            trace,
            metrics,
            account,
            spending: Notify::new(),
            events: EventBuffer::new(),
            outbox: Outbox::default(),
            room: Arc::new(Semaphore::new(limits.max_queued.min(Semaphore::MAX_PERMITS))),
            next_task: AtomicU64::new(1),
            next_connection: AtomicU64::new(1),
            limits,
            commands,
            earlier: Notify::new(),
            ended: Notify::new(),
        })
    }

    /// Runs a change of the state, and does what the scheduler says. Where that is much it is done in slices, between which the state is free.
    pub(crate) fn act<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let (result, mut more) = self.act_once(change);
        while more {
            more = self.act_once(|_, _| ()).1;
        }
        result
    }

    /// The same; other tasks of the runtime go on between the slices.
    pub(crate) async fn act_in_slices<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let (result, mut more) = self.act_once(change);
        while more {
            tokio::task::yield_now().await;
            more = self.act_once(|_, _| ()).1;
        }
        result
    }

    /// A change, and a slice of what the scheduler has to do; whether it has more.
    fn act_once<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> (T, bool) {
        // The runtime's clock, which tests can pause.
        let now = tokio::time::Instant::now().into_std();
        let mut after = After::default();
        let (result, more, earlier, released) = {
            let mut state = self.lock();
            let held = state.scheduler.is_held();
            let result = change(&mut state, now);
            let more = self.perform(&mut state, now, &mut after);
            state.tell_held(now);
            state.tell_calls(now);
            let released = held && !state.scheduler.is_held();
            let timeout = state.next_timeout();
            let earlier = timeout.is_some_and(|at| state.timeout.is_none_or(|armed| at < armed));
            state.timeout = timeout;
            state.tell_numbers();
            self.outbox.put(&mut state.told);
            (result, more, earlier, released)
        };
        if released {
            // Whoever waits for the world's size to change.
            self.ended.notify_waiters();
        }
        for sender in &after.flush {
            sender.flush();
        }
        self.empty_outbox();
        if earlier {
            self.earlier.notify_one();
        }
        (result, more)
    }

    /// What is not taken any more.
    pub(super) fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn events(&self) -> Events {
        // In this order: whoever subscribes before the pool is closed also receives that it is.
        let events = self.events.subscribe();
        match self.lock().life.phase() {
            PoolPhase::Closed => Events::new(futures_util::stream::empty()),
            _ => events,
        }
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let state = self.lock();
        let workers = state.workers.iter().enumerate().map(|(rank, slot)| {
            let rank = Rank(rank as u32);
            WorkerStatus {
                rank,
                node: state.scheduler.node_of(rank),
                ready: state.scheduler.is_ready(rank),
                pid: slot.pid,
                task: state.scheduler.sent(rank).next(),
                helps: state.scheduler.helped(rank).collect(),
            }
        });
        let mut status = PoolStatus::new(self.pool.clone(), state.life.phase());
        status.workers = workers.collect();
        status.generation = state.generation;
        status.nodes = state.nodes.clone();
        status.waiting_for = state.waiting_for();
        status.spent = self.account().spent(tokio::time::Instant::now().into_std());
        status.queued = state.scheduler.queued();
        status.running = status.workers.iter().filter(|worker| worker.task.is_some()).count();
        status.calls = CallsStatus {
            waiting: state.calls.waiting(),
            running: state.calls.running(),
            helped: status.workers.iter().map(|worker| worker.helps.len()).sum(),
        };
        status
    }

    /// What the machines cost.
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked::of(&self.state)
    }

    /// Sends the driver a command. One that is gone takes none: see [`Life`].
    pub(crate) fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Waits until this worker has exited.
    pub(crate) async fn exited(&self, rank: Rank, generation: Generation) -> WorkerExit {
        self.until(|state| match state.slot(rank, generation) {
            Some(slot) => slot.exited.clone(),
            None => Some(WorkerExit::WorldEnded),
        })
        .await
    }

    /// Waits until all that exited workers wrote has arrived.
    pub(crate) async fn output_ended(&self) {
        self.until(|state| state.workers.iter().all(|slot| slot.output_ended || slot.exited.is_none()).then_some(()))
            .await;
    }

    pub(super) async fn until<T>(&self, mut reached: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(value) = reached(&mut self.lock()) {
                return value;
            }
            ended.await;
        }
    }

    /// Waits until all that these workers have answered is taken in, up to the end of their connections; not for long, since the connections of workers that live do not end.
    pub(crate) async fn heard(&self, ranks: Range<u32>) {
        let heard = self.until(|state| {
            // The agent of a node that is not yet in the pool has no workers.
            let workers = state.workers.get(ranks.start as usize..(ranks.end as usize).min(state.workers.len()));
            workers.unwrap_or_default().iter().all(|slot| slot.reading.is_none()).then_some(())
        });
        let _ = tokio::time::timeout(HEARD, heard).await;
    }

    /// A connection to a worker has been read to its end.
    pub(crate) fn on_read(&self, rank: Rank, generation: Generation, connection: u64) {
        if let Some(slot) = self.lock().slot(rank, generation)
            && slot.reading == Some(connection)
        {
            slot.reading = None;
        }
        self.ended.notify_waiters();
    }

    /// A node's machine is given up: its workers are gone for the pool, whatever becomes of them.
    pub(crate) fn on_node_lost(&self, node: NodeIndex, cause: &Error) {
        let lost = self.act(|state, now| {
            let first = (node.0 * state.workers_per_node) as usize;
            let slots = state.workers.iter_mut().enumerate().skip(first).take(state.workers_per_node as usize);
            let mut lost = Vec::new();
            let exit = cause.exit().filter(|exit| exit.is_node_loss()).cloned().unwrap_or(WorkerExit::AgentGone);
            for (rank, slot) in slots {
                state.held.release(Rank(rank as u32));
                if slot.pid.is_some() {
                    lost.push(Rank(rank as u32));
                }
                slot.leave(exit.clone());
            }
            if let Some(agent) = state.agents.get_mut(node.0 as usize) {
                *agent = None;
            }
            if let Some(status) = state.nodes.get_mut(node.0 as usize) {
                status.ready = false;
            }
            state.waits.lost(node, cause.message());
            state.warnings.forget(node);
            state.scheduler.on_node_lost(now, node, cause);
            lost.into_iter().map(move |rank| (rank, exit.clone()))
        });
        self.ended.notify_waiters();
        for (rank, exit) in lost {
            self.emit(PoolEvent::WorkerExited { rank, exit });
        }
    }

    /// An agent has another connection: over it comes what workers write, and what it was told while it had none is told again.
    pub(crate) fn on_agent_back(&self, node: &Node) {
        self.set_node(node);
        let mut after = After::default();
        let unfollowed = self.act(|state, now| {
            let first = node.index.0 * state.workers_per_node;
            let mut unfollowed = Vec::new();
            for (worker, slot) in (0..state.workers_per_node).zip(state.workers.iter().skip(first as usize)) {
                let wrote = slot.pid.is_some() || slot.exited.is_some() && !slot.output_ended;
                if wrote && let Err(error) = node.agent.follow(slot.generation, worker, slot.received) {
                    unfollowed.push((worker, error));
                }
            }
            for rank in first..first + state.workers_per_node {
                if state.workers.get(rank as usize).is_some_and(|slot| slot.recall.is_some()) {
                    state.recall(Rank(rank), &mut after);
                }
            }
            state.scheduler.on_agent_back(now, node.index);
            unfollowed
        });
        after.flush.iter().for_each(Sender::flush);
        for (worker, error) in unfollowed {
            tracing::warn!(pool = %self.pool, node = node.index.0, worker, %error, "its output is not followed");
        }
    }

    /// A node has a machine, or its agent another connection.
    pub(crate) fn set_node(&self, node: &Node) {
        let index = node.index.0 as usize;
        let mut state = self.lock();
        if let Some(agent) = state.agents.get_mut(index) {
            *agent = Some(node.agent.sender());
        }
        if let Some(status) = state.nodes.get_mut(index) {
            let (leaving, ending) = (status.leaving, status.ending.filter(|_| status.machine == node.machine.id));
            *status = node.status();
            (status.leaving, status.ending) = (leaving, ending);
        }
        state.waits.over(node.index);
    }

    /// Another machine takes the place of a node's, which has nothing more to do or is lost. Its workers are to be started.
    pub(crate) fn hand_over(&self, node: &Node) {
        let index = node.index.0 as usize;
        self.act(|state, _| {
            let first = index * state.workers_per_node as usize;
            let slots = state.workers.iter_mut().enumerate().skip(first).take(state.workers_per_node as usize);
            for (rank, slot) in slots {
                slot.leave(WorkerExit::Left);
                state.held.release(Rank(rank as u32));
            }
            state.scheduler.retire(node.index);
            state.scheduler.uncordon(node.index);
            state.warnings.forget(node.index);
            if let Some(port) = node.port {
                state.rendezvous = Some((state.generation, port));
            }
        });
        self.set_node(node);
        self.ended.notify_waiters();
    }

    /// A further node has its place. Its workers are to be started.
    pub(crate) fn add_node(&self, node: &Node) {
        self.act(|state, _| state.add_node(node, self.limits.max_frame));
    }

    /// A node has left the pool, and so many rows are left.
    pub(crate) fn remove_node(&self, node: NodeIndex, rows: u32) {
        self.act(|state, _| {
            state.leave(node);
            state.scheduler.remove_node(node, rows);
            state.truncate(rows);
        });
        self.ended.notify_waiters();
    }

    /// An idle world has its first `stay` nodes and these from now on.
    pub(crate) fn reshape(&self, stay: u32, joined: &[Node]) {
        self.act(|state, _| {
            (stay..state.nodes.len() as u32).for_each(|node| state.leave(NodeIndex(node)));
            state.truncate(stay);
            state.scheduler.reshape(stay);
            joined.iter().for_each(|node| state.add_node(node, self.limits.max_frame));
        });
        self.ended.notify_waiters();
    }

    /// Ends a worker's process tree, for this reason.
    pub(crate) fn kill(&self, rank: Rank, reason: WorkerExit) {
        self.tell(|state, after| state.kill(rank, reason, after));
    }

    /// Has a worker that computes look at its connection.
    pub(crate) fn attend(&self, rank: Rank) {
        self.tell(|state, after| state.signal(rank, Signal::Attend, after));
    }

    /// Asks for what a worker has not begun; whether it has begun something that it has not answered.
    pub(crate) async fn is_busy(&self, rank: Rank, generation: Generation) -> bool {
        let asked = self.lock().slot(rank, generation).map_or(0, |slot| slot.session.last());
        self.tell(|state, after| state.recall(rank, after));
        self.until(|state| {
            let slot = state.slot(rank, generation)?;
            let answered = slot.recall.is_none() || slot.exited.is_some();
            answered.then(|| slot.session.sent().any(|(run, _)| run <= asked))
        })
        .await
    }

    /// Sends what a change of the state leaves to send.
    fn tell(&self, change: impl FnOnce(&mut State, &mut After)) {
        let mut after = After::default();
        change(&mut self.lock(), &mut after);
        after.flush.iter().for_each(Sender::flush);
    }

    /// Nobody waits for room in a pool that ends.
    pub(crate) fn close_queue(&self) {
        self.room.close();
    }
}

impl State {
    /// The slot of a rank, if it still is of this generation.
    pub(crate) fn slot(&mut self, rank: Rank, generation: Generation) -> Option<&mut WorkerSlot> {
        self.workers.get_mut(rank.0 as usize).filter(|slot| slot.generation == generation)
    }

    /// How far the client has come with the streams that a rank's worker runs.
    pub(crate) fn streams(&self, rank: Rank) -> Vec<Awaited> {
        let Some(slot) = self.workers.get(rank.0 as usize) else { return Vec::new() };
        let awaited = |(run, task)| Some(self.tasks.get(&task)?.items()?.awaited(run));
        slot.session.sent().filter_map(awaited).collect()
    }

    /// A node comes in, behind the others or in the place of one that has left.
    fn add_node(&mut self, node: &Node, max_frame: usize) {
        let index = node.index.0 as usize;
        self.scheduler.add_node(node.index);
        if index == self.nodes.len() {
            self.nodes.push(node.status());
            self.agents.push(None);
            for _ in 0..self.workers_per_node {
                let written = self.written.get(&(self.workers.len() as u32)).copied();
                let mut slot = WorkerSlot::new(Generation(0), max_frame);
                if let Some((generation, earlier)) = written {
                    // A worker of this rank has written before, in the same life of the pool.
                    (slot.generation, slot.earlier) = (generation, earlier);
                    (slot.exited, slot.output_ended) = (Some(WorkerExit::Left), true);
                }
                self.workers.push(slot);
            }
        }
        self.nodes[index] = node.status();
        self.agents[index] = Some(node.agent.sender());
        self.waits.over(node.index);
    }

    /// A node has left: what still comes from there is not heard.
    fn leave(&mut self, node: NodeIndex) {
        let first = (node.0 * self.workers_per_node) as usize;
        for (rank, slot) in self.workers.iter_mut().enumerate().skip(first).take(self.workers_per_node as usize) {
            slot.leave(WorkerExit::Left);
            self.held.release(Rank(rank as u32));
            let written = std::array::from_fn(|stream| slot.earlier[stream] + slot.received[stream]);
            self.written.insert(rank as u32, (slot.generation, written));
        }
        if let Some(agent) = self.agents.get_mut(node.0 as usize) {
            *agent = None;
        }
        if let Some(status) = self.nodes.get_mut(node.0 as usize) {
            status.ready = false;
        }
        self.waits.over(node);
        self.warnings.forget(node);
    }

    fn truncate(&mut self, rows: u32) {
        self.nodes.truncate(rows as usize);
        self.agents.truncate(rows as usize);
        self.workers.truncate((rows * self.workers_per_node) as usize);
    }

    pub(crate) fn set_leaving(&mut self, node: NodeIndex, leaving: bool) {
        if let Some(status) = self.nodes.get_mut(node.0 as usize) {
            status.leaving = leaving;
        }
    }

    /// A worker has not begun these tasks, and never will.
    pub(super) fn on_not_begun(&mut self, now: Instant, rank: Rank, tasks: &[TaskId]) {
        for task in tasks {
            self.take_back(now, *task);
        }
        self.scheduler.on_not_begun(now, rank, tasks);
    }

    /// Has the agent of a worker keep it from beginning what it was sent so far; [`Shared::on_recalled`] takes the answer.
    pub(super) fn recall(&mut self, rank: Rank, after: &mut After) {
        let Some(slot) = self.workers.get_mut(rank.0 as usize) else { return };
        let Some(pid) = slot.pid else { return };
        let upto = slot.session.recall();
        slot.recall = Some(upto);
        self.push_to_agent(rank, |generation, worker| ToAgent::Recall { generation, worker, pid, upto }, after);
    }

    /// What has changed of the numbers.
    fn tell_numbers(&mut self) {
        if !Metrics::RECORDED {
            return;
        }
        let (sent, received) = std::mem::take(&mut self.bytes);
        if sent + received > 0 {
            self.told.push(Told::Bytes { sent, received });
        }
        let (queued, running) = (self.tasks.len().saturating_sub(self.running), self.running);
        let (calls_waiting, calls_running) = (self.calls.waiting(), self.calls.running());
        let counted = [queued, running, calls_waiting, calls_running];
        if std::mem::replace(&mut self.counted, counted) != counted {
            self.told.push(Told::Tasks { queued, running, calls_waiting, calls_running });
        }
    }

    /// Why a pool that is not ready takes no tasks.
    pub(super) fn refusal(&self) -> Error {
        self.over.clone().unwrap_or_else(|| self.life.refusal())
    }

    pub(super) fn may_submit(&self) -> Result<()> {
        match (self.life.phase(), self.scheduler.failure()) {
            (PoolPhase::Ready, None) => Ok(()),
            (PoolPhase::Ready, Some(error)) => Err(error.clone()),
            _ => Err(self.refusal()),
        }
    }

    pub(super) fn push_to_worker(&mut self, rank: Rank, message: ToWorker<'_>, after: &mut After) {
        let Some(link) = self.workers.get(rank.0 as usize).and_then(|slot| slot.link.clone()) else { return };
        if let Ok((head, body)) = message.encode()
            && link.push(&head, body).is_ok()
        {
            after.flush.push(link);
        }
    }

    pub(super) fn kill(&mut self, rank: Rank, reason: WorkerExit, after: &mut After) {
        if let Some(slot) = self.workers.get_mut(rank.0 as usize) {
            slot.killed.get_or_insert(reason);
        }
        self.signal(rank, Signal::Kill, after);
    }

    pub(super) fn signal(&mut self, rank: Rank, signal: Signal, after: &mut After) {
        self.push_to_agent(rank, |generation, worker| ToAgent::Signal { generation, worker, signal }, after);
    }

    /// Tells the agent of a worker something of that, which its generation and its number on the node name.
    fn push_to_agent(&mut self, rank: Rank, message: impl FnOnce(u64, u32) -> ToAgent, after: &mut After) {
        let Some(generation) = self.workers.get(rank.0 as usize).map(|slot| slot.generation.0) else { return };
        let node = self.scheduler.node_of(rank).0;
        let worker = rank.0 - node * self.workers_per_node;
        let Some(Some(agent)) = self.agents.get(node as usize) else { return };
        if let Ok((head, body)) = message(generation, worker).encode()
            && agent.push(&head, body).is_ok()
        {
            after.flush.push(agent.clone());
        }
    }
}

impl Entry {
    /// What its worker is to run.
    pub(super) fn call(&self) -> Call<'_> {
        let granted = self.items().map_or(0, |items| items.awaited(0).granted);
        let gang = self.gang.map(|first| GangTry { first: first.0, attempt: self.attempt.0 });
        Call { task: &self.task, granted, gang, depth: self.depth }
    }

    /// Its stream, if it is one.
    pub(super) fn items(&self) -> Option<Items<'_>> {
        self.items.as_ref().map(|channel| Items { channel, arrived: self.next_item })
    }
}

/// The client's end of a stream.
pub(crate) struct Items<'e> {
    channel: &'e ItemSender,
    arrived: u64,
}

impl Items<'_> {
    /// How far the client has come: what has arrived, and beyond that what there is room for.
    pub(super) fn awaited(&self, run: u64) -> Awaited {
        let granted = self.arrived + self.channel.capacity() as u64;
        Awaited { run, arrived: self.arrived, granted }
    }
}

impl WorkerSlot {
    /// The slot of a worker that is about to be started.
    pub(crate) fn new(generation: Generation, max_frame: usize) -> Self {
        Self {
            session: Session::new(max_frame),
            link: None,
            connection: 0,
            generation,
            pid: None,
            before: None,
            reader: None,
            reading: None,
            socket: String::new(),
            exited: None,
            recall: None,
            killed: None,
            output_ended: false,
            received: [0; 2],
            told: [0; 2],
            mute: false,
            earlier: [0; 2],
            marks: Default::default(),
            calls: None,
        }
    }

    /// The slot of the worker that is started in this one's place. Within a generation it goes on writing to the same files, if it is on the same machine.
    pub(crate) fn replaced(&self, generation: Generation, max_frame: usize) -> Self {
        let moved = self.exited.as_ref().is_some_and(WorkerExit::is_node_loss);
        let (received, earlier) = match (self.generation == generation, moved) {
            (false, _) => ([0; 2], [0; 2]),
            (true, false) => (self.received, self.earlier),
            (true, true) => ([0; 2], std::array::from_fn(|stream| self.earlier[stream] + self.received[stream])),
        };
        let before = self.pid.or(self.before).filter(|_| !moved);
        let connection = self.connection + 1;
        let told = if moved || self.generation != generation { [0; 2] } else { self.told };
        Self { received, told, earlier, before, connection, ..Self::new(generation, max_frame) }
    }

    /// Whether a connection to its worker stands.
    pub(super) fn is_read(&self) -> bool {
        self.reading.is_some()
    }

    /// Whether its worker calls, and this connection, or none, is the latest one over which it does.
    pub(super) fn calls_lack(&self, connection: u64) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.lacks(connection))
    }

    /// Whether its worker is there, as far as is known, and this is the latest connection to it.
    pub(crate) fn is_on(&self, connection: u64) -> bool {
        self.connection == connection && self.exited.is_none()
    }

    /// Its machine is lost, and whatever still comes from there is not heard.
    fn leave(&mut self, exit: WorkerExit) {
        self.before = None;
        self.pid = None;
        self.exited = Some(exit);
        self.output_ended = true;
        // What its reader has in hand already is of a connection that is over.
        self.connection += 1;
        if let Some(link) = self.link.take() {
            link.close();
        }
        self.reading = None;
        self.calls = None;
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// The error of a pool that takes no tasks any more.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the pool is shutting down and takes no tasks")
        .with_hint("dispatch inside the pool's scope, before `shutdown`")
}

/// How long the last answers of a worker may be on their way when its end is known.
const HEARD: Duration = Duration::from_millis(500);
