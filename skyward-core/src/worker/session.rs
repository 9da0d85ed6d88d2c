//! The conversation of a client and a worker in the worker's life, over any number of connections.
//! No I/O.
//!
//! All numbers are absolute and only grow: runs and results are numbered from 1, the items of a run
//! from 0. So whatever was lost with a connection, both sides report how far they are and continue
//! from there. Repeated messages change nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::message::{GangTry, PROTOCOL_VERSION, SourceMap, ToWorker, WorkerHello};
use super::payload_numbers::PayloadNumbers;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Generation, Rank, TaskId};
use crate::payload::{Source, Task};

/// What the client knows of a worker process.
#[derive(Debug)]
pub struct Session {
    payloads: PayloadNumbers,
    /// Runs without an answer, in the order of their numbers.
    sent: VecDeque<Sent>,
    /// The number of the last run that was sent.
    last: u64,
    /// Runs up to this number may have been recalled.
    recalled: u64,
    /// Results up to this number were passed on.
    received: u64,
    /// Results up to this number were acknowledged.
    acknowledged: u64,
    unacknowledged_bytes: usize,
    /// The run whose reports are not acknowledged, because their reader is behind.
    withheld: Option<u64>,
    max_frame_bytes: usize,
}

/// A run without an answer.
#[derive(Debug, Clone, Copy)]
struct Sent {
    run: u64,
    task: TaskId,
}

/// A task for a worker to run.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The payload and its arguments.
    pub task: &'a Task,
    /// How many items of a stream may be sent; 0 for a task without a stream.
    pub granted: u64,
    /// The gang's attempt that it belongs to, where all ranks run it at the same time.
    pub gang: Option<GangTry>,
    /// How many callers are above it; 0 for a task that Rust has submitted.
    pub depth: u32,
}

/// What a result means for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The task that it answers; none for a repeated result, or for a run that was taken back.
    pub task: Option<TaskId>,
    /// An acknowledgement to send now, because the node keeps much.
    pub acknowledge: Option<u64>,
}

/// One frame to send.
pub type Outgoing = (Vec<u8>, Bytes);

impl Session {
    /// Creates the session of a new worker process.
    pub fn new(max_frame_bytes: usize) -> Self {
        let (payloads, sent) = (PayloadNumbers::default(), VecDeque::new());
        Self {
            payloads,
            sent,
            last: 0,
            recalled: 0,
            received: 0,
            acknowledged: 0,
            unacknowledged_bytes: 0,
            withheld: None,
            max_frame_bytes,
        }
    }

    /// Notes a task under the next number, and produces the frames that make the worker run it: its
    /// payload, where the worker does not have it, and the call. Without a connection no frames can
    /// be sent; [`on_connected`](Self::on_connected) produces them later.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Payload`] when source or arguments are larger than a frame. Then the task is
    /// not noted.
    pub fn run(&mut self, id: TaskId, call: Call<'_>, send: Option<impl FnMut(Outgoing)>) -> Result<u64> {
        self.check_size("arguments", call.task.args.len())?;
        let run = self.last + 1;
        match send {
            Some(send) => self.send(run, call, send)?,
            None => self.check_size("source", call.task.source.size())?,
        }
        self.last = run;
        self.sent.push_back(Sent { run, task: id });
        Ok(run)
    }

    /// Notes a new connection over which runs up to `received` have arrived, and produces the
    /// frames of the others. `call` returns what to run for a task, or none if nobody waits for it
    /// any more. Such a task is removed if the worker never got it, and so is a task that cannot be
    /// sent. These tasks are returned with their errors.
    pub fn on_connected<'a>(
        &mut self,
        received: u64,
        mut call: impl FnMut(TaskId) -> Option<Call<'a>>,
        mut send: impl FnMut(Outgoing),
    ) -> Vec<(TaskId, Error)> {
        self.payloads.forget_after(received);
        let mut unsent = Vec::new();
        let first = self.sent.partition_point(|sent| sent.run <= received);
        for sent in self.sent.split_off(first) {
            let cancelled = || Error::new(ErrorKind::Cancelled, "the task was cancelled before it began");
            match call(sent.task).ok_or_else(cancelled).and_then(|call| self.send(sent.run, call, &mut send)) {
                Ok(()) => self.sent.push_back(sent),
                Err(error) => unsent.push((sent.task, error)),
            }
        }
        unsent
    }

    fn send(&mut self, run: u64, call: Call<'_>, mut send: impl FnMut(Outgoing)) -> Result<()> {
        let source = &call.task.source;
        let payload = match self.payloads.get(source.digest(), run) {
            Some(payload) => payload,
            None => {
                let body = source_body(source)?;
                self.check_size("source", body.len())?;
                let payload = self.payloads.take(source.digest(), run);
                send(ToWorker::Load { payload, digest: source.digest(), body }.encode()?);
                payload
            }
        };
        let acknowledged = self.acknowledge();
        let (trace, args) = (call.task.trace.as_ref(), call.task.args.clone());
        let Call { granted, gang, depth, .. } = call;
        send(ToWorker::Run { run, payload, acknowledged, granted, trace, gang, depth, args }.encode()?);
        Ok(())
    }

    /// Notes the result of a run.
    pub fn on_result(&mut self, sequence: u64, run: u64, bytes: usize) -> Answer {
        if sequence <= self.received {
            return Answer { task: None, acknowledge: None };
        }
        self.received = sequence;
        self.unacknowledged_bytes += bytes;
        let due = self.unacknowledged_bytes >= ACK_BYTES || self.received - self.acknowledged >= ACK_RESULTS;
        self.release(run);
        let acknowledge = due.then(|| self.acknowledge());
        let task = self.place(run).and_then(|place| self.sent.remove(place)).map(|sent| sent.task);
        Answer { task, acknowledge }
    }

    /// Notes a report. Returns whether it is new.
    pub fn on_report(&mut self, sequence: u64, bytes: usize) -> bool {
        let is_new = sequence > self.received;
        if is_new {
            self.received = sequence;
            self.unacknowledged_bytes += bytes;
        }
        is_new
    }

    /// Whether reports must be acknowledged now, so that the payload need not wait before it
    /// reports more.
    pub fn is_report_due(&self) -> bool {
        let many = self.received - self.acknowledged >= ACK_REPORTS;
        (many || self.unacknowledged_bytes >= ACK_REPORTED) && self.withheld.is_none()
    }

    /// Acknowledges nothing until [`acknowledge_all`](Self::acknowledge_all) or until this run is
    /// over, so that its payload waits before it reports more.
    pub fn withhold(&mut self, run: u64) {
        self.withheld = Some(run);
    }

    /// Ends [`withhold`](Self::withhold) for this run, because nobody reads its reports any more.
    pub fn release(&mut self, run: u64) {
        self.withheld.take_if(|withheld| *withheld == run);
    }

    /// Acknowledges what may be acknowledged, and returns the number to send.
    fn acknowledge(&mut self) -> u64 {
        if self.withheld.is_some() { self.acknowledged } else { self.acknowledge_all() }
    }

    /// Whether a result or a report can have this number: the worker counts them, and sends them in
    /// order.
    pub fn expects(&self, sequence: u64) -> bool {
        sequence <= self.received.saturating_add(1)
    }

    /// Acknowledges everything received, and returns the number to send.
    pub fn acknowledge_all(&mut self) -> u64 {
        self.acknowledged = self.received;
        self.unacknowledged_bytes = 0;
        self.withheld = None;
        self.acknowledged
    }

    /// Results up to this number were passed on.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The number of the last run that was sent; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Notes that all runs so far are recalled, and returns the number of the last one.
    pub fn recall(&mut self) -> u64 {
        self.recalled = self.last;
        self.recalled
    }

    /// Whether a worker can report this run as recalled.
    pub fn is_recalled(&self, run: u64) -> bool {
        run <= self.recalled
    }

    /// The runs without an answer, in the order in which the worker runs them: each number with its
    /// task.
    pub fn sent(&self) -> impl Iterator<Item = (u64, TaskId)> + '_ {
        self.sent.iter().map(|sent| (sent.run, sent.task))
    }

    /// The task of a run without an answer.
    pub fn task(&self, run: u64) -> Option<TaskId> {
        self.place(run).map(|place| self.sent[place].task)
    }

    /// The run of a task without an answer.
    pub fn run_of(&self, task: TaskId) -> Option<u64> {
        self.sent.iter().find(|sent| sent.task == task).map(|sent| sent.run)
    }

    /// Removes the tasks of runs above `begun` and up to `upto`, which the worker has not begun and
    /// never will.
    pub fn take_back(&mut self, begun: u64, upto: u64) -> Vec<TaskId> {
        let first = self.sent.partition_point(|sent| sent.run <= begun);
        let end = self.sent.partition_point(|sent| sent.run <= upto);
        self.sent.drain(first..end.max(first)).map(|sent| sent.task).collect()
    }

    fn place(&self, run: u64) -> Option<usize> {
        // Nearly always the first one.
        match self.sent.front() {
            Some(first) if first.run == run => Some(0),
            _ => self.sent.binary_search_by_key(&run, |sent| sent.run).ok(),
        }
    }

    fn check_size(&self, what: &str, length: usize) -> Result<()> {
        if length <= self.max_frame_bytes {
            return Ok(());
        }
        Err(too_large(what, length, self.max_frame_bytes))
    }
}

/// Checks that a hello comes from the expected worker.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] when its version, process, generation or rank differs.
pub fn check_hello(hello: &WorkerHello, pid: u32, generation: Generation, rank: Rank) -> Result<()> {
    let wrong = |what: &str, received: u64, expected: u64| {
        Error::new(
            ErrorKind::Protocol,
            format!("another worker answered instead of that of rank {rank}: its {what} is {received}, not {expected}"),
        )
    };
    if hello.version != PROTOCOL_VERSION {
        return Err(wrong("protocol version", hello.version.into(), PROTOCOL_VERSION.into())
            .with_hint("the worker package on the node is of another version than this client"));
    }
    if hello.generation != generation.0 {
        return Err(wrong("generation", hello.generation, generation.0));
    }
    if hello.rank != rank.0 {
        return Err(wrong("rank", hello.rank.into(), rank.0.into()));
    }
    if hello.pid != pid {
        return Err(wrong("process", hello.pid.into(), pid.into())
            .with_hint("a plugin's launcher must replace itself with the worker (`exec`), not start it as a child"));
    }
    Ok(())
}

/// The error of a payload that is too large for a frame.
pub(crate) fn too_large(what: &str, length: usize, max_frame_bytes: usize) -> Error {
    Error::new(
        ErrorKind::Payload,
        format!("the payload's {what} take {length} bytes, but a frame holds at most {max_frame_bytes}"),
    )
    .with_hint(
        "raise `Limits::max_frame_bytes`, or let the payload read large data from a file that the image includes",
    )
}

fn source_body(source: &Arc<Source>) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(source.size() + 256);
    crate::payload::value::encode_into(&mut bytes, &SourceMap::of(source))
        .map_err(|error| Error::new(ErrorKind::Payload, "the payload's source cannot be encoded").with_source(error))?;
    Ok(bytes.into())
}

/// How much a worker may keep before a separate acknowledgement, in addition to those that each
/// call carries.
const ACK_BYTES: usize = 16 << 20;
const ACK_RESULTS: u64 = 256;
/// The same while a payload reports: less than what a worker keeps before the payload has to wait.
const ACK_REPORTS: u64 = 64;
const ACK_REPORTED: usize = 4 << 20;

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
