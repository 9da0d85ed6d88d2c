//! Skyward's side of `cargo xtask bench python`: calls within calls, and joblib on a pool of two
//! workers of this host.
//!
//! ```sh
//! cargo bench -p skyward-bench --bench python -- --only py_grid_s --quick
//! ```

#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;

use std::time::Instant;

use common::calls::{SHUTDOWN, nothing};
use common::{Options, Table, median};
use skyward::prelude::*;

/// Seconds of `count` calls that do nothing.
#[skyward::compute(python = "benches/python/work.py")]
fn tiny(count: u32) -> f64;

/// Seconds of `count` calls that do nothing, without batches.
#[skyward::compute(python = "benches/python/work.py")]
fn one_by_one(count: u32) -> f64;

/// The time of `count` calls of 10 ms, as a multiple of their processor time on two workers.
#[skyward::compute(python = "benches/python/work.py")]
fn busy(count: u32) -> f64;

#[skyward::compute(python = "benches/python/work.py")]
fn grid() -> f64;

/// Seconds of the first run, and of the second.
#[skyward::compute(python = "benches/python/work.py")]
fn array(megabytes: u32, seed: u32) -> [f64; 2];

/// The median time of a call, in microseconds.
#[skyward::compute(python = "benches/python/calls.py")]
fn nested(count: u32) -> f64;

/// Seconds of a tree of calls.
#[skyward::compute(python = "benches/python/calls.py")]
fn recursion(depth: u32) -> f64;

/// A tree of calls that runs until it is cancelled.
#[skyward::compute(python = "benches/python/calls.py")]
fn hold(depth: u32);

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let (options, _) = Options::read("python");
    // Calls come from a task of the runtime, as in a service. From `main`, each call would have to
    // wake one more thread.
    tokio::spawn(measure(options)).await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn measure(options: Options) -> skyward::Result<()> {
    let mut table = Table::new(options);
    let pool = Pool::builder()
        .provider(Local::default())
        .nodes(1)
        .workers_per_node(2)
        .payload_of(&grid())
        .plugin(plugins::sklearn().inner_threads(1))
        .start()
        .await?;
    let (calls, tasks) = (2000, 200);
    table.row("py_tiny_ms", async { Ok(1e3 * tiny(calls).run(&pool).await?) }).await?;
    table.row("py_one_by_one_s", one_by_one(calls).run(&pool)).await?;
    table.row("py_10ms_of_ideal", busy(tasks).run(&pool)).await?;
    table.row("py_grid_s", grid().run(&pool)).await?;
    if table.wants("py_array_first_s") || table.wants("py_array_again_s") {
        let megabytes = if table.options.quick { 20 } else { 200 };
        let [first, again] = array(megabytes, std::process::id()).run(&pool).await?;
        table.row("py_array_first_s", async { Ok(first) }).await?;
        table.row("py_array_again_s", async { Ok(again) }).await?;
    }
    let count = table.times(2000) as u32;
    table.row("py_nested_call_p50_us", nested(count).run(&pool)).await?;
    table.row("py_recursion_s", recursion(4).run(&pool)).await?;
    let times = table.times(10);
    table.row("py_cancel_tree_ms", cancelled(&pool, times)).await?;
    pool.shutdown(SHUTDOWN).await?;
    table.print();
    Ok(())
}

/// Milliseconds from the cancellation of a tree of calls, all of whose levels run, until both
/// workers have run another call.
async fn cancelled(pool: &Pool, times: usize) -> skyward::Result<f64> {
    let mut millis = Vec::with_capacity(times);
    for _ in 0..times {
        let (call, mut reports) = hold(3).reports::<bool>();
        let mut running = Box::pin(call.run(pool));
        tokio::select! {
            ended = &mut running => ended?,
            report = reports.next() => report.transpose().map(|_| ())?,
        }
        let begin = Instant::now();
        drop(running);
        nothing().broadcast(pool).await?;
        millis.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(millis))
}
