//! What a thousand nodes without work cost the client: they are simulated in this process, and what they take themselves counts too.

use std::sync::Arc;
use std::time::Instant;

use skyward::error::{Error, ErrorKind};
use skyward::prelude::*;
use skyward::testkit::fake_provider::FakeProvider;
use skyward::testkit::fake_worker::Faultless;

use super::Table;
use super::calls::SHUTDOWN;

/// The names of its rows; none, where it is not asked for.
pub(crate) struct Rows {
    /// Seconds until all are ready.
    pub(crate) ready: Option<&'static str>,
    /// Seconds of processor time until then.
    pub(crate) cpu: Option<&'static str>,
    /// Memory of each.
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

/// Of all threads, those that have ended too.
fn processor_seconds() -> skyward::Result<f64> {
    let stat = read("/proc/self/stat")?;
    // The program's name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).ok_or_else(|| untold("/proc/self/stat"))?;
    Ok((user + system) / TICKS)
}

fn read(path: &str) -> skyward::Result<String> {
    std::fs::read_to_string(path).map_err(|error| untold(path).with_source(error))
}

fn untold(path: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{path} does not tell what a process takes"))
}

const NODES: u32 = 1000;
/// In a second: the same on every Linux that we know of.
const TICKS: f64 = 100.0;
