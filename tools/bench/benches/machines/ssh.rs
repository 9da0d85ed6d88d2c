//! Nodes on SSH servers of this host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use skyward::pool::PoolBuilder;
use skyward::prelude::*;
use skyward::provider::{Host, Hosts};
use skyward::remote::ssh::{HostKeys, Key};
use skyward_tools::sshd::{self, Sshd};

use super::common::bytes::there_and_back;
use super::common::calls::{SHUTDOWN, round_trip, warm_up};
use super::common::idle::{self, Rows};
use super::common::start::warm;
use super::common::{Table, median};
use super::{beside, blocking, openssh};

/// Returns the interpreter of the environment.
#[skyward::compute]
fn interpreter() -> String {
    "
    import sys
    return sys.executable
    "
}

pub(crate) async fn measure(mut table: Table) -> skyward::Result<()> {
    let rows = Rows { ready: None, cpu: Some("ssh_1000_nodes_cpu_s"), kib: "ssh_idle_kib_per_node" };
    // This comes first, before the process has freed memory that could be reused.
    idle::measure(&mut table, rows).await?;
    let (calls, large, starts) = (table.times(10_000), table.times(10), table.times(5).max(3));
    let first = Arc::new(Sshd::start(&options()).map_err(beside)?);
    let one = || pool(std::slice::from_ref(&first));
    if ["ssh_call_p50_us", "ssh_bulk_mib_s"].iter().any(|row| table.wants(row)) {
        let pool = one().start().await?;
        warm_up(&pool).await?;
        table.row("ssh_call_p50_us", round_trip(&pool, calls)).await?;
        let sshd = Arc::clone(&first);
        table.beside("openssh", "ssh_call_p50_us", blocking(move || openssh::echo_p50_us(&sshd, calls))).await?;
        table.row("ssh_bulk_mib_s", async { Ok(there_and_back(&pool, large).await? / MIB) }).await?;
        let sshd = Arc::clone(&first);
        let cat = blocking(move || Ok(openssh::there_and_back(&sshd, large)? / MIB));
        table.beside("openssh", "ssh_bulk_mib_s", cat).await?;
        pool.shutdown(SHUTDOWN).await?;
    }
    if ["ssh_warm_start_s", "ssh_32_nodes_ready_s"].iter().any(|row| table.wants(row)) {
        let python = one().scope(async |pool| interpreter().run(pool).await).await?;
        // Compiles the imported modules.
        by_hand(&python, 1).await?;
        table.row("ssh_warm_start_s", async { Ok(warm(one, starts).await?.0) }).await?;
        let (sshd, command) = (Arc::clone(&first), format!("{python} {} 1", script().display()));
        let started = blocking(move || openssh::first_line_s(&sshd, &command, starts));
        table.beside("openssh", "ssh_warm_start_s", started).await?;
        many(&mut table, &python).await?;
    }
    table.print();
    Ok(())
}

/// Many nodes at once, compared with as many agents and workers started by hand at once.
async fn many(table: &mut Table, python: &str) -> skyward::Result<()> {
    if !table.wants("ssh_32_nodes_ready_s") {
        return Ok(());
    }
    let servers = (0..MANY).map(|_| Sshd::start(&options()).map(Arc::new).map_err(beside));
    let servers = servers.collect::<skyward::Result<Vec<_>>>()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..table.times(3).max(1) {
        let begin = Instant::now();
        let pool = pool(&servers).start().await?;
        ours.push(begin.elapsed().as_secs_f64());
        // Each node scans the processes of all nodes, which share one machine.
        pool.shutdown(4 * SHUTDOWN).await?;
        theirs.push(by_hand(python, MANY).await?);
    }
    table.row("ssh_32_nodes_ready_s", async { Ok(median(ours)) }).await?;
    table.beside("by_hand", "ssh_32_nodes_ready_s", async { Ok(median(theirs)) }).await
}

/// Seconds until `count` agents and workers that were started by hand are ready.
async fn by_hand(python: &str, count: usize) -> skyward::Result<f64> {
    let mut command = Command::new(python);
    command.arg(script()).arg(count.to_string());
    blocking(move || openssh::first_line(&mut command)).await
}

pub(crate) fn pool(servers: &[Arc<Sshd>]) -> PoolBuilder {
    let hosts = servers.iter().map(|sshd| {
        // The servers share one host, and each has claims of its own.
        Host::new(sshd.address())
            .port(sshd.port())
            .user(sshd.user())
            .key(Key::file(sshd.client_key()))
            .host_keys(HostKeys::pinned(sshd.host_key()))
            .folder(sshd.path("s").display().to_string())
    });
    Pool::builder().provider(Hosts::new(hosts)).nodes(u32::try_from(servers.len()).unwrap_or(u32::MAX))
}

/// Excludes the user's startup files from the measurement: a bash that another shell has started
/// reads none.
pub(crate) fn options() -> sshd::Options {
    sshd::Options::new().env("SHLVL", "1")
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/machines/by_hand.py")
}

const MANY: usize = 32;
const MIB: f64 = (1_u64 << 20) as f64;
