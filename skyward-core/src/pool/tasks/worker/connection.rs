//! The connection to a worker, over which tasks go out and results come back.

use tokio::task::AbortHandle;

use crate::worker::link::Sender;

/// The latest connection to the worker of a rank.
#[derive(Default)]
pub(crate) struct Connection {
    /// Counts the connections to the workers of the rank, so that the end of an old connection is
    /// not taken for the end of a new one.
    number: u64,
    /// Sends messages to the worker; `None` before the first connection and after the worker's end.
    link: Option<Sender>,
    /// Whether messages of the worker may still arrive over this connection.
    is_read: bool,
    /// The task that reads the messages of the worker.
    reader: Option<AbortHandle>,
}

impl Connection {
    /// The connection to the worker that is started in place of this one's worker: closed, until
    /// that worker is reached.
    pub(super) fn successor(&self) -> Self {
        Self { number: self.number + 1, ..Self::default() }
    }

    /// Whether this is the latest connection to the worker.
    pub(crate) fn is_latest(&self, number: u64) -> bool {
        self.number == number
    }

    /// Whether messages of the worker may still arrive over the connection.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Sends messages to the worker, if it was reached and has not ended.
    pub(crate) fn link(&self) -> Option<&Sender> {
        self.link.as_ref()
    }

    /// Replaces the connection by a new one, which will be read. Returns the number of the new
    /// connection.
    pub(crate) fn open(&mut self, link: Sender) -> u64 {
        self.link = Some(link);
        self.number += 1;
        self.is_read = true;
        self.number
    }

    /// Notes the task that reads the connection.
    pub(crate) fn set_reader(&mut self, reader: AbortHandle) {
        self.reader = Some(reader);
    }

    /// Records that connection `number` has been read to its end.
    pub(crate) fn on_read(&mut self, number: u64) {
        if self.number == number {
            self.is_read = false;
        }
    }

    /// Closes the connection, because the worker has ended. Frames that the reader holds already
    /// belong to a connection that is over, and are ignored.
    pub(super) fn close(&mut self) {
        self.number += 1;
        if let Some(link) = self.link.take() {
            link.close();
        }
        self.is_read = false;
    }

    /// Ends the task that reads the connection.
    pub(super) fn stop_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }
}
