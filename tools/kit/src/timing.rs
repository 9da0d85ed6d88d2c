//! The times of commands and of what they start, by what they bound.

use std::time::Duration;

/// How long a command may take. A cold build of everything on two cores takes a third of it.
pub(crate) const COMMAND: Duration = Duration::from_secs(30 * 60);
/// How long a command that is ended may take to end.
pub(crate) const COMMAND_END: Duration = Duration::from_secs(30);
/// The pause between two looks at a command.
pub(crate) const COMMAND_POLL: Duration = Duration::from_millis(20);
/// How long the emulator may take to answer what it is asked.
pub(crate) const EMULATOR_ANSWER: Duration = Duration::from_secs(60);
/// How long all machines of the emulator may take to end; it has a deadline of its own for them.
pub(crate) const EMULATOR_END: Duration = Duration::from_secs(60);
/// The pause between two looks at the emulator.
pub(crate) const EMULATOR_POLL: Duration = Duration::from_millis(50);
/// How long the emulator may take to start on a host that is busy.
pub(crate) const EMULATOR_START: Duration = Duration::from_secs(120);
/// How long a look at the engine may take.
pub(crate) const ENGINE_ANSWER: Duration = Duration::from_secs(60);
/// How long an image may take to build.
pub(crate) const IMAGE_BUILD: Duration = Duration::from_secs(15 * 60);
/// How long an installation of packages may take.
pub(crate) const INSTALLATION: Duration = Duration::from_secs(300);
/// How long the last lines of a command that has ended may take to arrive.
pub(crate) const LAST_LINES: Duration = Duration::from_secs(2);
/// How long a look at the machine may take.
pub(crate) const MACHINE_LOOK: Duration = Duration::from_secs(60);
