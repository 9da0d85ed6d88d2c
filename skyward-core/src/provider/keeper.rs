//! The keeper: a script that runs beside a machine's processes, and ends the machine when its lease
//! is not renewed or its time is over.
//!
//! A provider whose machines have a shell can use the same keeper as the library's own providers:
//! [`Keeper`] gives the command that starts it.

use std::time::Duration;

use super::LaunchRequest;
use super::timing::SHORTEST_CHECKED_LEASE;
use crate::remote::shell;

/// A keeper, which ends a machine by itself: a POSIX shell script with its arguments that runs on
/// the machine for as long as the machine lives.
///
/// The keeper watches the file `lease` in the machine's folder. The pool and the machine's agent
/// touch this file to renew the lease. The keeper ends the machine
///
/// - when nobody has renewed the lease for a little longer than [`lease`](LaunchRequest::lease)
///   (the agent has the same lease, and so can end the machine in good order first),
/// - when nobody has renewed the lease for the first time within [`boot`](LaunchRequest::boot),
/// - when [`ends_in`](LaunchRequest::ends_in) has passed since the keeper was started, also while
///   the lease is renewed,
/// - when the file is removed, and when the keeper receives `SIGTERM`.
///
/// The keeper depends on no clock that can be set. The machine needs `sh`, `stat`, `sleep` and
/// `touch`; to kill processes also `grep`, `awk` and `find`. With bash, each check starts fewer
/// processes.
///
/// On a machine that ends by being powered off, such as a cloud instance, root runs the keeper as a
/// service. Before it starts, the machine's folder and the file `lease` in it must exist and belong
/// to the user who runs the pool's commands. The parent folder must belong to root:
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::Duration;
/// use skyward::provider::{Keeper, KeeperEnd};
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
/// assert!(user_data.len() < 16 << 10, "EC2 takes at most 16 KiB");
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
    /// The keeper kills the processes of its own user whose environment has the variable
    /// `SKYWARD_MACHINE` with this value, and all their descendants, and removes the machine's
    /// folder. A process of another user belongs to the machine if its environment has
    /// `SKYWARD_MACHINE_KEY` with the first line of the file `key` in that folder.
    Processes {
        /// The value: the machine's id.
        mark: String,
    },
    /// The keeper exits. It must be the first process of a container, so that all other processes
    /// end with it.
    Exit,
    /// The keeper powers the host off. It must run as root, and the host must be the machine. If the
    /// orderly end hangs, the keeper ends the host by force after 90 seconds: its init system must not
    /// kill what the keeper has started, `KillMode=process` in a unit of systemd.
    PowerOff,
}

impl Keeper {
    /// Creates the keeper of a machine with this folder and lease. The keeper waits one lease for
    /// the first renewal, limits the machine's life in no other way, and ends the machine by
    /// [`KeeperEnd::Exit`].
    pub fn new(folder: impl Into<String>, lease: Duration) -> Self {
        Self { folder: folder.into(), lease, boot: lease, ends_in: None, end: KeeperEnd::Exit }
    }

    /// Creates the keeper of a requested machine, with the lease, boot time and end of the request.
    pub fn of(request: &LaunchRequest, folder: impl Into<String>) -> Self {
        Self { boot: request.boot, ends_in: request.ends_in, ..Self::new(folder, request.lease) }
    }

    /// Sets how long the keeper waits for the first renewal; never less than the lease.
    #[must_use]
    pub fn boot(mut self, boot: Duration) -> Self {
        self.boot = boot;
        self
    }

    /// Ends the machine this long after the keeper was started, whether the lease is renewed or
    /// not.
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

    /// The command that starts the keeper: with bash where the machine has bash, otherwise with
    /// `sh`.
    pub fn command(&self) -> Vec<String> {
        start(Self::script()).into_iter().chain(self.arguments()).collect()
    }

    /// The script. Run it with `bash --norc --posix -pc SCRIPT keeper` where the machine has bash,
    /// otherwise with `sh -c SCRIPT keeper`, followed by the [`arguments`](Self::arguments). The
    /// head of the script explains each argument.
    pub fn script() -> &'static str {
        KEEPER
    }

    /// The arguments of the script.
    pub fn arguments(&self) -> Vec<String> {
        let Looks { pause, looks, first, .. } = self.looks();
        // 0 means no end, so a machine that has to end at once gets the shortest life.
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
        let exact = self.lease.max(SHORTEST_CHECKED_LEASE) / LOOKS;
        // Not every `sleep` takes fractions, and a long lease needs none.
        let (pause, text) = match exact.as_secs() >= 4 {
            true => (Duration::from_secs(exact.as_secs() + 1), (exact.as_secs() + 1).to_string()),
            false => (exact, format!("{:.3}", exact.as_secs_f64())),
        };
        let looks = LOOKS + LOOKS / 4;
        let boot = self.boot.as_secs_f64() / pause.as_secs_f64();
        Looks { pause: text, exact: pause, looks, first: (boot.ceil() as u32).max(looks) }
    }
}

/// How long a machine with this lease lives at most after the last renewal, if its keeper runs: one
/// check sees the renewal, the following ones see none, and then the machine ends.
pub(crate) fn outlives(lease: Duration) -> Duration {
    let Looks { exact, looks, .. } = Keeper::new("", lease).looks();
    exact * (looks + 1) + ENDING_TIME
}

/// When a keeper checks the lease, and how often.
struct Looks {
    /// The seconds between two checks.
    pause: String,
    exact: Duration,
    /// How many checks without a renewal end the machine: a little more than the lease.
    looks: u32,
    /// How many checks before the first renewal end the machine.
    first: u32,
}

const KEEPER: &str = concat!(include_str!("scripts/ending.sh"), include_str!("scripts/keeper.sh"));

/// What starts a keeper's script with the shell that needs the fewest processes; the script's
/// arguments follow.
pub(crate) fn start(script: &str) -> Vec<String> {
    shell::script(START).into_iter().chain([shell::without_comments(script)]).collect()
}

/// bash takes no functions from its environment (`-p`), and runs neither the user's `~/.bashrc`,
/// which it does below a server of SSH, nor the file in `BASH_ENV`: before the keeper catches TERM,
/// and with its locks in all that they start.
const START: &str =
    r#"! command -v bash >/dev/null || exec bash --norc --posix -pc "$0" keeper "$@"; exec sh -c "$0" keeper "$@""#;

/// The variable that is set in a keeper that replaced one which could start no processes.
#[cfg(feature = "docker")]
pub(crate) const AGAIN: &str = "SKYWARD_KEEPER_SAME";

/// The functions that end a machine, for scripts that end it without its keeper.
#[cfg(any(test, feature = "ssh"))]
pub(crate) const ENDING: &str = include_str!("scripts/ending.sh");

/// The environment variable that names the machine a process belongs to.
pub(crate) const MARK: &str = "SKYWARD_MACHINE";

/// The environment variable with the key of the machine a process belongs to.
pub(crate) const KEY: &str = "SKYWARD_MACHINE_KEY";

/// The file in a machine's folder whose changes renew its lease.
pub(crate) const LEASE_FILE: &str = "lease";

/// How long a renewal may take to reach the machine, and the machine to end after its keeper's last
/// check: a host that is powered off stops its services first, and is ended by force after 90 s.
const ENDING_TIME: Duration = Duration::from_secs(120);
/// How often a keeper checks the lease during one lease.
const LOOKS: u32 = 8;
/// The longest life in hundredths of a second that any shell can count: 30 years.
const LONGEST: u128 = 30 * 365 * 86_400 * 100;

#[cfg(test)]
mod tests;
