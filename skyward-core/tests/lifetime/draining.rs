//! A pool that drains: running tasks finish, and nothing new begins.

use skyward_core::compute::{ComputePool, PoolPhase};
use skyward_core::error::ErrorKind;
use skyward_core::event::{EventItem, PoolEvent};
use skyward_core::ids::NodeIndex;
use skyward_core::payload::{Target, TaskHandle};
use skyward_core::pool::Pool;
use skyward_core::spec::{Budget, Limits, Nodes};
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::{Instant, sleep, timeout};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

struct Scene {
    provider: FakeProvider,
    pool: Pool,
    /// A task that runs on node 0.
    running: TaskHandle,
    /// A task that waits for it.
    waiting: TaskHandle,
}

/// A pool of two nodes, whose tasks take ten minutes.
async fn scene(machines: Machines, budget: Budget) -> Scene {
    let provider = FakeProvider::new(Machines { takes: 10 * MINUTE, ..machines });
    let pool = Pool::builder().provider(provider.clone()).nodes(2).budget(budget).start().await.unwrap();
    let submit = async || pool.submit(echo(1).into_task().unwrap(), Target::Node(NodeIndex(0))).await.unwrap();
    let (running, waiting) = (submit().await, submit().await);
    sleep(MINUTE).await;
    Scene { provider, pool, running, waiting }
}

/// How the two tasks end, how long the drain takes, and after how long the pool is closed.
async fn drained(scene: Scene, deadline: Duration) -> ([Result<(), ErrorKind>; 2], Duration) {
    let Scene { provider, pool, running, waiting } = scene;
    let kind = async |handle: TaskHandle| handle.outcome().await.map(drop).map_err(|error| error.kind());
    let began = Instant::now();
    let drained = async {
        let ended = timeout(60 * MINUTE, pool.drain(deadline)).await.unwrap();
        (ended, began.elapsed())
    };
    let ((ended, took), running, waiting) = tokio::join!(drained, kind(running), kind(waiting));
    ended.unwrap();
    assert_eq!(provider.machines(), []);
    let status = pool.status();
    assert_eq!(status.phase, PoolPhase::Closed);
    assert!(status.failure.is_none(), "somebody has asked for it");
    assert_eq!(pool.failed().await.map(|error| error.kind()), None);
    ([running, waiting], took)
}

const CLOSED: Result<(), ErrorKind> = Err(ErrorKind::Closed);

#[tokio::test(start_paused = true)]
async fn running_tasks_return_and_those_that_wait_fail() {
    let scene = scene(Machines::default(), Budget::default()).await;
    let pool = scene.pool.clone();
    let refused = tokio::spawn(async move {
        sleep(MINUTE).await;
        assert_eq!(pool.status().phase, PoolPhase::Draining);
        [echo(1).run(&pool).await.map(drop), pool.resize(Nodes::fixed(3)).await]
    });
    let (outcomes, took) = drained(scene, 30 * MINUTE).await;
    assert_eq!(outcomes, [Ok(()), CLOSED]);
    assert!(took >= 9 * MINUTE && took < 10 * MINUTE, "{took:?}");
    for refused in refused.await.unwrap() {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_running_tasks_are_interrupted() {
    let scene = scene(Machines::default(), Budget::default()).await;
    let (outcomes, took) = drained(scene, 3 * MINUTE).await;
    assert_eq!(outcomes, [CLOSED, CLOSED]);
    assert!(took >= 3 * MINUTE && took < 4 * MINUTE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_ends_before_the_deadline_ends_the_drain() {
    let scene = scene(Machines::default(), Budget::default().hours(0.1)).await;
    let (outcomes, took) = drained(scene, 60 * MINUTE).await;
    assert_eq!(outcomes, [CLOSED, CLOSED]);
    assert!(took < 6 * MINUTE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_meanwhile_is_neither_replaced_nor_tried_again() {
    let machines = Machines { lost_after: Some(3 * MINUTE), ..Machines::default() };
    let scene = scene(machines, Budget::default()).await;
    let provider = scene.provider.clone();
    let (outcomes, took) = drained(scene, 30 * MINUTE).await;
    assert_eq!(outcomes, [Err(ErrorKind::NodeLost), CLOSED]);
    assert_eq!(provider.launched(), 2);
    assert!(took < 10 * MINUTE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_drain_early_and_a_dropped_drain_goes_on() {
    for is_shut_down in [true, false] {
        let Scene { provider, pool, running, .. } = scene(Machines::default(), Budget::default()).await;
        let mut events = pool.events();
        assert!(timeout(MINUTE, pool.drain(30 * MINUTE)).await.is_err());
        if is_shut_down {
            pool.shutdown(MINUTE).await.unwrap();
        }
        let outcome = running.outcome().await.map(drop).map_err(|error| error.kind());
        assert_eq!(outcome, if is_shut_down { CLOSED } else { Ok(()) });
        let mut draining = 0;
        while let Some(item) = timeout(60 * MINUTE, events.next()).await.unwrap() {
            let EventItem::Event(event) = item else { panic!("events are missing") };
            draining += usize::from(matches!(*event, PoolEvent::Draining));
        }
        assert_eq!(draining, 1);
        assert_eq!(provider.machines(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_pool_drains_at_once() {
    let provider = FakeProvider::new(Machines::default());
    let limits = Limits::default().shutdown(MINUTE);
    let pool = Pool::builder().provider(provider.clone()).limits(limits).start().await.unwrap();
    let began = Instant::now();
    pool.drain(Duration::MAX).await.unwrap();
    assert!(began.elapsed() < MINUTE, "{:?}", began.elapsed());
    assert_eq!(provider.machines(), []);
}
