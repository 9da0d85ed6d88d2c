//! Nodes in containers of this host's engine.

use skyward::pool::PoolBuilder;
use skyward::prelude::*;
use skyward::provider::Docker;

use super::common::Table;
use super::common::bytes::{GIB, there_and_back};
use super::common::calls::{SHUTDOWN, pipelined, round_trip, warm_up};
use super::common::start::warm;
use super::engine::{Alone, run_and_remove};
use super::{beside, blocking};

pub(crate) async fn measure(mut table: Table, image: String) -> skyward::Result<()> {
    let two: &(dyn Fn() -> PoolBuilder + Sync) = &|| Pool::builder().provider(Docker::new(&image)).nodes(NODES);
    let (calls, many, large, starts) = (table.times(10_000), table.times(100_000), table.times(10), table.times(5));
    if ["docker_call_p50_us", "docker_call_per_s", "docker_bytes_64mib_gib_s"].iter().any(|row| table.wants(row)) {
        let pool = two().start().await?;
        warm_up(&pool).await?;
        let alone = Alone::start(&image).map_err(beside)?;
        table.row("docker_call_p50_us", round_trip(&pool, calls)).await?;
        let echo = alone.echo().map_err(beside)?;
        table.beside("docker", "docker_call_p50_us", blocking(move || echo.p50_us(calls))).await?;
        table.row("docker_call_per_s", pipelined(&pool, many)).await?;
        let echo = alone.echo().map_err(beside)?;
        table.beside("docker", "docker_call_per_s", blocking(move || echo.per_s(many))).await?;
        table.row("docker_bytes_64mib_gib_s", async { Ok(there_and_back(&pool, large).await? / GIB) }).await?;
        let echo = alone.echo().map_err(beside)?;
        table
            .beside("docker", "docker_bytes_64mib_gib_s", blocking(move || Ok(echo.there_and_back(large)? / GIB)))
            .await?;
        pool.shutdown(SHUTDOWN).await?;
    }
    if ["docker_warm_start_s", "docker_teardown_s"].iter().any(|row| table.wants(row)) {
        let (start, end) = warm(two, starts).await?;
        table.row("docker_warm_start_s", async { Ok(start) }).await?;
        table.row("docker_teardown_s", async { Ok(end) }).await?;
        let (start, end) = blocking(move || run_and_remove(&image, NODES as usize, starts)).await?;
        table.beside("docker", "docker_warm_start_s", async { Ok(start) }).await?;
        table.beside("docker", "docker_teardown_s", async { Ok(end) }).await?;
    }
    table.print();
    Ok(())
}

const NODES: u32 = 2;
