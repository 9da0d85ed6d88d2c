//! Artifacts: files and folders that payloads give to their callers.

use std::path::Path;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use super::ComputePool;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{
    Check, FileReader, LARGEST_PIECE, NodeFiles, NodePath, Part, PartKind, Piece, Source, of_manifest, receive,
    total_size,
};
use crate::ids::NodeIndex;
use crate::spec::hex;

/// A file or a folder that a payload gives to its caller with `sky.artifact`. It stays on its node
/// until it is [discarded](Self::discard), the node's machine is gone, or the pool ends.
///
/// It is plain data, a part of any value that a payload returns, reports or yields. So its methods
/// need the pool whose payload has made it.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::compute::{Artifact, ComputePool};
///
/// #[derive(serde::Deserialize)]
/// struct Report {
///     loss: f64,
///     /// In Python: `return {"loss": loss, "model": sky.artifact("model.pt")}`.
///     model: Artifact,
/// }
///
/// async fn keep(pool: &impl ComputePool, report: Report) -> skyward::Result<()> {
///     println!("{} bytes, loss {}", report.model.size(), report.loss);
///     report.model.save_to(pool, "out/model.pt").await
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Artifact {
    node: NodeIndex,
    id: String,
    name: String,
    size: u64,
    sha256: String,
    files: Option<u64>,
}

impl Artifact {
    /// The node on which it is.
    pub fn node(&self) -> NodeIndex {
        self.node
    }

    /// Its id: 32 hexadecimal digits, by which the node finds it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name that the payload gave it: without one, that of its file or folder. The payload chooses
    /// it, so it is no path to write to.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of its file, or of all files of its folder. What is saved or read has exactly this
    /// size, otherwise it is refused.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The SHA-256, in 64 hexadecimal digits: of the content of its file, or of the list of what is in
    /// its folder, which has the SHA-256 of each file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The number of files of a folder; `None` for a file.
    pub fn files(&self) -> Option<u64> {
        self.files
    }

    /// Saves the artifact on this host, as `target`. The memory that this needs does not depend on the
    /// size.
    ///
    /// Folders above the target are created. A file at the target is replaced; a folder there must be
    /// empty. The target is complete or does not appear: the bytes arrive in a file beside it, whose
    /// name ends in `.part`, and their SHA-256 is compared first. Files keep whether they may be
    /// executed.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::ArtifactLost`]: it was discarded, or the machine of its node is gone.
    /// - [`ErrorKind::Damaged`]: something on the node has changed it, as the SHA-256 shows.
    /// - [`ErrorKind::InvalidSpec`]: something else is at the target, or the pool keeps no files.
    /// - [`ErrorKind::Io`]: this host refuses it, such as for a full disk; temporary if the node is there
    ///   and cannot be reached for a minute.
    /// - [`ErrorKind::Closed`], or the error with which the pool failed, if the pool has ended.
    ///
    /// # Cancel safety
    ///
    /// The target is as it was before, or complete.
    pub async fn save_to<P: ComputePool + ?Sized>(&self, pool: &P, target: impl AsRef<Path>) -> Result<()> {
        let files = files_of(pool)?;
        self.check()?;
        let source = self.source(files, self.parts(files).await?);
        receive(source, target.as_ref()).await.map_err(|error| self.lost(error))?.save().await
    }

    /// Reads the artifact, which is a file, as a stream of bytes. Another SHA-256 than
    /// [`sha256`](Self::sha256) is an error at the end of the stream, so use what is read only after
    /// the end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a folder, and for a pool that keeps no files. The reader returns
    /// the errors of [`save_to`](Self::save_to).
    pub fn open<'p, P: ComputePool + ?Sized>(&self, pool: &'p P) -> Result<FileReader<'p>> {
        if let Some(count) = self.files {
            let message = format!("the artifact `{}` is a folder of {count} files, and no stream of bytes", self.name);
            return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint("save it with `save_to`"));
        }
        self.check()?;
        let (source, artifact) = (self.source(files_of(pool)?, vec![self.file(false)]), self.clone());
        Ok(FileReader::new(source, self.sha256.clone(), move |error| artifact.lost(error)))
    }

    /// The content of the artifact, which is a file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// As [`save_to`](Self::save_to), and [`ErrorKind::InvalidSpec`] for a folder or a larger file.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops what has arrived.
    pub async fn bytes<P: ComputePool + ?Sized>(&self, pool: &P, limit: usize) -> Result<Bytes> {
        let mut reader = self.open(pool)?;
        let Some(size) = usize::try_from(self.size).ok().filter(|size| *size <= limit) else {
            let message = format!("the artifact `{}` has {} bytes, more than {limit}", self.name, self.size);
            return Err(Error::new(ErrorKind::InvalidSpec, message)
                .with_hint("save it with `save_to`, or read it with `open`, which need little memory"));
        };
        let mut content = BytesMut::with_capacity(size);
        while reader.read_buf(&mut content).await.map_err(FileReader::error)? > 0 {}
        Ok(content.freeze())
    }

    /// Removes the artifact from its node before the pool ends. One that is gone already is no error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`], temporary, if the node is there and cannot be reached for a minute;
    /// [`ErrorKind::InvalidSpec`] for a pool that keeps no files.
    ///
    /// # Cancel safety
    ///
    /// The artifact may be removed or not.
    pub async fn discard<P: ComputePool + ?Sized>(&self, pool: &P) -> Result<()> {
        self.check()?;
        let discarded = files_of(pool)?.discard(self.node, &self.id).await;
        match discarded {
            Err(error) if is_gone(&error) => Ok(()),
            discarded => discarded,
        }
    }

    /// An artifact of a fake node.
    #[cfg(feature = "testkit")]
    pub(crate) fn new(node: NodeIndex, id: String, name: &str, size: u64, sha256: String, files: Option<u64>) -> Self {
        Self { node, id, name: name.to_owned(), size, sha256, files }
    }

    /// Checks what the payload says: it may have made the value without `sky.artifact`.
    fn check(&self) -> Result<()> {
        let is_hex =
            |text: &str, length| text.len() == length && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex(&self.id, 32) && is_hex(&self.sha256, 64) {
            return Ok(());
        }
        let name: String = self.name.chars().take(100).collect();
        let message = format!("the artifact `{name}` has no id and SHA-256 as `sky.artifact` gives them");
        Err(Error::new(ErrorKind::Damaged, message).with_hint("return what `sky.artifact` returns, unchanged"))
    }

    fn source<'p>(&self, files: &'p dyn NodeFiles, parts: Vec<Part>) -> Source<'p> {
        Source { files, node: self.node, name: self.name.clone(), base: self.path("content"), parts }
    }

    fn path(&self, within: &str) -> NodePath {
        NodePath::of_artifact(&self.id, within)
    }

    /// The artifact, which is a file, as the only part of itself. The value that the payload has returned
    /// counts.
    fn file(&self, executable: bool) -> Part {
        let check = Check::Digest(self.sha256.clone());
        Part { path: "".into(), kind: PartKind::File { size: self.size, executable, check } }
    }

    /// The parts of the artifact, which its manifest lists. The value that the payload has returned
    /// counts: a manifest that does not fit it is another one.
    async fn parts(&self, files: &dyn NodeFiles) -> Result<Vec<Part>> {
        let manifest = self.manifest(files).await?;
        let (is_folder, wanted) = (self.files.is_some(), self.sha256.clone());
        // A long list takes its time.
        let read = tokio::task::spawn_blocking(move || {
            let is_same = !is_folder || hex(&Sha256::digest(&manifest)) == wanted;
            is_same.then(|| of_manifest(&manifest)).transpose()
        });
        let read = read.await.map_err(|_| self.damaged("its list of files cannot be read"))??;
        let Some(parts) = read else { return Err(self.damaged("its list of files is another one")) };
        let is_file = |part: &&Part| matches!(part.kind, PartKind::File { .. });
        let (count, size) = (parts.iter().filter(is_file).count() as u64, total_size(&parts));
        match (self.files, &*parts) {
            (None, [Part { kind: PartKind::File { executable, .. }, .. }]) => Ok(vec![self.file(*executable)]),
            (Some(wanted), _) if (count, size) == (wanted, self.size) => Ok(parts),
            _ => Err(self.damaged("its list has other files than the value of the payload says")),
        }
    }

    async fn manifest(&self, files: &dyn NodeFiles) -> Result<Bytes> {
        let path = self.path("manifest");
        let mut manifest = BytesMut::new();
        loop {
            let piece = files.read(self.node, &path, None, manifest.len() as u64, LARGEST_PIECE).await;
            let Piece { identity, bytes } = piece.map_err(|error| self.lost(error))?;
            manifest.extend_from_slice(&bytes);
            let length = manifest.len() as u64;
            if identity.size > LONGEST_MANIFEST || length > LONGEST_MANIFEST {
                return Err(self.damaged(&format!("its list of files has more than {LONGEST_MANIFEST} bytes")));
            }
            if length >= identity.size {
                return Ok(manifest.freeze());
            }
            if (bytes.len() as u64) < LARGEST_PIECE {
                return Err(self.damaged("its list of files is cut"));
            }
        }
    }

    fn damaged(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Damaged,
            format!("the artifact `{}` was changed on node {}: {what}", self.name, self.node),
        )
    }

    /// The error of an artifact that cannot be read, if the reason is that it is gone.
    pub(crate) fn lost(&self, error: Error) -> Error {
        if !is_gone(&error) {
            return error;
        }
        let message = format!("the artifact `{}` is not on node {} any more", self.name, self.node);
        Error::new(ErrorKind::ArtifactLost, message).with_source(error).with_hint(
            "it was discarded, or the machine of its node is gone: save artifacts as soon as the task has returned them",
        )
    }
}

/// Whether a node has no such artifact, and never will again.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NodeLost)
}

fn files_of<P: ComputePool + ?Sized>(pool: &P) -> Result<&dyn NodeFiles> {
    pool.files().ok_or_else(|| {
        Error::new(ErrorKind::InvalidSpec, "this kind of pool keeps no files, so its tasks have no artifacts")
    })
}

/// The most bytes of the list of what is in a folder.
const LONGEST_MANIFEST: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::memory::MemoryFiles;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    type Listed = (Bytes, &'static str, u64, String, bool, Bytes);

    fn listed(path: &'static str, kind: &'static str, size: u64) -> Listed {
        (Bytes::from_static(path.as_bytes()), kind, size, hex(&Sha256::digest(b"")), false, Bytes::new())
    }

    fn manifest(entries: &[Listed]) -> Vec<u8> {
        rmp_serde::to_vec(entries).unwrap()
    }

    /// A folder artifact that the payload describes in this way.
    fn folder(manifest: &[u8], size: u64, files: u64) -> Artifact {
        Artifact::new(NodeIndex(0), ID.into(), "run", size, hex(&Sha256::digest(manifest)), Some(files))
    }

    #[tokio::test]
    async fn a_list_that_is_not_what_the_value_says_is_refused() {
        let files = MemoryFiles::default();
        let list = manifest(&[listed("", "folder", 0), listed("a", "file", 3), listed("b", "file", 4)]);
        files.write("manifest", 1, list.clone());
        assert_eq!(folder(&list, 7, 2).parts(&files).await.unwrap().len(), 3);
        let alone = Artifact { files: None, ..folder(&list, 7, 2) };
        for other in [folder(&list, 6, 2), folder(&list, 7, 1), folder(b"other", 7, 2), alone] {
            assert_eq!(other.parts(&files).await.unwrap_err().kind(), ErrorKind::Damaged, "{other:?}");
        }
        // A single file whose list claims another size is read with that of the value.
        let one = manifest(&[listed("", "file", 1 << 40)]);
        files.write("manifest", 1, one.clone());
        let parts = Artifact { files: None, ..folder(&one, 5, 0) }.parts(&files).await.unwrap();
        assert_eq!(parts[0].size(), 5);
    }

    #[tokio::test]
    async fn a_list_that_is_too_long_is_refused_before_it_is_in_memory() {
        let files = MemoryFiles::default();
        files.write("manifest", 1, vec![0; LONGEST_MANIFEST as usize + 1]);
        let error = folder(b"", 0, 0).parts(&files).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Damaged && files.reads() == 1, "{error}");
    }

    #[test]
    fn a_value_that_no_payload_gets_from_sky_artifact_is_refused() {
        let good = folder(b"", 0, 0);
        assert!(good.check().is_ok());
        let ids = ["", "x", "../../etc/passwd", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcde/"];
        for id in ids {
            let error = Artifact { id: id.into(), ..good.clone() }.check().unwrap_err();
            assert!(error.kind() == ErrorKind::Damaged && error.hint().is_some(), "{error}");
        }
        assert!(Artifact { sha256: "0".into(), ..good.clone() }.check().is_err());
    }
}
