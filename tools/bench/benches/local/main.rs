//! Skyward's side of `cargo xtask bench local`: measures rows on this host, and prints them as one
//! line of JSON.
//!
//! ```sh
//! cargo bench -p skyward-bench --bench local -- --only call_p50_us,calls_per_s --quick
//! ```

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod queue;
mod training;
mod values;

use common::idle::Rows;
use common::{Options, Table};
use skyward::pool::PoolBuilder;
use skyward::prelude::*;
use skyward::spec::Image;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let (options, _) = Options::read("local");
    // Calls come from a task of the runtime, as in a service. From `main`, each call would have to
    // wake one more thread.
    tokio::spawn(measure(options)).await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn measure(options: Options) -> skyward::Result<()> {
    let mut table = Table::new(options);
    calls::measure(&mut table).await?;
    values::measure(&mut table).await?;
    let times = table.times(9).max(3);
    table.row("warm_start_s", async { Ok(common::start::warm(two_workers, times).await?.0) }).await?;
    training::measure(&mut table).await?;
    let rows = Rows { ready: Some("idle_1000_ready_s"), cpu: None, kib: "idle_kib_per_node" };
    common::idle::measure(&mut table, rows).await?;
    queue::measure(&mut table).await?;
    ends::measure(&mut table).await?;
    table.print();
    Ok(())
}

/// Two workers, as the peers have.
fn two_workers() -> PoolBuilder {
    Pool::builder().provider(Local::default()).nodes(2)
}

/// An environment with NumPy.
fn numpy() -> Image {
    // One thread for each worker: the bench compares two programs on two cores, and not their
    // thread pools.
    Image::new().pip(["numpy"]).env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1")
}
