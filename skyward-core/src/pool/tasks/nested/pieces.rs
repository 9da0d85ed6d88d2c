//! Passes parts of files between the stores of nodes: the client forwards a part from the node that
//! has it to a worker of another node that needs it.

use bytes::Bytes;

use crate::ids::{Generation, Rank};
use crate::pool::tasks::after::After;
use crate::pool::tasks::caller::Reader;
use crate::pool::tasks::state::State;
use crate::worker::calls::ToCaller;

/// A part of a file in the store of a node.
pub(super) struct FileRange {
    /// The name of the file.
    pub(super) digest: String,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl State {
    /// A worker needs a part of a file that another worker has put into the store of its node.
    pub(super) fn fetch(
        &mut self,
        generation: Generation,
        rank: Rank,
        fetch: u64,
        source: Rank,
        range: FileRange,
        after: &mut After,
    ) {
        let Some(pid) = self.calls_of(rank, generation).map(|calls| calls.pid) else { return };
        let reader = Reader { rank, pid, fetch };
        match self.calls_of(source, generation) {
            Some(calls) => {
                let read = calls.reads.add(reader);
                let FileRange { digest, offset, length } = range;
                calls.push(ToCaller::Read { read, digest, offset, length }, after);
            }
            None => self.pass_on(generation, reader, None, after),
        }
    }

    /// A worker has read what it was asked to read; `piece` is `None` if it does not have the file
    /// any more.
    pub(super) fn on_read(
        &mut self,
        generation: Generation,
        rank: Rank,
        read: u64,
        piece: Option<Bytes>,
        after: &mut After,
    ) {
        let reader = self.calls_of(rank, generation).and_then(|calls| calls.reads.waiting.remove(&read));
        if let Some(reader) = reader {
            self.pass_on(generation, reader, piece, after);
        }
    }

    fn pass_on(&mut self, generation: Generation, reader: Reader, piece: Option<Bytes>, after: &mut After) {
        let Reader { rank, pid, fetch } = reader;
        if let Some(calls) = self.calls_of(rank, generation).filter(|calls| calls.pid == pid) {
            let message = match piece {
                Some(body) => ToCaller::Fetched { fetch, body },
                None => ToCaller::NotFetched { fetch },
            };
            calls.push(message, after);
        }
    }
}
