//! The way back: what workers answer, how they end, what they write.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;

use super::held::Unread;
use super::metrics::Metrics;
use super::outbox::Told;
use super::shared::{After, Entry, Shared, State};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::{Output, OutputStream, PoolEvent};
use crate::ids::{Generation, NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Value};
use crate::worker::codec::Frame;
use crate::worker::link::Sender;
use crate::worker::message::{FromWorker, Signal, TaskEnd, ToWorker};
use crate::worker::session::Outgoing;

impl Shared {
    /// Handles what a worker sent over a connection. What comes over one that is over is not heard.
    pub(crate) fn on_frames(
        self: &Arc<Self>,
        rank: Rank,
        generation: Generation,
        connection: u64,
        frames: &mut Vec<Frame>,
    ) -> Result<()> {
        self.take_in(frames, FromWorker::decode, |state, now, message, after| {
            let slot = state.slot(rank, generation).filter(|slot| slot.connection == connection);
            let Some(slot) = slot else { return Ok(ControlFlow::Break(())) };
            if let FromWorker::Result { end: TaskEnd { sequence, .. }, .. }
            | FromWorker::Failure { end: TaskEnd { sequence, .. }, .. }
            | FromWorker::Report { sequence, .. } = &message
                && !slot.session.expects(*sequence)
            {
                // Taken for true it would hide all results before it.
                return Err(Error::new(
                    ErrorKind::Protocol,
                    format!("rank {rank} sent result {sequence} after result {}", slot.session.received()),
                ));
            }
            match message {
                FromWorker::Result { end, value } => {
                    let outcome = Ok(Value::new(value.clone(), rank));
                    self.on_end(state, now, rank, end, value.len(), outcome);
                }
                FromWorker::Failure { end, failure } if failure.kind == "recalled" => {
                    let is_recalled = slot.session.is_recalled(end.run);
                    // Otherwise its agent has said so already.
                    if let Some(id) = slot.session.on_result(end.sequence, end.run, 0).task {
                        state.on_not_begun(now, rank, &[id]);
                    }
                    if !is_recalled {
                        tracing::error!(
                            pool = %self.pool, rank = rank.0, run = end.run,
                            "the worker refuses a task that was not recalled and is ended: its payload has written to its account"
                        );
                        state.signal(rank, Signal::Kill, after);
                    }
                }
                FromWorker::Failure { end, failure } => {
                    let node = state.scheduler.node_of(rank);
                    let outcome = Err(super::world::task_error(&failure, node, rank));
                    self.on_end(state, now, rank, end, 0, outcome);
                }
                FromWorker::Item { run, index, value } => {
                    if let Some(id) = slot.session.task(run) {
                        self.on_item(state, now, (rank, id), index, value)?;
                    }
                }
                FromWorker::Report { sequence, run, value } => {
                    self.on_report(state, now, (rank, run), sequence, value, after);
                }
                FromWorker::Hello(_) => {}
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Decodes frames, and takes in one message after another, all within one lock, until `take` breaks off.
    ///
    /// # Errors
    ///
    /// What `decode`, before any of them is taken in, or `take` fails with.
    pub(super) fn take_in<M>(
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

    /// A worker has another connection, and runs up to `received` have arrived there: it gets the others, and is told again what was cancelled. The connection's number.
    ///
    /// # Errors
    ///
    /// The worker has ended, or something cannot be sent.
    pub(crate) fn on_worker_connected(
        &self,
        rank: Rank,
        generation: Generation,
        link: &Sender,
        received: u64,
    ) -> Result<u64> {
        let connected = self.act(|state, now| {
            let State { workers, tasks, bytes, .. } = state;
            let slot = workers.get_mut(rank.0 as usize).filter(|slot| slot.generation == generation);
            let ended = || Error::new(ErrorKind::Io, format!("the worker of rank {rank} has ended"));
            let slot = slot.filter(|slot| slot.exited.is_none()).ok_or_else(ended)?;
            let mut pushed = Ok(());
            let send = |(head, body): Outgoing| {
                bytes.0 += body.len();
                pushed = std::mem::replace(&mut pushed, Ok(())).and_then(|()| link.push(&head, body));
            };
            let unsent = slot.session.on_connected(received, |task| tasks.get(&task).map(Entry::call), send);
            slot.link = Some(link.clone());
            slot.connection += 1;
            let connection = slot.connection;
            slot.reading = Some(connection);
            for (task, error) in unsent {
                state.scheduler.on_returned(now, rank, task, Err(error), 0);
            }
            pushed?;
            // What was granted since the hello went out is lost with the old connection.
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

    /// A worker process is gone: what it has answered before that is heard first, so that what it had done is not taken for undone.
    pub(crate) async fn on_leaving(&self, rank: Rank, generation: Generation, pid: u32) {
        let known = self.act(|state, _| {
            let known = state.slot(rank, generation).is_some_and(|slot| slot.pid == Some(pid) && slot.exited.is_none());
            if known {
                state.scheduler.on_leaving(rank);
            }
            known
        });
        if known {
            self.heard(rank.0..rank.0 + 1).await;
        }
    }

    /// A worker process is gone. An agent may tell it twice.
    ///
    /// `begun` is the last of the runs that it has begun: what it was sent after that has surely not begun, and goes elsewhere without a word.
    pub(crate) fn on_exited(&self, rank: Rank, generation: Generation, pid: u32, exit: &WorkerExit, begun: u64) {
        let known = self.act(|state, now| {
            let slot = state.slot(rank, generation)?;
            // Before the process of this slot is known, it may be the one before it that is told again.
            let other = slot.pid.map_or(slot.before == Some(pid), |known| known != pid);
            if slot.exited.is_some() || other {
                return None;
            }
            // A kill that was asked for is told by its reason.
            let killed = slot.killed.take().filter(|_| *exit == WorkerExit::Signal(9));
            // A kill was asked for because of the first task of its worker, whatever began after that.
            let by_itself = killed.is_none();
            let told = killed.unwrap_or_else(|| exit.clone());
            slot.exited = Some(told.clone());
            slot.before = Some(pid);
            slot.pid = None;
            if let Some(link) = slot.link.take() {
                link.close();
            }
            // What its reader has in hand already is of a connection that is over, and its task is lost or elsewhere.
            slot.connection += 1;
            slot.reading = None;
            slot.recall = None;
            slot.calls = None;
            let not_begun = slot.session.take_back(begun, u64::MAX);
            let last = slot.session.task(begun).filter(|_| by_itself);
            state.scheduler.on_leaving(rank);
            state.on_not_begun(now, rank, &not_begun);
            state.scheduler.on_lost(now, rank, &told, last);
            Some(told)
        });
        if let Some(exit) = known {
            self.ended.notify_waiters();
            self.emit(PoolEvent::WorkerExited { rank, exit });
        }
    }

    /// A worker begins none of the runs up to `upto` that come after `begun`.
    pub(crate) fn on_recalled(&self, rank: Rank, generation: Generation, pid: u32, upto: u64, begun: u64) {
        self.act(|state, now| {
            let Some(slot) = state.slot(rank, generation).filter(|slot| slot.pid == Some(pid)) else { return };
            slot.recall.take_if(|asked| *asked <= upto);
            // The first one counts as started, and its deadline runs: a worker that is connected refuses it itself.
            // A worker that is stopped never does. If its tasks were taken back and sent again each time, none would
            // ever reach its deadline, and nobody would end the worker.
            let first = slot.reading.and_then(|_| slot.session.sent().next()).map_or(0, |(run, _)| run);
            let not_begun = slot.session.take_back(begun.max(first), upto);
            state.on_not_begun(now, rank, &not_begun);
        });
        self.ended.notify_waiters();
    }

    /// All that an exited worker wrote has arrived.
    pub(crate) fn on_output_end(&self, rank: Rank, generation: Generation) {
        self.act(|state, _| {
            let Some(slot) = state.slot(rank, generation) else { return };
            // The end of a worker that this one has replaced says nothing of this one.
            slot.output_ended = slot.exited.is_some();
            if slot.output_ended {
                state.held.release(rank);
            }
        });
        self.ended.notify_waiters();
    }

    /// A worker's payload says that it goes on.
    pub(crate) fn on_progress(&self, rank: Rank, generation: Generation) {
        let mut state = self.lock();
        if state.slot(rank, generation).is_some() {
            state.scheduler.on_progress(tokio::time::Instant::now().into_std(), rank);
        }
    }

    /// A worker's stacks, which were asked for.
    pub(crate) fn on_stacks(&self, rank: Rank, generation: Generation, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.act(|state, now| {
            if state.slot(rank, generation).is_some() {
                state.scheduler.on_stacks(now, rank, text);
            }
        });
    }

    /// Bytes that a worker wrote.
    pub(crate) fn on_output(
        &self,
        rank: Rank,
        generation: Generation,
        stream: OutputStream,
        offset: u64,
        bytes: bytes::Bytes,
    ) {
        let (node, parts, earlier) = {
            let mut state = self.lock();
            let running = state.scheduler.sent(rank).next();
            if state.slot(rank, generation).is_some() {
                state.scheduler.on_progress(tokio::time::Instant::now().into_std(), rank);
            }
            // Of a node that has left too.
            let node = NodeIndex(rank.0 / state.workers_per_node.max(1));
            let (parts, earlier) = match state.slot(rank, generation) {
                Some(slot) => {
                    slot.received[stream as usize] = offset + bytes.len() as u64;
                    let parts = slot.marks[stream as usize].split(offset, bytes.len(), running);
                    (parts, slot.earlier[stream as usize])
                }
                None => (vec![(bytes.len(), None)], 0),
            };
            (node, parts, earlier)
        };
        let mut at = 0;
        for (length, task) in parts {
            let part = bytes.slice(at..at + length);
            let mut output = Output::new(node, rank, stream, generation, earlier + offset + at as u64, part);
            output.task = task;
            tracing::info!(
                target: "skyward::output",
                pool = %self.pool, node = node.0, rank = rank.0, task = task.map(|task| task.0),
                stream = ?stream, "{}", String::from_utf8_lossy(&output.bytes).trim_end()
            );
            self.emit(PoolEvent::Output(output));
            at += length;
        }
        self.on_told(rank, generation, stream, offset + bytes.len() as u64);
    }

    /// An item of a stream. The worker counts them, and sends no more than there is room for.
    fn on_item(
        &self,
        state: &mut State,
        now: Instant,
        (rank, id): (Rank, TaskId),
        index: u64,
        value: bytes::Bytes,
    ) -> Result<()> {
        let Some(entry) = state.tasks.get_mut(&id) else { return Ok(()) };
        let Some(items) = entry.items.as_ref().filter(|_| index >= entry.next_item) else { return Ok(()) };
        let length = value.len();
        // A caller that is gone cancels.
        let fits = |value| !matches!(items.try_send(Value::new(value, rank)), Err(TrySendError::Full(_)));
        if index > entry.next_item || !fits(value) {
            let what = format!("rank {rank} sent item {index} of task {id} where item {} was due", entry.next_item);
            return Err(Error::new(ErrorKind::Protocol, what));
        }
        entry.next_item += 1;
        state.bytes.1 += length;
        state.scheduler.on_progress(now, rank);
        Ok(())
    }

    fn on_end(&self, state: &mut State, now: Instant, rank: Rank, end: TaskEnd, bytes: usize, outcome: Outcome) {
        let Some(slot) = state.workers.get_mut(rank.0 as usize) else { return };
        let answer = slot.session.on_result(end.sequence, end.run, bytes);
        if let (Some(sequence), Some(link)) = (answer.acknowledge, &slot.link)
            && let Ok((head, body)) = (ToWorker::Ack { sequence }).encode()
            && link.push(&head, body).is_ok()
        {
            link.flush();
        }
        // A worker of a world that has ended may still answer: its task was lost with the world.
        let Some(id) = answer.task.filter(|id| state.scheduler.has(rank, *id)) else { return };
        let [stdout, stderr] = &mut slot.marks;
        let wrote = stdout.end(id, end.stdout) | stderr.end(id, end.stderr);
        let unread = Unread { rank, generation: slot.generation, ends: [end.stdout, end.stderr] };
        let unread = Some(unread).filter(|unread| wrote && !slot.has_told(unread));
        if let Some(entry) = state.tasks.get_mut(&id) {
            entry.ran = Some(Duration::from_micros(end.micros));
            entry.unread = unread;
        }
        if Metrics::RECORDED {
            state.told.push(Told::Answered { micros: end.micros, bytes });
        }
        state.conclude_calls(id);
        if outcome.is_ok() && self.events.has_readers() {
            let finished = PoolEvent::TaskFinished { task: id, rank, micros: end.micros };
            state.tell_after(now, unread, Told::Event(finished));
        }
        state.scheduler.on_returned(now, rank, id, outcome, end.micros);
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
pub(super) mod tests;
