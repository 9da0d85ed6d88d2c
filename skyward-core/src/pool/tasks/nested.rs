//! Calls within calls: a payload submits work to other workers of its pool, over a connection of
//! its own.
//!
//! Each call is a task with a parent. The scheduler decides where it runs: on a free worker, or
//! within a caller that waits.

pub(crate) mod connection;
mod pieces;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use self::pieces::FileRange;
use super::after::After;
use super::caller::{Caller, Calls};
use super::effect::Effect;
use super::failure::task_error;
use super::shared::Shared;
use super::state::State;
use super::task::{Entry, Reply};
use super::worker::WorkerRow;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Generation, Rank, TaskId};
use crate::payload::{Outcome, Task, TaskOptions, Value, value};
use crate::pool::metrics::Metrics;
use crate::worker::calls::{CallFrame, CallOptions, FromCaller, ToCaller};
use crate::worker::codec::Frame;

impl Shared {
    /// A worker has made its first call, and listens for the connection for its calls. An agent may
    /// report that twice.
    pub(crate) fn on_calls(&self, rank: Rank, generation: Generation, pid: u32, path: String) {
        let is_new = {
            let mut state = self.lock();
            state.row(rank, generation).is_some_and(|row| row.on_calls(pid, path))
        };
        if is_new {
            self.command(crate::pool::command::Command::CallerDisconnected { rank, generation, connection: 0 });
        }
    }

    /// Handles the frames that a worker sent over its connection for calls. Frames of an earlier
    /// connection are ignored.
    fn on_call_frames(
        &self,
        rank: Rank,
        generation: Generation,
        connection: u64,
        frames: &mut Vec<Frame>,
    ) -> Result<()> {
        self.take_in(frames, FromCaller::decode, |state, now, message, after| {
            let calls = state.calls_of(rank, generation).filter(|calls| calls.connection == connection);
            let Some(calls) = calls else { return Ok(ControlFlow::Break(())) };
            if !calls.session.accept(&message)? {
                return Ok(ControlFlow::Continue(()));
            }
            calls.fruitless = 0;
            if let Some(received) = calls.session.due() {
                let (head, body) = ToCaller::ack(received)?;
                calls.send(head, body, after);
            }
            self.on_call_message(state, now, rank, generation, message, after)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn on_call_message(
        &self,
        state: &mut State,
        now: Instant,
        rank: Rank,
        generation: Generation,
        message: FromCaller,
        after: &mut After,
    ) -> Result<()> {
        match message {
            FromCaller::Submit { call, frame, options, body, .. } => {
                let Some(pid) = state.calls_of(rank, generation).map(|calls| calls.pid) else { return Ok(()) };
                let caller = Caller { rank, generation, pid, call };
                if let Err(error) = self.submit_call(state, now, caller, frame, options, body) {
                    state.answer(caller, &Err(error), Duration::ZERO, after);
                }
            }
            FromCaller::Wait { frame, .. } => {
                if let Some(frame) = state.caller_task(rank, generation, frame) {
                    state.scheduler.on_waiting(now, rank, frame);
                }
            }
            FromCaller::Waited { .. } => state.scheduler.on_waited(now, rank),
            FromCaller::Helped { help, micros, value, .. } => {
                if let Some(id) = state.end_help(rank, generation, help) {
                    self.on_helped(state, now, rank, id, micros, Ok(Value::new(value, rank)));
                }
            }
            FromCaller::HelpFailed { help, micros, failure, .. } => {
                if let Some(id) = state.end_help(rank, generation, help) {
                    let node = state.scheduler.node_of(rank);
                    let source = state.tasks.get(id).map(|entry| &*entry.task.source);
                    let error = task_error(&failure, source, &self.requirements, node, rank);
                    self.on_helped(state, now, rank, id, micros, Err(error));
                }
            }
            FromCaller::Refuse { help, .. } => {
                if let Some(id) = state.end_help(rank, generation, help) {
                    state.tasks.take_back(now, id);
                    state.scheduler.on_refused(now, rank, id);
                }
            }
            FromCaller::Drop { call, .. } => {
                let dropped = state.calls_of(rank, generation).and_then(|calls| calls.made.get(&call).copied());
                if let Some(id) = dropped {
                    state.scheduler.cancel(now, id);
                }
            }
            FromCaller::Fetch { fetch, rank: source, digest, offset, length, .. } => {
                let range = FileRange { digest, offset, length };
                state.fetch(generation, rank, fetch, Rank(source), range, after);
            }
            FromCaller::Piece { read, body, .. } => state.on_read(generation, rank, read, Some(body), after),
            FromCaller::Missing { read, .. } => state.on_read(generation, rank, read, None, after),
            FromCaller::Ack { received } => {
                if let Some(calls) = state.calls_of(rank, generation) {
                    calls.session.on_ack(received)?;
                }
            }
            FromCaller::Hello(_) => {}
        }
        Ok(())
    }

    /// Accepts a call that a task on a worker makes.
    fn submit_call(
        &self,
        state: &mut State,
        now: Instant,
        caller: Caller,
        frame: CallFrame,
        options: CallOptions,
        body: Bytes,
    ) -> Result<()> {
        let ended = || Error::new(ErrorKind::Cancelled, "the task that made the call has ended");
        let parent = state.caller_task(caller.rank, caller.generation, frame).ok_or_else(ended)?;
        let above = state.tasks.get(parent).ok_or_else(ended)?;
        let root = above.root().unwrap_or_else(|| (parent, state.scheduler.attempt(parent)));
        state.may_submit()?;
        if self.is_mixed {
            let what = "payloads make no calls in a pool whose nodes may have different environments";
            return Err(Error::new(ErrorKind::InvalidSpec, what).with_hint(
                "remove `.mixed_environments(true)` from the pool, and give its nodes the same Python and packages",
            ));
        }
        if !options.help && state.scheduler.layout().workers(state.fleet.most()) == 1 {
            let what = "the call must not run on its caller's worker (`help=False`), and the pool has no other worker";
            return Err(Error::new(ErrorKind::InvalidSpec, what).with_hint("give the pool more nodes or workers"));
        }
        let CallOptions { retry, timeout, queue_timeout, help } = options;
        let retry = Some(retry);
        let task = Task {
            source: Arc::clone(&above.task.source),
            args: body,
            streaming: false,
            options: TaskOptions { timeout, queue_timeout, retry, ..TaskOptions::default() },
            reports: None,
            trace: above.task.trace.clone(),
        };
        let options = task.options;
        let id = TaskId(self.next_task.fetch_add(1, Ordering::Relaxed));
        state.scheduler.submit_call(now, id, parent, options, help)?;
        state.tasks.add(now, id, Entry::new(task, Reply::Caller(caller, root)));
        if let Some(calls) = state.calls_of(caller.rank, caller.generation) {
            calls.made.insert(caller.call, id);
        }
        Ok(())
    }

    /// A worker has run a call within the wait of its caller.
    fn on_helped(&self, state: &mut State, now: Instant, rank: Rank, id: TaskId, micros: u64, outcome: Outcome) {
        if let Some(entry) = state.tasks.get_mut(id) {
            entry.ran = Some(Duration::from_micros(micros));
            if Metrics::RECORDED {
                let bytes = outcome.as_ref().map_or(0, |value| value.bytes.len());
                state.effects.push(Effect::Answered { micros, bytes });
            }
            if outcome.is_ok() && self.events.has_readers() {
                state.effects.event(PoolEvent::TaskFinished { task: id, rank, micros });
            }
        }
        state.scheduler.on_helped(now, rank, id, outcome, micros);
    }
}

impl State {
    /// The calls of a worker, if it has made some and belongs to this generation.
    fn calls_of(&mut self, rank: Rank, generation: Generation) -> Option<&mut Calls> {
        self.row(rank, generation)?.calls_mut()
    }

    /// A worker's help with a call has ended, or does not begin. Returns the call.
    fn end_help(&mut self, rank: Rank, generation: Generation, help: u64) -> Option<TaskId> {
        self.calls_of(rank, generation)?.helps.remove(&help)
    }

    /// The task that a worker runs in this frame.
    fn caller_task(&mut self, rank: Rank, generation: Generation, frame: CallFrame) -> Option<TaskId> {
        let row = self.row(rank, generation)?;
        // The two connections of a worker are not ordered: the result of the previous run may still
        // be under way.
        let run = row.session.task(frame.run)?;
        let task = match frame.help {
            0 => run,
            help => row.calls()?.helps.get(&help).copied()?,
        };
        self.scheduler.has(rank, run).then_some(task)
    }

    /// Makes a worker run a call within the task that it runs.
    pub(crate) fn help(&mut self, now: Instant, rank: Rank, task: TaskId, within: Option<TaskId>, after: &mut After) {
        let root = self.scheduler.root_on(rank, task);
        let Some(entry) = self.tasks.get(task) else { return };
        let (depth, body) = (self.scheduler.depth(task), entry.task.args.clone());
        let Some(row) = self.workers.get_mut(rank) else { return };
        let run = root.and_then(|root| row.session.run_of(root));
        let (Some(run), Some(calls)) = (run, row.calls_mut()) else {
            return self.scheduler.on_refused(now, rank, task);
        };
        self.effects.sent(body.len());
        calls.help += 1;
        let help = calls.help;
        let frame = within.and_then(|within| calls.help_of(within)).unwrap_or_default();
        calls.helps.insert(help, task);
        let within_frame = CallFrame { run, help: frame };
        calls.push(ToCaller::Help { help, within: within_frame, depth, aside: within.is_none(), body }, after);
    }

    /// Interrupts a call that a worker helps with; returns whether the worker helps with it.
    pub(crate) fn cancel_help(&mut self, rank: Rank, task: TaskId, after: &mut After) -> bool {
        let calls = self.workers.get_mut(rank).and_then(WorkerRow::calls_mut);
        let Some(calls) = calls else { return false };
        let helped = calls.help_of(task);
        if let Some(help) = helped {
            calls.push(ToCaller::CancelHelp { help }, after);
        }
        helped.is_some()
    }

    /// Sends a caller the outcome of its call, if its worker process still exists.
    pub(crate) fn answer(&mut self, caller: Caller, outcome: &Outcome, ran: Duration, after: &mut After) {
        let Some(calls) = self.calls_of(caller.rank, caller.generation).filter(|calls| calls.pid == caller.pid) else {
            return;
        };
        calls.made.remove(&caller.call);
        let (ok, body) = match outcome {
            Ok(value) => (true, value.bytes.clone()),
            Err(error) => (false, failure_body(error)),
        };
        let micros = ran.as_micros() as u64;
        calls.push(ToCaller::Outcome { call: caller.call, ok, micros, body }, after);
    }
}

/// The failure map of an outcome that does not come from a worker; see `docs/protocol.md`.
fn failure_body(error: &Error) -> Bytes {
    #[derive(Serialize)]
    struct Failure<'a> {
        kind: &'a str,
        #[serde(rename = "type")]
        type_name: &'a str,
        module: &'a str,
        message: &'a str,
        hint: &'a str,
        traceback: &'a str,
    }
    let kind = match error.kind() {
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::WorkerExited | ErrorKind::NodeLost | ErrorKind::Poisoned | ErrorKind::Failed => "lost",
        ErrorKind::Timeout | ErrorKind::QueueTimeout => "timeout",
        ErrorKind::Raised => "exception",
        ErrorKind::Argument => "arguments",
        ErrorKind::Encode => "encode",
        ErrorKind::Hook => "hook",
        _ => "refused",
    };
    let exception = error.exception();
    let summary = error.summary();
    let failure = Failure {
        kind,
        type_name: exception.map_or("", |exception| &exception.type_name),
        module: "",
        message: exception.map_or(&summary, |exception| &exception.message),
        hint: error.hint().unwrap_or_default(),
        traceback: exception.map_or("", |exception| &exception.traceback),
    };
    let mut body = Vec::new();
    // Nothing in the failure can make the encoding fail; an empty body would be a failure without a
    // reason.
    if let Err(error) = value::encode_into(&mut body, &failure) {
        tracing::error!(%error, "the failure of a call cannot be encoded");
    }
    body.into()
}

#[cfg(test)]
mod tests;
