//! Writes of many bytes.

use std::io::{self, Write};

/// Writes all bytes, in slices.
///
/// For a larger write, Linux allocates large pieces of memory. In a virtual machine that gets memory at
/// its first use, writes of 2 MiB took four to seven times as long as those of 256 KiB (ext4, 6.18).
///
/// # Errors
///
/// Those of the writer.
pub(crate) fn write_sliced(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    bytes.chunks(SLICE).try_for_each(|slice| to.write_all(slice))
}

const SLICE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_written_in_order() {
        for length in [0, 1, SLICE, SLICE + 1, 3 * SLICE] {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            let mut written = Vec::new();
            write_sliced(&mut written, &bytes).unwrap();
            assert!(written == bytes, "{length}");
        }
    }
}
