//! Calls that do nothing: one at a time, and many at once.

use std::time::{Duration, Instant};

use skyward::prelude::*;

use super::{median, timed};

#[skyward::compute]
pub(crate) fn nothing() {
    ""
}

/// Lets the schedulers of both sides measure how short the calls are.
pub(crate) async fn warm_up(pool: &Pool) -> skyward::Result<()> {
    pool.map((0..5_000).map(|_| nothing())).await.map(drop)
}

/// The median time of a call, in microseconds.
pub(crate) async fn round_trip(pool: &Pool, count: usize) -> skyward::Result<f64> {
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        nothing().run(pool).await?;
        micros.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(micros))
}

/// Calls per second.
pub(crate) async fn pipelined(pool: &Pool, count: usize) -> skyward::Result<f64> {
    let (results, took) = timed(pool.map((0..count).map(|_| nothing()))).await?;
    assert_eq!(results.len(), count);
    Ok(count as f64 / took.as_secs_f64())
}

pub(crate) const SHUTDOWN: Duration = Duration::from_secs(30);
