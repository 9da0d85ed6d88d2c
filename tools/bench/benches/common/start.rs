//! The time from no pool to the first result, with the environment built before.

use std::time::Instant;

use skyward::pool::PoolBuilder;
use skyward::prelude::*;

use super::calls::{SHUTDOWN, nothing};
use super::median;

/// Seconds from no pool to the first result, and seconds of the shutdown.
pub(crate) async fn warm(builder: impl Fn() -> PoolBuilder, times: usize) -> skyward::Result<(f64, f64)> {
    // Builds the environment if there is none yet.
    builder().scope(async |pool| nothing().run(pool).await).await?;
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let begin = Instant::now();
        let pool: Pool = builder().start().await?;
        nothing().run(&pool).await?;
        starts.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        pool.shutdown(SHUTDOWN).await?;
        ends.push(begin.elapsed().as_secs_f64());
    }
    Ok((median(starts), median(ends)))
}
