//! 64 MiB there and back.

use bytes::Bytes;
use skyward::prelude::*;

use super::timed;

#[skyward::compute]
fn same_bytes(data: &[u8]) -> Bytes {
    "return data"
}

/// Bytes per second, counted in both directions; the best of all rounds, as the peers are measured.
pub(crate) async fn there_and_back(pool: &Pool, times: usize) -> skyward::Result<f64> {
    let data = vec![7_u8; SIZE];
    let mut best = f64::MAX;
    for _ in 0..times {
        let (back, took) = timed(async { same_bytes(&data).run(pool).await }).await?;
        assert_eq!(back.len(), SIZE);
        best = best.min(took.as_secs_f64());
    }
    Ok(2.0 * SIZE as f64 / best)
}

pub(crate) const SIZE: usize = 64 << 20;
pub(crate) const GIB: f64 = (1_u64 << 30) as f64;
