//! 64 MiB there and back, in GiB per second, counted both ways.

use bytes::Bytes;
use skyward::payload::Tensor;
use skyward::prelude::*;

use super::calls::SHUTDOWN;
use super::{Table, numpy, timed, two_workers};

#[skyward::compute]
fn same_bytes(data: &[u8]) -> Bytes {
    "return data"
}

#[skyward::compute]
fn same_array(data: Tensor) -> Tensor {
    "return data"
}

pub(crate) async fn measure(table: &mut Table<'_>) -> skyward::Result<()> {
    let times = table.times(30).max(5);
    if table.wants("bytes_64mib_gib_s") {
        let pool = two_workers().start().await?;
        table.row("bytes_64mib_gib_s", bytes(&pool, times)).await?;
        pool.shutdown(SHUTDOWN).await?;
    }
    if table.wants("numpy_64mib_gib_s") {
        let pool = two_workers().image(numpy()).start().await?;
        table.row("numpy_64mib_gib_s", array(&pool, times)).await?;
        pool.shutdown(SHUTDOWN).await?;
    }
    Ok(())
}

/// The best of all: as the peers are measured.
async fn bytes(pool: &Pool, times: usize) -> skyward::Result<f64> {
    let data = vec![7_u8; SIZE];
    let mut best = f64::MAX;
    for _ in 0..times {
        let (back, took) = timed(async { same_bytes(&data).run(pool).await }).await?;
        assert_eq!(back.len(), SIZE);
        best = best.min(took.as_secs_f64());
    }
    Ok(2.0 * SIZE as f64 / best / GIB)
}

async fn array(pool: &Pool, times: usize) -> skyward::Result<f64> {
    let data = Tensor::new("float32", [SIZE / 4], vec![7_u8; SIZE])?;
    let mut best = f64::MAX;
    for _ in 0..times {
        let (back, took) = timed(same_array(data.clone()).run(pool)).await?;
        assert_eq!(back.shape(), [SIZE / 4]);
        best = best.min(took.as_secs_f64());
    }
    Ok(2.0 * SIZE as f64 / best / GIB)
}

const SIZE: usize = 64 << 20;
const GIB: f64 = (1_u64 << 30) as f64;
