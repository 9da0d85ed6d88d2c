//! A million tasks wait for a thousand busy workers, which are simulated in this process. The bench
//! measures the longest time for which the pool's lock is held while the tasks are submitted, are
//! dropped, time out, run, and end with the pool.
//!
//! The bench runs in a separate process, whose allocator merges small chunks as they are freed. By
//! default, glibc merges them at some later allocation, which takes hundreds of milliseconds after
//! a million tasks have ended, and hits the thread that allocates next: often the one that holds
//! the lock.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use skyward::payload::{Args, Source, Target, Task, TaskHandle, TaskOptions};
use skyward::prelude::*;
use skyward::spec::Limits;
use skyward::testkit::fake_provider::FakeProvider;
use skyward::testkit::fake_worker::Work;
use skyward::testkit::holds;
use skyward::testkit::script::{Answer, Rule, Script};

use super::common::Table;
use super::common::calls::SHUTDOWN;

pub(crate) async fn measure(table: &mut Table) -> skyward::Result<()> {
    if !table.wants(ROW) {
        return Ok(());
    }
    if std::env::var_os(TUNABLES).is_none() {
        let quick = table.options.quick;
        return table.row(ROW, async { tokio::task::block_in_place(|| in_its_own_process(quick)) }).await;
    }
    let count = table.times(1_000_000);
    let mut limits = Limits::default();
    limits.max_queued = count + 2 * NODES as usize;
    let provider = FakeProvider::new(busy()?);
    let pool = Pool::builder().provider(provider).nodes(NODES).limits(limits).start().await?;
    holds::watch();
    let mut longest = Duration::ZERO;
    let mut look = |phase: &str, began: Instant| {
        let held = holds::longest();
        eprintln!(
            "  {phase:<22} {:>9.3} ms at most in {:.1} s",
            held.as_secs_f64() * 1e3,
            began.elapsed().as_secs_f64()
        );
        longest = longest.max(held);
    };

    let busy = pool.submit_all(task(BUSY)?).await?;
    let began = Instant::now();
    let waiting = submit(&pool, count, None).await?;
    look("come", began);

    let began = Instant::now();
    drop(waiting);
    look("are given up", began);

    let began = Instant::now();
    let waiting = submit(&pool, count, Some(began + WAIT.max(Duration::from_micros(20) * count as u32))).await?;
    for handle in waiting {
        assert!(handle.outcome().await.is_err());
    }
    look("wait too long", began);

    let began = Instant::now();
    let waiting = submit(&pool, count, None).await?;
    // The workers end their tasks, and take the others.
    drop(busy);
    for handle in waiting {
        handle.outcome().await?;
    }
    look("run", began);

    let busy = pool.submit_all(task(BUSY)?).await?;
    let waiting = submit(&pool, count, None).await?;
    let began = Instant::now();
    pool.shutdown(SHUTDOWN).await?;
    look("end with the pool", began);
    for handle in waiting.into_iter().chain(busy) {
        assert!(handle.outcome().await.is_err());
    }
    table.row(ROW, async { Ok(longest.as_secs_f64() * 1e3) }).await
}

/// Runs this program again for this row alone.
fn in_its_own_process(quick: bool) -> skyward::Result<f64> {
    let failed = |what: String| Error::new(ErrorKind::Io, format!("the bench of {ROW} {what}"));
    let mut again = std::process::Command::new(std::env::current_exe().map_err(|error| failed(error.to_string()))?);
    again.args(["--only", ROW]).args(quick.then_some("--quick")).env(TUNABLES, "glibc.malloc.mxfast=0");
    let output = again.stderr(Stdio::inherit()).output().map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: serde_json::Value =
        text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    rows["skyward"][ROW].as_f64().ok_or_else(|| failed(format!("ended with {}: {text}", output.status)))
}

/// Submits `count` tasks for any worker. All of them wait no longer than until `until`.
async fn submit(pool: &Pool, count: usize, until: Option<Instant>) -> skyward::Result<Vec<TaskHandle>> {
    let task = task(0)?;
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        let mut options = TaskOptions::default();
        options.queue_timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        handles.push(pool.submit(task.clone().with_options(options), Target::Any).await?);
    }
    Ok(handles)
}

fn task(what: u32) -> skyward::Result<Task> {
    let source = Source::file("task.py", "def task(what): return what", "task");
    Ok(Task::new(Arc::new(source), args(what)?))
}

fn args(what: u32) -> skyward::Result<Bytes> {
    Args::new().with("what", &what).encode()
}

/// Tasks that return at once, or never.
fn busy() -> skyward::Result<Script> {
    let busy = args(BUSY)?;
    Ok(Script::new().rule(Rule::all().answer(move |task| {
        Answer::does(if *busy == *task.sent() { Work::UntilInterrupted } else { Work::Return(Duration::ZERO) })
    })))
}

/// The variable that configures glibc's allocator.
const TUNABLES: &str = "GLIBC_TUNABLES";
const ROW: &str = "queue_1m_hold_ms";
const NODES: u32 = 1000;
const BUSY: u32 = 1;
/// The least time after which the tasks that wait too long time out.
const WAIT: Duration = Duration::from_secs(5);
