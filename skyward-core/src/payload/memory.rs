//! Memory for large messages.
//!
//! Fresh memory costs more than copying into it does: 64 MiB in pages of 4 KiB take several times as long to come into being as in huge pages. So large blocks are taken
//! from the system directly, and huge pages are asked for.

use bytes::Bytes;
use memmap2::MmapMut;

/// A large block, which lies in memory of its own.
#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapMut,
    filled: usize,
}

impl Memory {
    /// A block of this size, which is not zero; none where the system has no room for it.
    pub(crate) fn allocate(size: usize) -> Option<Self> {
        let map = MmapMut::map_anon(size).ok()?;
        // A kernel without huge pages has others.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self { map, filled: 0 })
    }

    /// What was filled.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.map[..self.filled]
    }

    /// The same, to be changed.
    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.filled]
    }

    /// What is still to be filled.
    pub(crate) fn rest(&mut self) -> &mut [u8] {
        &mut self.map[self.filled..]
    }

    /// So many bytes more were written to the [`rest`](Self::rest).
    pub(crate) fn advance(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.map.len());
    }

    /// Copies bytes to the front of the rest, as many as there is room for.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let rest = self.rest();
        let count = bytes.len().min(rest.len());
        rest[..count].copy_from_slice(&bytes[..count]);
        self.advance(count);
    }

    /// The block, which cannot be written any more.
    pub(crate) fn freeze(self) -> Bytes {
        let filled = self.filled;
        Bytes::from_owner(self.map).slice(..filled)
    }
}

/// From this size on a block is worth a system call of its own.
pub(crate) const LARGE: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_comes_back() {
        let mut memory = Memory::allocate(LARGE + 3).unwrap();
        memory.extend(b"ab");
        memory.rest()[..2].copy_from_slice(b"cd");
        memory.advance(2);
        assert_eq!(memory.rest().len(), LARGE - 1);
        assert_eq!(&memory.freeze()[..], b"abcd");
        let mut small = Memory::allocate(2).unwrap();
        small.extend(b"abc");
        assert_eq!((small.rest().len(), &small.freeze()[..]), (0, &b"ab"[..]));
    }
}
