//! What is sent in one message: a piece of a large file, or many small files.

use crate::files::LARGEST_PIECE;

/// A part of a file: the index of the file in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) index: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Spans that are sent together, and how many files end with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pack {
    pub(crate) spans: Vec<Span>,
    pub(crate) ends: u64,
    size: u64,
}

/// Cuts files, which are given by their indices and sizes, into packs. Files without content are in
/// none.
pub(super) fn packs(files: impl Iterator<Item = (u32, u64)>) -> impl Iterator<Item = Pack> {
    let mut files = files.filter(|(_, size)| *size > 0);
    let mut rest: Option<(u32, u64, u64)> = None;
    std::iter::from_fn(move || {
        let mut pack = Pack::default();
        while pack.size < LARGEST_PIECE && pack.spans.len() < MOST_SPANS {
            let Some((index, offset, size)) =
                rest.take().or_else(|| files.next().map(|(index, size)| (index, 0, size)))
            else {
                break;
            };
            let length = (size - offset).min(LARGEST_PIECE - pack.size);
            pack.spans.push(Span { index, offset, length });
            pack.size += length;
            if offset + length == size {
                pack.ends += 1;
            } else {
                rest = Some((index, offset + length, size));
            }
        }
        (!pack.spans.is_empty()).then_some(pack)
    })
}

/// The most spans of a pack.
const MOST_SPANS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_cover_all_bytes_once_in_order_and_stay_within_their_bounds() {
        let sizes = [0, 1, LARGEST_PIECE, 3 * LARGEST_PIECE + 5, 0, 7, LARGEST_PIECE - 1];
        let mut files: Vec<(u32, u64)> = (0..).zip(sizes).collect();
        files.extend((sizes.len() as u32..).zip([3; 3 * MOST_SPANS]));
        let all: Vec<Pack> = packs(files.iter().copied()).collect();
        let mut next = files.iter().copied().filter(|(_, size)| *size > 0);
        let (mut file, mut offset, mut ends) = (next.next(), 0, 0);
        for pack in &all {
            assert!(pack.size <= LARGEST_PIECE && pack.spans.len() <= MOST_SPANS, "{pack:?}");
            assert_eq!(pack.size, pack.spans.iter().map(|span| span.length).sum::<u64>());
            for span in &pack.spans {
                assert_eq!(Some(span.index), file.map(|(index, _)| index));
                assert_eq!(span.offset, offset);
                offset += span.length;
                if Some(offset) == file.map(|(_, size)| size) {
                    (file, offset, ends) = (next.next(), 0, ends + 1);
                }
            }
        }
        assert_eq!((file, offset), (None, 0));
        assert_eq!(all.iter().map(|pack| pack.ends).sum::<u64>(), ends);
        assert_eq!(packs(std::iter::empty()).count(), 0);
    }
}
