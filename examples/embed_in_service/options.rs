//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use super::trainings::Bounds;

pub(crate) struct Options {
    pub(crate) address: SocketAddr,
    pub(crate) nodes: u32,
    pub(crate) bounds: Bounds,
    /// How long running trainings may go on after a signal.
    pub(crate) drain: Duration,
    pub(crate) once: bool,
}

impl Options {
    /// Reads the options from the words of a command line. Ends the program if it cannot.
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Self {
        let mut options = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            nodes: 2,
            bounds: Bounds { waiting: 8, events: 512, ended: 64 },
            drain: Duration::from_secs(20),
            once: false,
        };
        while let Some(word) = words.next() {
            if options.set(&word, || words.next()).is_none() {
                eprintln!("cannot read `{word}`\n{USAGE}");
                std::process::exit(2);
            }
        }
        options
    }

    fn set(&mut self, word: &str, value: impl FnOnce() -> Option<String>) -> Option<()> {
        match word {
            "--address" => self.address = value()?.parse().ok()?,
            "--nodes" => self.nodes = value()?.parse().ok()?,
            "--waiting" => self.bounds.waiting = value()?.parse().ok()?,
            "--events" => self.bounds.events = value()?.parse().ok()?,
            "--drain" => self.drain = Duration::from_secs(value()?.parse().ok()?),
            "--once" => self.once = true,
            _ => return None,
        }
        Some(())
    }
}

const USAGE: &str = "usage: embed_in_service [--address 127.0.0.1:0] [--nodes 2] [--waiting 8] [--events 512] [--drain SECONDS] [--once]";
