//! Calls that do nothing: one at a time, many at once, to all workers.

use skyward::prelude::*;

use super::common::calls::{SHUTDOWN, nothing, pipelined, round_trip, warm_up};
use super::common::{Table, median, timed};
use super::two_workers;

pub(crate) async fn measure(table: &mut Table) -> skyward::Result<()> {
    let (one_by_one, many, all) = (table.times(20_000), table.times(200_000), table.times(1_000_000));
    if ["call_p50_us", "calls_per_s", "map_1m_s"].iter().any(|row| table.wants(row)) {
        let pool = two_workers().start().await?;
        warm_up(&pool).await?;
        table.row("call_p50_us", round_trip(&pool, one_by_one)).await?;
        table.row("calls_per_s", pipelined(&pool, many)).await?;
        if !table.options.quick {
            table.row("map_1m_s", async { Ok(all as f64 / pipelined(&pool, all).await?) }).await?;
        }
        pool.shutdown(SHUTDOWN).await?;
    }
    if table.wants("broadcast_8_p50_us") {
        let pool = two_workers().workers_per_node(4).start().await?;
        let broadcasts = table.times(2_000);
        table.row("broadcast_8_p50_us", broadcast(&pool, broadcasts)).await?;
        pool.shutdown(SHUTDOWN).await?;
    }
    Ok(())
}

async fn broadcast(pool: &Pool, count: usize) -> skyward::Result<f64> {
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let (_, took) = timed(nothing().broadcast(pool)).await?;
        micros.push(took.as_secs_f64() * 1e6);
    }
    Ok(median(micros))
}
