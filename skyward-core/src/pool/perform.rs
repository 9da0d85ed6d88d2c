//! Does what the scheduler says: frames to workers, outcomes to callers, commands to the driver.

use std::time::Instant;

use super::driver::Command;
use super::lifecycle::Workers;
use super::shared::{After, Shared, State};
use super::submit::STREAM_WINDOW;
use crate::error::{Error, ErrorKind, WorkerExit};
use crate::event::PoolEvent;
use crate::payload::Task;
use crate::scheduler::Action;
use crate::worker::message::{Signal, ToWorker};

impl Shared {
    pub(crate) fn perform(&self, state: &mut State, now: Instant, after: &mut After) {
        let mut actions = Vec::new();
        loop {
            state.scheduler.take_actions(&mut actions);
            if actions.is_empty() {
                return;
            }
            for action in actions.drain(..) {
                self.perform_one(state, now, action, after);
            }
        }
    }

    fn perform_one(&self, state: &mut State, now: Instant, action: Action, after: &mut After) {
        match action {
            Action::Send { rank, task } => {
                let (Some(entry), Some(slot)) = (state.tasks.get_mut(&task), state.workers.get_mut(rank.0 as usize))
                else {
                    return;
                };
                let Some(link) = slot.link.clone() else { return };
                let credit = if entry.items.is_some() { STREAM_WINDOW } else { 0 };
                entry.next_item = 0;
                let mut pushed = Ok(());
                let ran = slot.session.run(task, &entry.task, credit, entry.gang, |(head, body)| {
                    pushed = std::mem::replace(&mut pushed, Ok(())).and_then(|()| link.push(&head, body));
                });
                if let Err(error) = ran.and(pushed) {
                    state.scheduler.on_returned(now, rank, task, Err(error), 0);
                }
                after.flush.push(link);
            }
            Action::Started { rank, task, attempt } => {
                let node = state.scheduler.node_of(rank).0;
                if let Some(entry) = state.tasks.get(&task) {
                    entry.span.record("node", node).record("rank", rank.0);
                    tracing::debug!(parent: &entry.span, attempt = attempt.0, "started");
                }
                if self.events.receiver_count() > 0 {
                    self.emit(PoolEvent::TaskStarted { task, attempt, rank });
                }
            }
            Action::Finish { task, outcome } => {
                let Some(entry) = state.tasks.remove(&task) else { return };
                let outcome = outcome.map_err(|error| named(error, &entry.task));
                match &outcome {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Cancelled => {
                        tracing::debug!(parent: &entry.span, "cancelled");
                        self.emit(PoolEvent::TaskCancelled { task });
                    }
                    Err(error) => {
                        tracing::debug!(parent: &entry.span, error = error.message(), "failed");
                        self.emit(PoolEvent::TaskFailed { task, error: error.clone() });
                        if error.kind() == ErrorKind::Poisoned {
                            after.refused.push((entry.task.clone(), error.clone()));
                        }
                    }
                }
                after.replies.push((entry.reply, outcome));
            }
            Action::Retried { task, attempt, error } => {
                if let Some(entry) = state.tasks.get(&task) {
                    tracing::warn!(parent: &entry.span, attempt = attempt.0, error = error.message(), "tried again");
                }
                self.emit(PoolEvent::TaskRetried { task, attempt, error });
            }
            Action::Cancel { rank, task, interrupt } => {
                state.push_to_worker(rank, ToWorker::Cancel { task: task.0 }, after);
                if interrupt {
                    state.signal(rank, Signal::Interrupt, after);
                }
            }
            Action::Kill { rank } => state.kill(rank, WorkerExit::Killed, after),
            Action::Inspect { rank, task } => {
                let waits_for_reader = state
                    .tasks
                    .get(&task)
                    .and_then(|entry| entry.items.as_ref())
                    .is_some_and(|items| items.capacity() == 0);
                if waits_for_reader {
                    // A generator goes on only as fast as its items are taken.
                    state.scheduler.on_progress(now, rank);
                } else {
                    state.signal(rank, Signal::Stacks, after);
                }
            }
            Action::RestartWorker { rank } => self.command(Command::Restart(Workers::One(rank))),
            Action::RestartWorld { lost } => {
                tracing::warn!(pool = %self.pool, rank = lost.0, "a worker of the world was lost: all are started again");
                self.command(Command::Restart(Workers::World));
            }
            Action::ReplaceNode { node } => self.command(Command::Replace(node)),
        }
    }
}

/// The error of a task that failed by what it is says which payload it was.
fn named(error: Error, task: &Task) -> Error {
    if error.tries().is_empty() && !matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Stalled) {
        return error;
    }
    error.with_context("entry", task.source.entry()).with_context("payload", task.source.main())
}
