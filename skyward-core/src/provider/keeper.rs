//! What ends a machine when its lease is not renewed, or its time is over: a script that runs beside the machine's processes.
//!
//! A provider whose machines have a shell can have the same keeper as those of the library: [`Keeper`] says how it is started.

use std::time::Duration;

use super::LaunchRequest;

/// What ends a machine by itself: a POSIX shell script with its arguments, which runs on the machine for as long as that lives.
///
/// It looks for the file `lease` in the machine's folder, whose time the pool and the machine's agent change to renew the lease, and ends the machine
///
/// - when nobody has renewed the lease for a little longer than [`lease`](LaunchRequest::lease) (the agent, whose lease is the same, gets to end it in good order),
/// - when nobody has renewed it for the first time within [`boot`](LaunchRequest::boot),
/// - when [`ends_in`](LaunchRequest::ends_in) has passed since the keeper was started, also while the lease is renewed,
/// - when the file is removed, and when the keeper is sent `SIGTERM`.
///
/// It goes by no clock that can be set. The machine needs `sh`, `stat`, `sleep` and `touch`; to kill processes also `grep`, `awk` and `find`. Where it has bash, looking costs fewer processes.
///
/// A machine that is powered off, as a cloud's, has it as a service of root's. Its folder and the file `lease` in it must be there before, and belong to the user who
/// runs the pool's commands; the folder above it must be root's:
///
/// ```
/// use std::time::Duration;
/// use skyward_core::provider::{Keeper, KeeperEnd};
///
/// let keeper = Keeper::new("/var/lib/skyward/node", Duration::from_secs(60))
///     .boot(Duration::from_secs(600))
///     .ends_in(Duration::from_secs(3600))
///     .end(KeeperEnd::PowerOff);
/// let quoted: Vec<String> = keeper.command().iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
/// let user_data = format!(
///     "#!/bin/sh
/// install -d /var/lib/skyward
/// install -d -m 700 -o ubuntu /var/lib/skyward/node
/// install -m 600 -o ubuntu /dev/null /var/lib/skyward/node/lease
/// setsid {} </dev/null >/dev/null 2>&1 &
/// ",
///     quoted.join(" ")
/// );
/// assert!(user_data.len() < 16 << 10, "what EC2 takes");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeper {
    folder: String,
    lease: Duration,
    boot: Duration,
    ends_in: Option<Duration>,
    end: KeeperEnd,
}

/// How a keeper ends its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeeperEnd {
    /// It kills the processes that have the variable `SKYWARD_MACHINE` with this value in their environment, with all that descend from them, and removes the machine's folder.
    Processes {
        /// The value: the machine's id.
        mark: String,
    },
    /// It exits: it is the first process of a container, with which all others end.
    Exit,
    /// It powers the host off: it runs as root, and the host is the machine.
    PowerOff,
}

impl Keeper {
    /// The keeper of a machine with this folder and lease, which boots within the lease, has no other end, and is the first process of a container.
    pub fn new(folder: impl Into<String>, lease: Duration) -> Self {
        Self { folder: folder.into(), lease, boot: lease, ends_in: None, end: KeeperEnd::Exit }
    }

    /// The keeper of a machine that was asked for like this: with its lease, its time to boot and its end.
    pub fn of(request: &LaunchRequest, folder: impl Into<String>) -> Self {
        Self { boot: request.boot, ends_in: request.ends_in, ..Self::new(folder, request.lease) }
    }

    /// Waits this long for the first renewal; never less than the lease.
    #[must_use]
    pub fn boot(mut self, boot: Duration) -> Self {
        self.boot = boot;
        self
    }

    /// Ends the machine this long after the keeper was started, whatever its lease.
    #[must_use]
    pub fn ends_in(mut self, ends_in: Duration) -> Self {
        self.ends_in = Some(ends_in);
        self
    }

    /// Sets how the machine is ended.
    #[must_use]
    pub fn end(mut self, end: KeeperEnd) -> Self {
        self.end = end;
        self
    }

    /// The program and the arguments that start it: with bash where the machine has it, otherwise with `sh`.
    pub fn command(&self) -> Vec<String> {
        let start = ["sh", "-c", START, Self::script()].map(str::to_owned);
        start.into_iter().chain(self.arguments()).collect()
    }

    /// The script: `sh -c SCRIPT keeper` with [`arguments`](Self::arguments), where it is bash `bash --norc --posix -c SCRIPT keeper`. Its head says what each argument is.
    pub fn script() -> &'static str {
        KEEPER
    }

    /// The arguments of the script.
    pub fn arguments(&self) -> Vec<String> {
        let Looks { pause, looks, first } = self.looks();
        // 0 is no end: what is to end at once has the shortest life.
        let life = self.ends_in.map_or(0, |life| (life.as_millis() / 10).clamp(1, LONGEST));
        let (end, mark) = match &self.end {
            KeeperEnd::Processes { mark } => ("processes", Some(mark.clone())),
            KeeperEnd::Exit => ("exit", None),
            KeeperEnd::PowerOff => ("off", None),
        };
        let folder = self.folder.clone();
        let numbers = [looks, first].map(|number| number.to_string());
        [folder, pause].into_iter().chain(numbers).chain([life.to_string(), end.to_owned()]).chain(mark).collect()
    }

    fn looks(&self) -> Looks {
        let exact = self.lease.max(SHORTEST) / LOOKS;
        // Not every `sleep` knows fractions, and a long lease needs none.
        let (pause, text) = match exact.as_secs() >= 4 {
            true => (Duration::from_secs(exact.as_secs() + 1), (exact.as_secs() + 1).to_string()),
            false => (exact, format!("{:.3}", exact.as_secs_f64())),
        };
        let looks = LOOKS + LOOKS / 4;
        let boot = self.boot.as_secs_f64() / pause.as_secs_f64();
        Looks { pause: text, looks, first: (boot.ceil() as u32).max(looks) }
    }
}

/// When a keeper looks, and how often.
struct Looks {
    /// The seconds between two looks.
    pause: String,
    /// How many looks without a renewal end the machine: in a little more than the lease.
    looks: u32,
    /// How many do before the first one.
    first: u32,
}

const KEEPER: &str = concat!(include_str!("scripts/ending.sh"), include_str!("scripts/keeper.sh"));

/// Starts a keeper with the shell that needs the fewest processes: `sh -c START SCRIPT` with its arguments.
pub(crate) const START: &str =
    r#"! command -v bash >/dev/null || exec bash --norc --posix -c "$0" keeper "$@"; exec sh -c "$0" keeper "$@""#;

/// The variable that a keeper has which took the place of one that could start no process.
#[cfg(feature = "docker")]
pub(crate) const AGAIN: &str = "SKYWARD_KEEPER_SAME";

/// The functions that end a machine, for scripts that do it without its keeper.
#[cfg(feature = "ssh")]
pub(crate) const ENDING: &str = include_str!("scripts/ending.sh");

/// The environment variable that names the machine a process belongs to.
pub(crate) const MARK: &str = "SKYWARD_MACHINE";

/// The file in a machine's folder whose changes renew its lease.
pub(crate) const LEASE_FILE: &str = "lease";

/// How often a keeper looks in the time of one lease.
const LOOKS: u32 = 8;
/// Below this, looking costs more than it saves.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest life in hundredths of a second, which any shell can count: 30 years.
const LONGEST: u128 = 30 * 365 * 86_400 * 100;

#[cfg(test)]
mod tests;
