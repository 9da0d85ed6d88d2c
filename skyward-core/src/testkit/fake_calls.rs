//! The calls of a fake worker: calls that its tasks submit, and calls that it helps with while it
//! waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::fake_worker::{Failure, FakeNode, State, number, pack, push, read, send};
use super::lineage::Running;
use crate::worker::codec::Frame;
use crate::worker::link::Sender;
use crate::worker::message::PROTOCOL_VERSION;

/// The calls of one worker process.
#[derive(Debug, Default)]
pub(super) struct FakeCalls {
    client: Option<Sender>,
    /// The newest connection, which replaced all earlier ones.
    pub(super) newest: u64,
    /// The number of the last message that has arrived.
    received: u64,
    sent: u64,
    kept: VecDeque<(u64, Frame)>,
    /// The number of the last call.
    call: u64,
    /// Calls that have an outcome, and whether it is a value.
    outcomes: BTreeMap<u64, bool>,
    /// Helped calls that the main thread has not begun.
    asked: VecDeque<Help>,
    /// The calls that run within a wait of the main thread, the outermost first: the client's
    /// number of each, and the number of its try.
    helping: Vec<(u64, usize)>,
    cancelled: BTreeSet<u64>,
    /// Whether the main thread waits, and runs nothing in the meantime.
    waits: bool,
}

/// A call that the worker must run within its task.
#[derive(Debug, Clone)]
struct Help {
    help: u64,
    run: u64,
    body: Bytes,
}

/// How a caller waits for its calls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    /// For the outcomes of all calls. With `hidden`, the worker does not see that its task waits.
    ForAll { hidden: bool },
    /// For the outcomes of all calls, but no longer than until this time.
    Until(Instant),
}

/// A frame of a worker: the number of a run, and that of a helped call or 0.
type CallFrame = (u64, u64);

impl FakeNode {
    /// Handles a frame of the connection for a worker's calls.
    pub(super) fn on_calls_frame(
        &self,
        state: &mut State,
        worker_index: u32,
        sender: &Sender,
        frame: Frame,
    ) -> Option<()> {
        let node = self.node();
        let worker = state.workers.get_mut(&worker_index)?;
        let (pid, generation, rank, running) = (worker.pid, worker.generation, worker.rank, worker.running);
        let base = worker.running_try;
        let calls = worker.calls.as_mut()?;
        let head = &frame.head[..];
        let kind = number(head)?;
        match kind {
            129 => {
                let (_, _, _, received): (u32, u32, u64, u64) = read(head)?;
                calls.client = Some(sender.clone());
                calls.forget(received);
                send(sender, &(161, PROTOCOL_VERSION, pid, generation, rank, calls.received), Bytes::new());
                calls.kept.iter().for_each(|(_, kept)| push(sender, kept.clone()));
                return Some(());
            }
            133 => {
                let (_, received): (u32, u64) = read(head)?;
                calls.forget(received);
                return Some(());
            }
            _ => {}
        }
        let mut rest = head;
        rmp::decode::read_array_len(&mut rest).ok()?;
        let mut next = || rmp::decode::read_int::<u64, _>(&mut rest).ok();
        let (_, n, first) = (next()?, next()?, next()?);
        if n <= calls.received {
            return Some(());
        }
        if n > calls.received + 1 {
            self.witness().wrong(format!("message {n} of calls came after message {}", calls.received));
        }
        calls.received = n;
        send(sender, &(169, n), Bytes::new());
        match kind {
            130 => {
                let (_, _, call, ok, _): (u32, u64, u64, bool, u64) = read(head)?;
                if calls.outcomes.insert(call, ok).is_some() {
                    self.witness().wrong(format!("call {call} of a worker of node {node} has two outcomes"));
                }
            }
            131 => {
                let (_, _, help, run, within, _, aside): (u32, u64, u64, u64, u64, u32, bool) = read(head)?;
                let (innermost, outer) = calls.helping.last().copied().unwrap_or((0, base));
                let outer = if aside { base } else { outer };
                let is_late = running != Some(run) || !aside && (!calls.waits || within != innermost);
                if !is_late && !self.witness().lineage().descends(&frame.body, outer) {
                    self.witness().wrong(format!("help {help} is not a call below the task that the worker runs"));
                }
                let asked = Help { help, run, body: frame.body };
                if is_late {
                    calls.tell(167, &(help,), Bytes::new());
                } else if aside {
                    self.witness().count_calls(|calls| calls.aside += 1);
                    let node = self.clone();
                    tokio::spawn(async move { node.help_aside(worker_index, pid, asked).await });
                } else {
                    self.witness().count_calls(|calls| calls.helped += 1);
                    calls.waits = false;
                    calls.asked.push_back(asked);
                }
            }
            132 => {
                calls.cancelled.insert(first);
            }
            _ => return None,
        }
        Some(())
    }

    /// Submits calls within a frame and waits for them, as a payload does. Returns whether all
    /// calls returned a value, or `None` if the worker has ended.
    pub(super) fn call_and_wait<'a>(
        &'a self,
        worker_index: u32,
        pid: u32,
        frame: CallFrame,
        running: &'a Running,
        count: u8,
        wait: Wait,
    ) -> Pin<Box<dyn Future<Output = Option<bool>> + Send + 'a>> {
        Box::pin(async move {
            self.witness().count_calls(|calls| calls.made += usize::from(count));
            let (hidden, end) = match wait {
                Wait::ForAll { hidden } => (hidden, None),
                Wait::Until(end) => (false, Some(end)),
            };
            let is_over = || end.is_some_and(|end| end <= Instant::now());
            let mine = self.with_calls(worker_index, pid, |calls| {
                let mine = (0..count).map(|index| {
                    calls.call += 1;
                    let body = self.witness().lineage().call(running, index);
                    let timeout = self.fate().call_timeout(&[&running.args[..], &[index]].concat());
                    let options = timeout.map(|timeout| BTreeMap::from([("timeout", timeout.as_secs_f64())]));
                    calls.tell(162, &(calls.call, frame.0, frame.1, options), body);
                    calls.call
                });
                let mine: Vec<u64> = mine.collect();
                if !hidden {
                    calls.tell(163, &frame, Bytes::new());
                    calls.waits = true;
                }
                mine
            })?;
            loop {
                let moved = self.until(|state| {
                    let calls = state.calls_of(worker_index, pid);
                    calls.is_none_or(|calls| calls.has(&mine) || !hidden && !calls.asked.is_empty())
                });
                match end {
                    Some(end) => drop(timeout_at(end, moved).await),
                    None => moved.await,
                }
                let asked = self.with_calls(worker_index, pid, |calls| match calls.has(&mine) || is_over() {
                    true => None,
                    false => {
                        let asked = calls.asked.pop_front()?;
                        let running = Running::begin(self, &asked.body);
                        calls.helping.push((asked.help, running.number));
                        Some((asked, running))
                    }
                })?;
                let Some((asked, running)) = asked else { break };
                let ended = self.help(worker_index, pid, &asked, &running).await?;
                drop(running);
                self.with_calls(worker_index, pid, |calls| {
                    calls.helping.pop();
                    calls.answer(&asked, ended);
                    calls.waits = true;
                })?;
            }
            self.with_calls(worker_index, pid, |calls| {
                if !hidden {
                    calls.waits = false;
                    calls.tell(164, &(), Bytes::new());
                    for asked in std::mem::take(&mut calls.asked) {
                        calls.tell(167, &(asked.help,), Bytes::new());
                    }
                }
                let open: Vec<u64> = mine.iter().copied().filter(|call| !calls.outcomes.contains_key(call)).collect();
                for call in open.into_iter().step_by(2) {
                    self.witness().count_calls(|calls| calls.given_up += 1);
                    calls.tell(168, &(call,), Bytes::new());
                }
                mine.iter().all(|call| calls.outcomes.get(call) == Some(&true))
            })
        })
    }

    /// Runs a helped call. Returns its outcome, or `None` if its worker has ended.
    async fn help(
        &self,
        worker_index: u32,
        pid: u32,
        asked: &Help,
        running: &Running,
    ) -> Option<Result<Bytes, Failure>> {
        let answer = self.answer_of(worker_index, running);
        let cancelled = self.until(|state| {
            state
                .calls_of(worker_index, pid)
                .is_none_or(|calls| !answer.ignores_interrupts() && calls.cancelled.contains(&asked.help))
        });
        let ended = tokio::select! {
            biased;
            () = cancelled => Err(Failure::of("cancelled")),
            ended = self.perform(worker_index, pid, (asked.run, asked.help), &answer, running) => ended?,
        };
        self.with_calls(worker_index, pid, |_| ended)
    }

    async fn help_aside(self, worker_index: u32, pid: u32, asked: Help) {
        let running = Running::begin(&self, &asked.body);
        let Some(ended) = self.help(worker_index, pid, &asked, &running).await else { return };
        drop(running);
        self.with_calls(worker_index, pid, |calls| calls.answer(&asked, ended));
    }

    /// The main thread leaves its task, however many nested waits it was in.
    pub(super) fn end_calls(&self, state: &mut State, worker_index: u32) {
        let Some(calls) = state.workers.get_mut(&worker_index).and_then(|worker| worker.calls.as_mut()) else { return };
        calls.waits = false;
        let helping = std::mem::take(&mut calls.helping).into_iter().map(|(help, _)| help);
        let asked = std::mem::take(&mut calls.asked).into_iter().map(|asked| asked.help);
        for help in helping.chain(asked).collect::<Vec<_>>() {
            calls.tell(166, &(help, 1000), Failure::of("cancelled").body());
        }
    }

    /// Applies `work` to the calls of the worker with this process. The first use announces the
    /// worker's calls to the client.
    fn with_calls<T>(&self, worker_index: u32, pid: u32, work: impl FnOnce(&mut FakeCalls) -> T) -> Option<T> {
        let done = {
            let mut state = self.state();
            let worker = state.workers.get_mut(&worker_index).filter(|worker| worker.pid == pid && worker.alive)?;
            let is_new = worker.calls.is_none();
            let generation = worker.generation;
            let done = work(worker.calls.get_or_insert_default());
            if is_new && let Some(agent) = &state.client {
                send(agent, &announcement(worker_index, pid, generation), Bytes::new());
            }
            done
        };
        self.changed();
        Some(done)
    }
}

/// The agent's message that a worker makes calls.
pub(super) fn announcement(worker_index: u32, pid: u32, generation: u64) -> (u32, u64, u32, u32, String) {
    (47, generation, worker_index, pid, format!("/fake/w{worker_index}.calls"))
}

impl State {
    fn calls_of(&self, worker_index: u32, pid: u32) -> Option<&FakeCalls> {
        self.workers.get(&worker_index).filter(|worker| worker.pid == pid && worker.alive)?.calls.as_ref()
    }
}

impl FakeCalls {
    fn has(&self, calls: &[u64]) -> bool {
        calls.iter().all(|call| self.outcomes.contains_key(call))
    }

    fn forget(&mut self, received: u64) {
        self.kept.retain(|(n, _)| *n > received);
    }

    fn answer(&mut self, asked: &Help, ended: Result<Bytes, Failure>) {
        match ended {
            Ok(value) => self.tell(165, &(asked.help, 1000), value),
            Err(failure) => self.tell(166, &(asked.help, 1000), failure.body()),
        }
    }

    /// Numbers a message, keeps it, and sends it if a client is connected.
    fn tell<T: Serialize>(&mut self, number: u32, rest: &T, body: Bytes) {
        self.sent += 1;
        // The elements of `rest` stand beside the number, and not in an array of their own.
        let rest = rmp_serde::to_vec(rest).unwrap_or_default();
        let (count, elements) = match rest.first() {
            Some(first @ 0x90..=0x9f) => (usize::from(first & 0xf), &rest[1..]),
            _ => (0, &[][..]),
        };
        let start = pack(&(number, self.sent));
        let mut head = vec![0x90 | (2 + count) as u8];
        head.extend_from_slice(&start[1..]);
        head.extend_from_slice(elements);
        let frame = Frame { head: head.into(), body };
        if let Some(client) = &self.client {
            push(client, frame.clone());
        }
        self.kept.push_back((self.sent, frame));
    }
}
