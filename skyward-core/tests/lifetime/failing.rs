//! A pool that cannot go on ends by itself, and says why.

use skyward_core::compute::{ComputePool, PoolPhase};
use skyward_core::error::ErrorKind;
use skyward_core::event::{EventItem, PoolEvent};
use skyward_core::ids::NodeIndex;
use skyward_core::payload::Target;
use skyward_core::pool::Pool;
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::{Instant, sleep, timeout};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A pool of two nodes; the second one loses every machine that it gets.
async fn start(plugin: Option<&str>, machines: Machines) -> (FakeProvider, Pool) {
    let provider = FakeProvider::new(Machines { dies_after: Some(MINUTE), ..machines });
    let mut builder = Pool::builder().provider(provider.clone()).nodes(2);
    if let Some(name) = plugin {
        builder = builder.plugin(skyward_core::plugin::plugin(name).joins_world());
    }
    (provider, builder.start().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_fails_reports_it_and_ends_its_machines() {
    for plugin in [None, Some("world")] {
        let (provider, pool) = start(plugin, Machines::default()).await;
        let mut events = pool.events();
        let lost = pool.submit(echo(ENDLESS).into_task().unwrap(), Target::Node(NodeIndex(1))).await.unwrap();
        let mut seen = Vec::new();
        while let Some(item) = timeout(60 * MINUTE, events.next()).await.unwrap() {
            match item {
                EventItem::Event(event) => match &*event {
                    PoolEvent::Failed { error } => {
                        assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
                        assert!(error.message().contains("node 1 was lost 4 times in a row"), "{error}");
                        let status = pool.status();
                        assert_eq!(status.failure.map(|error| error.kind()), Some(ErrorKind::Failed));
                        seen.push("failed");
                    }
                    PoolEvent::Draining => seen.push("draining"),
                    PoolEvent::Closed => seen.push("closed"),
                    _ => {}
                },
                _ => panic!("events are missing"),
            }
        }
        assert_eq!(seen, ["failed", "draining", "closed"]);
        assert_eq!(lost.outcome().await.unwrap_err().kind(), ErrorKind::NodeLost);
        assert_eq!(provider.machines(), [], "nobody has called `shutdown`");
        let (status, spent) = (pool.status(), provider.spent());
        assert_eq!(status.phase, PoolPhase::Closed);
        assert_eq!(status.failure.unwrap().kind(), ErrorKind::Failed);
        sleep(60 * MINUTE).await;
        assert_eq!(provider.spent(), spent);
        assert_eq!(pool.status().spent, status.spent);
        for error in [echo(1).run(&pool).await.map(drop).unwrap_err(), pool.resize(Nodes::fixed(3)).await.unwrap_err()]
        {
            assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
        }
        pool.shutdown(MINUTE).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn running_tasks_of_a_pool_that_fails_return_and_others_fail() {
    let (provider, pool) = start(None, Machines { takes: 180 * MINUTE, ..Machines::default() }).await;
    let submit = async |node| pool.submit(echo(1).into_task().unwrap(), Target::Node(NodeIndex(node))).await.unwrap();
    let (running, lost, waiting) = (submit(0).await, submit(1).await, submit(0).await);
    for (handle, kind) in [(lost, ErrorKind::NodeLost), (waiting, ErrorKind::Failed)] {
        let error = timeout(60 * MINUTE, handle.outcome()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let status = pool.status();
    assert_eq!(status.phase, PoolPhase::Failed);
    assert_eq!(status.failure.unwrap().kind(), ErrorKind::Failed);
    assert!(timeout(121 * MINUTE, running.outcome()).await.is_err(), "it runs for as long as it takes");
    assert_eq!(pool.status().phase, PoolPhase::Failed);
    assert!(!provider.machines().is_empty());
}

/// A task of three hours runs on node 0 while the pool fails. Returns its outcome, how many machines
/// were launched after the failure, and how long after the outcome the machines were gone.
async fn outcome(machines: Machines) -> (Result<(), ErrorKind>, usize, Duration) {
    let (provider, pool) = start(None, Machines { takes: 180 * MINUTE, ..machines }).await;
    let running = pool.submit(echo(1).into_task().unwrap(), Target::Node(NodeIndex(0))).await.unwrap();
    let failing = async {
        while pool.status().phase == PoolPhase::Ready {
            sleep(MINUTE / 60).await;
        }
    };
    timeout(60 * MINUTE, failing).await.unwrap();
    let launched = provider.launched();
    let outcome = timeout(200 * MINUTE, running.outcome()).await.expect("the task ends");
    let over = Instant::now();
    timeout(60 * MINUTE, async {
        while pool.status().phase != PoolPhase::Closed {
            sleep(MINUTE / 60).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(provider.machines(), []);
    (outcome.map(drop).map_err(|error| error.kind()), provider.launched() - launched, over.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_has_failed_ends_when_no_task_runs_and_replaces_nothing_that_it_loses() {
    let sound = Machines::default();
    let lost = Machines { lost_after: Some(100 * MINUTE), ..sound };
    let cut = Machines { cut_each: Some(50), ..sound };
    for (machines, expected) in [(sound, Ok(())), (lost, Err(ErrorKind::NodeLost)), (cut, Ok(()))] {
        let (ended, launched, took) = outcome(machines).await;
        assert_eq!(ended, expected, "{machines:?}");
        assert_eq!(launched, 0, "{machines:?}");
        assert!(took < MINUTE, "{took:?}");
    }
}

/// Node 1 loses each machine, and the machine of node 2, which is lost once, is replaced slowly.
#[derive(Debug)]
struct Replacing;

impl Fate for Replacing {}

impl Faults for Replacing {
    fn launch(&self, node: u32, call: u32) -> Turn {
        Turn::Works(if node == 2 && call > 0 { 30 * MINUTE } else { Duration::ZERO })
    }

    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        let after = if node == 1 { Some(MINUTE) } else { (node == 2 && machine == 0).then_some(MINUTE * 3) };
        after.map(|after| (after, Death::Machine))
    }
}

#[tokio::test(start_paused = true)]
async fn machines_that_come_are_given_up_when_the_pool_fails() {
    let long = Rule::all().answer(|_| Answer::does(Work::Return(180 * MINUTE)));
    let provider = FakeProvider::new(Script::new().faults(Replacing).rule(long));
    let limits = Limits::default().start(60 * MINUTE);
    let pool = Pool::builder().provider(provider.clone()).nodes(3).limits(limits).start().await.unwrap();
    let running = pool.submit(echo(1).into_task().unwrap(), Target::Node(NodeIndex(0))).await.unwrap();
    sleep(90 * MINUTE).await;
    assert_eq!(pool.status().phase, PoolPhase::Failed);
    assert_eq!(provider.running().len(), 1, "{:?}", provider.machines());
    running.outcome().await.unwrap();
    pool.shutdown(MINUTE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resize_of_a_pool_that_fails_gets_the_failure() {
    let (provider, pool) = start(None, Machines::default()).await;
    let resized = timeout(60 * MINUTE, async {
        loop {
            if let Err(error) = pool.resize(Nodes::fixed(2)).await {
                return error;
            }
            sleep(MINUTE / 2).await;
        }
    });
    assert_eq!(resized.await.unwrap().kind(), ErrorKind::Failed);
    pool.shutdown(MINUTE).await.unwrap();
    assert_eq!(provider.machines(), []);
}

#[tokio::test(start_paused = true)]
async fn a_lost_driver_is_a_failure_too() {
    let lost_after = Some(Duration::from_secs(1));
    let machines = Machines { lost_after, terminate_panics: 1, ..Machines::default() };
    let provider = FakeProvider::new(machines);
    let pool = Pool::builder().provider(provider.clone()).nodes(2).start().await.unwrap();
    assert!(pool.status().failure.is_none());
    let mut events = pool.events();
    let mut failed = 0;
    while let Some(item) = timeout(60 * MINUTE, events.next()).await.unwrap() {
        if let EventItem::Event(event) = item
            && let PoolEvent::Failed { error } = &*event
        {
            assert!(error.message().contains("driver panicked"), "{error}");
            failed += 1;
        }
    }
    assert_eq!(failed, 1);
    assert!(pool.status().failure.unwrap().message().contains("driver panicked"));
}
