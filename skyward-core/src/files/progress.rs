//! Reports how far a copy of files is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::parts::PartKind;
use super::pieces::Source;
use super::timing::PROGRESS_PAUSE;
use crate::event::{Transfer, TransferState};

/// The reports of one copy. A copy that is dropped before its end has failed.
pub(crate) struct Progress<'f> {
    source: Arc<Source<'f>>,
    transfer: Transfer,
    began: Instant,
    reported: Instant,
}

impl<'f> Progress<'f> {
    pub(crate) fn begin(source: &Arc<Source<'f>>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let files = source.parts.iter().filter(|part| matches!(part.kind, PartKind::File { .. })).count();
        let transfer = Transfer::new(number, source.node, &source.name, source.size(), files as u64);
        let began = Instant::now();
        Self { source: Arc::clone(source), transfer, began, reported: began }
    }

    /// These bytes have arrived, and perhaps the end of a file.
    pub(crate) fn add(&mut self, bytes: usize, is_end: bool) {
        self.transfer.bytes += bytes as u64;
        self.transfer.files += u64::from(is_end);
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
        self.source.files.report(&self.transfer);
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
