//! A thousand simulated machines get one deadline and are replaced, and then all but one leave. The
//! pool runs on a runtime with one thread, as in a small service. The bench measures the longest
//! time for which no timer of that runtime fires, the longest time for which the pool's lock is
//! held, how many notices the workers receive, and how often the machines are listed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skyward::prelude::*;
use skyward::testkit::fake_provider::{FakeProvider, Faults, Forewarning};
use skyward::testkit::fake_worker::Fate;
use skyward::testkit::holds;
use tokio::time::sleep;

use super::common::Table;
use super::common::calls::SHUTDOWN;

pub(crate) async fn measure(table: &mut Table) -> skyward::Result<()> {
    if !ROWS.iter().any(|row| table.wants(row)) {
        return Ok(());
    }
    let on_one_thread = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(replace_and_leave())
    };
    let figures = tokio::task::spawn_blocking(on_one_thread).await.map_err(failed)??;
    for (row, figure) in ROWS.into_iter().zip(figures) {
        table.row(row, async { Ok(figure) }).await?;
    }
    Ok(())
}

async fn replace_and_leave() -> skyward::Result<[f64; 4]> {
    let provider = FakeProvider::new(Arc::new(OneDeadline));
    let gap = Arc::new(AtomicU64::new(0));
    let pulse = tokio::spawn(watch_gaps(Arc::clone(&gap)));
    holds::watch();
    let pool = Pool::builder().provider(provider.clone()).nodes(NODES).start().await?;
    // The pool asks for the states of its machines twice a minute.
    while provider.launched() < 2 * NODES as usize || provider.machines().len() > NODES as usize {
        sleep(LOOK).await;
    }
    pool.resize(1).await?;
    while provider.machines().len() > 1 {
        sleep(LOOK).await;
    }
    pulse.abort();
    let held = holds::longest().as_secs_f64() * 1e3;
    let (notices, lists) = (provider.witness().notices() as f64, provider.lists() as f64);
    pool.shutdown(SHUTDOWN).await?;
    Ok([gap.load(Ordering::Relaxed) as f64 / 1e3, held, notices, lists])
}

/// Records the longest time between two timers, in microseconds.
async fn watch_gaps(longest: Arc<AtomicU64>) {
    loop {
        let began = Instant::now();
        sleep(Duration::from_millis(1)).await;
        longest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Io, "the bench of machines that end could not run").with_source(error)
}

/// The first machine of each number is taken back, all at the same time.
#[derive(Debug)]
struct OneDeadline;

impl Fate for OneDeadline {}

impl Faults for OneDeadline {
    fn forewarning(&self, _: u32, machine: u32) -> Option<Forewarning> {
        (machine == 0).then(|| Forewarning::preemption(Duration::from_secs(15), Duration::from_secs(600)))
    }
}

const ROWS: [&str; 4] = ["ends_1000_gap_ms", "ends_1000_hold_ms", "ends_1000_notices", "ends_1000_lists"];
const NODES: u32 = 1000;
const LOOK: Duration = Duration::from_millis(100);
