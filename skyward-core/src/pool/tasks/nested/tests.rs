use std::collections::VecDeque;

use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;

use super::connection::{attach, read};
use super::*;
use crate::compute::CallsStatus;
use crate::event::{EventItem, PoolEvent};
use crate::payload::TaskHandle;
use crate::pool::tasks::replies::tests::{LIFE, RANK, frame, pool, submit, wire};
use crate::worker::link::{Reader, Writer, link};

const PID: u32 = 7;

/// A worker that has been sent two runs and has a connection for its calls.
struct Scene {
    shared: Arc<Shared>,
    /// The connection for its runs.
    main: u64,
    calls: u64,
    reader: Reader,
    waiting: VecDeque<Frame>,
    runs: [u64; 2],
    _tasks: [TaskHandle; 2],
    _writers: Vec<Writer>,
}

impl Scene {
    async fn new() -> Self {
        let shared = pool();
        shared.lock().workers.get_mut(Rank(0)).unwrap().process.on_started(PID, String::new());
        let (worker, main_writers, _) = wire();
        let main = shared.on_worker_connected(RANK, LIFE, &worker, 0).unwrap();
        // No task is sent ahead to a worker before its tasks have been short for a while.
        for run in 1..=64 {
            let _short = submit(&shared, false).await;
            Self::end(&shared, main, run);
        }
        let tasks = [submit(&shared, false).await, submit(&shared, false).await];
        let runs: Vec<u64> = shared.lock().workers.get(Rank(0)).unwrap().session.sent().map(|(run, _)| run).collect();
        shared.on_calls(RANK, LIFE, PID, "w0.calls".to_owned());
        let (sender, writers, reader) = wire();
        let calls = attach(&shared, RANK, LIFE, &sender, 0).unwrap().unwrap();
        let writers = main_writers.into_iter().chain(writers).collect();
        let runs = runs.try_into().unwrap();
        Self { shared, main, calls, reader, waiting: VecDeque::new(), runs, _tasks: tasks, _writers: writers }
    }

    /// Ends a run with a result.
    fn end(shared: &std::sync::Arc<Shared>, main: u64, run: u64) {
        let mut result = vec![frame(&(98, run, run, 0, 0, 1), Bytes::from_static(b"\xc0"))];
        shared.on_frames(RANK, LIFE, main, &mut result).unwrap();
    }

    /// The worker makes a call in one of its runs.
    fn calls(&self, n: u64, run: u64) -> Result<()> {
        let mut call = vec![frame(&(162, n, n, run, 0, ()), Bytes::from_static(b"call"))];
        self.shared.on_call_frames(RANK, LIFE, self.calls, &mut call)
    }

    /// The worker sends messages about calls.
    fn say(&self, frames: &[Frame]) {
        self.shared.on_call_frames(RANK, LIFE, self.calls, &mut frames.to_vec()).unwrap();
    }

    /// The worker reconnects, and reports how many messages it has received.
    fn connect(&mut self, received: u64) {
        let (sender, writers, reader) = wire();
        self.calls = attach(&self.shared, RANK, LIFE, &sender, received).unwrap().unwrap();
        (self.reader, self.waiting) = (reader, VecDeque::new());
        self._writers.extend(writers);
    }

    /// The elements of the next message to the worker.
    async fn next(&mut self) -> Vec<u64> {
        let next = self.reader.next(&mut self.waiting);
        let frame = tokio::time::timeout(Duration::from_secs(9), next).await.unwrap().unwrap();
        let head: Vec<serde_json::Value> = rmp_serde::from_slice(&frame.head).unwrap();
        head.iter().map(|element| element.as_u64().unwrap_or_default()).collect()
    }

    /// The next help: its number, the run, and the helped call in whose wait it runs.
    async fn help(&mut self) -> (u64, u64, u64) {
        let head = self.next().await;
        assert_eq!(head[0], 131);
        (head[2], head[3], head[4])
    }

    /// The next message, an outcome: its number, and the call.
    async fn outcome(&mut self) -> (u64, u64) {
        let head = self.next().await;
        assert_eq!(head[0], 130);
        (head[1], head[2])
    }

    fn open(&self) -> usize {
        self.shared.lock().workers.get(Rank(0)).unwrap().calls().unwrap().made.len()
    }

    fn fruitless(&self) -> u32 {
        self.shared.lock().workers.get(Rank(0)).unwrap().calls().unwrap().fruitless
    }
}

#[tokio::test]
async fn a_call_that_arrives_before_the_result_of_the_previous_run_is_accepted() {
    let scene = Scene::new().await;
    scene.calls(1, scene.runs[1]).unwrap();
    assert_eq!(scene.open(), 1);
    Scene::end(&scene.shared, scene.main, scene.runs[0]);
    assert_eq!(scene.open(), 1, "the call belongs to the run that goes on");
    Scene::end(&scene.shared, scene.main, scene.runs[1]);
    assert_eq!(scene.open(), 0);
}

#[tokio::test]
async fn a_call_of_a_run_that_has_ended_is_answered() {
    let mut scene = Scene::new().await;
    Scene::end(&scene.shared, scene.main, scene.runs[0]);
    scene.calls(1, scene.runs[0]).unwrap();
    assert_eq!(scene.open(), 0);
    assert_eq!(scene.outcome().await, (1, 1));
}

#[tokio::test]
async fn messages_count_once_even_if_connections_are_cut() {
    let mut scene = Scene::new().await;
    let run = scene.runs[0];
    scene.calls(1, run).unwrap();
    scene.connect(0);
    // The worker does not know that its first message has arrived.
    scene.calls(1, run).unwrap();
    scene.calls(2, run).unwrap();
    assert_eq!(scene.open(), 2);
    assert_eq!(scene.calls(4, run).unwrap_err().kind(), ErrorKind::Protocol);
    let mut drops = vec![frame(&(168, 3, 2), Bytes::new()), frame(&(168, 4, 1), Bytes::new())];
    scene.shared.on_call_frames(RANK, LIFE, scene.calls, &mut drops).unwrap();
    assert_eq!([scene.outcome().await, scene.outcome().await], [(1, 2), (2, 1)]);
    // A message that the worker has not received is sent again with its number; a message that it
    // has received is not.
    scene.connect(1);
    assert_eq!(scene.outcome().await, (2, 1));
    scene.connect(1);
    assert_eq!(scene.outcome().await, (2, 1));
}

#[tokio::test]
async fn messages_over_a_replaced_connection_are_ignored() {
    let mut scene = Scene::new().await;
    let old = scene.calls;
    scene.connect(0);
    let mut call = vec![frame(&(162, 1, 1, scene.runs[0], 0, ()), Bytes::from_static(b"call"))];
    scene.shared.on_call_frames(RANK, LIFE, old, &mut call).unwrap();
    assert_eq!(scene.open(), 0);
}

#[tokio::test]
async fn only_connections_with_invalid_messages_count_against_the_worker() {
    for (last, fruitless) in [(&b""[..], 0), (&[200, 0, 0, 0, 0][..], 0), (&[1, 0, 0, 0, 0, 0, 0, 0, 0xc1][..], 1)] {
        let scene = Scene::new().await;
        for times in 1..=3 {
            let (near, mut far) = tokio::io::duplex(1 << 10);
            let (_, _, reader) = link(Box::new(near), 1 << 20);
            far.write_all(last).await.unwrap();
            drop(far);
            read(Arc::clone(&scene.shared), RANK, LIFE, reader, scene.calls).await;
            assert_eq!(scene.fruitless(), fruitless * times, "{last:?}");
        }
        scene.calls(1, scene.runs[0]).unwrap();
        assert_eq!(scene.fruitless(), 0, "a valid message ends the count");
    }
}

#[tokio::test(start_paused = true)]
async fn events_and_status_count_the_calls_below_a_task() {
    let scene = Scene::new().await;
    let mut events = scene.shared.events();
    let mut reports = move || {
        let mut reports = Vec::new();
        while let Some(Some(EventItem::Event(event))) = events.next().now_or_never() {
            match *event {
                PoolEvent::Calls { task, done, running, waiting } => reports.push((task, done, running, waiting)),
                PoolEvent::TaskFinished { task, .. } => reports.push((task, 0, 0, 0)),
                _ => {}
            }
        }
        reports
    };
    let run = scene.runs[0];
    let task = scene.shared.status().workers[0].task.unwrap();
    let status = |waiting, running, helps: usize| {
        let status = scene.shared.status();
        let calls = CallsStatus { waiting, running, helped: helps };
        assert_eq!(status.calls, calls);
        assert_eq!(status.running, 1);
        assert_eq!(status.workers[0].helps.len(), helps);
        assert!(status.queued >= waiting, "{status:?}");
    };
    for call in 1..=3 {
        scene.calls(call, run).unwrap();
    }
    status(3, 0, 0);
    assert_eq!(reports(), [], "there is no report for each call");
    scene.say(&[frame(&(163, 4, run, 0), Bytes::new())]);
    status(2, 1, 1);
    let pass = async || {
        tokio::time::advance(Duration::from_secs(1)).await;
        scene.shared.act(|_, _| ());
    };
    pass().await;
    assert_eq!(reports(), [(task, 0, 1, 2)]);
    pass().await;
    assert_eq!(reports(), [], "nothing has changed");
    // The worker refuses the first call and waits again; then it takes a call and runs it.
    scene.say(&[frame(&(167, 5, 1), Bytes::new())]);
    status(3, 0, 0);
    scene.say(&[frame(&(163, 6, run, 0), Bytes::new())]);
    let done = scene.shared.status().workers[0].helps[0];
    scene.say(&[frame(&(165, 7, 2, 10), Bytes::from_static(b"\0"))]);
    status(1, 1, 1);
    pass().await;
    assert_eq!(reports(), [(done, 0, 0, 0), (task, 1, 1, 1)], "a helped call finishes like other calls");
    Scene::end(&scene.shared, scene.main, run);
    status(0, 0, 0);
    assert_eq!(reports(), [(task, 3, 0, 0), (task, 0, 0, 0)], "the last report comes before the outcome");
}

#[tokio::test]
async fn a_help_names_the_caller_in_whose_wait_it_runs() {
    let mut scene = Scene::new().await;
    let run = scene.runs[0];
    scene.calls(1, run).unwrap();
    let mut frames = vec![frame(&(163, 2, run, 0), Bytes::new())];
    scene.shared.on_call_frames(RANK, LIFE, scene.calls, &mut frames).unwrap();
    assert_eq!(scene.help().await, (1, run, 0));
    let call = frame(&(162, 3, 2, run, 1, ()), Bytes::from_static(b"call"));
    let mut frames = vec![call, frame(&(163, 4, run, 1), Bytes::new())];
    scene.shared.on_call_frames(RANK, LIFE, scene.calls, &mut frames).unwrap();
    assert_eq!(scene.help().await, (2, run, 1));
    // The first call has ended, and the worker may not have begun the second: the second is
    // cancelled.
    let mut frames = vec![frame(&(165, 5, 1, 10), Bytes::from_static(b"\0"))];
    scene.shared.on_call_frames(RANK, LIFE, scene.calls, &mut frames).unwrap();
    let mut kinds = Vec::new();
    for _ in 0..3 {
        kinds.push(scene.next().await[0]);
    }
    kinds.sort_unstable();
    assert_eq!(kinds, [130, 130, 132], "two outcomes, and a cancel");
}

#[tokio::test]
async fn a_part_of_a_file_goes_from_the_worker_that_has_it_to_the_one_that_asks() {
    let mut scene = Scene::new().await;
    let say = |scene: &Scene, message: Frame| {
        scene.shared.on_call_frames(RANK, LIFE, scene.calls, &mut vec![message]).unwrap();
    };
    let fetch = |n: u64, fetch: u64, rank: u32| frame(&(170, n, fetch, rank, "0a", 7, 9), Bytes::new());
    // In this test, one worker is both.
    say(&scene, fetch(1, 5, RANK.0));
    say(&scene, fetch(2, 6, RANK.0));
    assert_eq!([scene.next().await, scene.next().await], [[134, 1, 1, 0, 7, 9], [134, 2, 2, 0, 7, 9]]);
    say(&scene, frame(&(172, 3, 1), Bytes::new()));
    say(&scene, frame(&(171, 4, 2), Bytes::from_static(b"a part")));
    assert_eq!([scene.next().await, scene.next().await], [[136, 3, 5], [135, 4, 6]]);
    // An answer counts once, and a worker that does not exist has no file.
    say(&scene, frame(&(171, 5, 2), Bytes::from_static(b"a part")));
    say(&scene, fetch(6, 7, 9));
    assert_eq!(scene.next().await, [136, 5, 7]);
    // Another process of the rank has requested nothing.
    say(&scene, fetch(7, 8, RANK.0));
    assert_eq!(scene.next().await, [134, 6, 3, 0, 7, 9]);
    scene.shared.lock().workers.get_mut(Rank(0)).unwrap().calls_mut().unwrap().pid += 1;
    say(&scene, frame(&(171, 8, 3), Bytes::from_static(b"a part")));
    say(&scene, fetch(9, 9, 9));
    assert_eq!(scene.next().await, [136, 7, 9]);
}
