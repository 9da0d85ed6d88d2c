//! Brings what a try begins with from the storage to the nodes of its ranks.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::attempt::Channel;
use super::messages::ToPayload;
use super::timing::{OWNER_GONE, OWNER_PAUSE, RESTORE_PAUSE};
use crate::checkpoint::{Claim, Commit, Latest, Owner, Skipped};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{PoolEvent, Transfer};
use crate::files::{Part, Progress, manifest_of};
use crate::ids::MachineId;
use crate::pool::mover::Line;
use crate::pool::tasks::files::unexpected;
use crate::pool::tasks::shared::Shared;
use crate::provider::client;
use crate::spec::hex;
use crate::storage::{ObjectPath, Storage};
use crate::worker::message::{FromMover, ToMover};

/// What a try begins with.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) claim: Arc<Claim>,
    pub(super) commit: Option<Commit>,
    /// The newer commits that are not whole.
    pub(super) skipped: Vec<Skipped>,
    /// Whose turn it is to write to each machine: workers of one machine share the folder.
    turns: Arc<Mutex<HashMap<MachineId, Turn>>>,
}

type Turn = Arc<tokio::sync::Mutex<()>>;

impl Start {
    /// The name of the restored folder, of all ranks or of one.
    pub(super) fn folder(&self, own: Option<u32>) -> Option<String> {
        self.commit.as_ref().map(|commit| id_of(commit, own))
    }

    /// The names of all folders that so many ranks can have.
    pub(super) fn folders(&self, ranks: u32) -> impl Iterator<Item = String> {
        std::iter::once(None).chain((0..ranks).map(Some)).filter_map(|own| self.folder(own))
    }

    fn turn(&self, machine: &MachineId) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(machine.clone()).or_default())
    }
}

/// Takes the name for this pool, if it has not got it, and looks for the latest commit.
///
/// # Errors
///
/// - [`ErrorKind::InUse`] if another pool has the name, and goes on to have it.
/// - As [`Claim::take`] and [`Claim::latest`].
pub(super) async fn begin(
    shared: Arc<Shared>,
    storage: Storage,
    name: String,
    claim: Option<Arc<Claim>>,
) -> Result<Start> {
    let until = Instant::now() + OWNER_GONE;
    let claim = loop {
        if let Some(claim) = claim {
            break claim;
        }
        let owner = Owner { pool: shared.pool.to_string(), host: client::host_name() };
        match Claim::take(&storage, &name, owner).await {
            // A pool that has ended without a word holds its names for a while.
            Err(error) if error.kind() == ErrorKind::InUse && Instant::now() < until => sleep(OWNER_PAUSE).await,
            taken => break Arc::new(taken?),
        }
    };
    let Latest { commit, skipped, .. } = claim.latest().await?;
    Ok(Start { claim, commit, skipped, turns: Arc::default() })
}

/// Restores the files of all ranks, or of one, on the node of a rank. Returns the answer for it.
///
/// # Errors
///
/// - As [`NodeFiles::read`](crate::files::NodeFiles::read), for what is written to a node.
/// - [`ErrorKind::Storage`] or [`ErrorKind::CheckpointDamaged`] if the storage does not give the bytes.
pub(super) async fn restore(
    shared: &Arc<Shared>,
    start: &Start,
    at: &Channel,
    own: Option<u32>,
    n: u64,
) -> Result<ToPayload> {
    let mut tries = 0;
    loop {
        tries += 1;
        match once(shared, start, at, own, n).await {
            // Another mover knows nothing of the folder that the first one has prepared, and a storage may
            // fail for a while.
            Err(error) if error.is_temporary() && tries < TRIES => {
                tracing::debug!(node = at.node.0, %error, "a checkpoint is not restored yet");
                sleep(RESTORE_PAUSE * tries).await;
            }
            answer => return answer,
        }
    }
}

async fn once(shared: &Arc<Shared>, start: &Start, at: &Channel, own: Option<u32>, n: u64) -> Result<ToPayload> {
    let Some(commit) = &start.commit else {
        return Ok(ToPayload::Opened { n, step: None, meta: None, path: None });
    };
    let files = match own {
        None => commit.union(),
        Some(rank) => commit.files_of(rank).ok_or_else(|| without_files(commit, rank))?,
    };
    let turn = start.turn(&at.machine);
    let _turn = turn.lock().await;
    let node = Restoring { shared, at, id: id_of(commit, own) };
    let manifest = manifest_of(files)?;
    let (mut path, is_there) = node.ask(Line::Files, ToMover::Restore { commit: node.id.clone(), manifest }).await?;
    if !is_there {
        write(&node, start, commit, files).await?;
        let completed = node.ask(Line::Files, ToMover::Complete { commit: node.id.clone() }).await;
        (path, _) = completed.map_err(|error| match error.kind() {
            ErrorKind::Changed => damaged(commit, &error),
            _ => error,
        })?;
    }
    let Some(path) = path.to_str().map(ToOwned::to_owned) else {
        let message = format!("the folder of checkpoints on the node, {}, is no text", path.display());
        return Err(Error::new(ErrorKind::InvalidSpec, message));
    };
    Ok(ToPayload::Opened { n, step: Some(commit.step()), meta: Some(commit.meta().to_owned()), path: Some(path) })
}

/// A folder that is restored on a node.
struct Restoring<'r> {
    shared: &'r Arc<Shared>,
    at: &'r Channel,
    id: String,
}

impl Restoring<'_> {
    async fn send(&self, line: Line, request: &ToMover) -> Result<FromMover> {
        self.shared.ask_mover(self.at.node, Some(&self.at.machine), line, request).await
    }

    async fn ask(&self, line: Line, request: ToMover) -> Result<(PathBuf, bool)> {
        match self.send(line, &request).await? {
            FromMover::Restored { path, complete } => Ok((path, complete)),
            _ => Err(unexpected()),
        }
    }
}

/// A piece of a file, and where it is in the storage.
struct Stored {
    path: PathBuf,
    offset: u64,
    object: ObjectPath,
    range: Range<u64>,
    is_last: bool,
}

/// Writes all files to the node.
async fn write(node: &Restoring<'_>, start: &Start, commit: &Commit, files: &[Part]) -> Result<()> {
    let files: Vec<&Part> = files.iter().filter(|part| part.size() > 0).collect();
    let name = format!("step {} of {}", commit.step(), start.claim.name());
    let bytes = files.iter().map(|part| part.size()).sum();
    let report = |transfer: &Transfer| node.shared.emit(PoolEvent::Transfer(transfer.clone()));
    let mut progress = Progress::to_node(node.at.node, &name, bytes, files.len() as u64, report);
    let paths: Vec<PathBuf> = files.into_iter().map(|part| part.path.clone()).collect();
    let commit = commit.clone();
    let pieces = paths.into_iter().flat_map(move |path| {
        let mut offset = 0;
        let pieces: Vec<_> = commit.pieces(&path).collect();
        let last = pieces.len();
        (1..).zip(pieces).map(move |(number, (object, range))| {
            let at = offset;
            offset += range.end - range.start;
            Stored { path: path.clone(), offset: at, object, range, is_last: number == last }
        })
    });
    stream::iter(pieces)
        .map(|Stored { path, offset, object, range, is_last }| async move {
            let length = range.end - range.start;
            let body: Bytes = start.claim.read(&object, range).await?;
            if body.len() as u64 != length {
                let message = format!("the object {object} of the storage ends too soon");
                return Err(Error::new(ErrorKind::CheckpointDamaged, message));
            }
            let write = ToMover::Write { commit: node.id.clone(), path, offset, body };
            match node.send(Line::Files, &write).await? {
                FromMover::Done => Ok((length as usize, u64::from(is_last))),
                _ => Err(unexpected()),
            }
        })
        .buffered(AHEAD)
        .try_for_each(|(bytes, ends)| {
            progress.add(bytes, ends);
            std::future::ready(Ok(()))
        })
        .await?;
    progress.end();
    Ok(())
}

/// The error of a checkpoint whose bytes in the storage are not those that were saved.
fn damaged(commit: &Commit, why: &Error) -> Error {
    let message = format!("the checkpoint of step {} is damaged in the storage: {}", commit.step(), why.message());
    Error::new(ErrorKind::CheckpointDamaged, message)
        .with_hint("go back to an earlier one: `Checkpoints::open(&storage, name)?.rewind_to(step)`")
}

fn without_files(commit: &Commit, rank: u32) -> Error {
    let message = format!("rank {rank} has saved nothing at step {}, and restores its own files alone", commit.step());
    Error::new(ErrorKind::InvalidSpec, message).with_hint(
        "train with as many ranks as before and `writers=\"all\"`, or restore the files of all ranks: `own=False`",
    )
}

/// The name of the restored folder on the node: one for the files of all ranks, and one for those of
/// each rank.
fn id_of(commit: &Commit, own: Option<u32>) -> String {
    match own {
        None => commit.save().to_string(),
        Some(rank) => hex(&Sha256::digest(format!("{} {rank}", commit.save())))[..32].to_owned(),
    }
}

/// How often a restore is tried that failed for a reason that may pass.
const TRIES: u32 = 8;
/// How many pieces are under way at a time.
const AHEAD: usize = 8;
