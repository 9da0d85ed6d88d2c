//! The life and the end of a pool on fake machines, however its driver ends, and whatever its
//! limits are.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod draining;
mod elastic;
mod ending;
mod failing;
#[path = "../support/freeze.rs"]
mod freeze;
mod launches;
mod limits;
#[path = "../support/lines.rs"]
mod lines;
mod log;
mod runtime;
mod scopes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skyward_core::compute::PendingCompute;
use skyward_core::payload::{Args, Source};
use skyward_core::testkit::fake_provider::{Death, Faults, Turn};
use skyward_core::testkit::fake_worker::{Fate, Work};
use skyward_core::testkit::script::{Answer, FakeTask, Rule, Script};

type Echo = BTreeMap<String, u32>;

/// A call whose result is its argument.
fn echo(n: u32) -> PendingCompute<Echo> {
    PendingCompute::new(Arc::new(Source::file("a.py", "def f(n): ...", "f")), Args::new().with("n", &n))
}

/// The argument of a call that runs until its worker is killed. It is at the end of the map of
/// arguments.
const ENDLESS: u32 = 200;

/// Machines that work, except for these faults.
#[derive(Debug, Clone, Copy, Default)]
struct Machines {
    /// When the machine of node 0 is lost.
    lost_after: Option<Duration>,
    /// When each machine of node 1 is lost.
    dies_after: Option<Duration>,
    /// Whether the launch of node 1's machine panics.
    launch_panics: bool,
    /// How long after its launch the machine of node 1 appears. The launch is never answered.
    late: Option<Duration>,
    /// How many calls of `terminate` panic, for each node.
    terminate_panics: u32,
    /// Whether the other calls of `terminate` fail.
    terminate_fails: bool,
    /// How long a call takes.
    takes: Duration,
    /// What takes 15 seconds for the machine of node 1: its `launch`, `connect`, each `command`.
    slow: &'static [&'static str],
    /// After how many frames each connection of node 0 is cut.
    cut_each: Option<u64>,
    /// How long the workers of node 0 take to enter their hooks.
    hooks: Duration,
}

impl Machines {
    fn turn(&self, what: &str, node: u32) -> Turn {
        Turn::Works(Duration::from_secs(if node == 1 && self.slow.contains(&what) { 15 } else { 0 }))
    }
}

impl From<Machines> for Script {
    fn from(machines: Machines) -> Self {
        let work = move |task: &FakeTask<'_>| match task.sent().last() {
            Some(last) if *last == ENDLESS as u8 => Work::UntilKilled,
            _ => Work::Return(machines.takes),
        };
        Self::new().faults(machines).rule(Rule::all().answer(move |task| Answer::does(work(task))))
    }
}

impl Fate for Machines {
    fn hooks(&self, node: u32, _: u32, _: u64) -> Option<Duration> {
        Some(if node == 0 { self.hooks } else { Duration::ZERO })
    }

    fn cut(&self, node: u32, _: u64, frame: u64) -> bool {
        node == 0 && self.cut_each == Some(frame)
    }
}

impl Faults for Machines {
    fn launch(&self, node: u32, _: u32) -> Turn {
        assert!(!self.launch_panics || node != 1, "no launch today");
        self.late.filter(|_| node == 1).map_or(self.turn("launch", node), Turn::Late)
    }

    fn connect(&self, node: u32, _: u32) -> Turn {
        self.turn("connect", node)
    }

    fn command(&self, node: u32, _: u32) -> Turn {
        self.turn("command", node)
    }

    fn terminate(&self, _: u32, call: u32) -> Turn {
        assert!(call >= self.terminate_panics, "no end today");
        if self.terminate_fails { Turn::Fails } else { Turn::Works(Duration::ZERO) }
    }

    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        let of_first = self.lost_after.filter(|_| (node, machine) == (0, 0));
        of_first.or(self.dies_after.filter(|_| node == 1)).map(|after| (after, Death::Machine))
    }
}
