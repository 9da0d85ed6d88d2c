//! The times of connections by SSH, by what they bound.

use std::time::Duration;

/// How long an address may be silent before a new attempt.
pub(crate) const ADDRESS_SILENT: Duration = Duration::from_secs(3);
/// How long a server that answers other requests may take to open a channel.
pub(crate) const CHANNEL_OPEN: Duration = Duration::from_secs(15);
/// How long a close request may wait for its turn.
pub(crate) const CLOSE_TURN: Duration = Duration::from_secs(5);
/// How long a caller without a deadline of its own waits until other connections are open.
pub(crate) const CONNECT_TURN: Duration = Duration::from_secs(60);
/// How long a program of the host may take to connect to a socket there.
pub(crate) const BRIDGED: Duration = Duration::from_secs(20);
/// How long a login may take until it runs the program that was requested: start-up files of the
/// user's shell may wait for a network file system or for a directory of users.
pub(crate) const LOGIN: Duration = Duration::from_secs(60);
