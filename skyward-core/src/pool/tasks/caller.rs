//! The calls that one worker process makes and helps with, and the connection for them.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::task::AbortHandle;

use super::after::After;
use crate::ids::{Generation, Rank, TaskId};
use crate::worker::calls::{CallsSession, ToCaller};
use crate::worker::link::Sender;

/// The calls that one worker process makes and helps with.
pub(crate) struct Calls {
    pub(super) pid: u32,
    /// The socket on which the worker listens on its node.
    pub(super) path: String,
    pub(super) session: CallsSession,
    pub(super) link: Option<Sender>,
    /// Counts the connections.
    pub(super) connection: u64,
    /// Connections that ended because of invalid messages, since the last valid message.
    pub(super) fruitless: u32,
    pub(super) reader: Option<AbortHandle>,
    /// The calls that the worker helps with, by number.
    pub(super) helps: BTreeMap<u64, TaskId>,
    /// The number of the last call that the worker was asked to help with.
    pub(super) help: u64,
    /// Calls that the worker made and that have no outcome yet, by the worker's numbers.
    pub(super) made: BTreeMap<u64, TaskId>,
    /// Requests of other workers for parts of files in the store of the worker's node.
    pub(super) reads: Reads,
}

/// The worker that waits for the outcome of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(super) rank: Rank,
    pub(super) generation: Generation,
    pub(super) pid: u32,
    pub(super) call: u64,
}

/// Reads that a worker was asked for and has not answered.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The number of the last read.
    pub(super) last: u64,
    pub(super) waiting: BTreeMap<u64, Reader>,
}

/// The worker that waits for a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reader {
    pub(super) rank: Rank,
    /// The process of the worker: another process of the same rank has numbers of its own.
    pub(super) pid: u32,
    /// The number that the worker gave to the request.
    pub(super) fetch: u64,
}

impl Calls {
    pub(super) fn new(pid: u32, path: String) -> Self {
        Self {
            pid,
            path,
            session: CallsSession::default(),
            link: None,
            connection: 0,
            fruitless: 0,
            reader: None,
            helps: BTreeMap::new(),
            help: 0,
            made: BTreeMap::new(),
            reads: Reads::default(),
        }
    }

    /// Whether there is no connection after this one, which has ended or never existed.
    pub(crate) fn lacks(&self, connection: u64) -> bool {
        self.connection == connection
    }

    /// The number of a call that the worker helps with.
    pub(super) fn help_of(&self, task: TaskId) -> Option<u64> {
        self.helps.iter().rfind(|(_, helped)| **helped == task).map(|(help, _)| *help)
    }

    /// Sends a message; if there is no connection, the message is sent over the next one.
    pub(super) fn push(&mut self, message: ToCaller, after: &mut After) {
        match self.session.push(message) {
            Ok((head, body)) => self.send(head, body, after),
            Err(error) => tracing::error!(error = error.summary(), "a message to a caller cannot be encoded"),
        }
    }

    pub(super) fn send(&self, head: Vec<u8>, body: Bytes, after: &mut After) {
        if let Some(link) = &self.link
            && link.push(&head, body).is_ok()
        {
            after.flush.push(link.clone());
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
        if let Some(link) = self.link.take() {
            link.close();
        }
    }
}

impl Reads {
    pub(super) fn add(&mut self, reader: Reader) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, reader);
        self.last
    }
}
