//! Every public future may be dropped at any await point: nothing of it is left, and the pool, if
//! it lives on, still answers.
//!
//! Each future is dropped after its n-th poll, for each n until it completes, and then after each
//! few milliseconds, because the tasks that it waits for have await points too. Everything runs on
//! fake machines and a paused clock, with a fresh pool each time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all as join_futures;
use skyward_core::compute::{ComputePool, ComputePoolExt};
use skyward_core::compute::{PendingCompute, join_all};
use skyward_core::error::{Error, ErrorKind};
use skyward_core::ids::NodeIndex;
use skyward_core::payload::{Args, Source, Streaming, Target};
use skyward_core::plugin::plugin;
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::fake_provider::{FakeProvider, Faults, Turn};
use skyward_core::testkit::fake_worker::{Fate, Work};
use skyward_core::testkit::script::{Answer, FakeTask, Rule, Script};
use tokio::time::{Instant, sleep, timeout};

/// When a future is dropped.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// After this many polls.
    Polls(usize),
    /// After this time.
    Time(Duration),
}

impl Cut {
    /// The output of the future, if it completes before it is dropped.
    async fn take<F: Future>(self, future: F) -> Option<F::Output> {
        match self {
            Self::Time(time) => timeout(time, future).await.ok(),
            Self::Polls(0) => {
                drop(future);
                None
            }
            Self::Polls(most) => {
                let mut future = pin!(future);
                let mut polls = 0;
                poll_fn(|context| {
                    polls += 1;
                    match future.as_mut().poll(context) {
                        Poll::Ready(output) => Poll::Ready(Some(output)),
                        Poll::Pending if polls == most => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            }
        }
    }
}

/// Every step takes some time, and works.
#[derive(Debug)]
struct Slow;

/// A provider with these faults. The argument `n` is at the end of the map of a task: 200 for one that
/// streams, 201 for one that ignores interrupts.
fn provider(faults: impl Faults) -> FakeProvider {
    let work = |task: &FakeTask<'_>| match task.sent().last() {
        Some(200) => Work::Yield(3, TASK_RUN),
        Some(201) => Work::UntilKilled,
        _ => Work::Return(TASK_RUN),
    };
    FakeProvider::new(Script::new().faults(faults).rule(Rule::all().answer(move |task| Answer::does(work(task)))))
}

impl Fate for Slow {
    fn hooks(&self, _: u32, _: u32, _: u64) -> Option<Duration> {
        Some(Duration::from_millis(30))
    }

    fn delay(&self, _: u32, _: u64) -> Duration {
        Duration::from_millis(3)
    }
}

impl Faults for Slow {
    fn launch(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(50))
    }

    fn connect(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(20))
    }

    fn command(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(10))
    }

    fn terminate(&self, _: u32, _: u32) -> Turn {
        Turn::Works(Duration::from_millis(40))
    }
}

type Echo = BTreeMap<String, u32>;

fn call<T: skyward_core::payload::Output>(n: u32) -> PendingCompute<T> {
    PendingCompute::new(Arc::new(Source::file("a.py", "def f(n): ...", "f")), Args::new().with("n", &n))
}

fn echo(n: u32) -> PendingCompute<Echo> {
    call(n)
}

fn builder(provider: &FakeProvider, joined: bool) -> PoolBuilder {
    let mut limits = Limits::default();
    limits.max_queued = 4;
    limits.grace = GRACE;
    let builder = Pool::builder().provider(provider.clone()).nodes(Nodes::fixed(2)).limits(limits);
    if joined { builder.plugin(plugin("world").joins_world()) } else { builder }
}

/// Plays `body` with a fresh provider for each moment at which a future may be dropped, until
/// `body` returns that the future completed.
fn at_each_moment(step: Duration, body: impl AsyncFn(FakeProvider, Cut) -> bool) {
    let polls = (0..MOST).map(Cut::Polls);
    let times = (0..MOST as u32).map(|number| Cut::Time(step * number + Duration::from_millis(1)));
    let plays = [polls.collect::<Vec<_>>(), times.collect()];
    for cuts in plays {
        let mut completed = false;
        for cut in cuts {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            completed = runtime.block_on(async {
                let provider = provider(Slow);
                let body = async {
                    let completed = body(provider.clone(), cut).await;
                    settled(&provider, cut).await;
                    completed
                };
                timeout(TEST_BODY, body)
                    .await
                    .unwrap_or_else(|_| panic!("a future never completes, dropped at {cut:?}"))
            });
            if completed {
                break;
            }
        }
        assert!(completed, "the future never completed");
    }
}

/// Checks that nothing of the pool still runs.
async fn settled(provider: &FakeProvider, cut: Cut) {
    let end = Instant::now() + Duration::from_secs(300);
    while !provider.machines().is_empty() || tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
        assert!(Instant::now() < end, "left, dropped at {cut:?}: {:?}", provider.machines());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(provider.running(), [], "dropped at {cut:?}");
    assert_eq!(provider.witness().wrongs(), Vec::<String>::new(), "dropped at {cut:?}");
}

/// Plays `body` on a ready pool, at each moment. Afterwards the pool must still answer, and have no
/// task left.
fn on_a_pool(body: impl AsyncFn(&Pool, Cut) -> bool) {
    for joined in [false, true] {
        at_each_moment(TASK_RUN / 8, async |provider, cut| {
            let pool = builder(&provider, joined).start().await.unwrap();
            let completed = body(&pool, cut).await;
            let dropped = Instant::now();
            while pool.status().queued + pool.status().running > 0 {
                assert!(dropped.elapsed() < TASK_RUN / 2, "a task goes on, dropped at {cut:?}");
                sleep(Duration::from_millis(5)).await;
            }
            let answer = timeout(POOL_ANSWER, echo(99).broadcast(&pool)).await;
            let answers = answer.unwrap_or_else(|_| panic!("the pool does not answer, dropped at {cut:?}")).unwrap();
            assert_eq!(answers.iter().map(|answer| answer["n"]).collect::<Vec<_>>(), [99, 99]);
            assert_eq!(
                pool.status().generation.0,
                1,
                "no worker is killed for a task that ends when interrupted, dropped at {cut:?}"
            );
            pool.shutdown(Duration::from_secs(60)).await.unwrap();
            completed
        });
    }
}

#[test]
fn submit_while_the_queue_is_full() {
    on_a_pool(async |pool, cut| {
        let task = || echo(1).into_task().unwrap();
        let mut handles = Vec::new();
        for _ in 0..4 {
            handles.push(pool.submit(task(), Target::Any).await.unwrap());
        }
        let handle = cut.take(pool.submit(task(), Target::Any)).await;
        let completed = handle.is_some();
        for handle in handles.into_iter().chain(handle.map(Result::unwrap)) {
            assert!(handle.outcome().await.is_ok());
        }
        completed
    });
}

#[test]
fn submit_all_while_the_queue_is_full() {
    on_a_pool(async |pool, cut| {
        let handle = pool.submit(echo(1).into_task().unwrap(), Target::Any);
        let handles = [handle.await.unwrap(), pool.submit(echo(1).into_task().unwrap(), Target::Head).await.unwrap()];
        let third = pool.submit(echo(1).into_task().unwrap(), Target::Any).await.unwrap();
        let all = cut.take(pool.submit_all(echo(2).into_task().unwrap())).await;
        let completed = all.is_some();
        let outcomes = handles.into_iter().chain([third]).chain(all.into_iter().flat_map(Result::unwrap));
        for outcome in join_futures(outcomes.map(|handle| handle.outcome())).await {
            assert!(outcome.is_ok());
        }
        completed
    });
}

#[test]
fn run_and_run_on() {
    on_a_pool(async |pool, cut| {
        let any = cut.take(echo(1).run(pool)).await.map(Result::unwrap);
        let head = cut.take(echo(2).run_on(pool, Target::Head)).await.map(Result::unwrap);
        let node = cut.take(echo(3).run_on(pool, Target::Node(NodeIndex(1)))).await.map(Result::unwrap);
        any.is_some() && head.is_some() && node.is_some()
    });
}

#[test]
fn a_handle_and_its_outcome() {
    on_a_pool(async |pool, cut| {
        let handle = pool.submit(echo(1).into_task().unwrap(), Target::Any).await.unwrap();
        let mut stream = pool.submit(call::<Streaming<Echo>>(200).into_task().unwrap(), Target::Any).await.unwrap();
        let outcome = cut.take(handle.outcome()).await.map(Result::unwrap);
        let items = cut
            .take(async {
                let mut items = 0;
                while let Some(item) = stream.next_item().await {
                    item.unwrap();
                    items += 1;
                }
                items
            })
            .await;
        assert!(items.is_none_or(|items| items == 3));
        outcome.is_some() && items.is_some()
    });
}

#[test]
fn broadcast() {
    on_a_pool(async |pool, cut| cut.take(echo(1).broadcast(pool)).await.map(Result::unwrap).is_some());
}

#[test]
fn several_at_the_same_time() {
    on_a_pool(async |pool, cut| {
        let two = cut.take((echo(1) & echo(2)).run(pool)).await.map(Result::unwrap);
        let many = cut.take(join_all((0..6).map(echo)).run(pool)).await.map(Result::unwrap);
        two.is_some() && many.is_some()
    });
}

#[test]
fn map() {
    on_a_pool(async |pool, cut| cut.take(pool.map((0..6).map(echo))).await.map(Result::unwrap).is_some());
}

#[test]
fn map_unordered_loses_no_result_when_its_next_is_dropped() {
    use futures_util::StreamExt;
    on_a_pool(async |pool, cut| {
        let mut results = pool.map_unordered((0..6).map(echo));
        let first = cut.take(results.next()).await;
        let completed = first.is_some();
        let mut indices: Vec<usize> = first.flatten().into_iter().map(|(index, _)| index).collect();
        while let Some((index, result)) = results.next().await {
            assert_eq!(result.unwrap()["n"], index as u32);
            indices.push(index);
        }
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2, 3, 4, 5]);
        // Here the whole stream is dropped in the middle.
        let mut results = pool.map_unordered((0..6).map(echo));
        cut.take(results.next()).await;
        completed
    });
}

#[test]
fn a_stream_loses_no_item_when_its_next_is_dropped() {
    on_a_pool(async |pool, cut| {
        let mut stream = call::<Streaming<Echo>>(200).run(pool).await.unwrap();
        let first = cut.take(stream.next()).await;
        let completed = first.is_some();
        let rest = stream.collect().await.unwrap();
        assert_eq!(rest.len() + usize::from(completed), 3);
        let stream = call::<Streaming<Echo>>(200).run(pool).await.unwrap();
        let collected = cut.take(stream.collect()).await;
        completed && collected.is_some()
    });
}

#[test]
fn events_lose_none_when_their_next_is_dropped() {
    on_a_pool(async |pool, cut| {
        let mut events = pool.events();
        let mut running = pin!(echo(1).run(pool));
        let first = cut.take(async { tokio::join!(events.next(), running.as_mut()).0 }).await;
        let completed = first.is_some();
        if !completed {
            // Only the wait for the event was dropped.
            let ended = async {
                while !matches!(events.next().await, Some(skyward_core::event::EventItem::Event(event)) if matches!(*event, skyward_core::event::PoolEvent::TaskFinished { .. }))
                {
                }
            };
            tokio::join!(ended, async { running.await.unwrap() });
        }
        completed
    });
}

#[test]
fn resize() {
    on_a_pool(async |pool, cut| cut.take(pool.resize(Nodes::fixed(2))).await.is_some());
}

#[test]
fn start() {
    for joined in [false, true] {
        at_each_moment(MOMENTS_APART, async |provider, cut| match cut.take(builder(&provider, joined).start()).await {
            Some(pool) => {
                assert_eq!(echo(1).run(&pool.unwrap()).await.unwrap()["n"], 1);
                true
            }
            None => false,
        });
    }
}

#[test]
fn scope() {
    for joined in [false, true] {
        at_each_moment(MOMENTS_APART, async |provider, cut| {
            let scope = builder(&provider, joined).scope(async |pool| echo(1).broadcast(pool).await);
            cut.take(scope).await.map(Result::unwrap).is_some()
        });
    }
}

#[test]
fn start_until() {
    for joined in [false, true] {
        at_each_moment(MOMENTS_APART, async |provider, cut| {
            let stop = sleep(Duration::from_millis(60));
            let stopped = cut.take(builder(&provider, joined).until(stop).start()).await;
            let kind = stopped.as_ref().map(|stopped| stopped.as_ref().map(drop).map_err(Error::kind));
            assert!(kind.is_none_or(|kind| kind == Err(ErrorKind::Cancelled)), "{stopped:?}");
            stopped.is_some()
        });
    }
}

/// A task behind one that ignores its interrupt waits for the grace time and a fresh worker, and no
/// longer.
#[test]
fn a_task_behind_a_stubborn_one_waits_only_for_the_grace_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let provider = provider(Slow);
        let pool = builder(&provider, false).nodes(1).start().await.unwrap();
        let stubborn = pool.submit(echo(201).into_task().unwrap(), Target::Any).await.unwrap();
        sleep(TASK_RUN).await;
        let behind = pool.submit(echo(1).into_task().unwrap(), Target::Any).await.unwrap();
        let dropped = Instant::now();
        drop(stubborn);
        behind.outcome().await.unwrap();
        let fresh_worker = Duration::from_millis(100);
        assert!(dropped.elapsed() <= GRACE + fresh_worker + TASK_RUN, "{:?}", dropped.elapsed());
        assert!(dropped.elapsed() >= GRACE, "the stubborn task ended before its grace time");
        pool.shutdown(Duration::from_secs(60)).await.unwrap();
    });
}

/// A node whose next frame is lost with its connection when the flag is set.
#[derive(Debug, Default)]
struct Cuttable(Arc<AtomicBool>);

impl Fate for Cuttable {
    fn cut(&self, _: u32, _: u64, _: u64) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Faults for Cuttable {}

/// The frame that cancels a task which waits on its worker is lost: the cancel is sent again, and
/// the worker is not killed.
#[test]
fn a_cancellation_that_is_lost_with_its_connection_costs_no_worker() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cut = Arc::new(AtomicBool::default());
        let provider = provider(Cuttable(Arc::clone(&cut)));
        let pool = builder(&provider, false).nodes(1).start().await.unwrap();
        // The worker reports short tasks, so the next one is sent while one runs.
        echo(1).run(&pool).await.unwrap();
        let worker = pool.status().workers[0].pid;
        let task = || echo(2).into_task().unwrap();
        let running = pool.submit(task(), Target::Any).await.unwrap();
        let behind = pool.submit(task(), Target::Any).await.unwrap();
        assert_eq!(pool.status().queued, 0, "both are on the worker");
        sleep(TASK_RUN / 4).await;
        cut.store(true, Ordering::SeqCst);
        drop(behind);
        running.outcome().await.unwrap();
        let began = Instant::now();
        echo(3).run(&pool).await.unwrap();
        assert!(began.elapsed() < GRACE, "{:?}", began.elapsed());
        assert_eq!(pool.status().running, 0);
        // The worker must not be killed when the grace time of the cancelled task is over either.
        sleep(GRACE * 2).await;
        assert_eq!(pool.status().workers[0].pid, worker);
        assert!(!cut.load(Ordering::SeqCst), "a frame was lost");
        pool.shutdown(Duration::from_secs(60)).await.unwrap();
    });
}

#[test]
fn shutdown() {
    for joined in [false, true] {
        at_each_moment(MOMENTS_APART, async |provider, cut| {
            let pool = builder(&provider, joined).start().await.unwrap();
            let running = pool.submit(echo(1).into_task().unwrap(), Target::Any).await.unwrap();
            let deadline = Duration::from_secs(60);
            let completed = cut.take(pool.shutdown(deadline)).await.map(Result::unwrap).is_some();
            match cut {
                // `shutdown` was never polled.
                Cut::Polls(0) => assert!(running.outcome().await.is_ok()),
                _ => assert_eq!(running.outcome().await.unwrap_err().kind(), ErrorKind::Closed, "{cut:?}"),
            }
            pool.shutdown(deadline).await.unwrap();
            assert_eq!(echo(1).run(&pool).await.unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(provider.machines(), []);
            completed
        });
    }
}

/// How long a task runs, or the next item of a stream takes. A cancelled task ends sooner.
const TASK_RUN: Duration = Duration::from_millis(400);
const GRACE: Duration = Duration::from_secs(1);
/// The time between two moments at which a future is dropped.
const MOMENTS_APART: Duration = Duration::from_millis(7);
/// The most moments at which a future is dropped; every future here completes earlier.
const MOST: usize = 200;
/// How long a pool may take to answer: longer than all grace times.
const POOL_ANSWER: Duration = Duration::from_secs(30);
const TEST_BODY: Duration = Duration::from_secs(3600);
