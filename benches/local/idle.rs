//! What a thousand nodes without work cost the client: they are simulated in this process, and their own memory counts too.

use std::sync::Arc;
use std::time::Instant;

use skyward::error::{Error, ErrorKind};
use skyward::prelude::*;
use skyward::testkit::fake_provider::FakeProvider;
use skyward::testkit::fake_worker::Faultless;

use super::Table;
use super::calls::SHUTDOWN;

pub(crate) async fn measure(table: &mut Table<'_>) -> skyward::Result<()> {
    if !["idle_1000_ready_s", "idle_kib_per_node"].iter().any(|row| table.wants(row)) {
        return Ok(());
    }
    let before = resident_kib()?;
    let begin = Instant::now();
    let pool = Pool::builder().provider(FakeProvider::new(Arc::new(Faultless))).nodes(NODES).start().await?;
    let ready = begin.elapsed().as_secs_f64();
    let each = (resident_kib()? - before) / f64::from(NODES);
    table.row("idle_1000_ready_s", async { Ok(ready) }).await?;
    table.row("idle_kib_per_node", async { Ok(each) }).await?;
    pool.shutdown(SHUTDOWN).await
}

fn resident_kib() -> skyward::Result<f64> {
    let unreadable = || Error::new(ErrorKind::Io, "/proc/self/status does not tell the resident memory");
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| unreadable().with_source(error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or_else(unreadable)?;
    line.trim().trim_end_matches("kB").trim().parse().map_err(|_| unreadable())
}

const NODES: u32 = 1000;
