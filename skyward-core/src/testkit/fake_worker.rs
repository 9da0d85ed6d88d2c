//! The node's side of the worker protocol in this process: an agent and its workers, over byte streams that are no sockets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::fake_calls::{FakeCalls, Wait, announcement};
use super::lineage::{Lineage, Running};
use crate::remote::ByteStream;
use crate::worker::codec::Frame;
use crate::worker::link::{Reader, Sender, link};
use crate::worker::message::PROTOCOL_VERSION;

/// What a task does on a fake worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Gives back its arguments after this time.
    Return(Duration),
    /// Gives back its arguments after this time, in which the worker does not look at its connection.
    Deaf(Duration),
    /// Gives back its arguments so many times as the items of a stream, each after this time, as far as it has credit.
    Yield(u32, Duration),
    /// Raises after this time.
    Raise(Duration),
    /// Ends its worker after this time, with this signal.
    Crash(Duration, i32),
    /// Makes so many calls, whose bodies are its own with one more byte, and gives back its arguments when all have
    /// returned; it raises when one has not. With `true` its worker does not see that it waits.
    Call(u8, bool),
    /// Makes so many calls and waits for them, but not for longer than this. It gives every second one up that has no
    /// outcome then, and gives back its arguments.
    CallBriefly(u8, Duration),
    /// Goes on until it is interrupted.
    UntilInterrupted,
    /// Goes on until its worker is killed.
    UntilKilled,
}

/// What happens to a node by itself; the fake asks before each thing it does. What a fate does not say goes as on a
/// node without faults, whose tasks give back their arguments at once.
pub trait Fate: std::fmt::Debug + Send + Sync + 'static {
    /// What the task with these arguments does, at its `run`-th start (from 1) anywhere.
    fn work(&self, args: &[u8], run: u32) -> Work {
        let _ = (args, run);
        Work::Return(Duration::ZERO)
    }

    /// How long a call with these arguments may run; none: for as long as it likes.
    fn call_timeout(&self, args: &[u8]) -> Option<Duration> {
        let _ = args;
        None
    }

    /// How long a worker of this generation takes to enter its hooks; none: it never does.
    fn hooks(&self, node: u32, worker: u32, generation: u64) -> Option<Duration> {
        let _ = (node, worker, generation);
        Some(Duration::ZERO)
    }

    /// How long the node takes over its `frame`-th frame (from 0) of a connection.
    fn delay(&self, node: u32, frame: u64) -> Duration {
        let _ = (node, frame);
        Duration::ZERO
    }

    /// Whether the connection is cut instead of handling its `frame`-th frame (from 0). `connection` counts all of the node's.
    fn cut(&self, node: u32, connection: u64, frame: u64) -> bool {
        let _ = (node, connection, frame);
        false
    }

    /// Whether the agent tells everything twice that it may.
    fn repeats(&self, node: u32) -> bool {
        let _ = node;
        false
    }

    /// Whether the `start`-th process of this worker's machine (from 1) is killed while it says hello: its end is known before its hello arrives.
    fn ends_greeting(&self, node: u32, worker: u32, start: u32) -> bool {
        let _ = (node, worker, start);
        false
    }
}

/// A node without faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faultless;

impl Fate for Faultless {}

/// What all fake nodes of a simulation have seen: how often each task was started, and what must never be seen.
#[derive(Debug, Default)]
pub struct Witness {
    runs: Mutex<BTreeMap<Bytes, u32>>,
    wrongs: Mutex<Vec<String>>,
    trace: Mutex<u64>,
    origin: Mutex<Option<Instant>>,
    calls: Mutex<Calls>,
    lineage: Lineage,
}

/// How many calls the tasks of fake workers have made, and which of them ran within another task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// Calls that were submitted.
    pub made: usize,
    /// Calls that ran in the wait of a worker's main thread.
    pub helped: usize,
    /// Calls that ran on another thread of a worker.
    pub aside: usize,
    /// Calls that their callers gave up.
    pub given_up: usize,
    /// The longest time for which a call ran after the try of its caller was over.
    pub outlived: Duration,
}

/// A node: its agent and its workers. Clones are one node.
#[derive(Debug, Clone)]
pub struct FakeNode(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: u32,
    fate: Arc<dyn Fate>,
    witness: Arc<Witness>,
    state: Mutex<State>,
    /// It was frozen some time, and did nothing for as long as it was.
    froze: AtomicBool,
    /// Something has changed that a task of the node may wait for.
    changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The agent runs.
    agent: bool,
    /// Nothing on the node answers any more, and nothing tells.
    frozen: bool,
    /// Another machine has its place.
    succeeded: bool,
    lease: Option<Instant>,
    pub(super) client: Option<Sender>,
    connections: u64,
    pids: u32,
    pub(super) workers: BTreeMap<u32, Worker>,
}

#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) generation: u64,
    pub(super) pid: u32,
    pub(super) rank: u32,
    pub(super) alive: bool,
    ready: bool,
    client: Option<Sender>,
    /// The connection that replaced all before it.
    newest: u64,
    loaded: BTreeMap<u32, String>,
    /// Runs up to this number have arrived.
    received: u64,
    /// The last one that was begun, and the last that must not begin.
    begun: u64,
    recalled: u64,
    waiting: VecDeque<(u64, Bytes)>,
    pub(super) running: Option<u64>,
    /// The number of what runs.
    pub(super) running_try: usize,
    /// From its first call on.
    pub(super) calls: Option<FakeCalls>,
    /// It does not look at its connection.
    deaf: bool,
    streams: BTreeMap<u64, Stream>,
    cancelled: BTreeSet<u64>,
    interrupted: bool,
    sequence: u64,
    kept: VecDeque<(u64, u64, Frame)>,
}

#[derive(Debug, Default)]
struct Stream {
    granted: u64,
    next: u64,
    items: VecDeque<(u64, Frame)>,
}

impl Stream {
    fn advance(&mut self, granted: u64, arrived: u64) {
        self.granted = self.granted.max(granted);
        self.items.retain(|(index, _)| *index >= arrived);
    }
}

impl Witness {
    /// What must never be seen, and was.
    pub fn wrongs(&self) -> Vec<String> {
        lock(&self.wrongs).clone()
    }

    /// How often tasks with these arguments were begun.
    pub fn begun(&self, args: &[u8]) -> u32 {
        lock(&self.runs).get(args).copied().unwrap_or_default()
    }

    /// A number that stands for all that the nodes were told, and when: the same for two plays that are the same.
    pub fn trace(&self) -> u64 {
        *lock(&self.trace)
    }

    /// The calls within tasks.
    pub fn calls(&self) -> Calls {
        *lock(&self.calls)
    }

    pub(super) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    pub(super) fn count_calls(&self, count: impl FnOnce(&mut Calls)) {
        count(&mut lock(&self.calls));
    }

    fn saw(&self, node: u32, frame: &Frame) {
        let mut hasher = std::hash::DefaultHasher::new();
        // On a paused clock this is a whole number of milliseconds from its start.
        let origin = lock(&self.origin).get_or_insert_with(Instant::now).elapsed();
        (*lock(&self.trace), node, origin, &frame.head[..], &frame.body[..]).hash(&mut hasher);
        *lock(&self.trace) = hasher.finish();
    }

    pub(crate) fn wrong(&self, what: String) {
        lock(&self.wrongs).push(what);
    }

    fn run(&self, args: &Bytes) -> u32 {
        let mut runs = lock(&self.runs);
        let run = runs.entry(args.clone()).or_default();
        *run += 1;
        *run
    }
}

impl FakeNode {
    /// A node on which nothing runs yet.
    pub fn new(node: u32, fate: Arc<dyn Fate>, witness: Arc<Witness>) -> Self {
        Self(Arc::new(Inner {
            node,
            fate,
            witness,
            state: Mutex::default(),
            froze: AtomicBool::new(false),
            changed: Notify::new(),
        }))
    }

    /// Starts the agent, which ends by itself when its lease runs out.
    pub fn start_agent(&self, lease: Duration) {
        {
            let mut state = lock(&self.0.state);
            state.agent = true;
            state.lease = Some(Instant::now() + lease);
        }
        let node = self.clone();
        tokio::spawn(async move { node.hold_lease().await });
    }

    /// Whether the agent or a worker runs.
    pub fn is_running(&self) -> bool {
        let state = lock(&self.0.state);
        state.agent || state.workers.values().any(|worker| worker.alive)
    }

    /// Ends everything at once, as when the machine is gone.
    pub fn end(&self) {
        let mut state = lock(&self.0.state);
        state.agent = false;
        state.frozen = false;
        state.lease = None;
        let client = state.client.take();
        let links = client.into_iter().chain(state.workers.values_mut().filter_map(|worker| {
            worker.alive = false;
            worker.client.take()
        }));
        links.for_each(|link| link.close());
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Another machine was launched for the node: this one is to get no task any more.
    pub fn succeed(&self) {
        lock(&self.0.state).succeeded = true;
    }

    /// Nothing answers any more, and no connection ends: a machine that is stopped, or cut off without a word.
    pub fn freeze(&self) {
        // What has ended does not come back as something that is silent.
        let there = self.is_running();
        lock(&self.0.state).frozen = there;
        self.0.froze.fetch_or(there, Ordering::Relaxed);
    }

    /// Connects to the socket at this path: the agent's, a worker's, or that of its calls.
    pub fn open(&self, socket: &str) -> Option<ByteStream> {
        let (socket, calls) = match socket.strip_suffix(".calls") {
            Some(socket) => (socket, true),
            None => (socket, false),
        };
        let worker = match socket.rsplit_once("/w") {
            Some((_, number)) => Some(number.parse::<u32>().ok()?),
            None => None,
        };
        let end = match (worker, calls) {
            (None, _) => End::Agent,
            (Some(worker), false) => End::Worker(worker),
            (Some(worker), true) => End::Calls(worker),
        };
        let connection = {
            let mut state = lock(&self.0.state);
            let there = match worker {
                None => state.agent,
                Some(worker) => state.workers.get(&worker).is_some_and(|worker| worker.alive),
            };
            if !there && !state.frozen {
                return None;
            }
            if state.connections == MOST_CONNECTIONS {
                self.0
                    .witness
                    .wrong(format!("node {} was connected to more than {MOST_CONNECTIONS} times", self.0.node));
                return None;
            }
            state.connections += 1;
            let connection = state.connections;
            if let Some(worker) = worker.and_then(|worker| state.workers.get_mut(&worker)) {
                match &mut worker.calls {
                    Some(own) if calls => own.newest = connection,
                    None if calls => return None,
                    _ => worker.newest = connection,
                }
            }
            connection
        };
        let (near, far) = tokio::io::duplex(PIPE);
        let (sender, writer, reader) = link(Box::new(far), MAX_FRAME);
        tokio::spawn(async move {
            // The reader sees the same loss.
            let _ = writer.run().await;
        });
        let node = self.clone();
        tokio::spawn(async move { node.serve(end, connection, sender, reader).await });
        Some(Box::new(near))
    }

    /// Handles one connection's frames, late or not at all where fate says so.
    async fn serve(self, end: End, connection: u64, sender: Sender, mut reader: Reader) {
        let worker = end.worker();
        if let Some(worker) = worker {
            self.until(|state| match state.workers.get(&worker) {
                Some(worker) => worker.ready || !worker.alive,
                None => true,
            })
            .await;
        }
        let pid = worker.and_then(|worker| lock(&self.0.state).workers.get(&worker).map(|worker| worker.pid));
        let mut waiting = VecDeque::new();
        for number in 0.. {
            let gone = self.until(|state| !state.frozen && !is_there(state, end, pid, connection));
            let frame = tokio::select! {
                biased;
                frame = reader.next(&mut waiting) => frame,
                () = gone => break,
            };
            let Ok(frame) = frame else { break };
            sleep(self.0.fate.delay(self.0.node, number)).await;
            if self.0.fate.cut(self.0.node, connection, number) {
                break;
            }
            if let End::Worker(worker) = end {
                self.until(|state| state.workers.get(&worker).is_none_or(|worker| !worker.deaf || !worker.alive)).await;
            }
            let mut state = lock(&self.0.state);
            if state.frozen {
                continue;
            }
            if !is_there(&state, end, pid, connection) {
                break;
            }
            self.0.witness.saw(self.0.node, &frame);
            let understood = match end {
                End::Agent => self.on_agent_frame(&mut state, &sender, frame),
                End::Worker(worker) => self.on_worker_frame(&mut state, worker, &sender, frame),
                End::Calls(worker) => self.on_calls_frame(&mut state, worker, &sender, frame),
            };
            drop(state);
            if understood.is_none() {
                self.0.witness.wrong(format!("a frame that the node cannot read, on connection {connection}"));
                break;
            }
            self.0.changed.notify_waiters();
        }
        sender.close();
    }

    fn on_agent_frame(&self, state: &mut State, sender: &Sender, frame: Frame) -> Option<()> {
        let head = &frame.head[..];
        match number(head)? {
            1 => {
                state.client = Some(sender.clone());
                send(sender, &(33, PROTOCOL_VERSION, 1, "3.12.1", BTreeMap::<String, u32>::new()), Bytes::new());
                let ended = state.workers.iter().filter(|(_, worker)| !worker.alive);
                for (number, worker) in ended {
                    send(sender, &exited(*number, worker, None, Some(9)), Bytes::new());
                }
                for (number, worker) in state.workers.iter().filter(|(_, it)| it.alive && it.calls.is_some()) {
                    send(sender, &announcement(*number, worker.pid, worker.generation), Bytes::new());
                }
            }
            2 => {
                let (_, request, generation, workers): (u32, u64, u64, Vec<u32>) = read(head)?;
                if state.workers.values().any(|worker| worker.alive && worker.generation < generation) {
                    self.0.witness.wrong(format!("generation {generation} was started beside an older one"));
                }
                let Spec { cluster } = rmp_serde::from_slice(&frame.body).ok()?;
                let first = cluster.node * cluster.workers_per_node;
                let started: Vec<(u32, u32, String)> = workers
                    .iter()
                    .map(|worker| {
                        let pid = self.start_worker(state, *worker, generation, first + worker);
                        (*worker, pid, format!("/fake/w{worker}"))
                    })
                    .collect();
                send(sender, &(34, request, generation, started), Bytes::new());
            }
            3 => {
                let (_, request): (u32, u64) = read(head)?;
                send(sender, &(35, request, "10.0.0.1", 4242), Bytes::new());
            }
            4 => {
                let (_, generation, worker, signal): (u32, u64, u32, String) = read(head)?;
                let it = state.workers.get_mut(&worker).filter(|it| it.generation == generation && it.alive);
                match (signal.as_str(), it) {
                    ("interrupt", Some(it)) => it.interrupted = true,
                    ("stacks", Some(_)) => {
                        let text = "Current thread 0x1 (most recent call first):\n  File \"fake.py\", line 1 in work\n";
                        send(sender, &(44, generation, worker), Bytes::from_static(text.as_bytes()));
                    }
                    ("kill", Some(_)) => self.end_worker(state, worker, None, Some(9)),
                    _ => {}
                }
            }
            5 => {
                let (_, request, generation, workers, _): (u32, u64, u64, Vec<u32>, f64) = read(head)?;
                for worker in &workers {
                    if state.workers.get(worker).is_some_and(|it| it.alive && it.generation == generation) {
                        self.end_worker(state, *worker, Some(0), None);
                    }
                }
                send(sender, &(40, request, generation, workers), Bytes::new());
            }
            6 => {
                let (_, sequence, lease): (u32, u64, f64) = read(head)?;
                state.lease = Some(Instant::now() + Duration::from_secs_f64(lease));
                send(sender, &(37, sequence), Bytes::new());
            }
            7 => {}
            8 => {
                let (_, request, _): (u32, u64, f64) = read(head)?;
                let alive: Vec<u32> =
                    state.workers.iter().filter(|(_, worker)| worker.alive).map(|(number, _)| *number).collect();
                alive.into_iter().for_each(|worker| self.end_worker(state, worker, None, Some(9)));
                send(sender, &(42, request), Bytes::new());
                state.agent = false;
            }
            9 => {
                let (_, generation, worker, pid, upto): (u32, u64, u32, u32, u64) = read(head)?;
                if let Some(it) =
                    state.workers.get_mut(&worker).filter(|it| it.generation == generation && it.pid == pid)
                {
                    it.recalled = it.recalled.max(upto);
                    send(sender, &(45, generation, worker, pid, upto, it.begun), Bytes::new());
                }
            }
            10 => {
                let (_, _): (u32, Vec<String>) = read(head)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn on_worker_frame(&self, state: &mut State, slot: u32, sender: &Sender, frame: Frame) -> Option<()> {
        let node = self.0.node;
        let worker = state.workers.get_mut(&slot)?;
        let head = &frame.head[..];
        match number(head)? {
            65 => {
                let (_, _, _, acknowledged, streams): Greeting = read(head)?;
                let hello =
                    (97, PROTOCOL_VERSION, worker.pid, worker.generation, worker.rank, true, "3.12.1", worker.received);
                if self.0.fate.ends_greeting(node, slot, worker.pid - FIRST_PID) {
                    self.end_worker(state, slot, None, Some(9));
                    send(sender, &hello, Bytes::new());
                    return Some(());
                }
                worker.client = Some(sender.clone());
                worker.acknowledge(acknowledged);
                send(sender, &hello, Bytes::new());
                for (run, arrived, granted) in streams {
                    if let Some(stream) = worker.streams.get_mut(&run) {
                        stream.advance(granted, arrived);
                        stream.items.iter().for_each(|(_, item)| push(sender, item.clone()));
                    }
                }
                for (_, _, kept) in &worker.kept {
                    push(sender, kept.clone());
                }
            }
            66 => {
                let (_, slot, digest): (u32, u32, String) = read(head)?;
                worker.loaded.insert(slot, digest);
            }
            67 => {
                let mut rest = head;
                rmp::decode::read_array_len(&mut rest).ok()?;
                let mut next = || rmp::decode::read_int::<u64, _>(&mut rest).ok();
                let (_, run, slot, acknowledged, granted) = (next()?, next()?, next()? as u32, next()?, next()?);
                if state.succeeded {
                    self.0.witness.wrong(format!("run {run} came to a machine of node {node} that was replaced"));
                }
                if !worker.loaded.contains_key(&slot) {
                    self.0.witness.wrong(format!("run {run} came before its source"));
                }
                worker.acknowledge(acknowledged);
                if run > worker.received {
                    worker.received = run;
                    worker.waiting.push_back((run, frame.body));
                    worker.streams.insert(run, Stream { granted, ..Stream::default() });
                }
            }
            68 => {
                let (_, acknowledged): (u32, u64) = read(head)?;
                worker.acknowledge(acknowledged);
            }
            69 => {
                let (_, run, granted, arrived): (u32, u64, u64, u64) = read(head)?;
                if let Some(stream) = worker.streams.get_mut(&run) {
                    stream.advance(granted, arrived);
                }
            }
            70 => {
                let (_, task): (u32, u64) = read(head)?;
                if worker.running == Some(task) {
                    worker.cancelled.insert(task);
                } else if let Some(place) = worker.waiting.iter().position(|(waiting, _)| *waiting == task) {
                    worker.waiting.remove(place);
                    worker.answer(task, Err("cancelled"));
                }
            }
            71 => self.end_worker(state, slot, Some(0), None),
            73 => {
                let (_, _, _, _): (u32, String, f64, String) = read(head)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn start_worker(&self, state: &mut State, number: u32, generation: u64, rank: u32) -> u32 {
        state.pids += 1;
        let pid = FIRST_PID + state.pids;
        state.workers.insert(number, Worker { generation, pid, rank, alive: true, ..Worker::default() });
        let node = self.clone();
        tokio::spawn(async move { node.work(number, pid, generation).await });
        pid
    }

    fn end_worker(&self, state: &mut State, number: u32, code: Option<i32>, signal: Option<i32>) {
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

    /// A worker's life: enters its hooks, runs its tasks one after another.
    async fn work(self, number: u32, pid: u32, generation: u64) {
        let me = |state: &State| state.workers.get(&number).is_some_and(|it| it.pid == pid && it.alive);
        match self.0.fate.hooks(self.0.node, number, generation) {
            Some(time) => sleep(time).await,
            None => return self.until(|state| !me(state)).await,
        }
        if let Some(worker) = lock(&self.0.state).workers.get_mut(&number).filter(|it| it.pid == pid) {
            worker.ready = true;
        }
        self.0.changed.notify_waiters();
        loop {
            self.until(|state| !me(state) || !state.frozen && !state.workers[&number].waiting.is_empty()).await;
            let next = {
                let mut state = lock(&self.0.state);
                if !me(&state) {
                    return;
                }
                let worker = state.workers.get_mut(&number);
                worker.and_then(|worker| {
                    let (task, args) = worker.waiting.pop_front()?;
                    if task <= worker.recalled {
                        worker.answer(task, Err("recalled"));
                        return None;
                    }
                    worker.begun = task;
                    worker.running = Some(task);
                    worker.interrupted = false;
                    let running = Running::begin(&self, &args);
                    worker.running_try = running.number;
                    Some((task, running))
                })
            };
            let Some((task, running)) = next else { continue };
            let work = self.work_of(&running.args);
            if let Some(worker) = lock(&self.0.state).workers.get_mut(&number) {
                worker.deaf = matches!(work, Work::Deaf(_));
            }
            let interrupted = self.until(|state| {
                !me(state)
                    || !matches!(work, Work::UntilKilled | Work::Deaf(_)) && {
                        let worker = &state.workers[&number];
                        worker.interrupted && worker.cancelled.contains(&task)
                    }
            });
            let ended = tokio::select! {
                biased;
                () = interrupted => Err("cancelled"),
                () = self.items(number, task, work, &running.args) => Ok(Bytes::from_static(b"\xc0")),
                played = self.play(number, pid, (task, 0), work, &running) => match played {
                    Some(ended) => ended,
                    None => return,
                },
            };
            self.until(|state| !me(state) || !state.frozen).await;
            let mut state = lock(&self.0.state);
            if !me(&state) {
                return;
            }
            self.end_calls(&mut state, number);
            if let Some(worker) = state.workers.get_mut(&number) {
                worker.running = None;
                worker.deaf = false;
                worker.cancelled.remove(&task);
                worker.answer(task, ended);
            }
            drop(state);
            drop(running);
            self.0.changed.notify_waiters();
        }
    }

    /// What a task or a call with these arguments does, at this start of it.
    pub(super) fn work_of(&self, args: &Bytes) -> Work {
        self.0.fate.work(args, self.0.witness.run(args))
    }

    /// Does this work within a frame of a worker, a run or a call that it helps with; what it comes to. None: its
    /// worker has ended.
    pub(super) async fn play(
        &self,
        number: u32,
        pid: u32,
        frame: (u64, u64),
        work: Work,
        running: &Running,
    ) -> Option<Result<Bytes, &'static str>> {
        match work {
            Work::Return(time) | Work::Deaf(time) => {
                sleep(time).await;
                Some(Ok(running.args.clone()))
            }
            Work::Raise(time) => {
                sleep(time).await;
                Some(Err("exception"))
            }
            Work::Crash(time, signal) => {
                sleep(time).await;
                let me = |state: &State| state.workers.get(&number).is_some_and(|it| it.pid == pid && it.alive);
                self.until(|state| !me(state) || !state.frozen).await;
                {
                    let mut state = lock(&self.0.state);
                    if me(&state) {
                        self.end_worker(&mut state, number, None, Some(signal));
                    }
                }
                self.0.changed.notify_waiters();
                None
            }
            Work::Call(count, hidden) => {
                let good = self.call_and_wait(number, pid, frame, running, count, Wait::ForAll { hidden }).await?;
                Some(if good { Ok(running.args.clone()) } else { Err("exception") })
            }
            Work::CallBriefly(count, time) => {
                self.call_and_wait(number, pid, frame, running, count, Wait::Until(Instant::now() + time)).await?;
                Some(Ok(running.args.clone()))
            }
            Work::Yield(..) | Work::UntilInterrupted | Work::UntilKilled => std::future::pending().await,
        }
    }

    pub(super) fn fate(&self) -> &dyn Fate {
        &*self.0.fate
    }

    /// Whether it was frozen some time.
    pub(super) fn froze(&self) -> bool {
        self.0.froze.load(Ordering::Relaxed)
    }

    /// Which node it is.
    pub(super) fn node(&self) -> u32 {
        self.0.node
    }

    pub(super) fn witness(&self) -> &Witness {
        &self.0.witness
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Something has changed that a task of the node may wait for.
    pub(super) fn changed(&self) {
        self.0.changed.notify_waiters();
    }

    /// Sends the items of a task that yields; of another one there is no end.
    async fn items(&self, number: u32, task: u64, work: Work, args: &Bytes) {
        let Work::Yield(count, time) = work else { return std::future::pending().await };
        for index in 0..u64::from(count) {
            sleep(time).await;
            let may = |worker: &Worker| worker.streams.get(&task).is_some_and(|stream| stream.next < stream.granted);
            self.until(|state| !state.frozen && state.workers.get(&number).is_none_or(may)).await;
            let mut state = lock(&self.0.state);
            let Some(worker) = state.workers.get_mut(&number) else { return };
            let item = Frame { head: pack(&(100, task, index)), body: args.clone() };
            if let Some(client) = &worker.client {
                push(client, item.clone());
            }
            if let Some(stream) = worker.streams.get_mut(&task) {
                stream.next = index + 1;
                stream.items.push_back((index, item));
            }
        }
    }

    /// Ends everything when nobody has renewed the lease.
    async fn hold_lease(&self) {
        loop {
            let Some(lease) = lock(&self.0.state).lease else { return };
            if lease <= Instant::now() {
                // What is frozen does not end itself either.
                self.until(|state| !state.frozen).await;
                return self.end();
            }
            tokio::select! {
                biased;
                () = sleep_until(lease) => {}
                () = self.until(|state| state.lease != Some(lease)) => {}
            }
        }
    }

    pub(super) async fn until(&self, mut reached: impl FnMut(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if reached(&lock(&self.0.state)) {
                return;
            }
            changed.await;
        }
    }
}

impl Worker {
    fn acknowledge(&mut self, sequence: u64) {
        while let Some((_, run, _)) = self.kept.pop_front_if(|(kept, ..)| *kept <= sequence) {
            self.streams.remove(&run);
        }
    }

    /// Keeps an answer until it is acknowledged, and sends it where there is somebody to send it to.
    fn answer(&mut self, task: u64, outcome: Result<Bytes, &'static str>) {
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

/// Which of a node's sockets a connection goes to.
#[derive(Debug, Clone, Copy)]
enum End {
    Agent,
    Worker(u32),
    Calls(u32),
}

impl End {
    fn worker(self) -> Option<u32> {
        match self {
            Self::Agent => None,
            Self::Worker(worker) | Self::Calls(worker) => Some(worker),
        }
    }
}

fn is_there(state: &State, end: End, pid: Option<u32>, connection: u64) -> bool {
    let worker = |worker: u32| state.workers.get(&worker).filter(|it| it.alive && Some(it.pid) == pid);
    match end {
        End::Agent => state.agent,
        End::Worker(number) => worker(number).is_some_and(|it| it.newest == connection),
        End::Calls(number) => {
            worker(number).and_then(|it| it.calls.as_ref()).is_some_and(|calls| calls.newest == connection)
        }
    }
}

/// The failure map of this kind.
pub(super) fn failure_body(kind: &str) -> Bytes {
    let failure = Failure { kind, r#type: "Simulated", module: "builtins", message: kind, traceback: "" };
    rmp_serde::to_vec_named(&failure).unwrap_or_default().into()
}

#[derive(Serialize)]
struct Failure<'a> {
    kind: &'a str,
    r#type: &'a str,
    module: &'a str,
    message: &'a str,
    traceback: &'a str,
}

/// What is read of a start spec.
#[derive(Deserialize)]
struct Spec {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    node: u32,
    workers_per_node: u32,
}

/// Number, version, generation, acknowledged, and the streams: run, arrived, granted.
type Greeting = (u32, u32, u64, u64, Vec<(u64, u64, u64)>);
type Exited = (u32, u64, u32, u32, Option<i32>, Option<i32>, bool, u64);

fn exited(number: u32, worker: &Worker, code: Option<i32>, signal: Option<i32>) -> Exited {
    (36, worker.generation, number, worker.pid, code, signal, false, worker.begun)
}

pub(super) fn send(to: &Sender, head: &impl Serialize, body: Bytes) {
    push(to, Frame { head: pack(head), body });
}

pub(super) fn push(to: &Sender, frame: Frame) {
    if to.push(&frame.head, frame.body).is_ok() {
        to.flush();
    }
}

pub(super) fn pack(head: &impl Serialize) -> Bytes {
    rmp_serde::to_vec(head).unwrap_or_default().into()
}

pub(super) fn read<'a, T: Deserialize<'a>>(head: &'a [u8]) -> Option<T> {
    rmp_serde::from_slice(head).ok()
}

pub(super) fn number(mut head: &[u8]) -> Option<u32> {
    rmp::decode::read_array_len(&mut head).ok()?;
    rmp::decode::read_int(&mut head).ok()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const FIRST_PID: u32 = 100;
/// Whoever connects more often goes round in circles.
const MOST_CONNECTIONS: u64 = 2000;
/// Bytes under way in each direction of a connection.
const PIPE: usize = 4 << 10;
const MAX_FRAME: usize = 1 << 20;
