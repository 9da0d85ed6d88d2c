//! How tries follow each other: who has the name, what a try begins with, and what its ranks get of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Done, Name};
use crate::checkpoint::Skipped;
use crate::error::Result;
use crate::event::PoolEvent;
use crate::pool::checkpoints::ask::Asks;
use crate::pool::checkpoints::attempt::{Attempt, Joined};
use crate::pool::checkpoints::messages::ToPayload;
use crate::pool::checkpoints::restore::{Start, begin, restore};
use crate::pool::checkpoints::timing::{IDLE, PREDECESSOR, RENEW_PAUSE};

impl Name {
    /// Begins the next try, when the one before is sealed.
    pub(super) fn begin_try(&mut self) {
        let Some((first, ..)) = self.waiting.first() else { return };
        if self.attempt.as_ref().is_some_and(|attempt| !attempt.is_sealed()) {
            return self.look_at_predecessor();
        }
        if self.uploading.is_some() || self.is_changing_hands {
            return;
        }
        self.is_changing_hands = true;
        let key = first.key.clone();
        let mut attempt = Attempt::of(first);
        let ranks: Vec<_> = self.waiting.extract_if(.., |(each, ..)| each.key == key).collect();
        for (opening, at, _) in ranks {
            if attempt.join(&opening, at.clone()) != Joined::New {
                self.refuse(&opening, &at, &self.in_use());
            }
        }
        self.attempt = Some(attempt);
        (self.start, self.failed, self.asks, self.ask_at) = (None, None, Asks::default(), None);
        self.opened.clear();
        let begins = begin(Arc::clone(&self.shared), self.storage.clone(), self.name.clone(), self.claim.clone());
        self.jobs.push(Box::pin(async move { Done::Begun(begins.await) }));
    }

    /// The next try waits for this one: ends the ranks whose workers have ended, and refuses those
    /// that have waited for too long.
    fn look_at_predecessor(&mut self) {
        let ended: Vec<String> = {
            let mut state = self.shared.lock();
            let mut has_ended =
                |rank, generation| state.row(rank, generation).is_none_or(|row| row.process.has_ended());
            let living = self.attempt.iter().flat_map(Attempt::living);
            living
                .filter(|(_, open)| has_ended(open.worker.0, open.worker.1))
                .map(|(_, open)| open.id.clone())
                .collect()
        };
        if !ended.is_empty() {
            self.end_ranks(|attempt| attempt.end(|open| ended.contains(&open.id)));
        }
        if self.attempt.as_ref().is_some_and(Attempt::is_left) {
            // Its last saves are being committed: those who wait have deadlines of their own.
            self.waiting.iter_mut().for_each(|(.., since)| *since = Instant::now());
        }
        let late: Vec<_> = self.waiting.extract_if(.., |(_, _, since)| since.elapsed() >= PREDECESSOR).collect();
        for (opening, at, _) in late {
            self.refuse(&opening, &at, &self.in_use());
        }
    }

    pub(super) fn on_begun(&mut self, begun: Result<Start>) {
        self.is_changing_hands = false;
        match begun {
            Ok(start) => {
                self.claim = Some(Arc::clone(&start.claim));
                self.renew_at = Instant::now() + RENEW_PAUSE;
                for Skipped { sequence, step, why } in start.skipped.clone() {
                    self.shared.emit(PoolEvent::CheckpointSkipped { name: self.name.clone(), sequence, step, why });
                }
                let step = start.commit.as_ref().map(|commit| commit.step());
                self.shared.emit(PoolEvent::CheckpointResumed { name: self.name.clone(), step });
                let kept: BTreeSet<String> = self.attempt.iter().flat_map(|it| start.folders(it.ranks())).collect();
                for (machine, (node, folders)) in &mut self.restored {
                    let old: Vec<String> = folders.difference(&kept).cloned().collect();
                    for folder in old {
                        folders.remove(&folder);
                        self.post.remove(*node, machine, folder);
                    }
                }
                self.start = Some(start);
                let opens: Vec<String> =
                    self.attempt.iter().flat_map(Attempt::living).map(|(_, open)| open.id.clone()).collect();
                opens.iter().for_each(|open| self.restore_for(open));
            }
            Err(error) => {
                for (_, open) in self.attempt.iter().flat_map(Attempt::living) {
                    self.post.deliver(&open.at, &ToPayload::refused(open.n, &error));
                }
                self.fail(error);
                // Ranks that come later are refused too.
                self.end_ranks(|attempt| attempt.end(|_| true));
                let rest = self.attempt.as_mut().map(Attempt::seal).unwrap_or_default();
                self.give_up(rest, "its try could not begin");
            }
        }
    }

    /// Brings what the try begins with to the node of a rank, when that is known.
    pub(super) fn restore_for(&mut self, id: &str) {
        let (Some(start), Some(attempt)) = (&self.start, &self.attempt) else { return };
        let Some((rank, open)) = attempt.open(id) else { return };
        let (n, own, at) = (open.n, open.own.then_some(rank), open.at.clone());
        if let Some(folder) = start.folder(own) {
            let (_, folders) = self.restored.entry(at.machine.clone()).or_insert((at.node, BTreeSet::new()));
            folders.insert(folder);
        }
        let (shared, start, open) = (Arc::clone(&self.shared), start.clone(), id.to_owned());
        let room = self.room.clone();
        self.jobs.push(Box::pin(async move {
            let _room = room.to_restore().await;
            let answer = restore(&shared, &start, &at, own, n).await;
            Done::Restored { open, answer }
        }));
    }

    pub(super) fn on_restored(&mut self, id: String, answer: Result<ToPayload>) {
        let Some((_, open)) = self.attempt.as_ref().and_then(|attempt| attempt.open(&id)) else { return };
        let answer = answer.unwrap_or_else(|error| ToPayload::refused(open.n, &error));
        self.post.deliver(&open.at, &answer);
        self.opened.insert(id, answer);
    }

    pub(super) fn renew(&mut self) {
        self.renew_at = Instant::now() + RENEW_PAUSE;
        let Some(claim) = self.claim.clone() else { return };
        self.jobs.push(Box::pin(async move {
            let renewed = claim.renew().await;
            Done::Renewed { claim, renewed }
        }));
    }

    /// Gives the name back when nobody has used it for a while: another pool may need it.
    pub(super) fn release_if_idle(&mut self) {
        let is_used = self.attempt.as_ref().is_some_and(|attempt| !attempt.is_sealed()) || !self.waiting.is_empty();
        if is_used || self.is_changing_hands || self.claim.is_none() {
            self.idle_since = None;
        } else if self.idle_since.get_or_insert_with(Instant::now).elapsed() >= IDLE
            && let Some(claim) = self.claim.take()
        {
            self.is_changing_hands = true;
            self.jobs.push(Box::pin(async move {
                if let Err(error) = claim.release().await {
                    tracing::debug!(%error, "a name is not given back, and expires");
                }
                Done::Released
            }));
        }
    }
}
