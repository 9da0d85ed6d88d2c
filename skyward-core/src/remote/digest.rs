//! The digest of a file that is put.

use sha2::{Digest, Sha256};

use crate::spec::hex;

/// The SHA-256 of these bytes. The digest of a large file takes a second, so other tasks get their
/// turns.
pub(super) async fn digest(bytes: &[u8]) -> String {
    let mut digest = Sha256::new();
    for piece in bytes.chunks(PIECE) {
        digest.update(piece);
        tokio::task::yield_now().await;
    }
    hex(&digest.finalize())
}

/// Takes less than a millisecond.
const PIECE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_make_no_difference_and_other_tasks_get_turns() {
        let bytes: Vec<u8> = (0..=250).cycle().take(3 * PIECE + 5).collect();
        let mut turns = 0;
        let told = tokio::select! {
            biased;
            told = digest(&bytes) => told,
            () = async { loop { turns += 1; tokio::task::yield_now().await } } => unreachable!(),
        };
        assert_eq!(told, hex(&Sha256::digest(&bytes)));
        assert_eq!(turns, 4);
        assert_eq!(digest(b"").await, hex(&Sha256::digest(b"")));
    }
}
