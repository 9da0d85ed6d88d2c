use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::*;
use crate::compute::PoolPhase;
use crate::ids::{Attempt, LaunchId, MachineId, MachineNumber, NodeIndex, OfferId, PoolId};
use crate::layout::Layout;
use crate::payload::{Args, Source, Target, Task, TaskHandle, TaskOptions};
use crate::pool::data::DataSets;
use crate::pool::fleet::Fleet;
use crate::pool::metrics::Metrics;
use crate::pool::tasks::node_rows::NodeRow;
use crate::pool::tasks::shared::Settings;
use crate::provider::{Facts, Machine, Place};
use crate::scheduler::Scheduler;
use crate::spec::{Limits, Nodes, Secrets};
use crate::worker::link::{Reader, Writer, link};
use crate::worker::message::ToAgent;

pub(crate) const RANK: Rank = Rank(0);
pub(crate) const LIFE: Generation = Generation(1);

/// A pool of one worker, without a driver, whose worker has no connection yet.
pub(crate) fn pool() -> Arc<Shared> {
    let (commands, _) = tokio::sync::mpsc::unbounded_channel();
    let limits = Limits::default();
    let (defaults, secrets, metrics) = (TaskOptions::default(), Secrets::default(), Metrics::new("test"));
    let settings = Settings {
        limits,
        is_mixed: false,
        defaults,
        secrets,
        requirements: Vec::new(),
        imports: Vec::new(),
        trace: None,
        metrics,
        account: Arc::default(),
        events: Arc::default(),
        storage: None,
        data: DataSets::new([]),
        news: None,
    };
    let shared = Shared::new(PoolId::random(), settings, commands);
    shared.act(|state, now| {
        state.scheduler = Scheduler::new(1, 1, false, limits);
        state.workers.add(1, limits.max_frame_bytes);
        *state.workers.get_mut(RANK).unwrap() = WorkerRow::new(LIFE, limits.max_frame_bytes);
        state.fleet = Fleet::new(false, Layout::new(1), Nodes::fixed(1), vec![MachineNumber(0)], std::iter::empty());
        let place = Arc::new(Place::new("", ""));
        let machine = Arc::new(machine(shared.pool.clone()));
        state.nodes.push(NodeRow { machine, place, agent: None, environment: None });
        state.scheduler.on_ready(now, RANK, Duration::ZERO);
    });
    shared.enter(PoolPhase::Ready);
    shared
}

fn machine(pool: PoolId) -> Machine {
    let number = MachineNumber(0);
    let launch = LaunchId::of(&pool, number, Attempt(1));
    Machine { id: MachineId::new("m-0"), launch, pool, number, offer: OfferId::new("o"), facts: Facts::new() }
}

pub(crate) async fn submit(shared: &Arc<Shared>, streaming: bool) -> TaskHandle {
    let source = Arc::new(Source::file("a.py", "def f(): pass".to_owned(), "f"));
    let task = Task::new(source, Args::new().encode().unwrap()).with_streaming(streaming);
    shared.submit(task, Target::Any).await.unwrap()
}

/// A link, and the reader of its other end.
pub(crate) fn wire() -> (Sender, [Writer; 2], Reader) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let (sender, near, _) = link(Box::new(near), 1 << 20);
    let (_, far, reader) = link(Box::new(far), 1 << 20);
    (sender, [near, far], reader)
}

/// The numbers in the next frame.
pub(crate) async fn next(reader: &mut Reader, waiting: &mut VecDeque<Frame>) -> Vec<u64> {
    let frame = reader.next(waiting).await.unwrap();
    let head: Vec<serde_json::Value> = rmp_serde::from_slice(&frame.head).unwrap();
    head.iter().filter_map(serde_json::Value::as_u64).collect()
}

pub(crate) fn frame(head: &impl Serialize, body: Bytes) -> Frame {
    Frame { head: rmp_serde::to_vec(head).unwrap().into(), body }
}

#[tokio::test]
async fn credit_that_is_granted_while_a_worker_reconnects_reaches_it() {
    let shared = pool();
    let mut stream = submit(&shared, true).await;
    let (old, _old_writers, _old_reader) = wire();
    let connection = shared.on_worker_connected(RANK, LIFE, &old, 0).unwrap();
    let mut items: Vec<Frame> = (0..16).map(|index| frame(&(100, 1, index), Bytes::from_static(b"\xc0"))).collect();
    shared.on_frames(RANK, LIFE, connection, &mut items).unwrap();
    let greeted = shared.lock().streams(RANK);
    assert_eq!(greeted[0].arrived, 16);
    assert_eq!(greeted[0].granted, 16, "the hello grants nothing");
    for _ in 0..16 {
        stream.next_item().await.unwrap().unwrap();
    }
    let (new, _writers, mut reader) = wire();
    shared.on_worker_connected(RANK, LIFE, &new, 1).unwrap();
    new.close();
    let mut waiting = VecDeque::new();
    assert_eq!(next(&mut reader, &mut waiting).await, [74, 1]);
    assert_eq!(next(&mut reader, &mut waiting).await, [69, 1, 32, 16]);
}

#[tokio::test]
async fn a_worker_that_refuses_a_run_that_was_not_recalled_is_killed() {
    let shared = pool();
    let _task = submit(&shared, false).await;
    let (worker, _worker_writers, _worker_reader) = wire();
    let connection = shared.on_worker_connected(RANK, LIFE, &worker, 0).unwrap();
    let (agent, _agent_writers, mut reader) = wire();
    {
        let mut state = shared.lock();
        state.nodes.get_mut(NodeIndex(0)).unwrap().agent = Some(agent);
        state.workers.get_mut(Rank(0)).unwrap().process.on_started(7, String::new());
    }
    #[derive(Serialize)]
    struct Failure {
        kind: &'static str,
        r#type: &'static str,
        module: &'static str,
        message: &'static str,
        traceback: &'static str,
    }
    let failure = Failure { kind: "recalled", r#type: "", module: "", message: "", traceback: "" };
    let body: Bytes = rmp_serde::to_vec_named(&failure).unwrap().into();
    let refuse = |sequence: u64, run: u64| vec![frame(&(99, sequence, run, 0, 0, 0), body.clone())];
    // The worker was asked to give back the first run, but not the second.
    let mut after = After::default();
    shared.lock().recall(RANK, &mut after);
    after.flush.iter().for_each(Sender::flush);
    let mut waiting = VecDeque::new();
    assert_eq!(next(&mut reader, &mut waiting).await, [9, 1, 0, 7, 1]);
    shared.on_frames(RANK, LIFE, connection, &mut refuse(1, 1)).unwrap();
    assert_eq!(shared.lock().workers.get(Rank(0)).unwrap().session.sent().map(|(run, _)| run).collect::<Vec<_>>(), [2]);
    shared.on_frames(RANK, LIFE, connection, &mut refuse(2, 2)).unwrap();
    let kill = ToAgent::Signal { generation: 1, worker: 0, signal: Signal::Kill };
    assert_eq!(reader.next(&mut waiting).await.unwrap().head[..], kill.encode().unwrap().0[..]);
}

#[tokio::test]
async fn an_answer_of_a_worker_whose_world_has_ended_causes_no_event() {
    for lost in [false, true] {
        let shared = pool();
        let task = submit(&shared, false).await;
        let (worker, _writers, _reader) = wire();
        let connection = shared.on_worker_connected(RANK, LIFE, &worker, 0).unwrap();
        let mut events = shared.events();
        if lost {
            shared.act(|state, now| {
                state.scheduler.on_lost(now, RANK, &WorkerExit::WorldEnded, &LastWords::default(), None)
            });
        }
        let mut answer = vec![frame(&(98, 1, 1, 0, 0, 5), Bytes::from_static(b"\xc0"))];
        shared.on_frames(RANK, LIFE, connection, &mut answer).unwrap();
        shared.emit(PoolEvent::Draining);
        let mut finished = 0;
        while let Some(crate::event::EventItem::Event(event)) = events.next().await {
            match &*event {
                PoolEvent::TaskFinished { task: id, .. } => finished += u32::from(*id == task.id()),
                PoolEvent::Draining => break,
                _ => {}
            }
        }
        assert_eq!(finished, u32::from(!lost));
    }
}
