//! Checkpoints as services see them.

use std::fmt;
use std::path::Path;
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use super::brief::{Brief, SavedBrief};
use super::claim::{Claim, Owner};
use super::error::damaged;
use super::layout::Layout;
use super::manifest::Saved;
use super::saving;
use super::store::{Found, Numbered, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Storage;

/// The checkpoints of one name in a storage, which payloads save with `sky.checkpoints`.
///
/// ```no_run
/// # use skyward_core as skyward;
/// use skyward::checkpoint::Checkpoints;
/// use skyward::storage::Storage;
///
/// # async fn example() -> skyward::Result<()> {
/// let checkpoints = Checkpoints::open(&Storage::folder("/data/runs"), "run-42")?;
/// for checkpoint in checkpoints.list().await? {
///     println!("step {}, {} bytes", checkpoint.step(), checkpoint.size());
/// }
/// if let Some(latest) = checkpoints.latest().await? {
///     latest.save_to("out/run-42").await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Checkpoints(Store);

impl Checkpoints {
    /// The checkpoints of this name: 1 to 100 letters, digits, `.`, `_` and `-`. It does not look into
    /// the storage.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a text that is no name.
    pub fn open(storage: &Storage, name: &str) -> Result<Self> {
        Ok(Self(Store { storage: storage.clone(), layout: Layout::new(name)? }))
    }

    /// Checks a name, as [`open`](Self::open) does: for a plugin that passes it on to payloads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a text that is no name.
    pub fn check_name(name: &str) -> Result<()> {
        Layout::new(name).map(|_| ())
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.layout.name()
    }

    /// All checkpoints, the oldest first, also torn ones; those whose manifest cannot be read are left
    /// out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Storage`] if the storage fails, or a newer version has written to the name.
    ///
    /// # Cancel safety
    ///
    /// Reads only.
    pub async fn list(&self) -> Result<Vec<Checkpoint>> {
        let all = self.0.all().await?;
        Ok(all.into_iter().filter_map(|(brief, is_whole)| Checkpoint::of(&self.0, &brief, is_whole)).collect())
    }

    /// The newest checkpoint that is whole, which the next try of a task begins with; `None` if the name
    /// has none at all.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::CheckpointDamaged`] if there are checkpoints and none is whole; otherwise as
    /// [`list`](Self::list).
    ///
    /// # Cancel safety
    ///
    /// Reads only.
    pub async fn latest(&self) -> Result<Option<Checkpoint>> {
        let latest = self.0.latest(|_| true).await?;
        Ok(latest.brief.and_then(|brief| Checkpoint::of(&self.0, &brief, true)))
    }

    /// Makes the newest whole checkpoint of this step the latest one: the next try begins with it. The
    /// newer ones stay until later commits replace them.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`] if there is no whole checkpoint of this step; it has the steps that
    ///   exist.
    /// - [`ErrorKind::InUse`], temporary: a pool uses the name.
    /// - [`ErrorKind::Storage`] if the storage fails.
    ///
    /// # Cancel safety
    ///
    /// It is the latest one, or not; the name may be in use for a minute.
    pub async fn rewind_to(&self, step: i64) -> Result<()> {
        // Nothing is written for a step that does not exist.
        self.find(step).await?;
        let claim = self.claim("rewind_to").await?;
        let rewound = self.rewind(&claim, step).await;
        let released = claim.release().await;
        rewound.and(released)
    }

    async fn rewind(&self, claim: &Claim, step: i64) -> Result<()> {
        let found = self.find(step).await?;
        let Found::Manifest(manifest) = self.0.manifest(found.sequence()).await? else {
            return Err(damaged(self.name(), found.sequence(), "it is gone"));
        };
        let saved: Saved = manifest.saved.ok_or_else(|| damaged(self.name(), found.sequence(), "it has no files"))?;
        claim.commit_saved(saved, None, None).await.map(drop)
    }

    /// The newest whole checkpoint of a step.
    async fn find(&self, step: i64) -> Result<Checkpoint> {
        let all = self.list().await?;
        let mut steps: Vec<i64> = all.iter().filter(|it| it.is_whole()).map(Checkpoint::step).collect();
        let found = all.into_iter().rev().find(|it| it.is_whole() && it.step() == step);
        found.ok_or_else(|| {
            steps.sort_unstable();
            steps.dedup();
            let listed: Vec<String> = steps.iter().rev().take(20).rev().map(i64::to_string).collect();
            let hint = match listed.is_empty() {
                true => "there is none at all: look at the name and the storage".to_owned(),
                false => format!("the newest steps that exist: {}", listed.join(", ")),
            };
            let message = format!("there is no checkpoint of step {step} of `{}` in {}", self.name(), self.0.storage);
            Error::new(ErrorKind::NotFound, message).with_hint(hint)
        })
    }

    /// Removes everything of the name. Nothing there is no error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InUse`], temporary, if a pool uses the name; [`ErrorKind::Storage`] if the storage
    /// fails.
    ///
    /// # Cancel safety
    ///
    /// The oldest may be removed and the newer ones not; the name may be in use for a minute.
    pub async fn remove(&self) -> Result<()> {
        let root = self.0.layout.root();
        if self.0.list(root).await?.is_empty() {
            return Ok(());
        }
        let claim = self.claim("remove").await?;
        // Manifests before data, so that none is torn, and the oldest first.
        for commit in self.0.commits().await? {
            self.0.remove(&self.0.layout.commit(commit.number)).await?;
        }
        self.0.remove_all(self.0.data().await?.into_iter().map(|object| object.path)).await?;
        claim.release().await?;
        self.0.remove_all(self.0.list(root).await?.into_iter().map(|object| object.path)).await
    }

    /// Takes the name for a moment.
    async fn claim(&self, what: &str) -> Result<Claim> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let owner = Owner { pool: format!("of `{what}` in process {}", std::process::id()), host };
        Claim::take(&self.0.storage, self.name(), owner).await
    }
}

/// A checkpoint in a storage.
#[derive(Clone)]
pub struct Checkpoint {
    store: Store,
    sequence: u64,
    time: SystemTime,
    pool: String,
    saved: SavedBrief,
    is_whole: bool,
}

impl Checkpoint {
    fn of(store: &Store, brief: &Brief, is_whole: bool) -> Option<Self> {
        let (saved, (_, owner)) = (brief.saved()?.clone(), brief.made_by()?);
        let (sequence, time, pool) = (brief.sequence, brief.modified, owner.pool.clone());
        Some(Self { store: store.clone(), sequence, time, pool, saved, is_whole })
    }

    /// The step that the payload gave it.
    pub fn step(&self) -> i64 {
        self.saved.step
    }

    /// Its place in the order of checkpoints: a later one has a higher number.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When it was committed, by the clock of the storage.
    pub fn saved(&self) -> SystemTime {
        self.time
    }

    /// The bytes that its ranks have saved.
    pub fn size(&self) -> u64 {
        self.saved.size
    }

    /// How many ranks have saved.
    pub fn ranks(&self) -> usize {
        self.saved.ranks.len()
    }

    /// The pool that has committed it.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The try of the task that has saved it, as text.
    pub fn attempt(&self) -> &str {
        &self.saved.attempt
    }

    /// Whether all of its data was in the storage when this was read.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// What the payload gave as `meta`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`] if it does not fit the type.
    pub fn meta<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.saved.meta).map_err(|error| {
            let name = self.store.layout.name();
            Error::new(
                ErrorKind::Decode,
                format!("the `meta` of step {} of `{name}` does not fit the type", self.step()),
            )
            .with_source(error)
            .with_hint("name the fields as the payload does; those that may be missing are an `Option`")
        })
    }

    /// Saves the files of all ranks on this host, as the folder `target`. The memory that this needs does
    /// not depend on their size.
    ///
    /// Folders above the target are created, and a folder there must be empty. It is complete or does not
    /// appear; the SHA-256 of each file is compared first.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::CheckpointDamaged`]: it is torn, or its bytes are not those that were saved.
    /// - [`ErrorKind::InvalidSpec`]: something else is at the target.
    /// - [`ErrorKind::Io`]: this host refuses it, such as for a full disk.
    /// - [`ErrorKind::Storage`]: the storage fails.
    ///
    /// # Cancel safety
    ///
    /// The target is as it was before, or complete.
    pub async fn save_to(&self, target: impl AsRef<Path>) -> Result<()> {
        let listed = Numbered { number: self.sequence, size: 0, modified: self.time };
        let commit = self.store.commit(&listed).await?;
        if *commit.save() != self.saved.save {
            return Err(damaged(self.store.layout.name(), self.sequence, "it is another one by now"));
        }
        saving::save(&self.store, &commit, target.as_ref()).await
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({}, step {}, sequence {})", self.store.layout.name(), self.step(), self.sequence)
    }
}
