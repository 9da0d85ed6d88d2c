//! The way back: the answers of workers, their ends, and their output.

use std::mem::take;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;

use super::after::After;
use super::effect::Effect;
use super::held::Unread;
use super::reports::Reported;
use super::shared::Shared;
use super::state::State;
use super::worker::output::Parts;
use super::worker::{Ended, WorkerRow};
use crate::error::{Error, ErrorKind, LastWords, Result, WorkerExit};
use crate::event::{OutputChunk, OutputStream, PoolEvent};
use crate::ids::{Generation, Rank, TaskId};
use crate::payload::{Outcome, Value};
use crate::pool::foreign::foreign;
use crate::pool::metrics::Metrics;
use crate::worker::codec::Frame;
use crate::worker::link::Sender;
use crate::worker::message::{FromWorker, Signal, TaskEnd, ToWorker, Warning};
use crate::worker::session::Outgoing;

impl Shared {
    /// Handles the frames that a worker sent over a connection. Frames of an earlier connection are
    /// ignored.
    pub(crate) fn on_frames(
        self: &Arc<Self>,
        rank: Rank,
        generation: Generation,
        connection: u64,
        frames: &mut Vec<Frame>,
    ) -> Result<()> {
        self.take_in(frames, FromWorker::decode, |state, now, message, after| {
            let row = state.row(rank, generation).filter(|row| row.connection.is_latest(connection));
            let Some(row) = row else { return Ok(ControlFlow::Break(())) };
            if let FromWorker::Result { end: TaskEnd { sequence, .. }, .. }
            | FromWorker::Failure { end: TaskEnd { sequence, .. }, .. }
            | FromWorker::Report { sequence, .. } = &message
                && !row.session.expects(*sequence)
            {
                // If this number were accepted, it would hide all results before it.
                return Err(Error::new(
                    ErrorKind::Protocol,
                    format!("rank {rank} sent result {sequence} after result {}", row.session.received()),
                ));
            }
            match message {
                FromWorker::Result { mut end, value } => {
                    self.on_warnings(state, rank, end.run, take(&mut end.warnings));
                    let outcome = Ok(Value::new(value.clone(), rank));
                    self.on_end(state, now, rank, end, value.len(), outcome);
                }
                FromWorker::Failure { end, failure } if failure.kind == "recalled" => {
                    let is_recalled = row.session.is_recalled(end.run);
                    // Otherwise the worker's agent has reported this already.
                    if let Some(id) = row.session.on_result(end.sequence, end.run, 0).task {
                        state.on_not_begun(now, rank, &[id]);
                    }
                    if !is_recalled {
                        state.effects.push(Effect::Overwritten { rank, run: end.run });
                        state.signal(rank, Signal::Kill, after);
                    }
                }
                FromWorker::Failure { mut end, failure } => {
                    let task = row.session.task(end.run);
                    self.on_warnings(state, rank, end.run, take(&mut end.warnings));
                    let node = state.scheduler.node_of(rank);
                    let source = task.and_then(|task| state.tasks.get(task)).map(|entry| &*entry.task.source);
                    let error = super::failure::task_error(&failure, source, &self.requirements, node, rank);
                    self.on_end(state, now, rank, end, 0, Err(error));
                }
                FromWorker::Item { run, index, value } => {
                    if let Some(id) = row.session.task(run) {
                        self.on_item(state, now, rank, id, index, value)?;
                    }
                }
                FromWorker::Report { sequence, run, value } => {
                    self.on_report(state, now, rank, Reported { run, sequence, value }, after);
                }
                FromWorker::Import { run, begins } => {
                    if let Some(id) = row.session.task(run) {
                        state.scheduler.on_import(now, rank, id, begins);
                    }
                }
                FromWorker::Hello(_) => {}
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Decodes frames and handles one message after another, all under one lock, until `take`
    /// breaks off.
    ///
    /// # Errors
    ///
    /// The error of `decode`, before any message is handled, or the error of `take`.
    pub(crate) fn take_in<M>(
        &self,
        frames: &mut Vec<Frame>,
        decode: impl FnMut(Frame) -> Result<M>,
        mut take: impl FnMut(&mut State, Instant, M, &mut After) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let messages = frames.drain(..).map(decode).collect::<Result<Vec<_>>>()?;
        let mut after = After::default();
        let taken = self.act(|state, now| {
            for message in messages {
                if take(state, now, message, &mut after)?.is_break() {
                    break;
                }
            }
            Ok(())
        });
        after.flush.iter().for_each(Sender::flush);
        taken
    }

    /// A worker has another connection, over which it has received the runs up to `received`. The
    /// later runs and the cancellations are sent again. Returns the number of the connection.
    ///
    /// # Errors
    ///
    /// The worker has ended, or a message cannot be sent.
    pub(crate) fn on_worker_connected(
        &self,
        rank: Rank,
        generation: Generation,
        link: &Sender,
        received: u64,
    ) -> Result<u64> {
        let connected = self.act(|state, now| {
            // Before the runs, which may call as many workers.
            let (head, body) = self.size(state).encode()?;
            link.push(&head, body)?;
            let State { workers, tasks, effects, scheduler, .. } = state;
            let row = workers.get_mut(rank).filter(|row| row.generation() == generation);
            let ended = || Error::new(ErrorKind::Io, format!("the worker of rank {rank} has ended"));
            let row = row.filter(|row| !row.process.has_ended()).ok_or_else(ended)?;
            let mut pushed = Ok(());
            let send = |(head, body): Outgoing| {
                effects.sent(body.len());
                pushed = std::mem::replace(&mut pushed, Ok(())).and_then(|()| link.push(&head, body));
            };
            let call = |task| tasks.get(task).map(|entry| entry.call(task, scheduler));
            let unsent = row.session.on_connected(received, call, send);
            let connection = row.connection.open(link.clone());
            for (task, error) in unsent {
                state.scheduler.on_returned(now, rank, task, Err(error), 0);
            }
            pushed?;
            // Credit that was granted after the hello was sent is lost with the old connection.
            for awaited in state.streams(rank) {
                let (head, body) = ToWorker::Credit(awaited).encode()?;
                link.push(&head, body)?;
            }
            state.warn_over(rank, link)?;
            state.scheduler.on_connected(now, rank);
            Ok(connection)
        });
        link.flush();
        connected
    }

    /// A worker process is gone. The answers that it sent before are handled first, so that
    /// finished work does not count as lost.
    pub(crate) async fn on_ended(&self, rank: Rank, generation: Generation, pid: u32) {
        let known = self.act(|state, _| {
            let known = state.row(rank, generation).is_some_and(|row| row.process.runs_as(pid));
            if known {
                state.scheduler.on_ended(rank);
            }
            known
        });
        if known {
            self.heard([rank]).await;
        }
    }

    /// A worker process is gone. An agent may report that twice.
    ///
    /// `begun` is the last run that the worker has begun. Runs that were sent after it have
    /// certainly not begun, and are silently given to other workers.
    pub(crate) fn on_exited(
        &self,
        rank: Rank,
        generation: Generation,
        pid: u32,
        exit: &WorkerExit,
        words: LastWords,
        begun: u64,
    ) {
        let known = self.act(|state, now| {
            let row = state.row(rank, generation)?;
            let Ended { exit, by_itself } = row.on_exited(pid, exit, words.clone())?;
            let not_begun = row.session.take_back(begun, u64::MAX);
            // A kill is requested because of the first task of the worker, no matter which task
            // began after it.
            let last = row.session.task(begun).filter(|_| by_itself);
            state.scheduler.on_ended(rank);
            state.on_not_begun(now, rank, &not_begun);
            state.scheduler.on_lost(now, rank, &exit, &words, last);
            Some(exit)
        });
        if let Some(exit) = known {
            self.emit(PoolEvent::WorkerExited { rank, exit });
        }
    }

    /// A worker begins none of the runs after `begun` up to `upto`.
    pub(crate) fn on_recalled(&self, rank: Rank, generation: Generation, pid: u32, upto: u64, begun: u64) {
        self.act(|state, now| {
            let Some(row) = state.row(rank, generation).filter(|row| row.process.pid() == Some(pid)) else {
                return;
            };
            row.requests.on_recalled(upto);
            row.changed.notify_waiters();
            // The first run counts as started, and its deadline runs: a connected worker refuses it
            // itself. A worker that is stopped never does that. If its tasks were taken back and
            // sent again each time, no task would ever reach its deadline, and the worker would
            // never be ended.
            let first = row.session.sent().next().filter(|_| row.connection.is_read()).map_or(0, |(run, _)| run);
            let not_begun = row.session.take_back(begun.max(first), upto);
            state.on_not_begun(now, rank, &not_begun);
        });
    }

    /// All output of an exited worker has arrived.
    pub(crate) fn on_output_end(&self, rank: Rank, generation: Generation) {
        self.act(|state, _| {
            if state.row(rank, generation).is_some_and(WorkerRow::on_output_end) {
                state.held.release(rank);
            }
        });
    }

    /// The payload of a worker has made progress.
    pub(crate) fn on_progress(&self, rank: Rank, generation: Generation) {
        let mut state = self.lock();
        if state.row(rank, generation).is_some() {
            state.scheduler.on_progress(tokio::time::Instant::now().into_std(), rank);
        }
    }

    /// The stacks of a worker, which were requested, have arrived.
    pub(crate) fn on_stacks(&self, rank: Rank, generation: Generation, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.act(|state, now| {
            if let Some(row) = state.row(rank, generation) {
                row.requests.on_stacks(&text);
                state.scheduler.on_stacks(now, rank, text);
            }
        });
    }

    /// All output of a worker up to `end` has been emitted.
    pub(crate) fn on_emitted(&self, rank: Rank, generation: Generation, stream: OutputStream, end: u64) {
        self.act(|state, now| {
            let State { held, workers, .. } = state;
            let row = workers.get_mut(rank);
            if let Some(row) = row.filter(|row| row.generation() == generation) {
                row.output.on_emitted(stream, end);
                held.advance(now, rank, |unread| row.has_emitted(unread));
            }
        });
    }

    /// Output of a worker has arrived.
    pub(crate) fn on_output(
        &self,
        rank: Rank,
        generation: Generation,
        stream: OutputStream,
        offset: u64,
        bytes: bytes::Bytes,
    ) {
        let (node, Parts { earlier, lengths }) = {
            let mut state = self.lock();
            let running = state.scheduler.sent(rank).next();
            if state.row(rank, generation).is_some() {
                state.scheduler.on_progress(tokio::time::Instant::now().into_std(), rank);
            }
            // Also known for a node that has left.
            let node = state.scheduler.layout().node(rank);
            let parts = match state.row(rank, generation) {
                Some(row) => row.output.on_arrived(stream, offset, bytes.len(), running),
                None => Parts { earlier: 0, lengths: vec![(bytes.len(), None)] },
            };
            (node, parts)
        };
        let mut at = 0;
        for (length, task) in lengths {
            let part = bytes.slice(at..at + length);
            let mut output = OutputChunk::new(node, rank, stream, generation, earlier + offset + at as u64, part);
            output.task = task;
            tracing::info!(
                target: "skyward::output",
                pool = %self.pool, node = node.0, rank = rank.0, task = task.map(|task| task.0),
                stream = ?stream, "{}", String::from_utf8_lossy(&output.bytes).trim_end()
            );
            self.emit(PoolEvent::Output(output));
            at += length;
        }
        self.on_emitted(rank, generation, stream, offset + bytes.len() as u64);
    }

    /// An item of a stream has arrived. The worker numbers the items, and sends no more than there
    /// is room for.
    fn on_item(
        &self,
        state: &mut State,
        now: Instant,
        rank: Rank,
        id: TaskId,
        index: u64,
        value: bytes::Bytes,
    ) -> Result<()> {
        let Some(entry) = state.tasks.get_mut(id) else { return Ok(()) };
        let Some(items) = entry.items.as_ref().filter(|_| index >= entry.next_item) else { return Ok(()) };
        let length = value.len();
        // A caller that is gone cancels the task.
        let fits = |value| {
            let mut sent = Ok(());
            foreign(|| sent = items.try_send(Value::new(value, rank)));
            !matches!(sent, Err(TrySendError::Full(_)))
        };
        if index > entry.next_item || !fits(value) {
            let what = format!("rank {rank} sent item {index} of task {id} instead of item {}", entry.next_item);
            return Err(Error::new(ErrorKind::Protocol, what));
        }
        entry.next_item += 1;
        state.effects.received(length);
        state.scheduler.on_progress(now, rank);
        Ok(())
    }

    /// A task has ended on a worker, and asked something of a framework that had no effect.
    fn on_warnings(&self, state: &mut State, rank: Rank, run: u64, warnings: Vec<Warning>) {
        if warnings.is_empty() || !self.events.has_readers() {
            return;
        }
        let task = state.workers.get(rank).and_then(|row| row.session.task(run));
        let Some(task) = task.filter(|id| state.scheduler.has(rank, *id)) else { return };
        for Warning { message, hint } in warnings {
            state.effects.event(PoolEvent::TaskWarned { task, rank, message, hint });
        }
    }

    fn on_end(&self, state: &mut State, now: Instant, rank: Rank, end: TaskEnd, bytes: usize, outcome: Outcome) {
        let Some(row) = state.workers.get_mut(rank) else { return };
        let answer = row.session.on_result(end.sequence, end.run, bytes);
        if let (Some(sequence), Some(link)) = (answer.acknowledge, row.connection.link())
            && let Ok((head, body)) = (ToWorker::Ack { sequence }).encode()
            && link.push(&head, body).is_ok()
        {
            link.flush();
        }
        // A worker of a world that has ended may still answer, but its task was lost with the
        // world.
        let Some(id) = answer.task.filter(|id| state.scheduler.has(rank, *id)) else { return };
        let ends = [end.stdout, end.stderr];
        let wrote = row.output.on_task_end(id, ends);
        let unread = Unread { rank, generation: row.generation(), ends };
        let unread = Some(unread).filter(|unread| wrote && !row.has_emitted(unread));
        if let Some(entry) = state.tasks.get_mut(id) {
            entry.ran = Some(Duration::from_micros(end.micros));
            entry.unread = unread;
        }
        if Metrics::RECORDED {
            state.effects.push(Effect::Answered { micros: end.micros, bytes });
        }
        state.conclude_calls(id);
        if outcome.is_ok() && self.events.has_readers() {
            let finished = PoolEvent::TaskFinished { task: id, rank, micros: end.micros };
            state.emit_after(now, unread, Effect::Event(finished));
        }
        state.scheduler.on_returned(now, rank, id, outcome, end.micros);
    }
}

#[cfg(test)]
pub(crate) mod tests;
