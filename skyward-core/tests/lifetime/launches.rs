//! Launches without an answer: their machines may appear after the launch was given up.

use skyward_core::pool::Pool;
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::{Instant, sleep, timeout};

use super::*;

/// A provider whose list shows the machine of node 1 that long after its launch.
fn late(by: Duration) -> FakeProvider {
    FakeProvider::new(Machines { late: Some(by), ..Machines::default() })
}

/// Checks that both machines were started and that both have ended.
async fn assert_ended(provider: &FakeProvider, by: Duration, what: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while provider.launched() < 2 || !provider.machines().is_empty() {
        let left = provider.machines();
        assert!(Instant::now() < end, "{what}, late by {by:?}: {} launched, {left:?} left", provider.launched());
        sleep(Duration::from_millis(100)).await;
    }
}

const LATE_BY: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4)];

#[tokio::test(start_paused = true)]
async fn a_machine_that_appears_after_its_start_was_dropped_is_ended() {
    for by in LATE_BY {
        let provider = late(by);
        let start = Pool::builder().provider(provider.clone()).nodes(2).start();
        assert!(timeout(Duration::from_millis(100), start).await.is_err(), "the launch is never answered");
        assert_ended(&provider, by, "a dropped start").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_appears_after_its_start_has_failed_is_ended() {
    for by in LATE_BY {
        let provider = late(Duration::from_secs(3) + by);
        let mut limits = Limits::default();
        limits.start = Duration::from_secs(3);
        let start = Pool::builder().provider(provider.clone()).nodes(2).limits(limits).start();
        start.await.unwrap_err();
        assert_eq!(provider.machines(), [], "late by {by:?}");
        assert_ended(&provider, by, "a start that failed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_further_machine_that_appears_after_the_pool_was_shut_down_is_ended() {
    for by in LATE_BY {
        let provider = late(by);
        let pool = Pool::builder().provider(provider.clone()).nodes(1).start().await.unwrap();
        let grows = pool.clone();
        let grows = tokio::spawn(async move { grows.resize(Nodes::fixed(2)).await });
        sleep(Duration::from_millis(100)).await;
        pool.shutdown(Duration::from_secs(30)).await.unwrap();
        grows.await.unwrap().unwrap_err();
        assert_eq!(provider.machines(), [], "late by {by:?}");
        assert_ended(&provider, by, "a resize").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_before_the_list_has_settled_is_an_error_that_says_so() {
    let provider = late(Duration::from_secs(4));
    let pool = Pool::builder().provider(provider.clone()).nodes(1).start().await.unwrap();
    let grows = pool.clone();
    let _grows = tokio::spawn(async move { grows.resize(Nodes::fixed(2)).await });
    sleep(Duration::from_millis(100)).await;
    let error = pool.shutdown(Duration::from_secs(1)).await.unwrap_err();
    assert!(error.message().contains("has not answered all launches"), "{error}");
    assert!(error.hint().unwrap_or_default().contains("the lease of the machines ends them"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn further_machines_are_made_ready_while_the_first_workers_enter_their_hooks() {
    for slow in [&["launch", "connect"][..], &["connect", "command"], &["command"]] {
        let machines = Machines { slow, hooks: Duration::from_secs(200), ..Machines::default() };
        let provider = FakeProvider::new(machines);
        let mut limits = Limits::default();
        // The pool starts without the second machine after half of this time.
        limits.start = Duration::from_secs(20);
        let began = Instant::now();
        let pool = Pool::builder().provider(provider).nodes(Nodes::partial(1, 2)).limits(limits).start();
        let pool = pool.await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(211), "{slow:?}: {:?}", began.elapsed());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(pool.status().nodes.len(), 2, "{slow:?}: the second machine is ready");
        pool.shutdown(Duration::from_secs(30)).await.unwrap();
    }
}
