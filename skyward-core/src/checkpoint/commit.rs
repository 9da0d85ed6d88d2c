//! A checkpoint that is committed: its files, and where their bytes are.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::draft::RankFiles;
use super::layout::{Layout, SaveId};
use super::manifest::Saved;
use super::union::{Place, Union};
use crate::error::Result;
use crate::files::{LARGEST_PIECE, Part, total_size};
use crate::storage::ObjectPath;

/// A committed checkpoint. It is cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Commit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    sequence: u64,
    record: Saved,
    union: Union,
}

impl Commit {
    /// # Errors
    ///
    /// As [`Union::of`].
    pub(super) fn new(layout: &Layout, sequence: u64, record: Saved) -> Result<Self> {
        let union = Union::of(&record.ranks)?;
        Ok(Self(Arc::new(Inner { layout: layout.clone(), sequence, record, union })))
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.0.sequence
    }

    pub(crate) fn step(&self) -> i64 {
        self.0.record.step
    }

    pub(crate) fn save(&self) -> &SaveId {
        &self.0.record.save
    }

    /// JSON, as the payload gave it.
    pub(crate) fn meta(&self) -> &str {
        &self.0.record.meta
    }

    /// The bytes of all files of the union.
    pub(crate) fn size(&self) -> u64 {
        total_size(self.union())
    }

    /// The files of all ranks as one tree: the root folder first, parents before children, by the bytes
    /// of the paths.
    pub(crate) fn union(&self) -> &[Part] {
        self.0.union.parts()
    }

    /// The files that one rank has saved; `None` if it has saved none.
    pub(crate) fn files_of(&self, rank: u32) -> Option<&[Part]> {
        self.0.record.ranks.iter().find(|files| files.rank == rank).map(|files| &*files.files)
    }

    /// Where the bytes of a file are, in order: objects, and ranges of them of at most 2 MiB. Nothing for
    /// an empty file, a folder, a link and a path that does not exist.
    pub(crate) fn pieces(&self, path: &Path) -> impl Iterator<Item = (ObjectPath, Range<u64>)> {
        let size = self.0.union.find(path).map_or(0, |(part, _)| part.size());
        self.spans(path, 0, size)
    }

    /// As [`pieces`](Self::pieces), for a part of a file.
    pub(super) fn spans(
        &self,
        path: &Path,
        offset: u64,
        length: u64,
    ) -> impl Iterator<Item = (ObjectPath, Range<u64>)> {
        let inner = Arc::clone(&self.0);
        let found = inner.union.find(path).map(|(part, place)| {
            let begin = offset.min(part.size());
            (place, begin, begin.saturating_add(length).min(part.size()))
        });
        let (place, begin, end) = found.unwrap_or((Place { rank: 0, offset: 0 }, 0, 0));
        let ranges = ranges(&inner.record.ranks[place.rank], place.offset + begin, place.offset + end);
        ranges.into_iter().map(move |(number, range)| {
            let rank = inner.record.ranks[place.rank].rank;
            (inner.layout.part(&inner.record.save, rank, number), range)
        })
    }
}

/// The numbers of parts, and ranges of them, that have these bytes of a rank.
fn ranges(rank: &RankFiles, begin: u64, end: u64) -> Vec<(u32, Range<u64>)> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    for (number, part) in (0..).zip(&rank.parts) {
        let mut at = begin.max(start);
        let last = end.min(start + part.size);
        while at < last {
            let next = last.min(at + LARGEST_PIECE);
            ranges.push((number, at - start..next - start));
            at = next;
        }
        start += part.size;
    }
    ranges
}
