//! The serial consoles of instances, with the output of their boot and their services.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The consoles of all instances by their ids; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consoles(Arc<Mutex<HashMap<String, Console>>>);

/// A console; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Console(Arc<Mutex<Output>>);

/// The output of a console.
#[derive(Debug, Default)]
struct Output {
    text: String,
    /// What EC2 has posted of it.
    posted: Option<String>,
}

impl Consoles {
    /// The console of an instance, empty at first.
    pub(crate) fn of(&self, id: &str) -> Console {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_owned()).or_default().clone()
    }

    /// The output of an instance, if it has a console.
    pub(crate) fn read(&self, id: &str) -> Option<String> {
        let console = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()?;
        Some(console.text())
    }

    /// What EC2 has posted of the output of an instance, if it has posted anything.
    pub(crate) fn posted(&self, id: &str) -> Option<String> {
        let console = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()?;
        console.lock().posted.clone()
    }
}

impl Console {
    /// Adds a line in the name of one of the writers: `cloud-init`, `systemd`, `sshd`.
    pub(crate) fn write(&self, who: &str, line: impl AsRef<str>) {
        let text = &mut self.lock().text;
        *text += &format!("{who}: {}\n", line.as_ref().trim_end());
        // Keeps the end of the output, as EC2 does.
        if text.len() > MOST {
            let cut = text.ceil_char_boundary(text.len() - MOST / 2);
            text.drain(..cut);
        }
    }

    pub(crate) fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Posts the output, as EC2 does shortly after an instance has started, stopped, rebooted or
    /// terminated: <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html>.
    pub(crate) fn post(&self) {
        let mut output = self.lock();
        output.posted = Some(output.text.clone());
    }

    fn lock(&self) -> MutexGuard<'_, Output> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that are kept.
const MOST: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_keeps_its_end() {
        let consoles = Consoles::default();
        assert_eq!(consoles.read("i-1"), None);
        for number in 0..20_000 {
            consoles.of("i-1").write("ü", format!("line {number}\n"));
        }
        let text = consoles.read("i-1").unwrap();
        assert!(text.len() <= MOST && text.ends_with("ü: line 19999\n"), "{}", text.len());
    }

    #[test]
    fn what_is_posted_stays_until_the_next_post() {
        let consoles = Consoles::default();
        consoles.of("i-1").write("kernel", "boots");
        assert_eq!(consoles.posted("i-1"), None);
        consoles.of("i-1").post();
        consoles.of("i-1").write("kernel", "panics");
        assert_eq!(consoles.posted("i-1").unwrap(), "kernel: boots\n");
        assert_eq!(consoles.read("i-1").unwrap(), "kernel: boots\nkernel: panics\n");
    }
}
