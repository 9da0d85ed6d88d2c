//! The content of files on a node, in pieces: some are requested ahead, and they come in order.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};

use super::node_files::{LARGEST_PIECE, NodeFiles, NodePath};
use super::parts::{Check, Part, PartKind, damaged, total_size};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::NodeIndex;

/// Files of a node that are brought to this host.
pub(crate) struct Source<'f> {
    pub(crate) files: &'f dyn NodeFiles,
    pub(crate) node: NodeIndex,
    /// What it is, for people.
    pub(crate) name: String,
    /// The path to which the paths of the parts are relative.
    pub(crate) base: NodePath,
    pub(crate) parts: Vec<Part>,
}

/// A piece of a part that is a file. An empty file has one empty piece.
pub(crate) struct PartPiece {
    /// The index of the part.
    pub(crate) part: usize,
    pub(crate) bytes: Bytes,
}

impl<'f> Source<'f> {
    /// The bytes of all files.
    pub(super) fn size(&self) -> u64 {
        total_size(&self.parts)
    }

    /// The pieces of all files, in order. Ends with the first error.
    ///
    /// # Errors
    ///
    /// As [`NodeFiles::read`].
    pub(crate) fn pieces(self: Arc<Self>) -> impl Stream<Item = Result<PartPiece>> + Send + 'f {
        let listed = Arc::clone(&self);
        let spans = (0..self.parts.len()).flat_map(move |index| spans(index, &listed.parts[index]));
        stream::iter(spans).map(move |span| Arc::clone(&self).read(span)).buffered(AHEAD)
    }

    async fn read(self: Arc<Self>, Span { part, offset, length }: Span) -> Result<PartPiece> {
        if length == 0 {
            return Ok(PartPiece { part, bytes: Bytes::new() });
        }
        let Part { path, kind } = &self.parts[part];
        let (identity, path) = match kind {
            PartKind::File { check: Check::Identity(identity), .. } => (Some(*identity), self.base.join(path)),
            _ => (None, self.base.join(path)),
        };
        let piece = self.files.read(self.node, &path, identity, offset, length).await?;
        if piece.bytes.len() as u64 == length {
            return Ok(PartPiece { part, bytes: piece.bytes });
        }
        Err(match identity {
            Some(identity) if identity == piece.identity => {
                let message = format!("{path} ends before its {} bytes", identity.size);
                Error::new(ErrorKind::Io, message)
                    .with_hint("a file of the system has other content each time: read it in the payload")
            }
            Some(_) => changed(format!("{path} changed while it was read")),
            None => damaged(&format!("{path} has {} bytes", piece.identity.size)),
        })
    }
}

/// The error of a file that does not stay as it is while it is read.
pub(crate) fn changed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Changed, message)
        .temporary()
        .with_hint("wait until its writer has closed it, or follow it with `tail`")
}

/// The part of a file that one piece has.
struct Span {
    part: usize,
    offset: u64,
    length: u64,
}

fn spans(part: usize, of: &Part) -> impl Iterator<Item = Span> + use<> {
    let (is_file, size) = (matches!(of.kind, PartKind::File { .. }), of.size());
    let count = if is_file { size.div_ceil(LARGEST_PIECE).max(1) } else { 0 };
    (0..count).map(move |index| {
        let offset = index * LARGEST_PIECE;
        Span { part, offset, length: LARGEST_PIECE.min(size - offset) }
    })
}

/// How many pieces are requested ahead.
const AHEAD: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(size: u64) -> Vec<(u64, u64)> {
        let kind = PartKind::File { size, executable: false, check: Check::Digest(String::new()) };
        spans(0, &Part { path: "a".into(), kind }).map(|span| (span.offset, span.length)).collect()
    }

    #[test]
    fn the_spans_of_a_file_cover_it_once() {
        assert_eq!(lengths(0), [(0, 0)]);
        assert_eq!(lengths(1), [(0, 1)]);
        assert_eq!(lengths(LARGEST_PIECE), [(0, LARGEST_PIECE)]);
        assert_eq!(lengths(LARGEST_PIECE + 1), [(0, LARGEST_PIECE), (LARGEST_PIECE, 1)]);
        assert_eq!(spans(0, &Part { path: "a".into(), kind: PartKind::Folder }).count(), 0);
    }
}
