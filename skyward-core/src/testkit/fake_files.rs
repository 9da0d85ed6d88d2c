//! Artifacts on fake nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::fake_worker::{lock, number, pack, read, send};
use crate::compute::Artifact;
use crate::ids::NodeIndex;
use crate::spec::hex;
use crate::worker::codec::Frame;
use crate::worker::link::Sender;
use crate::worker::message::PROTOCOL_VERSION;

/// The artifacts that payloads on fake nodes have made: all nodes have them. Clones are the same.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::compute::{Artifact, PendingCompute};
/// use skyward::payload::Payload;
/// use skyward::testkit::script::Answer;
/// use skyward::testkit::{FakeArtifacts, FakePool};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let artifacts = FakeArtifacts::default();
/// let model = artifacts.file("model.pt", "weights");
/// let pool = FakePool::with_artifacts(&artifacts, move |_| Answer::returns(&model)).start().await?;
/// let train: PendingCompute<Artifact> = Payload::python("a.py", "def train(): ...", "train").into();
/// assert_eq!(&train.run(&pool).await?.bytes(&pool, 100).await?[..], b"weights");
/// # Ok::<(), skyward::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct FakeArtifacts(Arc<Mutex<BTreeMap<String, Kept>>>);

/// The files of an artifact, by their paths in its folder.
type Kept = BTreeMap<String, Bytes>;

impl FakeArtifacts {
    /// An artifact that is a file with this content.
    pub fn file(&self, name: &str, content: impl Into<Bytes>) -> Artifact {
        let content = content.into();
        let sha256 = hex(&Sha256::digest(&content));
        let entries = [entry("", "file", content.len() as u64, &sha256)];
        let size = content.len() as u64;
        self.keep(name, size, sha256, None, &entries, [("content".to_owned(), content)])
    }

    /// An artifact that is a folder with these files.
    pub fn folder<P: Into<String>, C: Into<Bytes>>(
        &self,
        name: &str,
        files: impl IntoIterator<Item = (P, C)>,
    ) -> Artifact {
        let files: BTreeMap<String, Bytes> =
            files.into_iter().map(|(path, content)| (path.into(), content.into())).collect();
        let mut entries = BTreeMap::from([(String::new(), entry("", "folder", 0, ""))]);
        for (path, content) in &files {
            for (end, _) in path.match_indices('/') {
                entries.insert(path[..end].to_owned(), entry(&path[..end], "folder", 0, ""));
            }
            let sha256 = hex(&Sha256::digest(content));
            entries.insert(path.clone(), entry(path, "file", content.len() as u64, &sha256));
        }
        let entries: Vec<_> = entries.into_values().collect();
        let size = files.values().map(|content| content.len() as u64).sum();
        let count = files.len() as u64;
        let kept = files.into_iter().map(|(path, content)| (format!("content/{path}"), content));
        self.keep(name, size, hex(&Sha256::digest(pack(&entries))), Some(count), &entries, kept)
    }

    /// Whether the nodes still have this artifact.
    pub fn has(&self, artifact: &Artifact) -> bool {
        lock(&self.0).contains_key(artifact.id())
    }

    /// The artifact is gone from the nodes, as that of a machine that is lost.
    pub fn lose(&self, artifact: &Artifact) {
        lock(&self.0).remove(artifact.id());
    }

    fn keep(
        &self,
        name: &str,
        size: u64,
        sha256: String,
        files: Option<u64>,
        entries: &[WireEntry],
        kept: impl IntoIterator<Item = (String, Bytes)>,
    ) -> Artifact {
        let id = format!("{:032x}", rand::random::<u128>());
        let manifest = ("manifest".to_owned(), pack(&entries));
        lock(&self.0).insert(id.clone(), kept.into_iter().chain([manifest]).collect());
        Artifact::new(NodeIndex(0), id, name, size, sha256, files)
    }

    /// Answers a message to a mover; `None` for one that a mover does not know.
    pub(super) fn on_frame(&self, sender: &Sender, frame: &Frame) -> Option<()> {
        let head = &frame.head[..];
        let no_file =
            |request: u64| send(sender, &(229, request, "missing", "a fake node has no such file", 2), Bytes::new());
        match number(head)? {
            193 => send(sender, &(225, PROTOCOL_VERSION, FAKE_MOVER.0), Bytes::new()),
            194 => {
                let (_, request, _, _): (u32, u64, String, Bytes) = read(head)?;
                no_file(request);
            }
            195 => {
                type Read = (u32, u64, String, Bytes, Option<(u64, u64, i64)>, u64, u64);
                let (_, request, artifact, path, _, offset, length): Read = read(head)?;
                let path = String::from_utf8(path.to_vec()).ok()?;
                let content = lock(&self.0).get(&artifact).and_then(|kept| kept.get(&path).cloned());
                let Some(content) = content else {
                    no_file(request);
                    return Some(());
                };
                let begin = content.len().min(offset as usize);
                let end = content.len().min((offset + length) as usize);
                send(sender, &(227, request, 1, content.len(), 1), content.slice(begin..end));
            }
            196 => {
                let (_, request, artifact): (u32, u64, String) = read(head)?;
                lock(&self.0).remove(&artifact);
                send(sender, &(228, request), Bytes::new());
            }
            _ => return None,
        }
        Some(())
    }
}

/// An entry of a manifest.
type WireEntry = (Bytes, &'static str, u64, String, bool, Bytes);

fn entry(path: &str, kind: &'static str, size: u64, sha256: &str) -> WireEntry {
    (Bytes::copy_from_slice(path.as_bytes()), kind, size, sha256.to_owned(), false, Bytes::new())
}

/// The process id and the socket of the mover of a fake node.
pub(super) const FAKE_MOVER: (u32, &str) = (2, "/fake/mover");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::PendingCompute;
    use crate::error::ErrorKind;
    use crate::payload::Payload;
    use crate::testkit::FakePool;
    use crate::testkit::script::Answer;

    #[tokio::test]
    async fn a_handler_saves_discards_and_loses_artifacts_of_a_fake_pool() {
        let artifacts = FakeArtifacts::default();
        let folder = artifacts.folder("run", [("a", "one"), ("sub/b", "two")]);
        let answer = folder.clone();
        let pool = FakePool::with_artifacts(&artifacts, move |_| Answer::returns(&answer)).start().await.unwrap();
        let train: PendingCompute<Artifact> = Payload::python("a.py", "def train(): ...", "train").into();
        let artifact = train.run(&pool).await.unwrap();
        assert_eq!(artifact, folder);
        let here = std::env::temp_dir().join(format!("skyward-fake-files-{}", std::process::id()));
        artifact.save_to(&pool, &here).await.unwrap();
        assert_eq!(std::fs::read_to_string(here.join("sub/b")).unwrap(), "two");
        std::fs::remove_dir_all(&here).unwrap();
        artifact.discard(&pool).await.unwrap();
        assert!(!artifacts.has(&folder));
        let other = artifacts.file("model.pt", vec![7; 5 << 20]);
        assert_eq!(other.bytes(&pool, 5 << 20).await.unwrap(), vec![7; 5 << 20]);
        artifacts.lose(&other);
        assert_eq!(other.bytes(&pool, 5 << 20).await.unwrap_err().kind(), ErrorKind::ArtifactLost);
        let error = pool.node(0).fetch("log.csv", &here).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}
