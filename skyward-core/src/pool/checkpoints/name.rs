//! The task of one name: takes what is heard of it, and decides what follows, in `tries` and `saving`.

mod saving;
mod tries;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::ask::Asks;
use super::attempt::{Attempt, Channel, Joined, Saved};
use super::messages::{Failure, Opening, ToPayload};
use super::post::Post;
use super::restore::Start;
use super::room::Room;
use super::timing::{LOOK, RELEASE};
use super::upload::Upload;
use crate::checkpoint::{Claim, Commit};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, NodeIndex};
use crate::pool::tasks::shared::Shared;
use crate::storage::Storage;

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
    /// While a try that is over has complete saves: how far the upload is, and when they are given up if
    /// it gets no further.
    sealing: Option<(u64, Instant)>,
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
            sealing: None,
            waiting: Vec::new(),
        }
    }

    /// Serves until the desk ends, and gives the name back.
    pub(super) async fn run(mut self) {
        loop {
            let looks = !self.waiting.is_empty() || self.sealing.is_some() || self.ask_at.is_some();
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

    /// Ends ranks, and withdraws the open ask, which they do not answer any more.
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
        self.post.deliver(at, &ToPayload::refused(opening.n, error));
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

    /// Passes a message to all ranks of the try.
    fn tell_all(&self, message: &ToPayload) {
        for (_, open) in self.attempt.iter().flat_map(Attempt::living) {
            self.post.deliver(&open.at, message);
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
