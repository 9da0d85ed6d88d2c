//! The way back: what workers answer, how they end, what they write.

use std::time::{Duration, Instant};

use super::shared::{Shared, State};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::{Output, OutputStream, PoolEvent};
use crate::ids::{Generation, NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Value};
use crate::worker::codec::Frame;
use crate::worker::message::{FromWorker, TaskEnd, ToWorker};

impl Shared {
    /// Handles what a worker sent over a connection. What comes over one that is over is not heard.
    pub(crate) fn on_frames(
        &self,
        rank: Rank,
        generation: Generation,
        connection: u64,
        frames: &mut Vec<Frame>,
    ) -> Result<()> {
        let messages = frames.drain(..).map(FromWorker::decode).collect::<Result<Vec<_>>>()?;
        self.act(|state, now| {
            for message in messages {
                let slot = state.slot(rank, generation).filter(|slot| slot.connection == connection);
                let Some(slot) = slot else { return Ok(()) };
                if let FromWorker::Result { end, .. } | FromWorker::Failure { end, .. } = &message
                    && !slot.session.expects(end.sequence)
                {
                    // Taken for true it would hide all results before it.
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        format!("rank {rank} sent result {} after result {}", end.sequence, slot.session.received()),
                    ));
                }
                match message {
                    FromWorker::Result { end, value } => {
                        let outcome = Ok(Value::new(value.clone(), rank));
                        self.on_end(state, now, rank, end, value.len(), outcome);
                    }
                    FromWorker::Failure { end, failure } if failure.kind == "unknown" => {
                        if let Some(slot) = state.slot(rank, generation) {
                            slot.session.on_result(end.sequence, 0);
                        }
                        state.scheduler.on_missing(now, rank, TaskId(end.task));
                    }
                    FromWorker::Failure { end, failure } => {
                        let node = state.scheduler.node_of(rank);
                        let outcome = Err(super::world::task_error(&failure, node, rank));
                        self.on_end(state, now, rank, end, 0, outcome);
                    }
                    FromWorker::Item { task, index, value } => {
                        if let Some(entry) = state.tasks.get_mut(&TaskId(task))
                            && index == entry.next_item
                            && let Some(items) = &entry.items
                        {
                            entry.next_item += 1;
                            self.metrics.received(value.len());
                            state.scheduler.on_progress(now, rank);
                            // The worker sends no more than it has credit for, which is the channel's room; a caller that is gone cancels.
                            let _ = items.try_send(Value::new(value, rank));
                        }
                    }
                    FromWorker::Hello { .. } => {}
                }
            }
            Ok(())
        })
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
    pub(crate) fn on_exited(&self, rank: Rank, generation: Generation, pid: u32, exit: &WorkerExit) {
        let known = self.act(|state, now| {
            let slot = state.slot(rank, generation)?;
            // Before the process of this slot is known, it may be the one before it that is told again.
            let other = slot.pid.map_or(slot.before == Some(pid), |known| known != pid);
            if slot.exited.is_some() || other {
                return None;
            }
            // A kill that was asked for is told by its reason.
            let told = slot.killed.take().filter(|_| *exit == WorkerExit::Signal(9)).unwrap_or_else(|| exit.clone());
            slot.exited = Some(told.clone());
            slot.before = Some(pid);
            slot.pid = None;
            if let Some(link) = slot.link.take() {
                link.close();
            }
            if slot.reading.take().is_some() {
                state.scheduler.on_unheard(rank);
            }
            state.scheduler.on_lost(now, rank, &told);
            Some(told)
        });
        if let Some(exit) = known {
            self.ended.notify_waiters();
            self.emit(PoolEvent::WorkerExited { rank, exit });
        }
    }

    /// All that an exited worker wrote has arrived.
    pub(crate) fn on_output_end(&self, rank: Rank, generation: Generation) {
        if let Some(slot) = self.lock().slot(rank, generation) {
            // The end of a worker that this one has replaced says nothing of this one.
            slot.output_ended = slot.exited.is_some();
        }
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
    }

    fn on_end(&self, state: &mut State, now: Instant, rank: Rank, end: TaskEnd, bytes: usize, outcome: Outcome) {
        let id = TaskId(end.task);
        let Some(slot) = state.workers.get_mut(rank.0 as usize) else { return };
        let (new, acknowledge) = slot.session.on_result(end.sequence, bytes);
        if let (Some(sequence), Some(link)) = (acknowledge, &slot.link)
            && let Ok((head, body)) = (ToWorker::Ack { sequence }).encode()
            && link.push(&head, body).is_ok()
        {
            link.flush();
        }
        if !new {
            return;
        }
        slot.marks[0].end(id, end.stdout);
        slot.marks[1].end(id, end.stderr);
        self.metrics.answered(end.micros, bytes);
        if let Some(entry) = state.tasks.get_mut(&id) {
            entry.ran = Some(Duration::from_micros(end.micros));
        }
        if outcome.is_ok() && self.events.receiver_count() > 0 {
            self.emit(PoolEvent::TaskFinished { task: id, rank, micros: end.micros });
        }
        state.scheduler.on_returned(now, rank, id, outcome, end.micros);
    }
}
