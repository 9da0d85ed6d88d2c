//! The process of one worker: its state, its start and end, and the answers and stream items that
//! it keeps until the client has them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::frames::{Failure, pack, push, send};
use super::{FakeNode, State};
use crate::testkit::fake_calls::FakeCalls;
use crate::worker::codec::Frame;
use crate::worker::link::Sender;

#[derive(Debug, Default)]
pub(in crate::testkit) struct Worker {
    pub(in crate::testkit) generation: u64,
    pub(in crate::testkit) pid: u32,
    pub(in crate::testkit) rank: u32,
    pub(in crate::testkit) alive: bool,
    pub(super) ready: bool,
    pub(super) client: Option<Sender>,
    /// The newest connection, which replaced all earlier ones.
    pub(super) newest: u64,
    /// The entry of each payload, by its number.
    pub(super) loaded: BTreeMap<u32, Arc<str>>,
    /// The number of the last run that has arrived.
    pub(super) received: u64,
    /// The last run that has begun, and (`recalled`) the last run that must not begin.
    pub(super) begun: u64,
    pub(super) recalled: u64,
    pub(super) waiting: VecDeque<Waiting>,
    pub(in crate::testkit) running: Option<u64>,
    /// The entry of the payload that runs.
    pub(super) entry: Arc<str>,
    /// The number of the try that runs.
    pub(in crate::testkit) running_try: usize,
    /// The worker's calls; set by its first call.
    pub(in crate::testkit) calls: Option<FakeCalls>,
    /// Whether the worker does not read its connection.
    pub(super) deaf: bool,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) cancelled: BTreeSet<u64>,
    pub(super) interrupted: bool,
    pub(super) sequence: u64,
    /// What the worker has written to its two descriptors.
    pub(super) output: [Vec<u8>; 2],
    /// Whether the client wants the output.
    pub(super) subscribed: bool,
    pub(super) kept: VecDeque<(u64, u64, Frame)>,
}

impl Worker {
    pub(super) fn acknowledge(&mut self, sequence: u64) {
        while let Some((_, run, _)) = self.kept.pop_front_if(|(kept, ..)| *kept <= sequence) {
            self.streams.remove(&run);
        }
    }

    /// Keeps an answer until it is acknowledged, and sends it if a client is connected.
    pub(super) fn answer(&mut self, task: u64, outcome: Result<Bytes, Failure>) {
        let [stdout, stderr] = self.output.each_ref().map(Vec::len);
        let end = |number: u32| pack(&(number, self.sequence + 1, task, stdout, stderr, 1000));
        let frame = match outcome {
            Ok(value) => Frame { head: end(98), body: value },
            Err(failure) => Frame { head: end(99), body: failure.body() },
        };
        self.keep(task, frame);
    }

    /// Keeps a report of a task, and sends it, as an answer.
    pub(super) fn report(&mut self, task: u64, value: Bytes) {
        let head = pack(&(101, self.sequence + 1, task));
        // The acknowledgement of a report does not end the stream of its task.
        self.keep(0, Frame { head, body: value });
    }

    fn keep(&mut self, task: u64, frame: Frame) {
        self.sequence += 1;
        if let Some(client) = &self.client {
            push(client, frame.clone());
        }
        self.kept.push_back((self.sequence, task, frame));
    }
}

/// A run that has arrived and not begun.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) run: u64,
    pub(super) entry: Arc<str>,
    pub(super) args: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) granted: u64,
    pub(super) next: u64,
    pub(super) items: VecDeque<(u64, Frame)>,
}

impl Stream {
    pub(super) fn advance(&mut self, granted: u64, arrived: u64) {
        self.granted = self.granted.max(granted);
        self.items.retain(|(index, _)| *index >= arrived);
    }
}

impl FakeNode {
    pub(super) fn start_worker(&self, state: &mut State, number: u32, generation: u64, rank: u32) -> u32 {
        state.pids += 1;
        let pid = FIRST_PID + state.pids;
        // A worker that takes the place of another one in a generation continues its files.
        let before = state.workers.remove(&number).filter(|before| before.generation == generation);
        let output = before.map(|before| before.output).unwrap_or_default();
        state.workers.insert(number, Worker { generation, pid, rank, alive: true, output, ..Worker::default() });
        let node = self.clone();
        tokio::spawn(async move { node.work(number, pid, generation).await });
        pid
    }

    pub(super) fn end_worker(&self, state: &mut State, number: u32, code: Option<i32>, signal: Option<i32>) {
        let Some(worker) = state.workers.get_mut(&number) else { return };
        worker.alive = false;
        if let Some(link) = worker.client.take() {
            link.close();
        }
        let generation = worker.generation;
        let told = exited(number, worker, code, signal);
        let [stdout, stderr] = worker.output.each_ref().map(Vec::len);
        let Some(agent) = &state.client else { return };
        for _ in 0..if self.fate().repeats(self.0.node) { 2 } else { 1 } {
            send(agent, &told, Bytes::new());
        }
        send(agent, &(39, generation, number, stdout, stderr), Bytes::new());
    }
}

type Exited = (u32, u64, u32, u32, Option<i32>, Option<i32>, bool, u64);

pub(super) fn exited(number: u32, worker: &Worker, code: Option<i32>, signal: Option<i32>) -> Exited {
    (36, worker.generation, number, worker.pid, code, signal, false, worker.begun)
}

/// The pid of the first worker of a node is one more.
pub(super) const FIRST_PID: u32 = 100;
