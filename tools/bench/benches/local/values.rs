//! 64 MiB there and back, in GiB per second, counted in both directions; and the time that a worker
//! takes to select its part of ten million rows.

use skyward::payload::Tensor;
use skyward::prelude::*;

use super::common::bytes::{GIB, SIZE, there_and_back};
use super::common::calls::SHUTDOWN;
use super::common::{Table, timed};
use super::{numpy, two_workers};

#[skyward::compute]
fn same_array(data: Tensor) -> Tensor {
    "return data"
}

/// Seconds to select the part in a random order.
#[skyward::compute]
fn shuffled(rows: u32, seed: u32) -> f64 {
    "
    import time

    import numpy as np
    import skyward as sky

    data = np.arange(rows)
    began = time.perf_counter()
    part = sky.shard(data, shuffle=True, seed=seed)
    took = time.perf_counter() - began
    assert len(part) == rows // sky.instance_info().total_workers
    return took
    "
}

pub(crate) async fn measure(table: &mut Table) -> skyward::Result<()> {
    let times = table.times(30).max(5);
    if table.wants("bytes_64mib_gib_s") {
        let pool = two_workers().start().await?;
        table.row("bytes_64mib_gib_s", async { Ok(there_and_back(&pool, times).await? / GIB) }).await?;
        pool.shutdown(SHUTDOWN).await?;
    }
    if table.wants("numpy_64mib_gib_s") || table.wants("shard_shuffle_10m_s") {
        let pool = two_workers().image(numpy()).start().await?;
        table.row("numpy_64mib_gib_s", array(&pool, times)).await?;
        table.row("shard_shuffle_10m_s", shuffle(&pool, times.min(5))).await?;
        pool.shutdown(SHUTDOWN).await?;
    }
    Ok(())
}

/// The best of all rounds, as the peers are measured.
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

/// The median time of the slower of two workers. Both select at the same time: a task alone has all
/// of the rows.
async fn shuffle(pool: &Pool, times: usize) -> skyward::Result<f64> {
    let mut took = Vec::new();
    for seed in (0..).take(times) {
        let of_ranks = shuffled(10_000_000, seed).broadcast(pool).await?;
        took.push(of_ranks.into_iter().fold(0.0, f64::max));
    }
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}
