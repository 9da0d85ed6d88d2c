//! What ends a machine when its lease is not renewed: a script that runs beside the machine's processes.

use std::time::Duration;

/// The keeper, for a shell: `bash --norc --posix -c SCRIPT keeper` with [`arguments`], and after them the mark of the
/// machine's processes where there is no container that ends them, and what it keeps from being cleaned by age.
pub(crate) const KEEPER: &str = concat!(include_str!("scripts/ending.sh"), include_str!("scripts/keeper.sh"));

/// Starts a keeper with the shell that needs the fewest processes: `sh -c START SCRIPT` with [`arguments`].
#[cfg(feature = "docker")]
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

/// What a keeper is started with: the folder, the seconds between two looks, and how many looks without a renewal end the machine.
///
/// Together a little more than the lease: the machine's agent, whose lease is the same, gets to end it in good order.
pub(crate) fn arguments(folder: &str, lease: Duration) -> [String; 3] {
    let pause = lease.max(SHORTEST) / LOOKS;
    // Not every `sleep` knows fractions, and a long lease needs none.
    let pause =
        if pause.as_secs() >= 4 { (pause.as_secs() + 1).to_string() } else { format!("{:.3}", pause.as_secs_f64()) };
    [folder.to_owned(), pause, (LOOKS + LOOKS / 4).to_string()]
}

/// How often a keeper looks in the time of one lease.
const LOOKS: u32 = 8;
/// Below this, looking costs more than it saves.
const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
