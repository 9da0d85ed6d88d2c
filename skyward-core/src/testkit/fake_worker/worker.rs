//! The process of one worker: its state, its start and end, and the answers and stream items that
//! it keeps until the client has them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::frames::{failure_body, pack, push, send};
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
    pub(super) loaded: BTreeMap<u32, String>,
    /// The number of the last run that has arrived.
    pub(super) received: u64,
    /// The last run that has begun, and (`recalled`) the last run that must not begin.
    pub(super) begun: u64,
    pub(super) recalled: u64,
    pub(super) waiting: VecDeque<(u64, Bytes)>,
    pub(in crate::testkit) running: Option<u64>,
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
    pub(super) kept: VecDeque<(u64, u64, Frame)>,
}

impl Worker {
    pub(super) fn acknowledge(&mut self, sequence: u64) {
        while let Some((_, run, _)) = self.kept.pop_front_if(|(kept, ..)| *kept <= sequence) {
            self.streams.remove(&run);
        }
    }

    /// Keeps an answer until it is acknowledged, and sends it if a client is connected.
    pub(super) fn answer(&mut self, task: u64, outcome: Result<Bytes, &'static str>) {
        self.sequence += 1;
        let end = |number: u32| pack(&(number, self.sequence, task, 0, 0, 1000));
        let frame = match outcome {
            Ok(value) => Frame { head: end(98), body: value },
            Err(kind) => Frame { head: end(99), body: failure_body(kind) },
        };
        if let Some(client) = &self.client {
            push(client, frame.clone());
        }
        self.kept.push_back((self.sequence, task, frame));
    }
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
        state.workers.insert(number, Worker { generation, pid, rank, alive: true, ..Worker::default() });
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
        let Some(agent) = &state.client else { return };
        for _ in 0..if self.0.fate.repeats(self.0.node) { 2 } else { 1 } {
            send(agent, &told, Bytes::new());
        }
        send(agent, &(39, generation, number, 0, 0), Bytes::new());
    }
}

type Exited = (u32, u64, u32, u32, Option<i32>, Option<i32>, bool, u64);

pub(super) fn exited(number: u32, worker: &Worker, code: Option<i32>, signal: Option<i32>) -> Exited {
    (36, worker.generation, number, worker.pid, code, signal, false, worker.begun)
}

/// The pid of the first worker of a node is one more.
pub(super) const FIRST_PID: u32 = 100;
