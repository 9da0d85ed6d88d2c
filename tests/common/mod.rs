//! What the end-to-end tests share: small payloads, a pool with short deadlines, and a look at what still runs.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::time::Duration;

use skyward::ids::PoolId;
use skyward::payload::{Output, Payload};
use skyward::pool::{Pool, PoolBuilder};
use skyward::spec::Limits;

/// A payload whose function is `f`.
pub(crate) fn python<T: Output>(text: &'static str) -> Payload<T> {
    Payload::python("payload.py", text, "f")
}

/// A pool of this host with deadlines that a test can wait for.
pub(crate) fn pool(nodes: u32) -> PoolBuilder {
    Pool::builder().nodes(nodes).limits(limits())
}

/// Deadlines that a test can wait for.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.grace = Duration::from_millis(300);
    limits.hooks = Duration::from_secs(60);
    limits.lease = Duration::from_secs(10);
    limits
}

/// The processes of this host whose environment names a machine of the pool.
pub(crate) fn processes_of(pool: &PoolId) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        let marked = environment.split(|byte| *byte == 0).any(|variable| {
            variable.starts_with(b"SKYWARD_MACHINE=") && String::from_utf8_lossy(variable).contains(pool.as_str())
        });
        if marked {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(format!("{:?}: {}", entry.file_name(), String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

/// Waits until so many processes of the pool run. The environment of one that was just started cannot be read for a moment.
pub(crate) async fn assert_running(pool: &PoolId, count: usize) {
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let found = processes_of(pool);
        if found.len() >= count {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "fewer than {count} run: {found:#?}");
        tokio::task::yield_now().await;
    }
}

/// Waits until nothing of the pool runs; says what still does after the deadline.
pub(crate) async fn assert_gone(pool: &PoolId, deadline: Duration) {
    let end = tokio::time::Instant::now() + deadline;
    loop {
        let left = processes_of(pool);
        if left.is_empty() {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "still running: {left:#?}");
        tokio::task::yield_now().await;
    }
}
