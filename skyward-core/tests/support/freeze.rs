//! A frozen runtime: the program that embeds it blocks all of its threads.
//!
//! The file uses tokio and the standard library alone, so that any program of the project can
//! include it with `#[path]`.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Handle;

/// Blocks all `threads` of a runtime together for `time`, once `after` has passed.
///
/// A separate thread measures the time, and spawns the next task when the one before has blocked
/// its thread: the runtime then wakes another thread for it. Tasks that slept in the runtime and
/// then waited for each other could wait for ever: while one thread is blocked and the others are
/// parked, no thread fires timers.
pub(crate) fn freeze(runtime: Handle, threads: usize, after: Duration, time: Duration) -> JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(after);
        // Dropping one of these senders lets its thread continue.
        let mut blocked = Vec::new();
        for _ in 0..threads {
            let (begun, has_begun) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            runtime.spawn(async move {
                let _ = begun.send(());
                let _ = released.recv();
            });
            if has_begun.recv().is_err() {
                // The runtime has ended, and dropped the task.
                return;
            }
            blocked.push(release);
        }
        thread::sleep(time);
    })
}
