//! The times of the emulator, by what they bound.

use std::time::Duration;

/// The pause after a failure to accept a connection, such as one for want of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// How long a program may take to send its arguments.
pub(crate) const ARGUMENTS: Duration = Duration::from_secs(10);
/// The pause before a change of the kernel's tables is tried again.
pub(crate) const FIREWALL_AGAIN: Duration = Duration::from_millis(20);
/// How long a connection is tried that the kernel has to drop.
pub(crate) const FIREWALL_PROBE: Duration = Duration::from_millis(200);
/// How long a server may take to answer one request.
pub(crate) const HTTP_ANSWER: Duration = Duration::from_secs(60);
/// The pause between two lists of EC2's instances, unless a change is reported before.
pub(crate) const INSTANCE_LIST_PAUSE: Duration = Duration::from_millis(300);
/// How long all machines may take to end.
pub(crate) const MACHINES_END: Duration = Duration::from_secs(30);
/// The pause between two looks whether moto answers.
pub(crate) const MOTO_POLL: Duration = Duration::from_millis(50);
/// How long moto may take to start: without bytecode and on a busy machine, its imports take many
/// seconds.
pub(crate) const MOTO_START: Duration = Duration::from_secs(90);
/// How long the root of a machine may take to be made, and its processes to end.
pub(crate) const NAMESPACE: Duration = Duration::from_secs(60);
/// The pause between two looks at the processes of a machine that ends.
pub(crate) const NAMESPACE_POLL: Duration = Duration::from_millis(200);
/// How long a command of a service may take.
pub(crate) const SERVICE_COMMAND: Duration = Duration::from_secs(300);
/// How long a service may take to end.
pub(crate) const SERVICE_STOP: Duration = Duration::from_secs(10);
/// How long the SSH server of a machine may take to listen.
pub(crate) const SSH_SERVER: Duration = Duration::from_secs(20);
/// The pause between two looks at the SSH server of a machine.
pub(crate) const SSH_SERVER_POLL: Duration = Duration::from_millis(20);
