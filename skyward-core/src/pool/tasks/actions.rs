//! Carries out the actions that the scheduler decides: frames to workers, outcomes to callers,
//! commands to the driver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::after::After;
use super::effect::Effect;
use super::shared::Shared;
use super::state::State;
use super::task::{Entry, Reply};
use crate::error::WorkerExit;
use crate::ids::{Attempt, Rank, TaskId};
use crate::pool::command::Command;
use crate::scheduler::Action;
use crate::worker::message::{Signal, ToWorker};
use crate::worker::session::Outgoing;

impl Shared {
    /// Lets the scheduler do a slice of its work, and carries out the actions that result. Returns
    /// whether the scheduler has more work.
    pub(crate) fn perform(&self, state: &mut State, now: Instant, after: &mut After) -> bool {
        state.scheduler.work(now);
        let mut actions = Vec::new();
        loop {
            state.scheduler.take_actions(&mut actions);
            if actions.is_empty() {
                return state.scheduler.has_work();
            }
            for action in actions.drain(..) {
                self.perform_one(state, now, action, after);
            }
        }
    }

    fn perform_one(&self, state: &mut State, now: Instant, action: Action, after: &mut After) {
        match action {
            Action::Send { rank, task } => state.send(now, rank, task, after),
            Action::Started { rank, task, attempt, waited } => state.start(now, rank, task, attempt, waited),
            Action::Finish { task, outcome } => {
                state.conclude_calls(task);
                let Some(mut entry) = state.tasks.remove(now, task) else { return };
                let ran = entry.ran.unwrap_or_default();
                state.effects.extend(entry.tried(now));
                let unread = entry.unread.take();
                if let Reply::Caller(caller, _) = entry.reply {
                    state.answer(caller, &outcome, ran, after);
                }
                state.emit_after(now, unread, Effect::Finished { task, entry, outcome });
            }
            Action::Retried { task, attempt, error } => {
                state.conclude_calls(task);
                let Some(entry) = state.tasks.get(task) else { return };
                let (tried, spans) = (entry.tried(now), entry.spans.clone());
                state.tasks.again(now, task);
                state.effects.extend(tried);
                state.effects.push(Effect::Retried { task, attempt, error, spans });
            }
            Action::Help { rank, task, within } => state.help(now, rank, task, within, after),
            Action::Cancel { rank, task, interrupt } => {
                if state.cancel_help(rank, task, after) {
                    return;
                }
                let run = state.workers.get(rank).and_then(|row| row.session.run_of(task));
                if let Some(run) = run {
                    state.push_to_worker(rank, ToWorker::Cancel { run }, after);
                }
                if interrupt {
                    state.signal(rank, Signal::Interrupt, after);
                }
            }
            Action::Kill { rank } => state.kill(rank, WorkerExit::Killed, after),
            Action::Recall { rank } => state.recall(rank, after),
            Action::Inspect { rank, task } => {
                let waits_for_reader = state
                    .tasks
                    .get(task)
                    .and_then(|entry| entry.items.as_ref())
                    .is_some_and(|items| items.capacity() == 0);
                if waits_for_reader {
                    // A generator proceeds only as fast as its items are read.
                    state.scheduler.on_progress(now, rank);
                } else {
                    state.signal(rank, Signal::Stacks, after);
                }
            }
            Action::Locate { rank } => state.signal(rank, Signal::Stacks, after),
            Action::Stalled { tasks, silent, stacks } => {
                // If no task of the gang has a caller that waits, the gang is already being ended.
                let waited = tasks.into_iter().find_map(|task| Some((task, state.tasks.get(task)?)));
                let Some((task, entry)) = waited else { return };
                let source = Arc::clone(&entry.task.source);
                state.effects.push(Effect::Stalled { task, source, silent, stacks });
            }
            Action::Lost { rank, loss } => {
                if state.scheduler.is_joined() {
                    state.effects.push(Effect::WorldLost(rank));
                }
                self.command(Command::WorkerLost(rank, loss));
            }
            Action::NodeDrained { node } => self.command(Command::Drained(node)),
            Action::WorldIdle => self.command(Command::WorldIdle),
        }
    }
}

impl State {
    fn send(&mut self, now: Instant, rank: Rank, task: TaskId, after: &mut After) {
        let (Some(entry), Some(row)) = (self.tasks.get_mut(task), self.workers.get_mut(rank)) else {
            return;
        };
        entry.next_item = 0;
        let (effects, link) = (&mut self.effects, row.connection.link());
        let mut push = |(head, body): Outgoing| {
            let Some(link) = link else { return };
            effects.sent(body.len());
            // A message that does not go out over this connection goes out over the next.
            let _ = link.push(&head, body);
        };
        let sent = row.session.run(task, entry.call(task, &self.scheduler), link.is_some().then_some(&mut push));
        after.flush.extend(link.cloned());
        if let Err(error) = sent {
            self.scheduler.on_returned(now, rank, task, Err(error), 0);
        }
    }

    fn start(&mut self, now: Instant, rank: Rank, task: TaskId, attempt: Attempt, waited: Duration) {
        let Some(entry) = self.tasks.get(task) else { return };
        if entry.root().is_some() && self.scheduler.runner(task) != Some(rank) {
            // The worker could not be asked to help after all, and the call waits again.
            return;
        }
        let node = self.scheduler.node_of(rank);
        let spans = entry.spans.clone();
        let Some(first) = self.tasks.begin(now, task) else { return };
        self.effects.push(Effect::Began { task, attempt, node, rank, waited, spans, first });
    }
}

impl Entry {
    /// The report of a try that is over, if its payload has run.
    fn tried(&self, now: Instant) -> Option<Effect> {
        let (began, ran) = (self.began?, self.ran?);
        let took = now.saturating_duration_since(began);
        Some(Effect::Tried { took, ran, spans: self.spans.clone() })
    }
}
