//! Which task runs on which worker: events in, actions out. No I/O, no clock: `now` is passed in.
//!
//! - Tasks for any worker run in the order in which they came. A task for one rank or node waits for that one alone.
//! - A gang (one task per rank, in a joined world) starts when every worker is idle; tasks that came after it wait until it has started, so it is never starved.
//! - Behind a running task a worker gets more only while its tasks are short (see [`policy::depth`]), so that a long task never holds others that another worker could run.
//! - When a worker of a joined world is lost, the world ends: every worker is started again, and what may be tried again is.
//! - A worker that is lost while it runs a task is that task's doing, and only tasks fail by it. Workers that are lost one after another while they run nothing end the pool.
//! - A node that is lost is replaced; so often in a row without a task returning, and then the pool gives up. One whose workers cannot be started while those of the others can is sick, and as good as lost.
//! - A call that a running task makes is a task for any worker, and ends with the try of its caller at the latest. A free worker takes calls before other tasks, the deepest first, then those of the oldest
//!   caller; a task that no other made and that has waited for a second goes before them. Neither a gang that waits nor a world that is held keeps calls back: what they wait for may wait for them.
//! - Nothing is sent ahead behind a caller, and what was is recalled: it could be what the caller waits for.
//! - A worker whose main thread waits for calls of what it runs helps with one of those (`helping.rs`), but for one that could end it: one with a timeout, and one that has ended a worker.
//! - Where calls wait, no worker is free, and all that runs waits for calls, one is rescued (`rescue.rs`): the worker of its caller runs it, on another thread where its main thread does not say that it waits.
//! - A node that is to leave runs what it has and what was submitted for it by name, and takes nothing else. A world whose size is to change finishes the gangs that it has first, and takes no other.

mod action;
mod backlog;
mod calls;
mod ending;
mod family;
mod gang;
mod helping;
mod loss;
mod nodes;
mod outcome;
pub mod policy;
mod queue;
mod recall;
mod rescue;
#[cfg(any(test, debug_assertions))]
mod sanity;
mod size;
mod stall;
mod state;
pub(crate) mod table;
mod tries;
mod waiting;

#[cfg(test)]
mod tests;

use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Target, TaskOptions};

pub use action::Action;
pub use calls::MAX_DEPTH;
pub use state::Scheduler;

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
        streaming: bool,
    ) -> Result<()> {
        let target = self.resolve(target)?;
        self.insert(id, target, options, streaming, None);
        self.enqueue(id);
        self.wait(now, id);
        self.place(now, id);
        Ok(())
    }

    /// A worker has entered its hooks.
    pub fn on_ready(&mut self, now: Instant, rank: Rank) {
        let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return };
        debug_assert!(worker.sent.is_empty());
        worker.ready = true;
        worker.idle_since = Some(now);
        worker.leaving = false;
        worker.long = false;
        worker.waits = None;
        self.nodes[worker.node].on_ready(now);
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
        worker.long = false;
        worker.average.add(micros);
        worker.idle_since = Some(now);
        self.nodes[worker.node].on_returned();
        self.disarm(id);
        self.barren_restarts = 0;
        if place == 0 {
            self.forget_ending_of(rank, id);
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

    /// A task's caller does not wait any more.
    pub fn cancel(&mut self, now: Instant, id: TaskId) {
        let error = Error::new(ErrorKind::Cancelled, "the task was cancelled: its caller does not wait any more");
        self.abandon(now, id, error);
    }

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Instant) {
        // What is due at the same moment is done in slices, too.
        for _ in 0..backlog::SLICE {
            let Some(timer) = self.timers.pop_due(now) else { return };
            match timer {
                state::Timer::Queue(id) => self.on_waited_too_long(now, id),
                state::Timer::Run(id) => {
                    let limit = self.tasks.get(&id).and_then(|task| task.options.timeout).unwrap_or_default();
                    let error = Error::new(ErrorKind::Timeout, format!("the task ran longer than its timeout of {limit:?}"))
                        .with_hint("`.timeout(…)` counts from the task's start on a worker; give it more, or let the payload do less");
                    self.abandon(now, id, error);
                }
                state::Timer::Stall(first) => self.on_stall_timer(now, first),
                state::Timer::Suspicion(first) => self.end_suspicion(first),
                state::Timer::Recall(rank) => self.on_recall_timer(now, rank),
                state::Timer::Again(rank, id) => self.on_still_running(now, rank, id),
                state::Timer::Grace(rank, id) => self.on_grace_over(rank, id),
                state::Timer::Rescue => self.on_rescue_timer(now),
            }
        }
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Ends everything: every task that waits or runs fails with this error, and no task is taken. Most of that is left to [`work`](Self::work).
    pub fn fail(&mut self, error: Error) {
        // What comes after the first failure is its consequence.
        self.failed.get_or_insert_with(|| error.clone());
        self.end_all(error);
    }

    /// Waiting tasks fail with this error, and no task is taken; running ones go on. Most of that is left to [`work`](Self::work).
    pub fn close(&mut self, error: Error) {
        if self.failed.is_none() {
            self.failed = Some(error.clone());
            self.end_waiting(error);
        }
    }

    /// Whether a worker has a task.
    pub fn is_busy(&self) -> bool {
        self.counts.sent > 0 || self.has_work()
    }

    /// Waiting tasks fail with this error; running ones are interrupted and fail with it too. Most of that is left to [`work`](Self::work).
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

    /// What the pool cannot take tasks for, if it cannot.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Tasks that wait for a worker, calls among them.
    pub fn queued(&self) -> usize {
        self.tasks.len().saturating_sub(self.counts.sent)
    }

    /// The tasks that a worker has, the running one first, without the calls that it helps with.
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
        let nodes = self.active;
        let workers = nodes * self.workers_per_node;
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
}
