//! Which task runs on which worker: events in, actions out. No I/O, no clock: `now` is passed in.
//!
//! - Tasks for any worker run in the order in which they came. A task for one rank or node waits
//!   for that rank or node alone.
//! - A gang (one task per rank, in a joined world) starts when every worker is idle. Tasks
//!   submitted after the gang wait until it has started, so other tasks cannot starve it.
//! - A worker gets further tasks behind a running one only while its tasks are short (see
//!   [`policy::depth`]), so that a long task never holds up tasks that another worker could run.
//! - When a worker of a joined world is lost, the world ends: every worker starts again, and the
//!   tasks that may be tried again are.
//! - When a worker is lost while it runs a task, the task counts as the cause, and only tasks fail.
//!   Workers that are lost one after another while they run nothing end the pool.
//! - A lost node is replaced. After a number of losses in a row without a returned task, the pool
//!   gives up. A node whose workers cannot start while the workers of other nodes can is sick, and
//!   counts as lost.
//! - A call that a running task makes is a task for any worker. It ends no later than the try of
//!   its caller. A free worker takes calls before other tasks: the deepest calls first, then those
//!   of the oldest caller. Once a task without a caller has waited for a second, tasks and calls
//!   take turns.
//!   Neither a waiting gang nor a held world holds calls back: the tasks that the gang or the world
//!   waits for may wait for those calls.
//! - No task is sent to a worker behind a caller, and tasks that were sent there before are
//!   recalled: the caller could be waiting for them.
//! - A worker whose main thread waits for calls of its own task helps with one of them
//!   (`helping.rs`), except for calls that could end the worker: a call with a timeout, and a call
//!   that has ended a worker before.
//! - Any call that no worker has taken within a short time falls back (`fallback.rs`): its caller's
//!   worker runs it, on another thread unless the main thread reports that it waits.
//! - A draining node runs the tasks that it has and those submitted for it by name, and takes no
//!   others. A resizing world first finishes the gangs that it has, and takes no others.

mod action;
mod backlog;
mod calls;
mod eligible;
mod fallback;
mod families;
mod family;
mod gang;
mod helping;
mod import;
mod interrupt;
mod loss;
mod node;
mod node_loss;
mod outcome;
mod overdue;
pub mod policy;
mod queue;
mod queue_timeout;
mod recall;
mod returns;
#[cfg(any(test, debug_assertions))]
mod sanity;
mod silence;
mod size;
mod stall;
mod state;
pub(crate) mod table;
mod task;
mod timers;
pub(crate) mod timing;
mod tries;
mod watch;
mod worker;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use self::timers::Timer;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Target, TaskOptions};

pub use action::{Action, Loss};
pub use calls::MAX_DEPTH;
pub use eligible::Eligible;
pub use returns::Returns;
pub use state::Scheduler;
pub use task::TaskData;

impl Scheduler {
    /// Takes a task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when the target is not in this pool.
    pub fn submit(
        &mut self,
        now: Instant,
        id: TaskId,
        target: Target,
        options: TaskOptions,
        data: TaskData,
    ) -> Result<()> {
        let target = self.resolve(target)?;
        self.insert(now, id, target, options, data, None);
        self.enqueue(id);
        self.wait(now, id);
        self.place(now, id);
        Ok(())
    }

    /// A worker has entered its hooks. `round_trip` is the time that a message to its node and the
    /// answer take.
    pub fn on_ready(&mut self, now: Instant, rank: Rank, round_trip: Duration) {
        let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return };
        debug_assert!(worker.sent.is_empty());
        worker.ready = true;
        worker.round_trip = round_trip.min(timing::LONGEST_ROUND_TRIP);
        worker.idle_since = Some(now);
        worker.ended = false;
        worker.long = false;
        worker.late = false;
        worker.waits = None;
        self.nodes[worker.node].ready_since.get_or_insert(now);
        self.refresh(rank);
        self.start_gang(now);
        self.fill(now, rank);
    }

    /// A worker answered a task.
    pub fn on_returned(&mut self, now: Instant, rank: Rank, id: TaskId, outcome: Outcome, micros: u64) {
        let worker = &mut self.workers[rank.0 as usize];
        let Some(place) = worker.sent.iter().position(|sent| *sent == id) else { return };
        self.on_progress(now, rank);
        let worker = &mut self.workers[rank.0 as usize];
        worker.sent.remove(place);
        if place == 0 {
            worker.late &= worker.is_first_long(now);
        }
        worker.long = false;
        worker.average.add(micros);
        worker.idle_since = Some(now);
        self.returns.add(NodeIndex(worker.node as u32));
        self.disarm(id);
        if place == 0 {
            self.forget_interrupt_of(rank, id);
            self.leave_front(rank);
            self.begin_front(now, rank);
        }
        self.workers[rank.0 as usize].long = self.has_caller(rank);
        self.refresh(rank);
        self.settle(now, id, outcome);
        self.start_gang(now);
        self.fill(now, rank);
        self.help(now, rank);
    }

    /// Cancels a task: its caller no longer waits for it.
    pub fn cancel(&mut self, now: Instant, id: TaskId) {
        let error = Error::new(ErrorKind::Cancelled, "the task was cancelled: its caller no longer waits for it");
        self.abandon(now, id, error);
    }

    /// Handles the timers that are due.
    pub fn on_timeout(&mut self, now: Instant) {
        // Timers that are due at the same moment are also handled in slices.
        for _ in 0..timers::SLICE {
            let Some(timer) = self.timers.pop_due(now) else { return };
            match timer {
                Timer::Queue(id) => self.on_waited_too_long(now, id),
                Timer::Run(id) => self.on_run_timer(now, id),
                Timer::Stall(first) => self.on_stall_timer(now, first),
                Timer::Silence(rank) => self.on_silence_timer(now, rank),
                Timer::Suspicion(first) => self.end_suspicion(first),
                Timer::Recall(rank) => self.on_recall_timer(now, rank),
                Timer::Again(rank, id) => self.on_still_running(now, rank, id),
                Timer::Grace(rank, id) => self.on_grace_over(rank, id),
                Timer::Fallback => self.on_fallback_timer(now),
            }
        }
    }

    /// When [`on_timeout`](Self::on_timeout) must be called next, if a timer runs.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Waiting tasks fail with this error, and the scheduler takes no more tasks; running tasks go
    /// on, and are not tried again. Most of the work is left to [`work`](Self::work).
    pub fn close(&mut self, error: Error) {
        // Later failures are consequences of the first.
        if self.failed.is_none() {
            self.failed = Some(error.clone());
            self.end_waiting(error);
        }
    }

    /// Whether a worker has a task.
    pub fn is_busy(&self) -> bool {
        self.counts.sent > 0 || self.has_work()
    }

    /// Waiting tasks fail with this error; running tasks are interrupted and fail with it too. Most
    /// of the work is left to [`work`](Self::work).
    pub fn drain(&mut self, now: Instant, error: &Error) {
        self.failed = Some(error.clone());
        for rank in self.ranks() {
            let running = self.workers[rank.0 as usize].sent.front().copied();
            if let Some(running) = running {
                self.end_task(now, running, error.clone());
            }
        }
        self.end_all(error.clone());
    }

    /// A checkpoint of a task on this node is committed: what is lost from now on costs only later steps.
    pub fn on_checkpoint(&mut self, node: NodeIndex) {
        self.returns.add(node);
    }

    /// How many tasks have returned.
    pub fn returns(&self) -> &Returns {
        &self.returns
    }

    /// Why the pool takes no tasks; `None` while it takes them.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Tasks that wait for a worker, calls among them.
    pub fn queued(&self) -> usize {
        self.tasks.len().saturating_sub(self.counts.sent)
    }

    /// The tasks that a worker has, the running one first; without the calls that the worker helps
    /// with.
    pub fn sent(&self, rank: Rank) -> impl Iterator<Item = TaskId> + '_ {
        self.workers.get(rank.0 as usize).into_iter().flat_map(|worker| worker.sent.iter().copied())
    }

    /// Whether a worker has this task.
    pub fn has(&self, rank: Rank, id: TaskId) -> bool {
        self.sent(rank).any(|sent| sent == id)
    }

    /// Whether a worker takes tasks.
    pub fn is_ready(&self, rank: Rank) -> bool {
        self.workers.get(rank.0 as usize).is_some_and(|worker| worker.ready)
    }

    fn resolve(&self, target: Target) -> Result<Target> {
        let nodes = self.active();
        let workers = self.layout.workers(nodes);
        match target {
            Target::Any => Ok(target),
            Target::Head => Ok(Target::Rank(Rank(0))),
            Target::Node(NodeIndex(node)) if node < nodes => Ok(target),
            Target::Rank(Rank(rank)) if rank < workers => Ok(target),
            Target::Node(node) => Err(Error::new(ErrorKind::NotFound, format!("the pool has no node {node}"))
                .with_hint(format!("its nodes are 0 to {}", nodes.saturating_sub(1)))),
            Target::Rank(rank) => Err(Error::new(ErrorKind::NotFound, format!("the pool has no rank {rank}"))
                .with_hint(format!("its ranks are 0 to {}", workers.saturating_sub(1)))),
        }
    }

    /// Moves the actions since the last call into `into`.
    pub fn take_actions(&mut self, into: &mut Vec<Action>) {
        self.report_departures();
        into.append(&mut self.actions);
        #[cfg(debug_assertions)]
        self.check_if_small();
    }
}
