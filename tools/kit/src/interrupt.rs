//! Ctrl-C and its like, for commands that have something to remove before they end.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// From now on, a signal ends the command that this program runs, and not the program.
///
/// # Errors
///
/// The system refuses the handler of a signal.
pub fn watch() -> Result<()> {
    // A signal that this program ignores stays ignored, such as SIGHUP under `nohup`.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(&status, *signal)) {
        signal_hook::flag::register(signal, Arc::clone(asked_flag())).context("cannot watch for signals")?;
    }
    Ok(())
}

/// Whether a signal has arrived.
pub fn asked() -> bool {
    asked_flag().load(Ordering::Relaxed)
}

/// Forgets the signal, so that the following commands run.
pub fn forget() {
    asked_flag().store(false, Ordering::Relaxed);
}

/// Whether a process ignores a signal, by what the kernel reports of the process.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn asked_flag() -> &'static Arc<AtomicBool> {
    static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    ASKED.get_or_init(Arc::default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_a_process() {
        let status = "Name:\tnohup\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000000001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP));
    }
}
