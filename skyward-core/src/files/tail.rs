//! Follows a file on a node while it is written.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};

use super::node_files::{LARGEST_PIECE, NodeFiles, NodePath};
use super::timing::{FIRST_TAIL_PAUSE, LONGEST_TAIL_PAUSE};
use crate::error::{ErrorKind, Result};
use crate::ids::NodeIndex;

/// The content of a file on a node, from its beginning on, and what is written to it later.
///
/// - It waits for a file that does not exist yet.
/// - A file that became shorter, or another file at the path, is read from its beginning.
/// - It ends with the pool, and with an error when the node is lost or the file cannot be read.
///
/// Dropping it ends it.
pub struct Tail(BoxStream<'static, Result<Bytes>>);

/// How far a file has been read.
struct Position {
    inode: Option<u64>,
    offset: u64,
    pause: Duration,
}

impl Tail {
    /// Follows the file at a path of a node.
    pub(crate) fn new(files: Arc<dyn NodeFiles>, node: NodeIndex, path: NodePath) -> Self {
        let begin = Position { inode: None, offset: 0, pause: FIRST_TAIL_PAUSE };
        let pieces = stream::unfold(Some((files, path, begin)), move |state| async move {
            let (files, path, mut position) = state?;
            let piece = position.next(&*files, node, &path).await.transpose()?;
            let is_last = piece.is_err();
            Some((piece, (!is_last).then_some((files, path, position))))
        });
        Self(pieces.boxed())
    }

    /// The next bytes, as soon as there are some; `None` after the end of the pool.
    ///
    /// # Errors
    ///
    /// As [`NodeFiles::read`]. It is the last item.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        self.0.next().await
    }
}

impl Position {
    /// The next bytes; `None` if the pool has ended.
    async fn next(&mut self, files: &dyn NodeFiles, node: NodeIndex, path: &NodePath) -> Result<Option<Bytes>> {
        loop {
            match files.read(node, path, None, self.offset, LARGEST_PIECE).await {
                Ok(piece) => {
                    let is_same = self.inode.is_none_or(|inode| inode == piece.identity.inode);
                    self.inode = Some(piece.identity.inode);
                    if !is_same || piece.identity.size < self.offset {
                        self.offset = 0;
                        continue;
                    }
                    if !piece.bytes.is_empty() {
                        self.offset += piece.bytes.len() as u64;
                        self.pause = FIRST_TAIL_PAUSE;
                        return Ok(Some(piece.bytes));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Closed => return Ok(None),
                Err(error) if error.kind() == ErrorKind::NotFound && error.is_temporary() => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST_TAIL_PAUSE);
        }
    }
}

impl Stream for Tail {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tail")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::files::memory::MemoryFiles;

    async fn read(tail: &mut Tail) -> Vec<u8> {
        let mut all = Vec::new();
        while let Ok(Some(bytes)) = timeout(LONGEST_TAIL_PAUSE * 4, tail.next()).await {
            all.extend_from_slice(&bytes.unwrap());
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_later_follows_once_and_in_order() {
        let files = Arc::new(MemoryFiles::default());
        let mut tail = Tail::new(files.clone(), NodeIndex(0), NodePath::new("log"));
        assert_eq!(read(&mut tail).await, b"", "the file does not exist yet");
        files.write("log", 1, &b"one "[..]);
        assert_eq!(read(&mut tail).await, b"one ");
        let large = [b"one ".to_vec(), vec![7; 5 << 20]].concat();
        files.write("log", 1, large.clone());
        assert!(read(&mut tail).await == large[4..]);
        // A reader that stops waiting loses nothing.
        let _ = timeout(Duration::from_millis(1), tail.next()).await;
        files.write("log", 1, [&large[..], b"end"].concat());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(read(&mut tail).await, b"end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_replaced_or_cut_is_read_from_its_beginning() {
        let files = Arc::new(MemoryFiles::default());
        files.write("log", 1, &b"first"[..]);
        let mut tail = Tail::new(files.clone(), NodeIndex(0), NodePath::new("log"));
        assert_eq!(read(&mut tail).await, b"first");
        files.write("log", 2, &b"a longer one of another file"[..]);
        assert_eq!(read(&mut tail).await, b"a longer one of another file");
        files.write("log", 2, &b"cut"[..]);
        assert_eq!(read(&mut tail).await, b"cut");
    }
}
