//! Does what the scheduler says: frames to workers, outcomes to callers, commands to the driver.

use std::time::{Duration, Instant};

use super::driver::Command;
use super::lifecycle::Workers;
use super::shared::{After, Entry, Shared, State};
use super::submit::STREAM_WINDOW;
use crate::error::{Error, ErrorKind, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Attempt, Rank};
use crate::payload::{Outcome, Task};
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
                    self.metrics.sent(body.len());
                    pushed = std::mem::replace(&mut pushed, Ok(())).and_then(|()| link.push(&head, body));
                });
                if let Err(error) = ran.and(pushed) {
                    state.scheduler.on_returned(now, rank, task, Err(error), 0);
                }
                after.flush.push(link);
            }
            Action::Started { rank, task, attempt } => {
                let node = state.scheduler.node_of(rank).0;
                if let Some(entry) = state.tasks.get_mut(&task) {
                    let waited = now.saturating_duration_since(entry.since);
                    if entry.began.replace(now).is_none() {
                        state.running += 1;
                        self.metrics.began(waited);
                    }
                    entry.on_started(node, rank, attempt, waited);
                }
                if self.events.receiver_count() > 0 {
                    self.emit(PoolEvent::TaskStarted { task, attempt, rank });
                }
            }
            Action::Finish { task, outcome } => {
                let Some(mut entry) = state.tasks.remove(&task) else { return };
                self.end_try(state, now, &mut entry);
                let outcome = outcome.map_err(|error| named(error, &entry.task));
                self.metrics.ended(&outcome);
                entry.on_finished(&outcome);
                match &outcome {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Cancelled => {
                        self.emit(PoolEvent::TaskCancelled { task });
                    }
                    Err(error) => {
                        self.emit(PoolEvent::TaskFailed { task, error: error.clone() });
                        if error.kind() == ErrorKind::Poisoned {
                            after.refused.push((entry.task.clone(), error.clone()));
                        }
                    }
                }
                after.replies.push((entry.reply, outcome));
            }
            Action::Retried { task, attempt, error } => {
                if let Some(mut entry) = state.tasks.remove(&task) {
                    self.end_try(state, now, &mut entry);
                    entry.on_retried(attempt, &error);
                    state.tasks.insert(task, Entry { since: now, ..entry });
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
            Action::NodeSick { node, error } => self.command(Command::Sick(node, error)),
            Action::NodeDrained { node } => self.command(Command::Drained(node)),
            Action::WorldIdle => self.command(Command::WorldIdle),
        }
    }
}

impl Shared {
    /// A try at a task is over, if a worker had begun with it.
    fn end_try(&self, state: &mut State, now: Instant, entry: &mut Entry) {
        let (began, ran) = (entry.began.take(), entry.ran.take());
        state.running -= usize::from(began.is_some());
        if let (Some(began), Some(ran)) = (began, ran) {
            self.metrics.tried(now.saturating_duration_since(began), ran);
            entry.attempt.record("ran_us", ran.as_micros() as u64);
        }
        entry.attempt = tracing::Span::none();
    }
}

/// The spans of a task: `task`, from its submission to its outcome, and within it `attempt`, from its beginning on a worker to the end of the try.
impl Entry {
    fn on_started(&mut self, node: u32, rank: Rank, attempt: Attempt, waited: Duration) {
        if self.span.is_disabled() {
            return;
        }
        self.span.record("node", node).record("rank", rank.0).record("attempts", attempt.0);
        self.span.record("queued_us", waited.as_micros() as u64);
        let none = tracing::field::Empty;
        self.attempt = tracing::debug_span!(
            target: "skyward::task", parent: &self.span, "attempt", attempt = attempt.0, node, rank = rank.0, ran_us = none,
        );
    }

    fn on_retried(&self, attempt: Attempt, error: &Error) {
        tracing::warn!(target: "skyward::task", parent: &self.span, attempt = attempt.0, error = error.message(), "tried again");
    }

    fn on_finished(&self, outcome: &Outcome) {
        if self.span.is_disabled() {
            return;
        }
        let told = match outcome {
            Ok(_) => "returned",
            Err(error) if error.kind() == ErrorKind::Cancelled => "cancelled",
            Err(error) => {
                tracing::debug!(target: "skyward::task", parent: &self.span, error = error.message(), "failed");
                self.span.record("otel.status_code", "ERROR");
                "failed"
            }
        };
        self.span.record("outcome", told);
    }
}

/// The error of a task that failed by what it is says which payload it was.
fn named(error: Error, task: &Task) -> Error {
    if error.tries().is_empty() && !matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Stalled) {
        return error;
    }
    error.with_context("entry", task.source.entry()).with_context("payload", task.source.main())
}
