//! Which task runs on which worker: events in, actions out. No I/O, no clock: `now` is passed in.
//!
//! - Tasks for any worker run in the order in which they came. A task for one rank or node waits for that one alone.
//! - A gang (one task per rank, in a joined world) starts when every worker is idle; tasks that came after it wait until it has started, so it is never starved.
//! - Behind a running task a worker gets more only while its tasks are short (see [`policy::depth`]), so that a long task never holds others that another worker could run.
//! - When a worker of a joined world is lost, the world ends: every worker is started again, and what may be tried again is.
//! - A worker that is lost while it runs a task is that task's doing, and only tasks fail by it. Workers that are lost one after another while they run nothing end the pool.
//! - A node that is lost is replaced; so often in a row without a task returning, and then the pool gives up. One whose workers cannot be started while those of the others can is sick, and as good as lost.
//! - A node that is to leave runs what it has and what was submitted for it by name, and takes nothing else. A world whose size is to change finishes the gangs that it has first, and takes no other.

mod ending;
mod gang;
mod loss;
mod nodes;
pub mod policy;
mod queue;
mod size;
mod stall;
mod state;
mod tries;
mod waiting;

#[cfg(test)]
mod tests;

use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Attempt, NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Target, TaskOptions};

pub use state::Scheduler;
use tries::Next;

/// What the owner of a [`Scheduler`] has to do, in this order.
#[derive(Debug, Clone)]
pub enum Action {
    /// Send the task to the worker.
    Send {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
    },
    /// The worker begins with the task about now.
    Started {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
    },
    /// Give the task's caller its outcome, and forget the task's arguments.
    Finish {
        /// Which task.
        task: TaskId,
        /// How it ended.
        outcome: Outcome,
    },
    /// The task is tried again.
    Retried {
        /// Which task.
        task: TaskId,
        /// The try that comes.
        attempt: Attempt,
        /// Why the one before failed.
        error: Error,
    },
    /// Tell the worker to drop or to end the task.
    Cancel {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
        /// Whether it is running, so that the agent has to interrupt the worker.
        interrupt: bool,
    },
    /// End the worker's whole process tree: it did not heed an interrupt.
    Kill {
        /// Which worker.
        rank: Rank,
    },
    /// Ask the worker where it is: [`Scheduler::on_stacks`] takes the answer.
    Inspect {
        /// Which worker.
        rank: Rank,
        /// What it runs.
        task: TaskId,
    },
    /// Start this worker again.
    RestartWorker {
        /// Which worker.
        rank: Rank,
    },
    /// End every worker and start all of them together, as a new generation.
    RestartWorld {
        /// The first that was lost, or that is to be ended.
        lost: Rank,
    },
    /// End what is left of this node's machine, launch another, and start its workers there; in a joined world all workers.
    ReplaceNode {
        /// Which node.
        node: NodeIndex,
    },
    /// The node's machine is of no use: its workers cannot be started. It is to be taken for lost.
    NodeSick {
        /// Which node.
        node: NodeIndex,
        /// What the last start failed with.
        error: Error,
    },
    /// A node that is to leave has nothing more to do.
    NodeDrained {
        /// Which node.
        node: NodeIndex,
    },
    /// A world whose size is to change has nothing more to do.
    WorldIdle,
}

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

    /// Takes a gang: one task per rank, in the order of ranks.
    pub fn submit_gang(&mut self, now: Instant, ids: &[TaskId], options: TaskOptions, streaming: bool) {
        debug_assert_eq!(ids.len(), self.workers.len());
        debug_assert!(!self.held);
        let gang = ids.first().copied();
        for (rank, id) in ids.iter().enumerate() {
            self.insert(*id, Target::Rank(Rank(rank as u32)), options, streaming, gang);
        }
        self.enqueue_gang(ids);
        self.fill_all(now);
        // The gang waits as one, if it does.
        if let Some(first) = gang.filter(|first| self.tasks.get(first).is_some_and(|task| task.sent_to.is_none())) {
            self.wait(now, first);
        }
    }

    /// A worker has entered its hooks.
    pub fn on_ready(&mut self, now: Instant, rank: Rank) {
        let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return };
        debug_assert!(worker.sent.is_empty());
        worker.ready = true;
        worker.idle_since = Some(now);
        worker.leaving = false;
        worker.unheard = false;
        self.nodes[worker.node].on_ready(now);
        self.refresh(rank);
        self.fill_all(now);
    }

    /// A worker answered a task.
    pub fn on_returned(&mut self, now: Instant, rank: Rank, id: TaskId, outcome: Outcome, micros: u64) {
        let worker = &mut self.workers[rank.0 as usize];
        let Some(place) = worker.sent.iter().position(|sent| *sent == id) else { return };
        self.on_progress(now, rank);
        let worker = &mut self.workers[rank.0 as usize];
        worker.sent.remove(place);
        worker.average.add(micros);
        worker.idle_since = Some(now);
        self.nodes[worker.node].on_returned();
        if place == 0 {
            self.forget_ending(rank);
        }
        self.barren_restarts = 0;
        // A gang that goes lifts the barrier for every worker.
        let gangs = !self.gangs.is_empty();
        self.disarm(id);
        self.settle(now, id, outcome);
        if place == 0 {
            self.begin_front(now, rank);
        }
        self.refresh(rank);
        if gangs || !self.gangs.is_empty() {
            self.fill_all(now);
        } else {
            self.fill(now, rank);
        }
    }

    /// A worker does not know a task that was sent to it: the frame was lost with its connection. It is sent again; that is no further try.
    pub fn on_missing(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let worker = &mut self.workers[rank.0 as usize];
        let Some(place) = worker.sent.iter().position(|sent| *sent == id) else { return };
        worker.sent.remove(place);
        if place == 0 {
            self.forget_ending(rank);
        }
        let unwanted = self.tasks.get(&id).is_none_or(|task| task.abandoned || self.is_retrying(task.gang));
        if unwanted {
            // Nobody waits for it, or all of its gang begin anew; and the worker has never seen it.
            self.disarm(id);
            self.settle(now, id, Err(Error::new(ErrorKind::Cancelled, "the task was cancelled before it began")));
            if place == 0 {
                self.begin_front(now, rank);
            }
            self.refresh(rank);
            return self.fill_all(now);
        }
        let worker = &mut self.workers[rank.0 as usize];
        worker.sent.push_back(id);
        let passed = place == 0 && worker.sent.len() > 1;
        self.actions.push(Action::Send { rank, task: id });
        if passed {
            // The worker runs the one behind it now: the time that counts is that one's.
            self.disarm(id);
            self.wait(now, id);
            self.begin_front(now, rank);
        }
    }

    /// A task's caller does not wait any more.
    pub fn cancel(&mut self, now: Instant, id: TaskId) {
        let error = Error::new(ErrorKind::Cancelled, "the task was cancelled: its caller does not wait any more");
        self.abandon(now, id, error);
    }

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
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
                state::Timer::Again(rank) => self.on_still_running(now, rank),
                state::Timer::Grace(rank) => self.on_grace_over(rank),
            }
        }
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Ends everything: every task that waits or runs fails with this error, and no task is taken.
    pub fn fail(&mut self, error: Error) {
        let mut ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(task) = self.tasks.remove(&id)
                && !task.abandoned
            {
                self.actions.push(Action::Finish { task: id, outcome: Err(error.clone()) });
            }
        }
        self.clear();
        self.held = false;
        // What comes after the first failure is its consequence.
        self.failed.get_or_insert(error);
    }

    /// Waiting tasks fail with this error; running ones are interrupted and fail with it too. Gives the workers that are busy.
    pub fn drain(&mut self, now: Instant, error: &Error) -> Vec<Rank> {
        let mut ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.abandon(now, id, error.clone());
        }
        self.failed = Some(error.clone());
        self.held = false;
        self.ranks().filter(|rank| !self.workers[rank.0 as usize].sent.is_empty()).collect()
    }

    /// What the pool cannot take tasks for, if it cannot.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// What is to be done since the last call.
    pub fn take_actions(&mut self, into: &mut Vec<Action>) {
        self.tell_departures();
        into.append(&mut self.actions);
    }

    /// Tasks that wait for a worker.
    pub fn queued(&self) -> usize {
        self.tasks.values().filter(|task| task.sent_to.is_none()).count()
    }

    /// The tasks that a worker has, the running one first.
    pub fn sent(&self, rank: Rank) -> impl Iterator<Item = TaskId> + '_ {
        self.workers.get(rank.0 as usize).into_iter().flat_map(|worker| worker.sent.iter().copied())
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

    /// Ends a task for its caller; a worker that has it is told, and gets the grace to heed.
    fn abandon(&mut self, now: Instant, id: TaskId, error: Error) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.abandoned {
            return;
        }
        task.abandoned = true;
        let (sent_to, gang) = (task.sent_to, task.gang);
        self.disarm(id);
        self.actions.push(Action::Finish { task: id, outcome: Err(error) });
        if let Some(first) = gang {
            self.leave_gang(first, id);
        }
        match sent_to {
            None => {
                self.unqueue(id);
                self.tasks.remove(&id);
                self.fill_all(now);
            }
            Some(rank) => {
                let interrupt = self.workers[rank.0 as usize].sent.front() == Some(&id);
                if interrupt {
                    self.interrupt(now, rank, id);
                } else {
                    self.actions.push(Action::Cancel { rank, task: id, interrupt });
                }
            }
        }
    }

    /// Gives a task its outcome, or tries it again.
    fn settle(&mut self, now: Instant, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.sent_to = None;
        if let Some(first) = task.gang {
            return self.settle_member(now, first, id, outcome);
        }
        if task.abandoned {
            self.tasks.remove(&id);
            return;
        }
        let error = match outcome {
            Ok(value) => return self.finish(id, Ok(value)),
            Err(error) => error,
        };
        match task.tries.next(id, error, task.retry(), self.limits.poison) {
            Next::Again(attempt, error) => {
                self.actions.push(Action::Retried { task: id, attempt, error });
                self.queue_front(id);
                self.wait(now, id);
                self.place(now, id);
            }
            Next::Over(error) => self.finish(id, Err(error)),
        }
    }

    fn finish(&mut self, id: TaskId, outcome: Outcome) {
        self.tasks.remove(&id);
        self.actions.push(Action::Finish { task: id, outcome });
    }

    /// The first task of a worker begins about now.
    fn begin_front(&mut self, now: Instant, rank: Rank) {
        let Some(id) = self.workers[rank.0 as usize].sent.front().copied() else { return };
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.abandoned {
            // It was cancelled while it waited on the worker; the worker may be past the point where it reads that.
            return self.interrupt(now, rank, id);
        }
        self.actions.push(Action::Started { rank, task: id, attempt: task.tries.attempt });
        if let Some(waited) = task.timer.take() {
            self.timers.remove(waited);
        }
        if let Some(timeout) = task.options.timeout {
            task.timer = self.timers.add(now, timeout, state::Timer::Run(id));
        }
    }

    /// What the task waits for has come.
    fn disarm(&mut self, id: TaskId) {
        if let Some(timer) = self.tasks.get_mut(&id).and_then(|task| task.timer.take()) {
            self.timers.remove(timer);
        }
    }

    fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.workers.len() as u32).map(Rank)
    }
}
