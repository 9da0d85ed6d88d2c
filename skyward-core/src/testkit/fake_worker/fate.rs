//! What happens on a fake node: the faults of connections and processes. Also what a task can do there.

use std::time::Duration;

/// What a task does on a fake worker, as an [`Answer`](crate::testkit::script::Answer) that depends on
/// its arguments alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Returns its arguments after this time.
    Return(Duration),
    /// Returns its arguments after this time. The worker does not read its connection until then.
    Deaf(Duration),
    /// Yields its arguments as the given number of stream items, each after this time, as far as
    /// the stream has credit.
    Yield(u32, Duration),
    /// Raises an exception after this time.
    Raise(Duration),
    /// Ends its worker with this signal after this time.
    Crash(Duration, i32),
    /// Makes the given number of calls, whose bodies are its own with one more byte. Returns its
    /// arguments when all calls have returned, and raises when one has failed. With `true`, the
    /// worker does not see that the task waits.
    Call(u8, bool),
    /// Makes the given number of calls and waits for them, but no longer than this time. Then it
    /// gives up every second call without an outcome, and returns its arguments.
    CallBriefly(u8, Duration),
    /// Runs until it is interrupted.
    UntilInterrupted,
    /// Runs until its worker is killed.
    UntilKilled,
}

/// What happens to the connections and processes of a node; the fake asks before each step. By
/// default, a node has no faults. The rules of a [`Script`](crate::testkit::script::Script) say what
/// tasks do.
pub trait Fate: std::fmt::Debug + Send + Sync + 'static {
    /// The version of Python on the node, for which nothing else is installed.
    fn python(&self, node: u32) -> &str {
        let _ = node;
        "3.12"
    }

    /// The timeout of a call with these arguments; `None` for no timeout.
    fn call_timeout(&self, args: &[u8]) -> Option<Duration> {
        let _ = args;
        None
    }

    /// How long a worker of this generation takes to enter its hooks; `None`: it never enters them.
    fn hooks(&self, node: u32, worker: u32, generation: u64) -> Option<Duration> {
        let _ = (node, worker, generation);
        Some(Duration::ZERO)
    }

    /// How long the node delays the `frame`-th frame (from 0) of a connection.
    fn delay(&self, node: u32, frame: u64) -> Duration {
        let _ = (node, frame);
        Duration::ZERO
    }

    /// Whether the node cuts the connection instead of handling its `frame`-th frame (from 0).
    /// `connection` counts all connections of the node.
    fn cut(&self, node: u32, connection: u64, frame: u64) -> bool {
        let _ = (node, connection, frame);
        false
    }

    /// Whether the agent sends every message twice that may be repeated.
    fn repeats(&self, node: u32) -> bool {
        let _ = node;
        false
    }

    /// Whether the `start`-th process of this worker's machine (from 1) is killed while it sends
    /// its hello: the client learns of its end before the hello arrives.
    fn ends_greeting(&self, node: u32, worker: u32, start: u32) -> bool {
        let _ = (node, worker, start);
        false
    }
}

/// A node without faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faultless;

impl Fate for Faultless {}
