//! A pool's hold of a name.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::brief::{Brief, Briefs};
use super::decide::{Data, unnamed};
use super::error::{crowded, superseded};
use super::layout::{Layout, SaveId, random};
use super::manifest::Manifest;
use super::owning::{Hold, MOST_ROUNDS};
use super::store::{Found, Store};
use crate::error::{Error, Result};
use crate::storage::{Created, ObjectPath, Storage};

/// Who holds a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// The pool. A pool of the same name takes over at once.
    pub(crate) pool: String,
    /// The host of its client.
    pub(crate) host: String,
}

/// A pool's hold of a name: only its holder commits.
///
/// The newest object of `commits` decides who that is. A commit is created under the number after the
/// last one that its pool has seen, and a claim is such an object too. So of a pool and the one that
/// supersedes it, one finds its number taken, or a higher one in the list that it reads after each
/// creation: the object with the highest number is never removed.
pub(crate) struct Claim {
    pub(super) store: Store,
    pub(super) owner: Owner,
    /// Its id.
    pub(super) id: String,
    /// The owner object that is renewed.
    pub(super) hold: Mutex<Hold>,
    /// One commit at a time.
    pub(super) turn: Mutex<Turn>,
}

/// What is known of the commits.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The number of the newest object, which this claim has created.
    pub(super) last: u64,
    pub(super) known: Briefs,
    /// The commits of others that were there when the name was taken. A pool that has lost the name may
    /// still create an older number that is free by then, and remove it again: that one does not count.
    pub(super) inherited: BTreeSet<u64>,
    /// Saves whose commit is removed, and whose data may still be there.
    pub(super) dead: BTreeSet<SaveId>,
    /// After this, nothing succeeds.
    pub(super) superseded: Option<Error>,
}

impl Claim {
    /// Takes a name: from then on no other pool can commit under it. What no commit names is removed.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InUse`](crate::ErrorKind::InUse), temporary: another pool has held the name within
    ///   the last minute.
    /// - [`ErrorKind::Superseded`](crate::ErrorKind::Superseded): another pool has taken it meanwhile.
    /// - [`ErrorKind::InvalidSpec`](crate::ErrorKind::InvalidSpec): the name is none.
    /// - [`ErrorKind::Storage`](crate::ErrorKind::Storage): the storage fails, or a newer version has
    ///   written to the name.
    ///
    /// # Cancel safety
    ///
    /// The name may be taken, and then others get it after a minute.
    pub(crate) async fn take(storage: &Storage, name: &str, owner: Owner) -> Result<Self> {
        Self::take_as(storage, name, owner, false, random()).await
    }

    /// As [`take`](Self::take), with an id. With `take_over`, which only tests use, also from a pool that
    /// uses the name now, as happens to one that was suspended.
    pub(super) async fn take_as(
        storage: &Storage,
        name: &str,
        owner: Owner,
        take_over: bool,
        id: String,
    ) -> Result<Self> {
        let store = Store { storage: storage.clone(), layout: Layout::new(name)? };
        let mut turn = Turn::default();
        // What a newer version has written is left alone.
        turn.known.update(&store, &store.commits().await?).await?;
        let hold = Hold::take(&store, &owner, &id, take_over).await?;
        let claim = Self { store, owner, id, hold: Mutex::new(hold), turn: Mutex::default() };
        claim.fence(&mut turn).await?;
        claim.clear(&mut turn).await?;
        *claim.turn.lock().await = turn;
        Ok(claim)
    }

    /// Creates a claim as the newest object.
    async fn fence(&self, turn: &mut Turn) -> Result<()> {
        let bytes = Manifest::new(&self.id, &self.owner, None).encode()?;
        let mut next = self.newest().await? + 1;
        for _ in 0..MOST_ROUNDS {
            let path = self.store.layout.commit(next);
            let is_own = match self.store.create(&path, &bytes).await? {
                Created::New => true,
                Created::Exists => {
                    matches!(self.store.manifest(next).await?, Found::Manifest(found) if found.claim == self.id)
                }
            };
            let newest = self.newest().await?;
            if is_own && newest == next {
                turn.last = next;
                return Ok(());
            }
            if is_own {
                // Old commits were removed after the list was read: this one is among them.
                self.store.remove(&path).await?;
            }
            next = newest.max(next) + 1;
        }
        Err(crowded(self.name()))
    }

    async fn newest(&self) -> Result<u64> {
        Ok(self.store.commits().await?.last().map_or(0, |it| it.number))
    }

    /// Removes older claims, and data that no commit names.
    async fn clear(&self, turn: &mut Turn) -> Result<()> {
        // The data first: data of a pool that takes the name after this list has a claim in the list of
        // commits.
        let data = Data::new(self.store.data().await?);
        let listed = self.store.commits().await?;
        turn.known.update(&self.store, &listed).await?;
        if let Some(newest) = listed.last().filter(|it| it.number > turn.last) {
            return Err(self.by(turn, newest.number));
        }
        let layout = &self.store.layout;
        turn.inherited = listed.iter().map(|it| it.number).collect();
        let is_old_claim = |brief: &&Brief| brief.sequence < turn.last && brief.is_claim();
        let claims = turn.known.all().filter(is_old_claim).map(|brief| layout.commit(brief.sequence));
        self.store.remove_all(claims.collect::<Vec<_>>()).await?;
        let left = unnamed(data.saves(layout), turn.known.all());
        self.store.remove_all(data.of(layout, &left)).await?;
        // Those of pools that have died while they looked at the clock.
        let probes = self.store.list(&layout.probes()).await?;
        self.store.remove_all(probes.into_iter().map(|probe| probe.path)).await
    }

    /// The error of a name that the pool has lost to the one that has created this object.
    pub(super) fn by(&self, turn: &mut Turn, sequence: u64) -> Error {
        let by = turn.known.all().find(|brief| brief.sequence == sequence).and_then(|brief| brief.made_by());
        let unknown = Owner { pool: "of an unknown name".into(), host: "an unknown host".into() };
        let error = superseded(self.store.layout.name(), by.map_or(&unknown, |(_, owner)| owner));
        turn.superseded = Some(error.clone());
        error
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.store.layout.name()
    }

    /// Uploads a part of a save, of at most 32 MiB. One that is there already is no error, because ids
    /// are random.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    ///
    /// # Cancel safety
    ///
    /// The part is there, or not.
    pub(crate) async fn put_part(&self, save: &SaveId, rank: u32, number: u32, bytes: &Bytes) -> Result<()> {
        self.store.create(&self.store.layout.part(save, rank, number), bytes).await.map(drop)
    }

    /// Reads a part of an object that [`Commit::pieces`](super::Commit::pieces) names.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    ///
    /// # Cancel safety
    ///
    /// Reads only.
    pub(crate) async fn read(&self, object: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        self.store.read(object, range).await
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({} in {})", self.name(), self.store.storage)
    }
}
