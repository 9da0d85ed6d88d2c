//! Memory for large messages.
//!
//! To allocate fresh memory costs more than to copy data into it: the kernel takes several times
//! longer to provide 64 MiB in pages of 4 KiB than in huge pages. Therefore large blocks come
//! directly from the operating system, with a request for huge pages.

use bytes::Bytes;
use memmap2::MmapMut;

/// A large block in a memory mapping of its own.
#[derive(Debug)]
pub(crate) struct Memory {
    map: MmapMut,
    filled: usize,
}

impl Memory {
    /// A block of this size. `None` if the size is zero or the system has no memory for it.
    pub(crate) fn allocate(size: usize) -> Option<Self> {
        let map = MmapMut::map_anon(size).ok()?;
        // Without huge pages, the kernel uses ordinary ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self { map, filled: 0 })
    }

    /// The filled part.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.map[..self.filled]
    }

    /// The filled part, mutable.
    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.filled]
    }

    /// The part that is not filled yet.
    pub(crate) fn rest(&mut self) -> &mut [u8] {
        &mut self.map[self.filled..]
    }

    /// Marks this many bytes at the front of the [`rest`](Self::rest) as filled.
    pub(crate) fn advance(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.map.len());
    }

    /// Copies bytes to the front of the rest, as many as fit.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let rest = self.rest();
        let count = bytes.len().min(rest.len());
        rest[..count].copy_from_slice(&bytes[..count]);
        self.advance(count);
    }

    /// Converts the filled part into immutable bytes, without a copy.
    pub(crate) fn freeze(self) -> Bytes {
        let filled = self.filled;
        Bytes::from_owner(self.map).slice(..filled)
    }
}

/// The size from which a block is worth a system call of its own.
pub(crate) const LARGE: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filled_part_is_returned() {
        let mut memory = Memory::allocate(LARGE + 3).unwrap();
        memory.extend(b"ab");
        memory.rest()[..2].copy_from_slice(b"cd");
        memory.advance(2);
        assert_eq!(memory.rest().len(), LARGE - 1);
        assert_eq!(&memory.freeze()[..], b"abcd");
        let mut small = Memory::allocate(2).unwrap();
        small.extend(b"abc");
        assert_eq!(small.rest().len(), 0);
        assert_eq!(&small.freeze()[..], &b"ab"[..]);
    }
}
