//! Where steps and the commands that they run write: straight to the terminal, or held until a step
//! that runs beside others has ended.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Where the output of one thread goes.
#[derive(Debug, Clone, Default)]
pub struct Console(Option<Arc<Mutex<String>>>);

thread_local! {
    static CURRENT: RefCell<Console> = RefCell::default();
}

impl Console {
    /// The console of this thread, for a thread that writes in its place.
    pub fn current() -> Self {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Writes text as it is.
    pub fn write(&self, text: &str) {
        match &self.0 {
            Some(held) => held.lock().unwrap_or_else(PoisonError::into_inner).push_str(text),
            // If the output cannot be written, nobody reads it any more.
            None => drop(io::stdout().lock().write_all(text.as_bytes())),
        }
    }

    /// Runs something on this thread, and returns its result with all it wrote, in one piece.
    pub fn hold<T>(work: impl FnOnce() -> T) -> (T, String) {
        let held = Arc::new(Mutex::new(String::new()));
        let before = CURRENT.replace(Self(Some(Arc::clone(&held))));
        let done = work();
        CURRENT.set(before);
        let text = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        (done, text)
    }
}

/// Writes a line to the console of this thread.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::console::Console::current().write(&format!("{}\n", format_args!($($argument)*)))
    };
}
pub use crate::say;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Run;

    #[test]
    fn what_a_command_writes_is_held_in_order() {
        let (status, text) = Console::hold(|| {
            say!("first");
            Run::new("sh").args(["-c", "echo second; echo third >&2"]).check().map(|finished| finished.status.success())
        });
        assert!(status.unwrap());
        assert_eq!(text, "first\n$ sh -c echo second; echo third >&2\nsecond\nthird\n");
    }
}
