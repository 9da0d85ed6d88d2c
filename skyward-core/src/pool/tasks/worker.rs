//! What the client knows about the worker of a rank: its process, its connection, its output, and
//! what was requested of its agent.

pub(crate) mod connection;
pub(crate) mod output;
pub(crate) mod process;

use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use self::connection::Connection;
use self::output::Output;
use self::process::Process;
use super::caller::Calls;
use super::held::Unread;
use crate::error::{LastWords, WorkerExit};
use crate::ids::Generation;
use crate::worker::session::Session;

/// What the client knows about the worker of a rank.
pub(crate) struct WorkerRow {
    generation: Generation,
    pub(crate) session: Session,
    pub(crate) process: Process,
    pub(crate) connection: Connection,
    pub(crate) output: Output,
    pub(crate) requests: Requests,
    /// The calls that the worker makes and helps with; `None` before its first call.
    calls: Option<Box<Calls>>,
    /// Wakes whoever waits for a change of the workers of the rank.
    pub(super) changed: Arc<Notify>,
}

/// What the agent of a worker was asked to do with it, as far as that is not done yet.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The last run that the agent was asked to recall, until the agent has answered.
    recall: Option<u64>,
    /// Why the worker is to be killed, if a kill was requested.
    kill: Option<WorkerExit>,
    /// Those who wait for the stacks of the worker.
    stacks: Vec<oneshot::Sender<String>>,
}

/// The end of a worker.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: WorkerExit,
    /// Whether the worker ended without a request to kill it.
    pub(crate) by_itself: bool,
}

impl WorkerRow {
    /// The row of a worker that is about to be started.
    pub(crate) fn new(generation: Generation, max_frame_bytes: usize) -> Self {
        Self {
            generation,
            session: Session::new(max_frame_bytes),
            process: Process::default(),
            connection: Connection::default(),
            output: Output::default(),
            requests: Requests::default(),
            calls: None,
            changed: Arc::default(),
        }
    }

    /// The row of a rank that joins again: an earlier worker of the rank has left, and had written
    /// this much output in this generation.
    pub(crate) fn rejoined(generation: Generation, written: [u64; 2], max_frame_bytes: usize) -> Self {
        let mut row = Self::new(generation, max_frame_bytes);
        row.process.on_machine_lost(WorkerExit::Left);
        row.output = Output::of_earlier(written);
        row
    }

    /// The row of the worker that is started in place of this one. Within a generation, a worker
    /// on the same machine continues the same files.
    pub(crate) fn replaced(&self, generation: Generation, max_frame_bytes: usize) -> Self {
        let same_machine = !self.process.exit().is_some_and(WorkerExit::is_node_loss);
        let output = match self.generation == generation {
            true => self.output.successor(same_machine),
            false => Output::default(),
        };
        let (process, connection) = (self.process.successor(same_machine), self.connection.successor());
        let changed = Arc::clone(&self.changed);
        changed.notify_waiters();
        Self { process, connection, output, changed, ..Self::new(generation, max_frame_bytes) }
    }

    /// The generation of the world to which the worker belongs.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether the worker exists, as far as is known, and this is the latest connection to it.
    pub(crate) fn is_on(&self, connection: u64) -> bool {
        self.connection.is_latest(connection) && !self.process.has_ended()
    }

    /// Whether the worker may have written output that has not arrived.
    pub(crate) fn may_have_output(&self) -> bool {
        self.process.pid().is_some() || self.process.has_ended() && !self.output.has_ended()
    }

    /// Whether everything that must arrive before this output has been emitted: the output itself,
    /// or the certainty that it does not come.
    pub(crate) fn has_emitted(&self, unread: &Unread) -> bool {
        self.output.has_emitted(unread.ends) || self.generation != unread.generation
    }

    /// The calls that the worker makes and helps with, if it has made one.
    pub(crate) fn calls(&self) -> Option<&Calls> {
        self.calls.as_deref()
    }

    /// The calls that the worker makes and helps with, if it has made one.
    pub(crate) fn calls_mut(&mut self) -> Option<&mut Calls> {
        self.calls.as_deref_mut()
    }

    /// Whether the worker makes calls and has no connection for them after this one, which has
    /// ended; 0 stands for no connection.
    pub(crate) fn calls_lack(&self, connection: u64) -> bool {
        self.calls().is_some_and(|calls| calls.lacks(connection))
    }

    /// The process has made its first call, and listens on this socket for a connection for its
    /// calls. Returns whether that was not known yet.
    pub(crate) fn on_calls(&mut self, pid: u32, path: String) -> bool {
        let is_new = self.process.runs_as(pid) && self.calls.is_none();
        if is_new {
            self.calls = Some(Box::new(Calls::new(pid, path)));
        }
        is_new
    }

    /// A process has ended. `None` if that was known already, or if it is another process.
    pub(crate) fn on_exited(&mut self, pid: u32, exit: &WorkerExit, words: LastWords) -> Option<Ended> {
        if !self.process.is_ended_by(pid) {
            return None;
        }
        let ended = self.requests.on_exited(exit);
        self.process.on_ended(pid, ended.exit.clone(), words);
        self.connection.close();
        self.calls = None;
        self.changed.notify_waiters();
        Some(ended)
    }

    /// All output of an exited worker has arrived. Returns `false` if this worker has not exited:
    /// the end of the output of an earlier worker says nothing about the output of this one.
    pub(crate) fn on_output_end(&mut self) -> bool {
        let exited = self.process.has_ended();
        if exited {
            self.output.end();
            self.changed.notify_waiters();
        }
        exited
    }

    /// The worker's machine is lost: messages that still arrive from it are ignored.
    pub(crate) fn leave(&mut self, exit: WorkerExit) {
        self.process.on_machine_lost(exit);
        self.output.end();
        self.connection.close();
        self.calls = None;
        self.connection.stop_reader();
        self.requests.stacks.clear();
        self.changed.notify_waiters();
    }
}

impl Requests {
    /// The agent is asked to recall the runs up to this one.
    pub(crate) fn recall(&mut self, upto: u64) {
        self.recall = Some(upto);
    }

    /// Whether the agent has not answered the last request to recall runs.
    pub(crate) fn is_recalling(&self) -> bool {
        self.recall.is_some()
    }

    /// The agent has recalled the runs up to this one.
    pub(crate) fn on_recalled(&mut self, upto: u64) {
        self.recall.take_if(|asked| *asked <= upto);
    }

    /// The agent is asked to kill the worker. The first reason counts.
    pub(crate) fn kill(&mut self, reason: WorkerExit) {
        self.kill.get_or_insert(reason);
    }

    /// The agent is asked for the stacks of the worker.
    pub(super) fn ask_for_stacks(&mut self, asked: oneshot::Sender<String>) {
        self.stacks.push(asked);
    }

    /// The stacks of the worker have arrived.
    pub(super) fn on_stacks(&mut self, text: &str) {
        // Who does not wait any more gets nothing.
        self.stacks.drain(..).for_each(|asked| drop(asked.send(text.to_owned())));
    }

    /// The worker has ended like this. A requested kill is reported with the reason of the request.
    fn on_exited(&mut self, exit: &WorkerExit) -> Ended {
        self.recall = None;
        self.stacks.clear();
        match self.kill.take().filter(|_| *exit == WorkerExit::Signal(9)) {
            Some(reason) => Ended { exit: reason, by_itself: false },
            None => Ended { exit: exit.clone(), by_itself: true },
        }
    }
}
