//! The cost of a thousand idle nodes for the client. The nodes are simulated in this process, and
//! their own cost counts too.

use std::sync::Arc;
use std::time::Instant;

use skyward::prelude::*;
use skyward::testkit::fake_provider::FakeProvider;
use skyward::testkit::fake_worker::Faultless;

use super::Table;
use super::calls::SHUTDOWN;
use super::processor::{processor_seconds, read, untold};

/// The names of the rows; `None` for a row that is not measured.
pub(crate) struct Rows {
    /// Seconds until all nodes are ready.
    pub(crate) ready: Option<&'static str>,
    /// Seconds of processor time until all nodes are ready.
    pub(crate) cpu: Option<&'static str>,
    /// Memory per node, in KiB.
    pub(crate) kib: &'static str,
}

pub(crate) async fn measure(table: &mut Table, rows: Rows) -> skyward::Result<()> {
    if ![rows.ready, rows.cpu, Some(rows.kib)].into_iter().flatten().any(|row| table.wants(row)) {
        return Ok(());
    }
    let (memory, processor) = (resident_kib()?, processor_seconds()?);
    let begin = Instant::now();
    let pool = Pool::builder().provider(FakeProvider::new(Arc::new(Faultless))).nodes(NODES).start().await?;
    let ready = begin.elapsed().as_secs_f64();
    let cpu = processor_seconds()? - processor;
    let each = (resident_kib()? - memory) / f64::from(NODES);
    if let Some(row) = rows.ready {
        table.row(row, async { Ok(ready) }).await?;
    }
    if let Some(row) = rows.cpu {
        table.row(row, async { Ok(cpu) }).await?;
    }
    table.row(rows.kib, async { Ok(each) }).await?;
    pool.shutdown(SHUTDOWN).await
}

fn resident_kib() -> skyward::Result<f64> {
    let status = read("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    size.ok_or_else(|| untold("/proc/self/status"))
}

const NODES: u32 = 1000;
