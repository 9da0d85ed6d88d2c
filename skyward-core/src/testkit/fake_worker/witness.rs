//! The record of a simulation: what its fake nodes received and ran, and what must never happen.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::lock;
use crate::testkit::lineage::Lineage;
use crate::worker::codec::Frame;

/// The record of all fake nodes of a simulation: how often each task was started, and what must
/// never happen.
#[derive(Debug, Default)]
pub struct Witness {
    runs: Mutex<BTreeMap<Bytes, u32>>,
    wrongs: Mutex<Vec<String>>,
    trace: Mutex<u64>,
    origin: Mutex<Option<Instant>>,
    calls: Mutex<Calls>,
    notices: AtomicUsize,
    lineage: Lineage,
}

/// The number of calls that the tasks of fake workers have made, and how many of them ran within
/// another task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// Calls that were submitted.
    pub made: usize,
    /// Calls that ran in the wait of a worker's main thread.
    pub helped: usize,
    /// Calls that ran on another thread of a worker.
    pub aside: usize,
    /// Calls that their callers gave up.
    pub given_up: usize,
    /// The longest time for which a call ran after the try of its caller was over.
    pub outlived: Duration,
}

impl Witness {
    /// Everything that happened although it must never happen.
    pub fn wrongs(&self) -> Vec<String> {
        lock(&self.wrongs).clone()
    }

    /// How often tasks with these arguments have begun.
    pub fn begun(&self, args: &[u8]) -> u32 {
        lock(&self.runs).get(args).copied().unwrap_or_default()
    }

    /// A hash of all messages that the nodes received, and of their times: two identical plays have
    /// the same hash.
    pub fn trace(&self) -> u64 {
        *lock(&self.trace)
    }

    /// The counts of calls within tasks.
    pub fn calls(&self) -> Calls {
        *lock(&self.calls)
    }

    /// How many notices of the end of a machine workers have received.
    pub fn notices(&self) -> usize {
        self.notices.load(Ordering::Relaxed)
    }

    pub(super) fn on_notice(&self) {
        self.notices.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::testkit) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    pub(in crate::testkit) fn count_calls(&self, count: impl FnOnce(&mut Calls)) {
        count(&mut lock(&self.calls));
    }

    pub(super) fn saw(&self, node: u32, frame: &Frame) {
        let mut hasher = std::hash::DefaultHasher::new();
        // On a paused clock this is a whole number of milliseconds from the start.
        let origin = lock(&self.origin).get_or_insert_with(Instant::now).elapsed();
        (*lock(&self.trace), node, origin, &frame.head[..], &frame.body[..]).hash(&mut hasher);
        *lock(&self.trace) = hasher.finish();
    }

    pub(crate) fn wrong(&self, what: String) {
        lock(&self.wrongs).push(what);
    }

    pub(super) fn run(&self, args: &Bytes) -> u32 {
        let mut runs = lock(&self.runs);
        let run = runs.entry(args.clone()).or_default();
        *run += 1;
        *run
    }
}
