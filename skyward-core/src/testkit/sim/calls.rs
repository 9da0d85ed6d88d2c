//! The calls of a simulation: what is drawn for them, and what must hold of what the pool says of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Seed;
use crate::event::PoolEvent;
use crate::ids::TaskId;
use crate::payload::Args;
use crate::pool::{ComputePool, Pool};
use crate::testkit::fake_worker::Work;

impl Seed {
    /// The calls that a task or a call with these arguments makes, if it makes some.
    pub(super) fn calls(self, args: &[u8], task: u64) -> Option<Work> {
        // A call has a byte more than its caller.
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

    /// How long such a call may run.
    pub(super) fn call_timeout(self, args: &[u8]) -> Option<Duration> {
        let call = hash(args);
        let limited = self.chance("call timeout", call, 0, 6);
        limited.then(|| Duration::from_millis(100) + self.time("call timeout", call, 1, 5_000))
    }
}

/// What the pool has reported of the calls below each task, in its latest try.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: BTreeMap<TaskId, Report>,
    /// How many there were.
    pub(super) count: usize,
    /// The first that was wrong.
    wrong: Option<String>,
}

#[derive(Debug)]
struct Report {
    at: Instant,
    done: usize,
    made: usize,
}

impl Reports {
    /// Takes an event. The calls of a try only become more, and more of them end; reports come at most twice a
    /// second, but for the last one.
    pub(super) fn take(&mut self, event: &PoolEvent) {
        match event {
            PoolEvent::TaskRetried { task, .. } => drop(self.last.remove(task)),
            PoolEvent::Calls { task, done, running, waiting } => {
                let (at, open, done) = (Instant::now(), running + waiting, *done);
                let report = Report { at, done, made: done + open };
                self.count += 1;
                let Some(before) = self.last.insert(*task, report) else { return };
                let too_soon = open > 0 && at - before.at < PACE;
                if too_soon || done < before.done || done + open < before.made {
                    self.wrong.get_or_insert(format!("after {before:?} of task {task} the pool reported {event:?}"));
                }
            }
            _ => {}
        }
    }

    /// Events were missed, and what they said of retries with them.
    pub(super) fn forget(&mut self) {
        self.last.clear();
    }

    /// Whether all that was reported holds.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.wrong.take().map_or(Ok(()), Err)
    }
}

/// No call runs for long after the try of its caller is over: where nothing keeps the pool and its nodes apart, no
/// longer than it may take to heed its end.
pub(super) fn outlived(seed: Seed, longest: Duration) -> Result<(), String> {
    let apart = ["cut", "delay", "death"].iter().any(|sort| !seed.has_none(sort));
    let bound = if apart { LATE } else { HEEDED };
    if longest > bound {
        return Err(format!("a call ran for {longest:?} after the try of its caller was over"));
    }
    Ok(())
}

/// With the last task that Rust has submitted all calls end.
pub(super) async fn all_ended(pool: &Pool) -> Result<(), String> {
    let end = Instant::now() + SETTLED;
    loop {
        let calls = pool.status().calls;
        if (calls.waiting, calls.running) == (0, 0) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(format!("all tasks have ended, and there are calls: {calls:?}"));
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// A number that stands for the arguments of a task or a call.
pub(super) fn hash(args: &[u8]) -> u64 {
    args.iter().fold(0, |sum, byte| sum.wrapping_mul(257).wrapping_add((*byte).into()))
}

/// Bytes of the arguments of a task that Rust submits.
fn root_args() -> usize {
    Args::new().with("n", &0_u64).encode().map_or(0, |args| args.len())
}

/// Callers above a call of the simulation.
const MOST_CALLERS: u64 = 3;
/// Between two reports of one task's calls.
const PACE: Duration = Duration::from_millis(500);
/// For how long a call may run after its caller's try: the grace after which its worker is killed, and a little.
const HEEDED: Duration = Duration::from_secs(3);
/// The same where the pool may lose its caller, or the call, for longer than a lease.
const LATE: Duration = Duration::from_secs(60);
/// What the pool has for the last of its calls.
const SETTLED: Duration = Duration::from_secs(1);
