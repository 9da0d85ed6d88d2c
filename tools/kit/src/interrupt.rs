//! Ctrl-C and its like, for commands that have something to remove before they end.

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
    for signal in [SIGINT, SIGTERM, SIGHUP] {
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

fn asked_flag() -> &'static Arc<AtomicBool> {
    static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    ASKED.get_or_init(Arc::default)
}
