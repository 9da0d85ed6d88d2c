//! Reads a file of a node as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, ReadBuf};

use super::parts::damaged;
use super::pieces::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::hex;

/// The content of an artifact that is a file, as a reader: see
/// [`Artifact::open`](crate::compute::Artifact::open). It keeps at most 18 MiB in memory.
pub struct FileReader<'p> {
    pieces: BoxStream<'p, Result<Bytes>>,
    rest: Bytes,
}

impl<'p> FileReader<'p> {
    /// Reads the single file of the source. At the end of the bytes, another SHA-256 is an error.
    /// `explain` makes the error of the reader from that of the node.
    pub(crate) fn new(source: Source<'p>, sha256: String, explain: impl Fn(Error) -> Error + Send + Sync + 'p) -> Self {
        let pieces = Arc::new(source).pieces().boxed();
        let checked = stream::unfold(Some((pieces, Sha256::new(), sha256)), |state| async move {
            let (mut pieces, mut digest, sha256) = state?;
            match pieces.next().await {
                Some(Ok(piece)) => {
                    digest.update(&piece.bytes);
                    Some((Ok(piece.bytes), Some((pieces, digest, sha256))))
                }
                Some(Err(error)) => Some((Err(error), None)),
                None => match hex(&digest.finalize()) {
                    found if found == sha256 => None,
                    found => Some((Err(damaged(&format!("its SHA-256 is {found} and not {sha256}"))), None)),
                },
            }
        });
        Self { pieces: checked.map(move |piece| piece.map_err(&explain)).fuse().boxed(), rest: Bytes::new() }
    }

    /// The error of this library within the error of a read.
    pub(crate) fn error(error: io::Error) -> Error {
        let message = error.to_string();
        match error.into_inner().map(|inner| inner.downcast::<Error>()) {
            Some(Ok(error)) => *error,
            _ => Error::new(ErrorKind::Io, message),
        }
    }
}

impl AsyncRead for FileReader<'_> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.pieces.poll_next_unpin(context)) {
                Some(Ok(bytes)) => self.rest = bytes,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.rest.len().min(into.remaining());
        into.put_slice(&self.rest[..count]);
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl std::fmt::Debug for FileReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileReader")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::files::memory::MemoryFiles;
    use crate::files::{NodePath, Part};
    use crate::ids::NodeIndex;

    fn source<'f>(files: &'f MemoryFiles, part: &Part) -> Source<'f> {
        let alone = Part { path: "".into(), kind: part.kind.clone() };
        Source { files, node: NodeIndex(0), name: "a".into(), base: NodePath::new(&part.path), parts: vec![alone] }
    }

    #[tokio::test]
    async fn a_reader_returns_all_bytes_and_reports_other_ones_at_the_end() {
        let files = MemoryFiles::default();
        let content: Vec<u8> = (0..=250).cycle().take((9 << 20) + 5).collect();
        files.write("a", 1, content.clone());
        let part = files.part("a", false);
        let sha256 = hex(&Sha256::digest(&content));
        let mut read = Vec::new();
        let explain = |error| error;
        FileReader::new(source(&files, &part), sha256, explain).read_to_end(&mut read).await.unwrap();
        assert!(read == content);
        let other = hex(&Sha256::digest(b"other"));
        let mut whole = FileReader::new(source(&files, &part), hex(&Sha256::digest(&content)), explain);
        whole.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(whole.read(&mut [0; 8]).await.unwrap(), 0, "it stays at the end");
        let error = FileReader::new(source(&files, &part), other, explain).read_to_end(&mut read).await.unwrap_err();
        assert_eq!(FileReader::error(error).kind(), ErrorKind::Damaged);
        files.write("a", 1, content[..100].to_vec());
        let cut = FileReader::new(source(&files, &part), String::new(), explain).read_to_end(&mut read).await;
        assert_eq!(FileReader::error(cut.unwrap_err()).kind(), ErrorKind::Damaged);
    }
}
