//! The times of what happens on one machine, by what they bound.

use std::time::Duration;

/// How long a killed child of this process may take to exit.
pub(crate) const CHILD_EXIT: Duration = Duration::from_secs(5);
/// The pause after the first failed attempt to connect; each later pause is twice as long.
#[cfg(any(feature = "docker", feature = "ssh"))]
pub(crate) const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// How long one request to a Docker engine may take, unless its caller sets a shorter deadline.
#[cfg(feature = "docker")]
pub(crate) const ENGINE_REQUEST: Duration = Duration::from_secs(120);
/// How long a program may take to end after its input has ended.
pub(crate) const EXIT_AFTER_INPUT: Duration = Duration::from_secs(10);
/// How long it may take to kill a command.
pub(crate) const KILL: Duration = Duration::from_secs(30);
/// How long it may take to write the last line of a command's input.
pub(crate) const LAST_LINE: Duration = Duration::from_millis(200);
/// The least time that a file may take to arrive; on the way to another machine, its size adds to
/// it.
pub(crate) const LEAST_PUT: Duration = Duration::from_secs(60);
/// The longest pause between two attempts to connect.
#[cfg(any(feature = "docker", feature = "ssh"))]
pub(crate) const LONGEST_CONNECT_PAUSE: Duration = Duration::from_secs(2);
/// How long to wait for more output of a program that has ended.
pub(crate) const OUTPUT_AFTER_EXIT: Duration = Duration::from_millis(200);
/// How long it may take to reach a socket of the machine.
pub(crate) const SOCKET_REACHED: Duration = Duration::from_secs(10);
