//! From nothing to the first result, with the environment built before.

use std::time::Instant;

use super::calls::{SHUTDOWN, nothing};
use super::{Table, median, two_workers};
use skyward::prelude::*;

pub(crate) async fn measure(table: &mut Table<'_>) -> skyward::Result<()> {
    let times = table.times(9).max(3);
    table.row("warm_start_s", warm(times)).await
}

async fn warm(times: usize) -> skyward::Result<f64> {
    // Builds the environment where there is none yet.
    two_workers().scope(async |pool| nothing().run(pool).await).await?;
    let mut seconds = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        let pool = two_workers().start().await?;
        nothing().run(&pool).await?;
        seconds.push(begin.elapsed().as_secs_f64());
        pool.shutdown(SHUTDOWN).await?;
    }
    Ok(median(seconds))
}
