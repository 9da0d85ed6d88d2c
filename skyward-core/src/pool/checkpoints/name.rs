//! The task of one name: decides what a try begins with, which saves are committed, and when a try is
//! over.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::ask::Asks;
use super::attempt::{Attempt, Channel, Joined, Saved, Saves};
use super::messages::{Failure, Opening, ToPayload};
use super::post::Post;
use super::restore::{Start, begin, restore};
use super::room::Room;
use super::timing::{ASK_PAUSE, IDLE, LAST_SAVES, LOOK, PREDECESSOR, RELEASE, RENEW_PAUSE};
use super::upload::{Upload, upload};
use crate::checkpoint::{Claim, Commit, Skipped};
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{MachineId, NodeIndex};
use crate::pool::mover::Line;
use crate::pool::tasks::files::unexpected;
use crate::pool::tasks::shared::Shared;
use crate::storage::Storage;
use crate::worker::message::{FromMover, ToMover};

/// What the task of a name hears.
#[derive(Debug)]
pub(super) enum Heard {
    Open(Opening, Channel),
    Due {
        open: String,
        step: i64,
        from: Channel,
    },
    Wait {
        n: u64,
        open: String,
        step: i64,
        from: Channel,
    },
    Close {
        open: String,
        from: Channel,
    },
    /// A worker's connection has ended.
    Closed(Channel),
    MachineGone(MachineId),
    /// A save is complete on its node.
    Saved {
        key: String,
        step: i64,
        saved: Saved,
    },
}

/// What a job of the task has done.
enum Done {
    Begun(Result<Start>),
    Restored { open: String, answer: Result<ToPayload> },
    Uploaded { step: i64, committed: Result<Commit> },
    Stepped { ask: i64, rank: u32, step: Result<i64> },
    Renewed { claim: Arc<Claim>, renewed: Result<()> },
    Released,
}

/// The task of a name.
pub(super) struct Name {
    shared: Arc<Shared>,
    storage: Storage,
    room: Room,
    name: String,
    inbox: mpsc::UnboundedReceiver<Heard>,
    post: Post,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    /// This pool's hold of the name, from its first use on.
    claim: Option<Arc<Claim>>,
    renew_at: Instant,
    attempt: Option<Attempt>,
    /// Whether the name is being taken or given back.
    is_changing_hands: bool,
    /// Since when nobody uses the name.
    idle_since: Option<Instant>,
    /// The folders that were restored on each machine.
    restored: HashMap<MachineId, (NodeIndex, BTreeSet<String>)>,
    /// What the try begins with, when it is known: the same for all ranks.
    start: Option<Start>,
    /// The answers to those who use the name, for those that ask again.
    opened: HashMap<String, ToPayload>,
    asks: Asks,
    /// When the ranks are asked again, after one could not be.
    ask_at: Option<Instant>,
    /// The step whose saves are under way to the storage.
    uploading: Option<(i64, Upload)>,
    /// Why no further save of the try is committed.
    failed: Option<Error>,
    /// When the last saves of the try are given up.
    seal_at: Option<Instant>,
    /// How far the last save was when that was set.
    last_progress: Option<u64>,
    /// The ranks of later tries, and since when they wait.
    waiting: Vec<(Opening, Channel, Instant)>,
}

impl Name {
    pub(super) fn new(
        shared: &Arc<Shared>,
        storage: &Storage,
        room: &Room,
        name: String,
        inbox: mpsc::UnboundedReceiver<Heard>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            storage: storage.clone(),
            room: room.clone(),
            name,
            inbox,
            post: Post(Arc::clone(shared)),
            jobs: FuturesUnordered::new(),
            claim: None,
            renew_at: Instant::now(),
            attempt: None,
            is_changing_hands: false,
            idle_since: None,
            restored: HashMap::new(),
            start: None,
            opened: HashMap::new(),
            asks: Asks::default(),
            ask_at: None,
            uploading: None,
            failed: None,
            seal_at: None,
            last_progress: None,
            waiting: Vec::new(),
        }
    }

    /// Serves until the desk ends, and gives the name back.
    pub(super) async fn run(mut self) {
        loop {
            let looks = !self.waiting.is_empty() || self.seal_at.is_some() || self.ask_at.is_some();
            tokio::select! {
                biased;
                heard = self.inbox.recv() => match heard {
                    Some(heard) => self.on_heard(heard),
                    None => break,
                },
                Some(done) = self.jobs.next() => self.on_done(done),
                () = sleep_until(self.renew_at), if self.claim.is_some() => self.renew(),
                () = sleep(LOOK), if looks => {}
            }
            self.advance();
        }
        // What a job holds of the name ends first.
        self.jobs.clear();
        if let Some(claim) = self.claim.take() {
            let released = tokio::time::timeout(RELEASE, claim.release()).await;
            if let Ok(Err(error)) = released {
                tracing::debug!(name = self.name, %error, "the name is not given back, and expires");
            }
        }
    }

    fn on_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Open(opening, at) => self.on_open(opening, at),
            Heard::Due { open, step, from } => {
                if self.attempt.as_ref().is_some_and(|attempt| attempt.is_at(&open, &from)) {
                    self.asks.wish(step);
                }
            }
            Heard::Wait { n, open, step, from } => {
                if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.is_at(&open, &from)) {
                    attempt.wait(open, n, step);
                }
            }
            Heard::Close { open: id, from } => {
                self.waiting.retain(|(opening, at, _)| opening.open != id || *at != from);
                if self.attempt.as_ref().is_some_and(|attempt| attempt.is_at(&id, &from)) {
                    self.opened.remove(&id);
                    self.end_ranks(|attempt| attempt.end(|open| open.id == id));
                }
            }
            Heard::Closed(channel) => {
                self.waiting.retain(|(_, at, _)| *at != channel);
                self.end_ranks(|attempt| attempt.end(|open| open.at == channel));
            }
            Heard::MachineGone(machine) => {
                self.waiting.retain(|(_, at, _)| at.machine != machine);
                self.restored.remove(&machine);
                let mut lost = Vec::new();
                self.end_ranks(|attempt| {
                    let before = attempt.living().count();
                    lost = attempt.on_machine_gone(&machine);
                    attempt.living().count() < before
                });
                for step in lost {
                    self.emit_dropped(step, "a machine was lost before its save was committed");
                }
            }
            Heard::Saved { key, step, saved } => {
                let attempt = self.attempt.as_mut().filter(|attempt| attempt.key() == key);
                if let Err(late) = attempt.map_or(Err(saved.clone()), |attempt| attempt.save(step, saved)) {
                    self.post.settle([late]);
                }
            }
        }
    }

    /// Ranks end. An ask that they have not answered cannot be.
    fn end_ranks(&mut self, end: impl FnOnce(&mut Attempt) -> bool) {
        let Some(attempt) = &mut self.attempt else { return };
        if end(attempt)
            && let Some(outcome) = self.asks.withdraw(false)
        {
            self.tell_target(outcome);
        }
    }

    fn on_open(&mut self, opening: Opening, at: Channel) {
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.key() == opening.key);
        let Some(attempt) = attempt else {
            self.waiting.retain(|(known, ..)| known.open != opening.open);
            self.waiting.push((opening, at, Instant::now()));
            return;
        };
        match attempt.join(&opening, at.clone()) {
            Joined::New => self.restore_for(&opening.open),
            Joined::Known => {
                if let Some(answer) = self.opened.get(&opening.open) {
                    self.post.deliver(&at, answer);
                }
                if let Some((target, step)) = self.asks.outcome() {
                    self.post.deliver(&at, &ToPayload::Target { target, step });
                }
                if let Some(error) = &self.failed {
                    self.post.deliver(&at, &ToPayload::Failed { failed: Failure::from(error) });
                }
            }
            Joined::Taken => self.refuse(&opening, &at, &self.in_use()),
            Joined::Late => {
                let error = Error::new(
                    ErrorKind::InUse,
                    format!("the try of {} to which this rank belongs is over", self.name),
                );
                self.refuse(&opening, &at, &error);
            }
        }
    }

    fn refuse(&self, opening: &Opening, at: &Channel, error: &Error) {
        self.post.deliver(at, &ToPayload::Refused { n: opening.n, error: Failure::from(error) });
    }

    fn in_use(&self) -> Error {
        Error::new(ErrorKind::InUse, format!("another task of this pool uses the checkpoints of {} now", self.name))
            .with_hint(
                "give each training a name of its own; ranks outside of a joined world are trainings of their own",
            )
    }

    /// Does all that can be done now.
    fn advance(&mut self) {
        self.begin_ask();
        self.begin_upload();
        self.answer_waits();
        self.seal_if_over();
        self.begin_try();
        self.release_if_idle();
    }

    /// Begins to ask the ranks for the steps that they have reached, if that is wished.
    fn begin_ask(&mut self) {
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

    fn on_step(&mut self, ask: i64, rank: u32, step: Result<i64>) {
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

    fn tell_target(&self, (target, step): (i64, Option<i64>)) {
        for (_, open) in self.attempt.iter().flat_map(Attempt::living) {
            self.post.deliver(&open.at, &ToPayload::Target { target, step });
        }
    }

    /// Begins to commit the newest step that all ranks have saved.
    fn begin_upload(&mut self) {
        let (Some(attempt), Some(claim)) = (&mut self.attempt, &self.claim) else { return };
        let Some((step, saves)) = attempt.complete().map(|(step, saves)| (step, saves.clone())) else { return };
        let under_way = self.uploading.as_ref().map(|(step, _)| *step);
        let dropped = attempt.drop_before(step, under_way);
        if under_way.is_some() || self.failed.is_some() {
            return self.give_up(dropped, REPLACED);
        }
        let Some(start) = &self.start else { return self.give_up(dropped, REPLACED) };
        // A rank that comes later begins with the same checkpoint as the others.
        let is_begun = self.opened.len() as u64 >= u64::from(attempt.ranks());
        let begins = start.commit.as_ref().map(|commit| commit.save().clone()).filter(|_| !is_begun);
        let under_way = Upload::new(&self.name, attempt.key(), attempt.keep(), step, saves).sparing(begins);
        let (shared, claim, job) = (Arc::clone(&self.shared), Arc::clone(claim), under_way.clone());
        let room = self.room.clone();
        self.jobs.push(Box::pin(async move {
            Done::Uploaded { step, committed: upload(&shared, &room, &claim, job).await }
        }));
        self.uploading = Some((step, under_way));
        self.give_up(dropped, REPLACED);
    }

    fn on_uploaded(&mut self, step: i64, committed: Result<Commit>) {
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
    fn fail(&mut self, error: Error) {
        if error.kind() == ErrorKind::Superseded {
            self.claim = None;
        }
        tracing::warn!(name = self.name, error = error.summary(), "no further checkpoint of the try is committed");
        for (_, open) in self.attempt.iter().flat_map(Attempt::living) {
            self.post.deliver(&open.at, &ToPayload::Failed { failed: Failure::from(&error) });
        }
        self.failed = Some(error);
    }

    fn answer_waits(&mut self) {
        let Some(attempt) = &mut self.attempt else { return };
        for (at, n, error) in attempt.answers(self.failed.as_ref()) {
            let answer = match &error {
                None => ToPayload::Done { n },
                Some(error) => ToPayload::Refused { n, error: Failure::from(error) },
            };
            self.post.deliver(&at, &answer);
        }
    }

    /// Seals a try whose ranks have ended, when their complete saves are committed or given up: from
    /// then on, nothing of it is committed.
    fn seal_if_over(&mut self) {
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| !attempt.is_sealed()) else { return };
        // The next block of the same gang comes when all ranks have used this one.
        let is_followed = self.waiting.iter().any(|(next, ..)| gang_of(&next.key) != gang_of(attempt.key()));
        if !(attempt.is_over() || (attempt.is_left() && is_followed)) {
            return;
        }
        let now = Instant::now();
        // A save that goes on may take its time.
        let progress = self.uploading.as_ref().map_or(0, |(_, upload)| upload.progress());
        if self.last_progress != Some(progress) {
            (self.last_progress, self.seal_at) = (Some(progress), Some(now + LAST_SAVES));
        }
        let is_late = self.seal_at.is_some_and(|at| now >= at);
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
        (self.seal_at, self.last_progress) = (None, None);
        let rest = attempt.seal();
        self.give_up(rest, "its try ended before all ranks had saved it");
    }

    /// Removes saves that are not committed.
    fn give_up(&self, saves: Vec<(i64, Saves)>, why: &'static str) {
        for (step, saves) in saves {
            self.emit_dropped(step, why);
            self.post.settle(saves.into_values());
        }
    }

    fn emit_dropped(&self, step: i64, why: &'static str) {
        self.shared.emit(PoolEvent::CheckpointDropped { name: self.name.clone(), step, why });
    }

    /// Begins the next try, when the one before is sealed.
    fn begin_try(&mut self) {
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
        let (ranks, others) = std::mem::take(&mut self.waiting).into_iter().partition(|(each, ..)| each.key == key);
        let ranks: Vec<(Opening, Channel, Instant)> = ranks;
        self.waiting = others;
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
        let (late, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(_, _, since)| since.elapsed() >= PREDECESSOR);
        self.waiting = waiting;
        let late: Vec<(Opening, Channel, Instant)> = late;
        for (opening, at, _) in late {
            self.refuse(&opening, &at, &self.in_use());
        }
    }

    fn on_begun(&mut self, begun: Result<Start>) {
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
                    let refused = ToPayload::Refused { n: open.n, error: Failure::from(&error) };
                    self.post.deliver(&open.at, &refused);
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
    fn restore_for(&mut self, id: &str) {
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

    fn on_restored(&mut self, id: String, answer: Result<ToPayload>) {
        let Some((_, open)) = self.attempt.as_ref().and_then(|attempt| attempt.open(&id)) else { return };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => ToPayload::Refused { n: open.n, error: Failure::from(&error) },
        };
        self.post.deliver(&open.at, &answer);
        self.opened.insert(id, answer);
    }

    fn renew(&mut self) {
        self.renew_at = Instant::now() + RENEW_PAUSE;
        let Some(claim) = self.claim.clone() else { return };
        self.jobs.push(Box::pin(async move {
            let renewed = claim.renew().await;
            Done::Renewed { claim, renewed }
        }));
    }

    /// Gives the name back when nobody has used it for a while: another pool may need it.
    fn release_if_idle(&mut self) {
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

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Begun(begun) => self.on_begun(begun),
            Done::Restored { open, answer } => self.on_restored(open, answer),
            Done::Uploaded { step, committed } => self.on_uploaded(step, committed),
            Done::Stepped { ask, rank, step } => self.on_step(ask, rank, step),
            Done::Renewed { claim, renewed: Err(error) }
                if error.kind() == ErrorKind::Superseded
                    && self.claim.as_ref().is_some_and(|own| Arc::ptr_eq(own, &claim)) =>
            {
                self.fail(error);
            }
            // A storage that does not answer now may do so at the next time.
            Done::Renewed { .. } => {}
            Done::Released => self.is_changing_hands = false,
        }
    }
}

/// The gang to which a try belongs: all but the number of the block within the gang's try.
fn gang_of(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(gang, _)| gang)
}

/// Why a complete save is not committed although nothing is wrong.
const REPLACED: &str = "a newer save took its place before it was committed";
