//! Brings the saves of all ranks of one step from their nodes to the storage, and commits them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::attempt::{Saved, Saves};
use super::room::Room;
use super::timing::{FIRST_SAVE_PAUSE, LONGEST_SAVE_PAUSE};
use crate::checkpoint::{Claim, Commit, Draft, LARGEST_PART, PartInfo, RankFiles, SaveId};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Check, NodeFiles, NodePath, Part, PartKind, Progress, Source, changed, of_entries};
use crate::pool::spawn::spawn_blocking;
use crate::pool::tasks::files::MachineFiles;
use crate::pool::tasks::shared::Shared;
use crate::spec::hex;

/// The saves of one step, which become a commit.
#[derive(Debug, Clone)]
pub(super) struct Upload {
    name: String,
    key: String,
    keep: Option<u32>,
    step: i64,
    saves: Saves,
    /// The same for each repetition: what has arrived stays.
    save: SaveId,
    is_given_up: Arc<AtomicBool>,
    /// The parts that were sent, by rank and number.
    sent: Arc<Mutex<BTreeMap<(u32, usize), PartInfo>>>,
    /// A save that stays whatever `keep` says.
    spared: Option<SaveId>,
}

impl Upload {
    pub(super) fn new(name: &str, key: &str, keep: Option<u32>, step: i64, saves: Saves) -> Self {
        let (name, key, save) = (name.to_owned(), key.to_owned(), SaveId::random());
        Self { name, key, keep, step, saves, save, is_given_up: Arc::default(), sent: Arc::default(), spared: None }
    }

    /// With a save that stays whatever `keep` says.
    pub(super) fn sparing(self, spared: Option<SaveId>) -> Self {
        Self { spared, ..self }
    }

    /// How many parts were sent.
    pub(super) fn progress(&self) -> u64 {
        self.sent().len() as u64
    }

    fn sent(&self) -> MutexGuard<'_, BTreeMap<(u32, usize), PartInfo>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does not begin the commit, if it has not begun.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        match self.is_given_up.load(Ordering::Relaxed) {
            true => Err(Error::new(
                ErrorKind::Cancelled,
                format!("step {} is given up, because its try is over", self.step),
            )),
            false => Ok(()),
        }
    }
}

/// Uploads and commits. A storage that fails for a while is tried again, until the save is given up.
///
/// # Errors
///
/// - [`ErrorKind::NodeLost`] if a machine is gone with its save.
/// - [`ErrorKind::Cancelled`] if the save was given up.
/// - As [`Claim::commit`].
pub(super) async fn upload(shared: &Arc<Shared>, room: &Room, claim: &Claim, upload: Upload) -> Result<Commit> {
    let mut pause = FIRST_SAVE_PAUSE;
    loop {
        let error = match once(shared, room, claim, &upload).await {
            Err(error) if error.is_temporary() && error.kind() == ErrorKind::Storage => error,
            Err(error) => {
                let _ = claim.discard(&upload.save).await;
                return Err(error);
            }
            committed => return committed,
        };
        tracing::warn!(
            name = upload.name,
            step = upload.step,
            error = error.summary(),
            "a checkpoint is not stored yet"
        );
        upload.check()?;
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_SAVE_PAUSE);
    }
}

async fn once(shared: &Arc<Shared>, room: &Room, claim: &Claim, upload: &Upload) -> Result<Commit> {
    let ranks = stream::iter(upload.saves.values().cloned())
        .map(|saved| store(shared, room, claim, upload, saved))
        .buffered(AT_A_TIME)
        .try_collect::<Vec<RankFiles>>()
        .await?;
    upload.check()?;
    let meta = upload.saves.values().next().map(|saved| saved.meta.clone()).unwrap_or_default();
    let draft = Draft {
        save: upload.save.clone(),
        step: upload.step,
        attempt: upload.key.clone(),
        meta,
        ranks,
        keep: upload.keep,
        spared: upload.spared.clone(),
    };
    claim.commit(draft).await
}

/// Stores the files of one rank, one after the other, in parts.
async fn store(shared: &Arc<Shared>, room: &Room, claim: &Claim, upload: &Upload, saved: Saved) -> Result<RankFiles> {
    let _room = room.to_store().await;
    let Saved { node, machine, path, rank, .. } = saved;
    let (base, files) = (NodePath::new(path), MachineFiles { shared: Arc::clone(shared), machine });
    let listed = of_entries(files.entries(node, &base).await?)?;
    let name = format!("step {} of {}", upload.step, upload.name);
    let source = Arc::new(Source { files: &files, node, name, base, parts: listed.clone() });
    let mut progress = Progress::begin(&source);
    let mut hashed = Hashed::default();
    let mut parts = Vec::new();
    let mut pieces = std::pin::pin!(Arc::clone(&source).pieces());
    let mut part = BytesMut::new();
    while let Some(piece) = pieces.try_next().await? {
        upload.check()?;
        let (index, mut bytes) = (piece.part, piece.bytes);
        let is_end = hashed.is_last(index, bytes.len(), listed[index].size());
        progress.add(bytes.len(), u64::from(is_end));
        hashed = add(hashed, index, bytes.clone()).await?;
        while part.len() + bytes.len() >= LARGEST_PART as usize {
            part.extend_from_slice(&bytes.split_to(LARGEST_PART as usize - part.len()));
            parts.push(put(claim, upload, rank, parts.len(), part.split().freeze()).await?);
        }
        part.extend_from_slice(&bytes);
    }
    if !part.is_empty() {
        parts.push(put(claim, upload, rank, parts.len(), part.freeze()).await?);
    }
    progress.end();
    let files = listed.into_iter().enumerate().map(|(index, part)| hashed.checked(index, part)).collect();
    Ok(RankFiles { rank, files, parts })
}

async fn put(claim: &Claim, upload: &Upload, rank: u32, number: usize, bytes: Bytes) -> Result<PartInfo> {
    let hashing = bytes.clone();
    let info = blocking(move || PartInfo::of(&hashing)).await?;
    let is_same = *upload.sent().entry((rank, number)).or_insert_with(|| info.clone()) == info;
    if !is_same {
        // The storage may have the other bytes under the id of the save.
        return Err(changed(format!("what rank {rank} has saved at step {} changes", upload.step)));
    }
    claim.put_part(&upload.save, rank, number as u32, &bytes).await?;
    Ok(info)
}

/// The digests of files whose bytes come in order.
#[derive(Default)]
struct Hashed {
    digests: Vec<(usize, String)>,
    /// The file whose bytes are coming: its index, its digest so far, and how many have come.
    current: Option<(usize, Sha256, u64)>,
}

impl Hashed {
    /// Whether the file ends with these bytes.
    fn is_last(&self, index: usize, length: usize, size: u64) -> bool {
        let before = self.current.as_ref().filter(|(current, ..)| *current == index).map_or(0, |(.., come)| *come);
        before + length as u64 >= size
    }

    fn add(mut self, index: usize, bytes: &[u8]) -> Self {
        self.finish(Some(index));
        let (_, digest, come) = self.current.get_or_insert_with(|| (index, Sha256::new(), 0));
        digest.update(bytes);
        *come += bytes.len() as u64;
        self
    }

    /// Ends the file whose bytes were coming, unless it is this one.
    fn finish(&mut self, next: Option<usize>) {
        if let Some((index, digest, _)) = self.current.take_if(|(index, ..)| Some(*index) != next) {
            self.digests.push((index, hex(&digest.finalize())));
        }
    }

    /// A part of the list, with its digest if it is a file.
    fn checked(&mut self, index: usize, part: Part) -> Part {
        self.finish(None);
        let PartKind::File { size, executable, .. } = part.kind else { return part };
        let at = self.digests.binary_search_by_key(&index, |(index, _)| *index);
        // Each file has at least one piece.
        let digest = at.map(|at| self.digests[at].1.clone()).unwrap_or_default();
        Part { path: part.path, kind: PartKind::File { size, executable, check: Check::Digest(digest) } }
    }
}

async fn add(hashed: Hashed, index: usize, bytes: Bytes) -> Result<Hashed> {
    blocking(move || hashed.add(index, &bytes)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    spawn_blocking(work)
        .await
        .map_err(|error| Error::new(ErrorKind::Io, "the digest of a save could not be computed").with_source(error))
}

/// How many ranks of one save are stored at a time, as far as there is room.
const AT_A_TIME: usize = 2;
