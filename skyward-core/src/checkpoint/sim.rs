//! A simulation: pools that save, commit, take a name over from each other and die at any await, over a
//! storage that loses answers and fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::ErrorKind;
use crate::files::{Check, Part, PartKind};
use crate::storage::Storage;
use crate::testkit::FakeStorage;

/// The draws of one seed, in the order in which they are made.
struct Draws(RefCell<u64>);

impl Draws {
    fn below(&self, bound: u64) -> u64 {
        let mut state = self.0.borrow_mut();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut draw = *state;
        draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (draw ^ (draw >> 31)) % bound
    }

    fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn millis(&self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

/// A commit that its pool was told of.
struct Told {
    session: u64,
    sequence: u64,
    save: SaveId,
    step: i64,
}

struct World {
    seed: u64,
    draws: Draws,
    objects: FakeStorage,
    keep: Option<u32>,
    /// One pool at a time.
    is_alone: bool,
    sessions: RefCell<u64>,
    /// The sessions that have taken the name, and the numbers of their claims.
    claims: RefCell<Vec<(u64, u64)>>,
    told: RefCell<Vec<Told>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let draws = Draws(RefCell::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)));
        let latency = [0, 20, 400, 20_000][draws.below(4) as usize];
        let objects = FakeStorage::new(seed)
            .losing_replies(draws.below(2) * 20)
            .failing(draws.below(2) * 10)
            .slow(Duration::from_millis(latency));
        let keep = [None, Some(1), Some(2), Some(3)][draws.below(4) as usize];
        let is_alone = draws.once_in(3);
        let (sessions, claims, told) = Default::default();
        Self { seed, draws, objects, keep, is_alone, sessions, claims, told }
    }

    fn storage(&self) -> Storage {
        Storage::of(self.objects.clone())
    }

    /// The same objects, without faults.
    fn faultless(&self) -> Storage {
        Storage::of(self.objects.clone().losing_replies(0).failing(0))
    }

    fn newest_told(&self) -> u64 {
        self.told.borrow().iter().map(|told| told.sequence).max().unwrap_or(0)
    }

    /// A pool that was never challenged keeps its name.
    fn check_superseded(&self, what: &str) {
        assert!(!self.is_alone, "seed {}: {what} of a pool that is alone was superseded", self.seed);
    }

    /// No pool commits after the claim of the one that supersedes it.
    fn check_order(&self) {
        for told in self.told.borrow().iter() {
            let claims = self.claims.borrow();
            let own = claims.iter().find(|(session, _)| *session == told.session).map_or(0, |(_, fence)| *fence);
            for (_, fence) in claims.iter().filter(|(_, fence)| *fence > own) {
                let sequence = told.sequence;
                assert!(sequence < *fence, "seed {}: commit {sequence} of claim {own}, after claim {fence}", self.seed);
            }
        }
    }

    /// One life of a pool, until it ends or the caller drops it.
    async fn play(&self) {
        let session = {
            let mut sessions = self.sessions.borrow_mut();
            *sessions += 1;
            *sessions
        };
        let take_over = self.draws.once_in(2);
        let pool = if self.draws.once_in(4) { "durable".to_owned() } else { format!("pool {session}") };
        let owner = Owner { pool, host: "sim".to_owned() };
        let taken = Claim::take_as(&self.storage(), "run", owner, take_over, format!("{session:032x}")).await;
        let claim = match taken {
            Ok(claim) => claim,
            Err(error) => return self.allow(&error, "the taking"),
        };
        let fence = claim.turn.lock().await.last;
        self.claims.borrow_mut().push((session, fence));
        self.check_order();
        if !self.look(&claim, fence).await {
            return;
        }
        for number in 0..self.draws.below(4) {
            sleep(self.draws.millis(15_000)).await;
            if self.draws.once_in(2)
                && let Err(error) = claim.renew().await
            {
                return self.allow(&error, "the renewal");
            }
            if !self.save(&claim, session, number).await {
                return;
            }
        }
        if self.draws.once_in(2) {
            let _ = claim.release().await;
        }
    }

    /// What was told before is there when a pool takes the name.
    async fn look(&self, claim: &Claim, fence: u64) -> bool {
        let before = self.told.borrow().iter().map(|told| told.sequence).filter(|it| *it < fence).max().unwrap_or(0);
        let latest = claim.latest().await;
        if self.claims.borrow().iter().any(|(_, other)| *other > fence) {
            return true;
        }
        match latest {
            Ok(latest) => {
                let found = latest.commit.map_or(0, |commit| commit.sequence());
                assert!(found >= before, "seed {}: claim {fence} found {found}, after {before}", self.seed);
                true
            }
            Err(error) if error.kind() == ErrorKind::CheckpointDamaged => {
                assert!(before == 0 || !self.is_alone, "seed {}: {error}", self.seed);
                false
            }
            Err(error) => {
                self.allow(&error, "the look");
                false
            }
        }
    }

    /// A rank with one small file.
    fn rank(&self, rank: u32) -> RankFiles {
        let part = PartInfo { size: bytes(rank, 0).len() as u64, sha256: "0".repeat(64) };
        let check = Check::Digest(part.sha256.clone());
        let kind = PartKind::File { size: part.size, executable: false, check };
        let folder = Part { path: "".into(), kind: PartKind::Folder };
        RankFiles { rank, files: vec![folder, Part { path: format!("{rank}").into(), kind }], parts: vec![part] }
    }

    /// Uploads a save, and commits or discards it.
    async fn save(&self, claim: &Claim, session: u64, number: u64) -> bool {
        let save = SaveId::parse(&format!("{:032x}", session << 8 | number)).unwrap();
        let ranks = (0..=self.draws.below(2) as u32).map(|rank| self.rank(rank)).collect();
        let (step, attempt, meta) = ((session * 100 + number) as i64, String::new(), String::new());
        let draft = Draft { save: save.clone(), step, attempt, meta, ranks, keep: self.keep, spared: None };
        for rank in 0..draft.ranks.len() as u32 {
            if let Err(error) = claim.put_part(&save, rank, 0, &bytes(rank, 0)).await {
                self.allow(&error, "the upload");
                return false;
            }
        }
        if self.draws.once_in(8) {
            return claim.discard(&save).await.is_ok();
        }
        let mut committed = claim.commit(draft.clone()).await;
        if committed.as_ref().is_err_and(crate::Error::is_temporary) {
            committed = claim.commit(draft).await;
        }
        match committed {
            Ok(commit) => {
                assert_eq!((commit.step(), commit.save()), (step, &save), "seed {}", self.seed);
                self.told.borrow_mut().push(Told { session, sequence: commit.sequence(), save, step });
                self.check_order();
                true
            }
            Err(error) => {
                self.allow(&error, "the commit");
                false
            }
        }
    }

    /// Which errors may be.
    fn allow(&self, error: &crate::Error, what: &str) {
        match error.kind() {
            ErrorKind::Superseded => self.check_superseded(what),
            // The pool that has taken the name has removed the data.
            ErrorKind::CheckpointDamaged if what == "the commit" => self.check_superseded(what),
            ErrorKind::InUse => {}
            _ => assert!(error.is_temporary(), "seed {}: {what}: {error:?}", self.seed),
        }
    }

    /// Lives one after another, some of them cut short.
    async fn lives(&self) {
        for _ in 0..2 {
            sleep(self.draws.millis(40_000)).await;
            let longest = if self.draws.once_in(2) { self.draws.millis(60_000) } else { Duration::from_secs(86_400) };
            let _ = timeout(longest, self.play()).await;
            // What was on its way arrives.
            sleep(Duration::from_secs(if self.is_alone { 60 } else { 0 })).await;
            if self.is_alone && self.draws.once_in(3) {
                self.rewind().await;
            }
        }
    }

    /// A person goes back to an older step.
    async fn rewind(&self) {
        let steps: Vec<i64> = self.told.borrow().iter().map(|told| told.step).collect();
        if steps.is_empty() {
            return;
        }
        let step = steps[self.draws.below(steps.len() as u64) as usize];
        let checkpoints = Checkpoints::open(&self.storage(), "run").unwrap();
        match checkpoints.rewind_to(step).await {
            Ok(()) => {
                let latest = Checkpoints::open(&self.faultless(), "run").unwrap().latest().await.unwrap().unwrap();
                assert_eq!(latest.step(), step, "seed {}", self.seed);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.allow(&error, "the rewinding"),
        }
    }

    /// A reader always finds a whole one that is no older than what was told.
    async fn watch(&self, until: Instant) {
        let checkpoints = Checkpoints::open(&self.faultless(), "run").unwrap();
        while Instant::now() < until {
            sleep(self.draws.millis(80_000)).await;
            let told = self.newest_told();
            match checkpoints.latest().await {
                Ok(latest) => {
                    let found = latest.map_or(0, |latest| latest.sequence());
                    assert!(found >= told, "seed {}: the latest is {found}, after {told}", self.seed);
                }
                Err(error) if error.is_temporary() => {}
                Err(error) => assert!(told == 0, "seed {}: {error:?}", self.seed),
            }
        }
    }

    /// After the last claim, the storage has what it should have and nothing else.
    async fn end(&self) {
        sleep(Duration::from_secs(300)).await;
        let storage = Storage::of(self.objects.clone().losing_replies(0).failing(0).slow(Duration::ZERO));
        let owner = Owner { pool: "last".to_owned(), host: "sim".to_owned() };
        let claim = Claim::take(&storage, "run", owner).await.unwrap();
        let latest = claim.latest().await;
        let all = claim.store.all().await.unwrap();
        claim.release().await.unwrap();
        let (seed, told) = (self.seed, self.told.borrow());
        if !told.is_empty() {
            let latest = latest.unwrap().commit.unwrap();
            assert!(latest.sequence() >= self.newest_told(), "seed {seed}");
        }
        for told in told.iter() {
            let found = all.iter().find(|(brief, _)| brief.sequence == told.sequence);
            match found.filter(|(brief, _)| brief.saved().is_some_and(|saved| saved.save == told.save)) {
                Some((_, is_whole)) => assert!(is_whole, "seed {seed}: commit {} is torn", told.sequence),
                None => {
                    let newer = all.iter().filter(|(brief, is_whole)| *is_whole && brief.sequence > told.sequence);
                    let is_replaced = self.keep.is_some_and(|keep| newer.count() >= keep as usize);
                    assert!(is_replaced, "seed {seed}: commit {} is lost", told.sequence);
                }
            }
        }
        let named: BTreeSet<&SaveId> = all.iter().filter_map(|(it, _)| Some(&it.saved()?.save)).collect();
        let layout = layout::Layout::new("run").unwrap();
        for object in self.objects.objects() {
            let is_commit = object.below(&layout.commits()).is_some();
            let is_named = layout.save_of(&object).is_some_and(|save| named.contains(&save));
            assert!(is_commit || is_named, "seed {seed}: {object} is left");
        }
        let commits = self.objects.objects().into_iter().filter(|it| it.below(&layout.commits()).is_some()).count();
        assert_eq!(commits, all.len() + 1, "seed {seed}: old claims are left");
    }

    async fn run(&self) {
        let watched = self.watch(Instant::now() + Duration::from_secs(200));
        let players = if self.is_alone { 1 } else { 2 };
        let lives: Vec<_> = (0..players).map(|_| self.lives()).collect();
        tokio::join!(join_all(lives), watched);
        self.end().await;
    }
}

/// Runs a future on a clock that does not wait.
fn at_once(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future);
}

fn play(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        at_once(async { World::new(seed).run().await });
    }
}

#[test]
fn commits_are_whole_and_in_order_whatever_ends_and_fails() {
    match std::env::var("SKYWARD_CHECKPOINT_SEED") {
        Ok(seed) => play(seed.parse().map(|seed| seed..seed + 1).unwrap()),
        Err(_) => std::thread::scope(|scope| {
            let half = scope.spawn(|| play(0..SEEDS / 2));
            play(SEEDS / 2..SEEDS);
            half.join().unwrap();
        }),
    }
}

/// Bytes that a part of a test has.
pub(super) fn bytes(rank: u32, number: u32) -> Bytes {
    Bytes::from(format!("rank {rank}, file {number}"))
}

const SEEDS: u64 = 2000;
