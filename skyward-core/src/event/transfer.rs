//! How far a copy of files between this host and a node is.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::count;
use crate::ids::NodeIndex;
use crate::spec::unlimited::seconds;

/// A copy of a file or folder between a node and this host, at one moment.
///
/// `Display` is one line for a person: `model.pt of node 0: 512 of 1024 MiB, 310 MiB/s, 2 s left`.
/// What goes to a node reads `digits to node 0: …`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Transfer {
    /// Its number, which no other copy of this process has.
    pub number: u64,
    /// The node.
    pub node: NodeIndex,
    /// Whether the files come from the node or go to it.
    pub direction: TransferDirection,
    /// The path on the node, or the name of the artifact, the checkpoint or the data set.
    pub name: String,
    /// The bytes that have arrived.
    pub bytes: u64,
    /// The bytes of all files.
    pub total_bytes: u64,
    /// The files that have arrived completely.
    pub files: u64,
    /// The number of files.
    pub total_files: u64,
    /// The time since it began.
    #[serde(with = "seconds")]
    pub took: Duration,
    /// Whether it goes on.
    pub state: TransferState,
}

/// Where the files of a copy go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransferDirection {
    /// From the node to this host.
    FromNode,
    /// From this host to the node.
    ToNode,
}

/// Whether a copy goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransferState {
    /// Bytes are arriving.
    Running,
    /// The files are at their target.
    Done,
    /// It has failed or was dropped, and nothing is left of it.
    Failed,
}

impl Transfer {
    /// A copy from a node that begins now.
    pub fn new(number: u64, node: NodeIndex, name: impl Into<String>, total_bytes: u64, total_files: u64) -> Self {
        let (name, took, state) = (name.into(), Duration::ZERO, TransferState::Running);
        let direction = TransferDirection::FromNode;
        Self { number, node, direction, name, bytes: 0, total_bytes, files: 0, total_files, took, state }
    }

    /// The mean rate so far, in bytes per second; `None` before anything has arrived.
    pub fn rate(&self) -> Option<f64> {
        let rate = self.bytes as f64 / self.took.as_secs_f64();
        (self.bytes > 0 && rate.is_finite()).then_some(rate)
    }

    /// How long the rest takes at this rate; `None` before anything has arrived.
    pub fn left(&self) -> Option<Duration> {
        let left = self.total_bytes.saturating_sub(self.bytes) as f64 / self.rate()?;
        Duration::try_from_secs_f64(left).ok()
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, direction, name, bytes, total_bytes, files, total_files, took, state, .. } = self;
        let (unit, name_of_unit) = if *total_bytes < 10 << 20 { (1 << 10, "KiB") } else { (1 << 20, "MiB") };
        let of = match direction {
            TransferDirection::FromNode => "of",
            TransferDirection::ToNode => "to",
        };
        write!(f, "{name} {of} node {node}: ")?;
        let of_files = |f: &mut fmt::Formatter<'_>| match total_files {
            0 | 1 => Ok(()),
            total if *files == *total => write!(f, ", {total} files"),
            total => write!(f, ", {files} of {total} files"),
        };
        match state {
            TransferState::Done => {
                write!(f, "{} {name_of_unit}", total_bytes.div_ceil(unit))?;
                of_files(f)?;
                write!(f, " in {:.1} s", took.as_secs_f64())
            }
            TransferState::Running | TransferState::Failed => {
                write!(f, "{} of {} {name_of_unit}", bytes / unit, total_bytes.div_ceil(unit))?;
                of_files(f)?;
                if *state == TransferState::Failed {
                    return f.write_str(", not saved");
                }
                if let Some(rate) = self.rate() {
                    write!(f, ", {:.0} {name_of_unit}/s", rate / unit as f64)?;
                }
                match self.left() {
                    Some(left) => {
                        write!(f, ", {} left", count(left.as_secs().min(u64::from(u32::MAX)) as u32, "second"))
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_says_how_far_it_is_and_how_long_it_takes() {
        let mut transfer = Transfer::new(1, NodeIndex(2), "run", 1 << 30, 10);
        assert_eq!(transfer.to_string(), "run of node 2: 0 of 1024 MiB, 0 of 10 files");
        (transfer.bytes, transfer.files, transfer.took) = (256 << 20, 3, Duration::from_secs(2));
        assert_eq!(transfer.to_string(), "run of node 2: 256 of 1024 MiB, 3 of 10 files, 128 MiB/s, 6 seconds left");
        transfer.state = TransferState::Failed;
        assert_eq!(transfer.to_string(), "run of node 2: 256 of 1024 MiB, 3 of 10 files, not saved");
        transfer.direction = TransferDirection::ToNode;
        assert_eq!(transfer.to_string(), "run to node 2: 256 of 1024 MiB, 3 of 10 files, not saved");
        let mut small = Transfer::new(2, NodeIndex(0), "log.csv", 100, 1);
        (small.bytes, small.files, small.took, small.state) = (100, 1, Duration::from_millis(50), TransferState::Done);
        assert_eq!(small.to_string(), "log.csv of node 0: 1 KiB in 0.1 s");
    }
}
