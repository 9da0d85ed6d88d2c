//! Backpressure: a slow reader or a slow pool holds up nothing else, and nothing grows without a
//! bound.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use skyward_core::compute::PendingCompute;
use skyward_core::compute::{ComputePool, ComputePoolExt, PoolPhase, PoolStatus};
use skyward_core::error::Result;
use skyward_core::event::{EventItem, Events, PoolEvent};
use skyward_core::ids::{PoolId, Rank, TaskId};
use skyward_core::payload::{Payload, Target, Task, TaskHandle, TaskReply, Value};
use skyward_core::pool::Pool;
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::fake_provider::FakeProvider;
use skyward_core::testkit::fake_worker::Faultless;

/// A pool that answers when the test says so, and counts the calls.
#[derive(Default)]
struct Slow {
    waiting: Mutex<Vec<TaskReply>>,
    most: AtomicUsize,
    answered: AtomicUsize,
    result: usize,
}

impl Slow {
    fn answer_all(&self) {
        for reply in std::mem::take(&mut *self.waiting.lock().unwrap()) {
            self.answered.fetch_add(1, Ordering::Relaxed);
            // MessagePack's `bin 32`.
            let mut bytes = vec![0xc6];
            bytes.extend((self.result as u32).to_be_bytes());
            bytes.resize(5 + self.result, 7);
            reply.send(Ok(Value::new(bytes, Rank(0))));
        }
    }
}

#[async_trait]
impl ComputePool for Slow {
    async fn submit(&self, _: Task, _: Target) -> Result<TaskHandle> {
        let (handle, reply) = TaskHandle::new(TaskId(1), || ());
        let mut waiting = self.waiting.lock().unwrap();
        waiting.push(reply);
        self.most.fetch_max(waiting.len(), Ordering::Relaxed);
        Ok(handle)
    }

    async fn submit_all(&self, _: Task) -> Result<Vec<TaskHandle>> {
        Ok(Vec::new())
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::new(PoolId::random(), PoolPhase::Ready)
    }

    fn events(&self) -> Events {
        Events::new(futures_util::stream::empty())
    }

    async fn resize(&self, _: Nodes) -> Result<()> {
        Ok(())
    }

    async fn shutdown(&self, _: Duration) -> Result<()> {
        Ok(())
    }
}

fn call(bytes: usize) -> PendingCompute<bytes::Bytes> {
    Payload::python("a.py", "def f(data): return data", "f").arg("data", vec![0_u8; bytes]).into()
}

/// The highest number of calls that were taken from the iterator and whose results were not yet
/// returned. Reads results as fast as possible.
async fn most_under_way(pool: &Slow, count: usize, argument: usize) -> usize {
    let taken = AtomicUsize::new(0);
    let one = call(argument);
    let calls = (0..count).map(|_| {
        taken.fetch_add(1, Ordering::Relaxed);
        one.clone()
    });
    let mut results = pool.map_unordered(calls);
    let (mut given, mut most) = (0, 0);
    loop {
        let next = results.next();
        let item = match futures_util::FutureExt::now_or_never(next) {
            Some(item) => item,
            None => {
                most = most.max(taken.load(Ordering::Relaxed) - given);
                pool.answer_all();
                // Without a yield, tokio's budget for this task runs out, and its futures stay
                // pending.
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some((_, result)) = item else { break };
        result.unwrap();
        given += 1;
    }
    assert_eq!(given, count);
    assert_eq!(taken.load(Ordering::Relaxed), count);
    most
}

#[tokio::test]
async fn a_map_of_a_million_calls_has_a_thousand_under_way() {
    let pool = Slow::default();
    assert_eq!(most_under_way(&pool, 1_000_000, 0).await, 1024);
    assert_eq!(pool.most.into_inner(), 1024);
}

#[tokio::test]
async fn a_map_has_few_large_arguments_and_results_under_way() {
    let pool = Slow::default();
    assert_eq!(most_under_way(&pool, 60, 16 << 20).await, LEAST);
    let pool = Slow { result: 16 << 20, ..Slow::default() };
    assert_eq!(most_under_way(&pool, 60, 0).await, LEAST);
    let pool = Slow { result: 1 << 20, ..Slow::default() };
    assert_eq!(most_under_way(&pool, 300, 0).await, 63, "of 1 MiB and a few bytes: 64 MiB of results");
}

/// A worker that gets calls one by one is woken for each of them.
#[tokio::test]
async fn a_map_of_many_small_calls_submits_them_in_bursts() {
    let pool = Slow::default();
    let submitted = || pool.answered.load(Ordering::Relaxed) + pool.waiting.lock().unwrap().len();
    let (count, mut returned, mut bursts) = (20_000, 0, 0);
    let mut results = pool.map_unordered((0..count).map(|_| call(0)));
    while returned < count {
        let before = submitted();
        match futures_util::FutureExt::now_or_never(results.next()) {
            Some(result) => returned += usize::from(result.is_some()),
            None => {
                pool.answer_all();
                tokio::task::yield_now().await;
            }
        }
        bursts += usize::from(submitted() > before);
    }
    assert!(bursts < count / 50, "{count} calls in {bursts} bursts");
}

#[tokio::test]
async fn a_map_whose_reader_stops_holds_a_bounded_number_of_results() {
    let pool = Slow { result: 16 << 20, ..Slow::default() };
    let mut results = pool.map_unordered((0..100).map(|_| call(0)));
    assert!(futures_util::FutureExt::now_or_never(results.next()).is_none());
    pool.answer_all();
    tokio::task::yield_now().await;
    assert!(results.next().await.is_some());
    // The reader has stopped: only the calls under way return.
    for _ in 0..100 {
        pool.answer_all();
        tokio::task::yield_now().await;
    }
    assert!(pool.answered.load(Ordering::Relaxed) <= 2 * LEAST);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_events_learns_how_many_it_missed_and_slows_nothing_down() {
    let provider = FakeProvider::new(Arc::new(Faultless));
    let pool = Pool::builder().provider(provider).nodes(2).start().await.unwrap();
    let (mut asleep, mut awake) = (pool.events(), pool.events());
    let watch = tokio::spawn(async move {
        let (mut finished, mut missed) = (0, 0);
        while let Some(item) = awake.next().await {
            match item {
                EventItem::Event(event) => finished += usize::from(matches!(*event, PoolEvent::TaskFinished { .. })),
                EventItem::Missed(count) => missed += count,
                _ => {}
            }
        }
        (finished, missed)
    });
    let source = Arc::new(skyward_core::payload::Source::file("a.py", "def f(n): return n", "f"));
    for number in 0..TASKS {
        let args = skyward_core::payload::Args::new().with("n", &number).encode().unwrap();
        let handle = pool.submit(Task::new(Arc::clone(&source), args), Target::Any).await.unwrap();
        handle.outcome().await.unwrap();
    }
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
    assert_eq!(watch.await.unwrap(), (TASKS, 0), "a reader that keeps up misses nothing");
    let Some(EventItem::Missed(missed)) = asleep.next().await else { panic!("it has missed some") };
    let mut left = 0;
    while let Some(item) = asleep.next().await {
        assert!(matches!(item, EventItem::Event(_)), "missed events are reported once");
        left += 1;
    }
    assert!(left <= EVENTS && missed as usize + left >= 2 * TASKS, "{missed} missed, {left} kept");
}

#[tokio::test(start_paused = true)]
async fn a_map_whose_reader_makes_another_call_does_not_keep_that_call_out_of_a_full_queue() {
    let provider = FakeProvider::new(Arc::new(Faultless));
    let limits = Limits::default().max_queued(3);
    let pool = Pool::builder().provider(provider).limits(limits).start().await.unwrap();
    // A worker of this provider returns the arguments.
    let one = || -> PendingCompute<BTreeMap<String, u32>> {
        Payload::python("a.py", "def f(n): return n", "f").arg("n", 1).into()
    };
    let mut results = pool.map_unordered((0..20).map(|_| one()));
    let mut given = 0;
    while let Some((_, result)) = results.next().await {
        result.unwrap();
        given += 1;
        let another = tokio::time::timeout(Duration::from_secs(60), one().run(&pool)).await;
        another.expect("it found room in the queue").unwrap();
    }
    assert_eq!(given, 20);
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

/// How many calls of a map keep a small pool busy.
const LEAST: usize = 4;
const TASKS: usize = 4000;
/// How many events a reader may lag behind.
const EVENTS: usize = 4096;
