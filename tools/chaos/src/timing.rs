//! The times of a run, by what they bound.

use std::time::Duration;

/// How long the pool may take to end calls of ended tasks.
pub(crate) const CALLS_END: Duration = Duration::from_secs(5);
/// How long a client may take to exit after its scope, on a busy host.
pub(crate) const CLIENT_EXIT: Duration = Duration::from_secs(30);
/// How long a container may take to change its state.
pub(crate) const CONTAINER_END: Duration = Duration::from_secs(10);
/// The pause between two looks at a container.
pub(crate) const CONTAINER_POLL: Duration = Duration::from_millis(20);
/// The pause between two looks at what a client has left.
pub(crate) const END_POLL: Duration = Duration::from_millis(20);
/// How long an instance may take to change its state.
pub(crate) const INSTANCE_END: Duration = Duration::from_secs(20);
/// The pause between two looks at an instance.
pub(crate) const INSTANCE_POLL: Duration = Duration::from_millis(50);
/// How often a round looks whether the run was interrupted.
pub(crate) const INTERRUPT_POLL: Duration = Duration::from_millis(100);
/// How much later than its lease a node may end on a busy host.
pub(crate) const LEASE_MARGIN: Duration = Duration::from_secs(10);
/// How long until a killed listener is started again.
pub(crate) const LISTENER_AGAIN: Duration = Duration::from_secs(1);
/// The timeout of a task that runs for seconds.
pub(crate) const LONG_TASK: Duration = Duration::from_secs(20);
/// How often the player looks whether the run was interrupted.
pub(crate) const PLAYER_POLL: Duration = Duration::from_millis(200);
/// How long it may take to end what a client has left.
pub(crate) const REAP: Duration = Duration::from_secs(300);
/// How long an SSH server may take to start or to end.
pub(crate) const SSH_SERVER: Duration = Duration::from_secs(5);
/// The pause between two looks at an SSH server.
pub(crate) const SSH_SERVER_POLL: Duration = Duration::from_millis(5);
/// The longest time from a task's call to its outcome: longer than all its tries and the starts
/// between them.
pub(crate) const TASK_OUTCOME: Duration = Duration::from_secs(45);
/// How long it may take to read an artifact: longer than a request to a mover that never answers.
pub(crate) const TRANSFER: Duration = Duration::from_secs(75);
/// The timeout of a tree of calls.
pub(crate) const TREE: Duration = Duration::from_secs(15);
