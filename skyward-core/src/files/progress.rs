//! Reports how far a copy of files is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::parts::PartKind;
use super::pieces::Source;
use super::timing::PROGRESS_PAUSE;
use crate::event::{Transfer, TransferDirection, TransferState};
use crate::ids::NodeIndex;

/// The reports of one copy. A copy that is dropped before its end has failed.
pub(crate) struct Progress<'f> {
    report: Box<dyn Fn(&Transfer) + Send + Sync + 'f>,
    transfer: Transfer,
    began: Instant,
    reported: Instant,
}

impl<'f> Progress<'f> {
    /// The files of a source begin to come to this host.
    pub(crate) fn begin(source: &Arc<Source<'f>>) -> Self {
        let files = source.parts.iter().filter(|part| matches!(part.kind, PartKind::File { .. })).count();
        let transfer = Transfer::new(next_number(), source.node, &source.name, source.size(), files as u64);
        let source = Arc::clone(source);
        Self::of(transfer, move |transfer| source.files.report(transfer))
    }

    /// So many bytes and files begin to go to a node.
    pub(crate) fn to_node(
        node: NodeIndex,
        name: &str,
        bytes: u64,
        files: u64,
        report: impl Fn(&Transfer) + Send + Sync + 'f,
    ) -> Self {
        let mut transfer = Transfer::new(next_number(), node, name, bytes, files);
        transfer.direction = TransferDirection::ToNode;
        Self::of(transfer, report)
    }

    fn of(transfer: Transfer, report: impl Fn(&Transfer) + Send + Sync + 'f) -> Self {
        let began = Instant::now();
        Self { report: Box::new(report), transfer, began, reported: began }
    }

    /// These bytes have arrived, and the ends of so many files.
    pub(crate) fn add(&mut self, bytes: usize, ends: u64) {
        self.transfer.bytes += bytes as u64;
        self.transfer.files += ends;
        if self.reported.elapsed() >= PROGRESS_PAUSE {
            self.reported = Instant::now();
            self.report();
        }
    }

    /// All files are at their target.
    pub(crate) fn end(mut self) {
        self.transfer.state = TransferState::Done;
    }

    fn report(&mut self) {
        self.transfer.took = self.began.elapsed();
        (self.report)(&self.transfer);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.transfer.state == TransferState::Running {
            self.transfer.state = TransferState::Failed;
        }
        self.report();
    }
}

/// A number that no other copy of this process has.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
