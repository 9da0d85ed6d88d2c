//! Helpers of the end-to-end tests: small payloads, a pool with short deadlines, and checks of what
//! still runs.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

pub(crate) mod disk;
pub(crate) mod scene;
pub(crate) mod search;
pub(crate) mod user;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use indoc::indoc;
use skyward::ids::PoolId;
use skyward::payload::{Output, Payload};
use skyward::pool::{Pool, PoolBuilder};
use skyward::spec::Limits;

/// Returns the id of the worker's process.
pub(crate) const PID: &str = indoc! {"
    import os
    def f():
        return os.getpid()
"};

/// Sleeps for an hour.
pub(crate) const SLEEP: &str = indoc! {"
    import time
    def f():
        time.sleep(3600)
"};

/// A payload whose entry function is `f`.
pub(crate) fn python<T: Output>(text: &'static str) -> Payload<T> {
    Payload::python("payload.py", text, "f")
}

/// A pool on this host with deadlines that a test can wait for.
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

/// Waits until this many processes of the pool run. The environment of a process that was just
/// started cannot be read for a moment.
pub(crate) async fn assert_running(pool: &PoolId, count: usize) {
    let end = tokio::time::Instant::now() + TEST_STEP;
    loop {
        let found = processes_of(pool);
        if found.len() >= count {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "fewer than {count} run: {found:#?}");
        tokio::task::yield_now().await;
    }
}

/// Waits until no process of the pool runs; fails with the list of those that still run when that
/// takes too long.
pub(crate) async fn assert_gone(pool: &PoolId) {
    let end = tokio::time::Instant::now() + TEST_STEP;
    loop {
        let left = processes_of(pool);
        if left.is_empty() {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "still running: {left:#?}");
        tokio::task::yield_now().await;
    }
}

/// Checks that nothing of the pool is left: no process, and no record in the ledger of this user.
pub(crate) fn assert_nothing_left(pool: &PoolId) {
    assert_eq!(processes_of(pool), Vec::<String>::new());
    let record = ledger().join(format!("{pool}.ledger"));
    assert!(!record.exists(), "{} still exists", record.display());
}

/// The ledger folder of this process.
pub(crate) fn ledger() -> PathBuf {
    let from = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let standard = || from("XDG_STATE_HOME").or_else(|| Some(std::env::home_dir()?.join(".local/state")));
    from("SKYWARD_STATE_DIR").or_else(|| Some(standard()?.join("skyward"))).unwrap().join("ledger")
}

/// Waits until the condition holds; fails with `what` when that takes too long.
pub(crate) async fn until(what: &str, reached: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + TEST_STEP;
    while !reached() {
        assert!(tokio::time::Instant::now() < end, "not within {TEST_STEP:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Awaits a future that must complete in time, so that a test fails rather than hangs.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(TEST_STEP, future).await;
    done.unwrap_or_else(|_| panic!("not within {TEST_STEP:?}: {what}"))
}

/// Sends a signal to a process of this test, and waits until the process has stopped or ended.
pub(crate) async fn signal(name: &str, pid: u32) {
    let sent = std::process::Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(sent.unwrap().success(), "{name} to {pid}");
    match name {
        "STOP" => until("the process has stopped", || state_of(pid) == Some('T')).await,
        "KILL" => until("the process has ended", || matches!(state_of(pid), None | Some('Z' | 'X'))).await,
        _ => {}
    }
}

/// The state of a process as the kernel reports it.
fn state_of(pid: u32) -> Option<char> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

/// A number that no other caller in this process gets.
pub(crate) fn unique() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// For waits that take moments on an idle host.
const TEST_STEP: Duration = Duration::from_secs(60);
