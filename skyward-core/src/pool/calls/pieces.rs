//! Parts of files that one node's store has and a worker of another node needs: the client passes them on.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::shared::{After, State};
use crate::ids::{Generation, Rank};
use crate::worker::calls::ToCaller;

/// What a worker was asked to read and has not answered.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The number of the last one.
    last: u64,
    waiting: BTreeMap<u64, Reader>,
}

/// Who waits for a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reader {
    rank: Rank,
    /// Its process: another one of the same rank counts anew.
    pid: u32,
    /// The number that it gave to the file.
    fetch: u64,
}

impl Reads {
    fn add(&mut self, reader: Reader) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, reader);
        self.last
    }
}

impl State {
    /// A worker needs a part of a file (its name, an offset and a length) that another worker has put into the store
    /// of its node.
    pub(super) fn fetch(
        &mut self,
        generation: Generation,
        (rank, fetch): (Rank, u64),
        source: Rank,
        (digest, offset, length): (String, u64, u64),
        after: &mut After,
    ) {
        let Some(pid) = self.calls_of(rank, generation).map(|calls| calls.pid) else { return };
        let reader = Reader { rank, pid, fetch };
        match self.calls_of(source, generation) {
            Some(calls) => {
                let read = calls.reads.add(reader);
                calls.push(ToCaller::Read { read, digest, offset, length }, after);
            }
            None => self.pass_on(generation, reader, None, after),
        }
    }

    /// A worker has read what it was asked to read; none, if it does not have the file any more.
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
