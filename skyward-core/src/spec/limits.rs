//! Deadlines and bounds.

use std::time::Duration;

/// Deadlines and bounds of a pool; the defaults suit a local pool and a cluster alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// From `start` to ready, without the time that building the environment takes.
    pub start: Duration,
    /// Building the environment (resolving, downloading, installing).
    pub environment: Duration,
    /// Entering the hooks of all workers: joining the world, importing frameworks.
    pub hooks: Duration,
    /// What a cancelled task or a stopping worker gets before it is killed.
    pub grace: Duration,
    /// The node's countdown to self-termination, renewed by the client every quarter of it.
    pub lease: Duration,
    /// What a scope takes at its end to end its machines.
    pub shutdown: Duration,
    /// How long a gang in a joined world may run without progress of any of its ranks before its world is ended with [`ErrorKind::Stalled`](crate::error::ErrorKind::Stalled), which says
    /// where each rank was. Progress is: bytes written to standard output or standard error, an item of a stream, a rank that returns, a call of `sky.progress()`. None: gangs are not watched.
    pub stall: Option<Duration>,
    /// How many workers one task may end before it is taken for poison: it fails with [`ErrorKind::Poisoned`](crate::error::ErrorKind::Poisoned) whatever its retries allow, and the same
    /// payload with the same arguments is not taken again by this pool. At least 1.
    pub poison: u32,
    /// How long a node of an elastic pool is without a task before it is given back.
    pub idle: Duration,
    /// How many tasks for each of its workers must wait before an elastic pool grows by a node. At least 1.
    pub backlog: u32,
    /// The largest value on the wire, in bytes: arguments, results, sources.
    pub max_frame: usize,
    /// Tasks that may wait in the pool; `submit` waits while there are more.
    pub max_queued: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(600),
            environment: Duration::from_secs(1800),
            hooks: Duration::from_secs(300),
            grace: Duration::from_secs(5),
            lease: Duration::from_secs(60),
            shutdown: Duration::from_secs(30),
            stall: None,
            poison: 3,
            idle: Duration::from_secs(120),
            backlog: 1,
            max_frame: 1 << 30,
            max_queued: 10_000,
        }
    }
}
