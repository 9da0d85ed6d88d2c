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
/// - A file that was removed, replaced or cut is read from its beginning: one that is missing for a
///   moment, has another number or became shorter, and one whose last 256 bytes before the present
///   position are other ones than those that were read.
/// - It ends with the pool, and with an error when the node is lost or the file cannot be read.
///
/// Dropping it ends it.
pub struct Tail(BoxStream<'static, Result<Bytes>>);

/// How far a file has been read.
struct Position {
    inode: Option<u64>,
    offset: u64,
    /// The last bytes before the position.
    before: Bytes,
    pause: Duration,
}

impl Tail {
    /// Follows the file at a path of a node.
    pub(crate) fn new(files: Arc<dyn NodeFiles>, node: NodeIndex, path: NodePath) -> Self {
        let pieces = stream::unfold(Some((files, path, Position::BEGIN)), move |state| async move {
            let (files, path, mut position) = state?;
            let piece = position.next(&*files, node, &path).await.transpose()?;
            let is_last = piece.is_err();
            Some((piece, (!is_last).then_some((files, path, position))))
        });
        Self(pieces.fuse().boxed())
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
    const BEGIN: Self = Self { inode: None, offset: 0, before: Bytes::new(), pause: FIRST_TAIL_PAUSE };

    /// The next bytes; `None` if the pool has ended.
    async fn next(&mut self, files: &dyn NodeFiles, node: NodeIndex, path: &NodePath) -> Result<Option<Bytes>> {
        loop {
            let known = self.before.len() as u64;
            match files.read(node, path, None, self.offset - known, LARGEST_PIECE).await {
                Ok(piece) => {
                    let is_same = self.inode.is_none_or(|inode| inode == piece.identity.inode);
                    if is_same && piece.identity.size >= self.offset && piece.bytes.starts_with(&self.before) {
                        self.inode = Some(piece.identity.inode);
                        let new = piece.bytes.slice(self.before.len()..);
                        if !new.is_empty() {
                            self.offset += new.len() as u64;
                            // A copy: a slice would keep the whole piece in memory.
                            let last = piece.bytes.len().saturating_sub(COMPARED);
                            self.before = Bytes::copy_from_slice(&piece.bytes[last..]);
                            self.pause = FIRST_TAIL_PAUSE;
                            return Ok(Some(new));
                        }
                    } else {
                        *self = Self { pause: self.pause, ..Self::BEGIN };
                    }
                }
                Err(error) if error.kind() == ErrorKind::Closed => return Ok(None),
                Err(error) if error.kind() == ErrorKind::NotFound && error.is_temporary() => {
                    *self = Self { pause: self.pause, ..Self::BEGIN };
                }
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

/// How many bytes before the position are compared with those that were read there.
const COMPARED: usize = 256;

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

    fn follow(files: &Arc<MemoryFiles>) -> Tail {
        Tail::new(files.clone(), NodeIndex(0), NodePath::new("log"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_later_follows_once_and_in_order() {
        let files = Arc::new(MemoryFiles::default());
        let mut tail = follow(&files);
        assert_eq!(read(&mut tail).await, b"", "the file does not exist yet");
        files.write("log", 1, &b"one "[..]);
        assert_eq!(read(&mut tail).await, b"one ");
        let large = [b"one ".to_vec(), (0..=250).cycle().take(5 << 20).collect()].concat();
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
        let mut tail = follow(&files);
        assert_eq!(read(&mut tail).await, b"first");
        files.write("log", 2, &b"a longer one of another file"[..]);
        assert_eq!(read(&mut tail).await, b"a longer one of another file");
        files.write("log", 2, &b"cut"[..]);
        assert_eq!(read(&mut tail).await, b"cut");
        // A new file often gets the number of the one that was removed.
        files.write("log", 2, &b"longer, with the same number"[..]);
        assert_eq!(read(&mut tail).await, b"longer, with the same number");
        files.remove("log");
        assert_eq!(read(&mut tail).await, b"");
        files.write("log", 2, &b"longer, with the same number, and more"[..]);
        assert_eq!(read(&mut tail).await, b"longer, with the same number, and more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tail_that_has_ended_stays_at_its_end() {
        let mut tail = Tail::new(Arc::new(MemoryFiles::default()), NodeIndex(0), NodePath::new("log"));
        tail.0 = stream::iter([]).fuse().boxed();
        assert!(tail.next().await.is_none() && tail.next().await.is_none());
        let files = Arc::new(MemoryFiles::default());
        files.fail(ErrorKind::Io);
        let mut failing = follow(&files);
        assert_eq!(failing.next().await.unwrap().unwrap_err().kind(), ErrorKind::Io);
        assert!(failing.next().await.is_none() && failing.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_another_one_each_time_is_not_asked_for_without_a_pause() {
        let files = Arc::new(MemoryFiles::default());
        let mut tail = follow(&files);
        for inode in 0..100 {
            files.write("log", inode % 2, &b"x"[..]);
            let _ = timeout(Duration::from_millis(10), tail.next()).await;
        }
        assert!(files.reads() <= 200, "{}", files.reads());
    }
}
