//! A pool reports correctly how it ended, whether its driver returns, panics, or is dropped with
//! its runtime.

use std::future::Future;

use skyward_core::compute::{ComputePool, PoolPhase};
use skyward_core::error::{Error, ErrorKind};
use skyward_core::event::{EventItem, Events, PoolEvent};
use skyward_core::ids::Rank;
use skyward_core::payload::Target;
use skyward_core::pool::Pool;
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::runtime::{Builder, Runtime};

use super::*;

/// All events until the stream ends.
async fn all(mut events: Events) -> Vec<PoolEvent> {
    let mut all = Vec::new();
    while let Some(item) = soon(events.next()).await {
        if let EventItem::Event(event) = item {
            all.push(PoolEvent::clone(&event));
        }
    }
    all
}

/// Awaits a future that must not hang.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(300), future).await.expect("the future hangs")
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    // The failures are permanent, so long retries would only take time.
    limits.shutdown = Duration::from_millis(50);
    limits
}

async fn start(machines: Machines) -> (FakeProvider, Pool) {
    let provider = FakeProvider::new(machines);
    let pool = Pool::builder().provider(provider.clone()).nodes(2).limits(limits()).start().await.unwrap();
    (provider, pool)
}

fn phases(events: &[PoolEvent]) -> (usize, bool) {
    let draining = events.iter().filter(|event| matches!(event, PoolEvent::Draining)).count();
    (draining, matches!(events.last(), Some(PoolEvent::Closed)))
}

/// Checks the error of a pool whose machines could not be ended.
fn assert_left(error: &Error, provider: &FakeProvider) {
    for machine in provider.machines() {
        assert!(error.message().contains(machine.id.as_str()), "{error}");
    }
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("the lease of the machines ends them"), "{error}");
    // These machines end with the client, so they are not on record.
    assert!(!hint.contains("reap()"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_is_reported_and_its_machines_end() {
    let lost_after = Some(Duration::from_secs(1));
    let (provider, pool) = start(Machines { lost_after, terminate_panics: 1, ..Machines::default() }).await;
    let events = pool.events();
    let running = pool.submit(echo(ENDLESS).into_task().unwrap(), Target::Rank(Rank(1))).await.unwrap();
    let error = soon(running.outcome()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(error.message().contains("driver panicked: no end today"), "{error}");
    assert_eq!(phases(&all(events).await), (1, true));
    assert_eq!(pool.status().phase, PoolPhase::Closed);
    assert!(all(pool.events()).await.is_empty());
    soon(pool.shutdown(Duration::from_secs(5))).await.unwrap();
    assert_eq!(provider.machines(), []);
    for refused in [soon(echo(1).run(&pool)).await.unwrap_err(), soon(pool.resize(Nodes::fixed(3))).await.unwrap_err()]
    {
        assert!(refused.message().contains("driver panicked: no end today"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn machines_left_by_a_panicked_driver_are_named() {
    let lost_after = Some(Duration::from_secs(1));
    let machines = Machines { lost_after, terminate_panics: 1, terminate_fails: true, ..Machines::default() };
    let (provider, pool) = start(machines).await;
    assert_eq!(phases(&all(pool.events()).await), (1, true));
    assert_eq!(pool.status().phase, PoolPhase::Closed);
    let error = soon(pool.shutdown(Duration::from_secs(5))).await.unwrap_err();
    assert_eq!(provider.machines().len(), 1);
    assert_left(&error, &provider);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_at_every_end_causes_an_error_and_no_hang() {
    let (provider, pool) = start(Machines { terminate_panics: u32::MAX, ..Machines::default() }).await;
    let error = soon(pool.shutdown(Duration::from_secs(5))).await.unwrap_err();
    assert_eq!(provider.machines().len(), 2);
    assert_left(&error, &provider);
    assert_eq!(pool.status().phase, PoolPhase::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_driver_panic_during_the_start_fails_the_start_once_its_machines_are_gone() {
    let provider = FakeProvider::new(Machines { launch_panics: true, ..Machines::default() });
    let start = Pool::builder().provider(provider.clone()).nodes(2).limits(limits()).start();
    let error = soon(start).await.unwrap_err();
    assert!(error.message().contains("driver panicked: no launch today"), "{error}");
    assert_eq!(provider.launched(), 1);
    assert_eq!(provider.machines(), []);
}

/// A runtime with a pool, and another runtime that uses the pool.
fn two_runtimes(machines: Machines) -> (Runtime, Runtime, FakeProvider, Pool) {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (of_pool, other) = (runtime(), runtime());
    let (provider, pool) = of_pool.block_on(start(machines));
    (of_pool, other, provider, pool)
}

#[test]
fn a_pool_whose_runtime_has_ended_reports_it_to_all_waiting_calls() {
    let (of_pool, other, provider, pool) = two_runtimes(Machines::default());
    let waiting = other.block_on(async {
        let running = pool.submit(echo(ENDLESS).into_task().unwrap(), Target::Rank(Rank(1))).await.unwrap();
        let of = pool.clone();
        let resized = tokio::spawn(async move { of.resize(Nodes::fixed(3)).await });
        let of = pool.clone();
        let ended = tokio::spawn(async move { of.shutdown(Duration::from_secs(10)).await });
        tokio::task::yield_now().await;
        (running, resized, ended, pool.events())
    });
    drop(of_pool);
    other.block_on(async {
        let (running, resized, ended, events) = waiting;
        let told = |error: Error| assert!(error.message().contains("the runtime that started it"), "{error}");
        told(soon(running.outcome()).await.unwrap_err());
        told(soon(resized).await.unwrap().unwrap_err());
        soon(ended).await.unwrap().unwrap();
        assert_eq!(phases(&all(events).await), (1, true));
        assert_eq!(pool.status().phase, PoolPhase::Closed);
        told(soon(echo(1).run(&pool)).await.unwrap_err());
        soon(pool.shutdown(Duration::from_secs(5))).await.unwrap();
    });
    assert_eq!(provider.machines(), []);
}

#[test]
fn machines_left_by_an_ended_runtime_are_named() {
    let (of_pool, other, provider, pool) = two_runtimes(Machines { terminate_fails: true, ..Machines::default() });
    drop(of_pool);
    let error = other.block_on(soon(pool.shutdown(Duration::from_secs(5)))).unwrap_err();
    assert_eq!(provider.machines().len(), 2);
    assert_left(&error, &provider);
    assert_eq!(pool.status().phase, PoolPhase::Closed);
}

#[test]
fn a_provider_panic_in_a_pool_whose_runtime_has_ended_causes_an_error_and_no_hang() {
    let (of_pool, other, provider, pool) = two_runtimes(Machines { terminate_panics: u32::MAX, ..Machines::default() });
    drop(of_pool);
    let error = other.block_on(soon(pool.shutdown(Duration::from_secs(5)))).unwrap_err();
    assert_left(&error, &provider);
}
