//! The calls of a simulation: which calls are drawn, and the invariants of the pool's reports on
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::seed::Seed;
use super::timing::{CALL_AFTER_CALLER, CALL_AFTER_LOST_CALLER, CALLS_REPORT_PAUSE, LAST_CALLS_END};
use crate::event::PoolEvent;
use crate::ids::TaskId;
use crate::payload::Args;
use crate::pool::Pool;
use crate::testkit::fake_worker::Work;

impl Seed {
    /// The calls that a task or a call with these arguments makes, if any.
    pub(super) fn calls(self, args: &[u8], task: u64) -> Option<Work> {
        // The arguments of a call are a byte longer than those of its caller.
        let above = args.len().saturating_sub(root_args()) as u64;
        if above >= MOST_CALLERS || !self.chance("calls", task, 0, 4 + above) {
            return None;
        }
        let count = 1 + self.below("calls", task, 1, 4) as u8;
        Some(match self.chance("brief", task, 0, 4) {
            true => Work::CallBriefly(count, self.time("brief", task, 1, 2_000)),
            false => Work::Call(count, self.chance("calls", task, 2, 3)),
        })
    }

    /// The timeout of such a call, if any.
    pub(super) fn call_timeout(self, args: &[u8]) -> Option<Duration> {
        let call = hash(args);
        let limited = self.chance("call timeout", call, 0, 6);
        limited.then(|| Duration::from_millis(100) + self.time("call timeout", call, 1, 5_000))
    }
}

/// What the pool has reported on the calls below each task, in the task's latest try.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: BTreeMap<TaskId, CallCounts>,
    /// The number of reports.
    pub(super) count: usize,
    /// The first wrong report.
    wrong: Option<String>,
}

#[derive(Debug)]
struct CallCounts {
    at: Instant,
    done: usize,
    made: usize,
}

impl Reports {
    /// Takes an event. The number of calls of a try only grows, and so does the number of ended
    /// ones. Reports come at most twice a second, except for the last one.
    pub(super) fn take(&mut self, event: &PoolEvent) {
        match event {
            PoolEvent::TaskRetried { task, .. } => drop(self.last.remove(task)),
            PoolEvent::Calls { task, done, running, waiting } => {
                let (at, open, done) = (Instant::now(), running + waiting, *done);
                let report = CallCounts { at, done, made: done + open };
                self.count += 1;
                let Some(before) = self.last.insert(*task, report) else { return };
                let too_soon = open > 0 && at - before.at < CALLS_REPORT_PAUSE;
                if too_soon || done < before.done || done + open < before.made {
                    self.wrong.get_or_insert(format!("after {before:?} of task {task} the pool reported {event:?}"));
                }
            }
            _ => {}
        }
    }

    /// Events were missed, and with them possibly reports of retries.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }

    /// The first wrong report, if any, as an error.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.wrong.take().map_or(Ok(()), Err)
    }
}

/// Checks that no call runs for long after the try of its caller is over. Without faults that
/// separate the pool from its nodes, a call runs no longer than it may take to react to an
/// interrupt.
pub(super) fn outlived(seed: Seed, longest: Duration) -> Result<(), String> {
    let apart = ["cut", "delay", "slow", "death"].iter().any(|sort| !seed.has_none(sort));
    let bound = if apart { CALL_AFTER_LOST_CALLER } else { CALL_AFTER_CALLER };
    if longest > bound {
        return Err(format!("a call ran for {longest:?} after the try of its caller was over"));
    }
    Ok(())
}

/// Checks that all calls end with the last task that Rust has submitted.
pub(super) async fn all_ended(pool: &Pool) -> Result<(), String> {
    let end = Instant::now() + LAST_CALLS_END;
    loop {
        let calls = pool.status().calls;
        if (calls.waiting, calls.running) == (0, 0) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(format!("all tasks have ended, and calls are left: {calls:?}"));
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// A hash of the arguments of a task or a call.
pub(super) fn hash(args: &[u8]) -> u64 {
    args.iter().fold(0, |sum, byte| sum.wrapping_mul(257).wrapping_add((*byte).into()))
}

/// The length in bytes of the arguments of a task that Rust submits.
fn root_args() -> usize {
    Args::new().with("n", &0_u64).encode().map_or(0, |args| args.len())
}

/// How many callers a call of the simulation may have above it.
const MOST_CALLERS: u64 = 3;
