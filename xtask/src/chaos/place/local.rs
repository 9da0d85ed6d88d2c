//! Nodes on this host: folders of this user, and processes that inherit the mark of the client.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Ground, Machines, Target, Victim};
use crate::chaos::processes::{self, Process};
use crate::chaos::words::Provider;

/// This host, which is the same for all rounds.
pub(super) struct Host;

struct Nodes {
    folder: PathBuf,
    mark: String,
}

impl Ground for Host {
    fn machines(&self, folder: &Path, mark: &str) -> Result<Box<dyn Machines>> {
        Ok(Box::new(Nodes { folder: folder.to_owned(), mark: mark.to_owned() }))
    }
}

impl Machines for Nodes {
    fn provider(&self) -> Provider {
        Provider::Local
    }

    fn executions(&self) -> String {
        self.folder.join("executions").to_string_lossy().into_owned()
    }

    fn executed(&self) -> String {
        fs::read_to_string(self.folder.join("executions")).unwrap_or_default()
    }

    fn find(&self, victim: Victim) -> Vec<Target> {
        let found = processes::marked(&self.mark).into_iter();
        found.filter(|process| victim.is(process)).map(|process| process.target()).collect()
    }

    fn running(&self) -> Vec<Target> {
        processes::marked(&self.mark).iter().map(Process::target).collect()
    }

    fn left(&self) -> Vec<(&'static str, Vec<String>)> {
        vec![("are folders of pools", super::names(&self.folder.join("run"), |name| name.starts_with("p-")))]
    }
}
