//! Pools that end because of their budget, with real Python.

use std::time::Duration;

use crate::common::{SLEEP, assert_nothing_left, limits, python, soon};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::compute::{ComputePool, PoolPhase};
use skyward::error::ErrorKind;
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::NodeIndex;
use skyward::payload::Target;
use skyward::pool::Pool;
use skyward::spec::{Budget, Spent};

/// Waits for the first event for which `wanted` returns a value.
async fn told<T>(events: &mut Events, wanted: impl Fn(&PoolEvent) -> Option<T>) -> T {
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item
            && let Some(found) = wanted(&event)
        {
            return found;
        }
    }
    panic!("the pool has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_ends_itself_before_its_hours_are_over_and_reports_why() {
    let mut limits = limits();
    limits.lease = Duration::from_secs(3600);
    // Half of such a short budget is left for the pool's end.
    let budget = Budget::default().hours(HOURS);
    let pool = Pool::builder().nodes(2).limits(limits).budget(budget).start().await.unwrap();
    let mut events = pool.events();
    let heeds: PendingCompute<Option<f64>> = python(indoc! {"
        import time
        import skyward as sky
        def f():
            while sky.notice() is None:
                time.sleep(0.01)
            return sky.notice()
    "})
    .into();
    let sleeps: PendingCompute<()> = python(SLEEP).into();
    let none: PendingCompute<()> = python(indoc! {"
        def f():
            pass
    "})
    .into();
    let on = |node| Target::Node(NodeIndex(node));
    let heeding = pool.submit(heeds.into_task().unwrap(), on(0)).await.unwrap();
    let sleeping = pool.submit(sleeps.clone().into_task().unwrap(), on(1)).await.unwrap();
    let waiting = pool.submit(sleeps.into_task().unwrap(), on(1)).await.unwrap();

    let spent = |event: &PoolEvent| match event {
        PoolEvent::BudgetSpent { spent } => Some(*spent),
        _ => None,
    };
    let Spent { usd, machine_hours, .. } = soon("the budget is nearly spent", told(&mut events, spent)).await;
    // Two machines ran, which cost nothing here.
    assert!(usd == 0.0 && 0.0 < machine_hours && machine_hours < 2.0 * HOURS, "${usd}, {machine_hours} h");
    let refused = |when: &'static str| {
        let (pool, none) = (pool.clone(), none.clone());
        async move {
            let error = pool.submit(none.into_task().unwrap(), Target::Any).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Budget, "{when}: {error}");
            assert!(error.message().contains("budget of 0.008 h"), "{when}: {error}");
            assert!(error.hint().is_some_and(|hint| hint.contains(".budget(")), "{when}: {error}");
        }
    };
    // Running tasks have received the notice; a task that reacts to it returns.
    let outcome = soon("the task that reacts to the notice returns", heeding.outcome()).await.unwrap();
    let left: Option<f64> = skyward::payload::value::decode(&outcome.bytes).unwrap();
    assert!(left.is_some_and(|left| 0.0 < left && left < HOURS * 3600.0), "{left:?}");
    refused("while others run").await;
    for (handle, which) in [(waiting, "the waiting task"), (sleeping, "the running task")] {
        let error = soon(which, handle.outcome()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget, "{which}: {error}");
    }
    let closed = |event: &PoolEvent| matches!(event, PoolEvent::Closed).then_some(());
    soon("the pool has ended", told(&mut events, closed)).await;
    assert_nothing_left(pool.id());
    assert_eq!(pool.status().phase, PoolPhase::Closed);
    refused("after the end").await;
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_exceeds_the_budget_fails_with_a_budget_error() {
    let slow = skyward::plugin::plugin("slow").around_app(indoc! {"
        import time
        def around_app(config):
            time.sleep(3600)
            yield
    "});
    let budget = Budget::default().hours(2.0 / 3600.0);
    let started = Pool::builder().limits(limits()).budget(budget).plugin(slow).start();
    let error = soon("the start ends", started).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains(".budget(")), "{error}");
}

/// 28.8 seconds.
const HOURS: f64 = 0.008;
