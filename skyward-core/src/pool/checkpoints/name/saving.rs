//! What ranks save: at which step, what of it is committed, and when a try is over.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Done, Name};
use crate::checkpoint::Commit;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::pool::checkpoints::attempt::Saves;
use crate::pool::checkpoints::messages::{Failure, ToPayload};
use crate::pool::checkpoints::timing::{ASK_PAUSE, LAST_SAVES};
use crate::pool::checkpoints::upload::{Upload, upload};
use crate::pool::mover::Line;
use crate::pool::tasks::files::unexpected;
use crate::worker::message::{FromMover, ToMover};

impl Name {
    /// Asks the ranks for their steps, if one of them wishes that all agree on a step.
    pub(super) fn begin_ask(&mut self) {
        let Some(attempt) = self.attempt.as_ref().filter(|attempt| attempt.is_whole()) else { return };
        if self.ask_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.ask_at = None;
        let Some(ask) = self.asks.begin() else { return };
        for (rank, open) in attempt.living() {
            let (shared, at) = (Arc::clone(&self.shared), open.at.clone());
            self.jobs.push(Box::pin(async move {
                let request = ToMover::Ask { channel: at.number, ask };
                let step = match shared.ask_mover(at.node, Some(&at.machine), Line::Control, &request).await {
                    Ok(FromMover::Step { step }) => Ok(step),
                    Ok(_) => Err(unexpected()),
                    Err(error) => Err(error),
                };
                Done::Stepped { ask, rank, step }
            }));
        }
    }

    pub(super) fn on_step(&mut self, ask: i64, rank: u32, step: Result<i64>) {
        let Some(attempt) = &self.attempt else { return };
        let outcome = match step {
            Ok(step) => self.asks.on_step(ask, rank, step, attempt.living().count()),
            Err(error) => {
                tracing::debug!(name = self.name, rank, %error, "a rank cannot be asked for its step");
                self.ask_at = Some(Instant::now() + ASK_PAUSE);
                self.asks.withdraw(attempt.is_whole())
            }
        };
        if let Some(outcome) = outcome {
            self.tell_target(outcome);
        }
    }

    pub(super) fn tell_target(&self, (target, step): (i64, Option<i64>)) {
        self.tell_all(&ToPayload::Target { target, step });
    }

    /// Begins to commit the newest step that all ranks have saved.
    pub(super) fn begin_upload(&mut self) {
        let uploading = self.uploading.as_ref().map(|(step, _)| *step);
        let Some(attempt) = self.attempt.as_mut().filter(|_| self.claim.is_some()) else { return };
        let Some((step, _)) = attempt.complete() else { return };
        let replaced = attempt.drop_before(step, uploading);
        self.give_up(replaced, "a newer save took its place before it was committed");
        if uploading.is_some() || self.failed.is_some() {
            return;
        }
        let (Some(attempt), Some(claim), Some(start)) = (&self.attempt, &self.claim, &self.start) else { return };
        let Some((_, saves)) = attempt.complete() else { return };
        // A rank that comes later begins with the same checkpoint as the others.
        let is_begun = self.opened.len() as u64 >= u64::from(attempt.ranks());
        let begins = start.commit.as_ref().map(|commit| commit.save().clone()).filter(|_| !is_begun);
        let save = Upload::new(&self.name, attempt.key(), attempt.keep(), step, saves.clone()).sparing(begins);
        let (shared, room, claim) = (Arc::clone(&self.shared), self.room.clone(), Arc::clone(claim));
        let job = save.clone();
        self.jobs.push(Box::pin(async move {
            Done::Uploaded { step, committed: upload(&shared, &room, &claim, job).await }
        }));
        self.uploading = Some((step, save));
    }

    pub(super) fn on_uploaded(&mut self, step: i64, committed: Result<Commit>) {
        self.uploading = None;
        let Some(attempt) = &mut self.attempt else { return };
        match committed {
            Ok(commit) => {
                let done = attempt.on_committed(step);
                self.shared.act(|state, _| {
                    done.iter().for_each(|saved| state.scheduler.on_checkpoint(saved.node));
                });
                self.post.settle(done);
                let (name, bytes) = (self.name.clone(), commit.size());
                self.shared.emit(PoolEvent::CheckpointCommitted { name, step, bytes });
            }
            // The try is over, or the machine is gone: the step is not complete any more.
            Err(error) if matches!(error.kind(), ErrorKind::NodeLost | ErrorKind::Cancelled) => {
                tracing::debug!(name = self.name, step, %error, "a save was given up");
            }
            Err(error) => self.fail(error),
        }
    }

    /// No further save of the try is committed.
    pub(super) fn fail(&mut self, error: Error) {
        if error.kind() == ErrorKind::Superseded {
            self.claim = None;
        }
        tracing::warn!(name = self.name, error = error.summary(), "no further checkpoint of the try is committed");
        self.tell_all(&ToPayload::Failed { failed: Failure::from(&error) });
        self.failed = Some(error);
    }

    pub(super) fn answer_waits(&mut self) {
        let Some(attempt) = &mut self.attempt else { return };
        for (at, n, error) in attempt.answers(self.failed.as_ref()) {
            let answer = match &error {
                None => ToPayload::Done { n },
                Some(error) => ToPayload::refused(n, error),
            };
            self.post.deliver(&at, &answer);
        }
    }

    /// Seals a try whose ranks have ended, when their complete saves are committed or given up: from
    /// then on, nothing of it is committed.
    pub(super) fn seal_if_over(&mut self) {
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| !attempt.is_sealed()) else { return };
        // The next block of the same gang comes when all ranks have used this one.
        let is_followed = self.waiting.iter().any(|(next, ..)| gang_of(&next.key) != gang_of(attempt.key()));
        if !(attempt.is_over() || (attempt.is_left() && is_followed)) {
            return;
        }
        let now = Instant::now();
        let progress = self.uploading.as_ref().map_or(0, |(_, upload)| upload.progress());
        // An upload that goes on may take its time.
        let same = self.sealing.filter(|(before, _)| *before == progress);
        let (_, seal_at) = *self.sealing.insert(same.unwrap_or((progress, now + LAST_SAVES)));
        let is_late = now >= seal_at;
        if let Some((_, upload)) = &self.uploading {
            if is_late {
                // What is being committed may still be: the try is sealed after that.
                upload.give_up();
            }
            return;
        }
        if attempt.complete().is_some() && self.failed.is_none() && self.start.is_some() && !is_late {
            return;
        }
        self.sealing = None;
        let rest = attempt.seal();
        self.give_up(rest, "its try ended before all ranks had saved it");
    }

    /// Removes saves that are not committed.
    pub(super) fn give_up(&self, saves: Vec<(i64, Saves)>, why: &'static str) {
        for (step, saves) in saves {
            self.emit_dropped(step, why);
            self.post.settle(saves.into_values());
        }
    }

    pub(super) fn emit_dropped(&self, step: i64, why: &'static str) {
        self.shared.emit(PoolEvent::CheckpointDropped { name: self.name.clone(), step, why });
    }
}

/// The gang to which a try belongs: all but the number of the block within the gang's try.
fn gang_of(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(gang, _)| gang)
}
