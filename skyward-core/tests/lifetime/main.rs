//! How a pool lives and ends on fake machines: whichever way its driver goes, and whatever its limits are.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod ending;
#[path = "../support/freeze.rs"]
mod freeze;
mod limits;
mod runtime;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skyward_core::payload::{Args, PendingCompute, Source};
use skyward_core::testkit::fake_provider::{Death, Script, Turn};
use skyward_core::testkit::fake_worker::{Fate, Work};

type Echo = BTreeMap<String, u32>;

/// A call whose result is its argument.
fn echo(n: u32) -> PendingCompute<Echo> {
    PendingCompute::new(Arc::new(Source::file("a.py", "def f(n): ...", "f")), Args::new().with("n", &n))
}

/// The argument of a call that goes on until its worker is killed. It stands at the end of the map of arguments.
const ENDLESS: u32 = 200;

/// Machines that work, but for what is said.
#[derive(Debug, Clone, Copy, Default)]
struct Machines {
    /// When the machine of node 0 is lost.
    lost_after: Option<Duration>,
    /// The launch of node 1's machine panics.
    launch_panics: bool,
    /// How many calls of `terminate` panic for each node.
    terminate_panics: u32,
    /// Whether `terminate` fails otherwise.
    terminate_fails: bool,
}

impl Fate for Machines {
    fn work(&self, args: &[u8], _: u32) -> Work {
        if args.last() == Some(&(ENDLESS as u8)) { Work::UntilKilled } else { Work::Return(Duration::ZERO) }
    }
}

impl Script for Machines {
    fn launch(&self, node: u32, _: u32) -> Turn {
        assert!(!self.launch_panics || node != 1, "no launch today");
        Turn::Works(Duration::ZERO)
    }

    fn terminate(&self, _: u32, call: u32) -> Turn {
        assert!(call >= self.terminate_panics, "no end today");
        if self.terminate_fails { Turn::Fails } else { Turn::Works(Duration::ZERO) }
    }

    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        self.lost_after.filter(|_| (node, machine) == (0, 0)).map(|after| (after, Death::Machine))
    }
}
