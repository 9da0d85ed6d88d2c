//! Machines whose end the provider gives notice of.

use std::time::Duration;

use skyward_core::error::WorkerExit;
use skyward_core::event::{DrainReason, PoolEvent};
use skyward_core::payload::{RetryPolicy, TaskOptions};
use skyward_core::plugin::plugin;
use skyward_core::pool::Pool;
use skyward_core::provider::Reason;
use skyward_core::testkit::cuttable::Cuttable;
use skyward_core::testkit::fake_provider::{Death, Forewarning};
use tokio::time::{Instant, sleep};

use super::cloud::{Cloud, all, task};

const SHUTDOWN: Duration = Duration::from_secs(60);

fn once() -> TaskOptions {
    TaskOptions::default().retry(RetryPolicy::never())
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_a_preemption_notice_is_replaced_in_time_and_no_task_is_lost() {
    let warned =
        |node, _| (node < 2).then(|| Forewarning::preemption(Duration::from_secs(60), Duration::from_secs(120)));
    let provider = Cloud { forewarning: warned, ..Cloud::default() }.provider();
    let pool = Pool::builder().provider(provider.clone()).nodes(2).tasks(once()).start().await.unwrap();
    let events = tokio::spawn(all(pool.events()));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(400) {
        let calls: Vec<_> = (0..4).map(|_| task(3)).collect();
        skyward_core::compute::ComputePoolExt::map(&pool, calls).await.unwrap();
    }
    assert_eq!(provider.launched(), 4);
    assert_eq!(provider.machines().len(), 2);
    pool.shutdown(SHUTDOWN).await.unwrap();
    let events = events.await.unwrap();
    let at = |what: fn(&PoolEvent) -> bool| events.iter().position(|event| what(event)).unwrap();
    let leaving = at(
        |event| matches!(event, PoolEvent::NodeDraining { reason: DrainReason::Preempted, ends_in: Some(left), .. } if *left > Duration::from_secs(90)),
    );
    let (launched, replaced) = (
        at(|event| matches!(event, PoolEvent::NodeLaunched { .. })),
        at(|event| matches!(event, PoolEvent::NodeReplaced { .. })),
    );
    let gone = at(|event| matches!(event, PoolEvent::NodeGone { .. }));
    assert!(leaving < launched && launched < replaced && launched < gone, "{events:?}");
    assert!(!events.iter().any(|event| matches!(**event, PoolEvent::NodeLost { .. })), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_outlives_the_walltimes_of_its_machines() {
    let walltime = |_, _| Some(Forewarning::walltime(Duration::from_secs(300)));
    let provider = Cloud { forewarning: walltime, ..Cloud::default() }.provider();
    let pool = Pool::builder().provider(provider.clone()).nodes(2).tasks(once()).start().await.unwrap();
    for _ in 0..200 {
        task(7).run(&pool).await.unwrap();
    }
    assert!(provider.launched() >= 8, "{} machines", provider.launched());
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_world_goes_on_with_the_successor_when_its_gang_has_ended() {
    let warned =
        |node, _| (node < 2).then(|| Forewarning::preemption(Duration::from_secs(60), Duration::from_secs(200)));
    let provider = Cloud { forewarning: warned, ..Cloud::default() }.provider();
    let world = Pool::builder().provider(provider.clone()).nodes(2).plugin(plugin("world").joins_world());
    let pool = world.tasks(once()).start().await.unwrap();
    let generation = pool.status().generation;
    for _ in 0..10 {
        task(30).broadcast(&pool).await.unwrap();
    }
    assert!(pool.status().generation > generation);
    assert_eq!(provider.launched(), 4);
    assert_eq!(provider.machines().len(), 2);
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_running_when_its_machine_ends_fails_with_the_reason_of_the_end() {
    for (reason, exit) in [(Reason::Preempted, WorkerExit::Preempted), (Reason::Expired, WorkerExit::Expired)] {
        let forewarning: fn(u32, u32) -> _ = match reason {
            Reason::Preempted => |_, _| Some(Forewarning::preemption(Duration::from_secs(30), Duration::from_secs(60))),
            _ => |_, _| Some(Forewarning::walltime(Duration::from_secs(90))),
        };
        let provider = Cloud { forewarning, ..Cloud::default() }.provider();
        let pool = Pool::builder().provider(provider).tasks(once()).start().await.unwrap();
        let error = task(120).run(&pool).await.unwrap_err();
        assert_eq!(error.exit(), Some(&exit), "{error}");
        pool.shutdown(SHUTDOWN).await.unwrap();
    }
    let death = |_, machine| (machine == 0).then_some((Duration::from_secs(30), Death::Machine));
    let pool =
        Pool::builder().provider(Cloud { death, ..Cloud::default() }.provider()).tasks(once()).start().await.unwrap();
    let error = task(60).run(&pool).await.unwrap_err();
    assert_eq!(error.exit(), Some(&WorkerExit::MachineFailed), "{error}");
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn machines_released_by_a_resize_are_not_reported_as_preempted() {
    let pool = Pool::builder().provider(Cloud::default().provider()).nodes(2).start().await.unwrap();
    let events = tokio::spawn(all(pool.events()));
    pool.resize(1).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    pool.shutdown(SHUTDOWN).await.unwrap();
    let events = events.await.unwrap();
    assert!(
        events.iter().any(|event| matches!(
            **event,
            PoolEvent::NodeDraining { reason: DrainReason::Resized, ends_in: None, .. }
        ))
    );
    assert!(!events.iter().any(|event| matches!(**event, PoolEvent::WorkerExited { exit: WorkerExit::Preempted, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_waits_for_its_place_is_connected_again_after_a_cut() {
    let warned =
        |number, _| (number == 0).then(|| Forewarning::preemption(Duration::from_secs(30), Duration::from_secs(300)));
    let provider = Cloud { forewarning: warned, ..Cloud::default() }.provider();
    let cuttable = Cuttable::new(provider.clone());
    let pool = Pool::builder().provider(cuttable.clone()).tasks(once()).start().await.unwrap();
    let cuts = async {
        for _ in 0..4 {
            sleep(Duration::from_secs(45)).await;
            cuttable.cut();
        }
    };
    let (done, ()) = tokio::join!(task(240).run(&pool), cuts);
    done.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(provider.launched(), 2);
    assert_eq!(provider.machines().len(), 1);
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn events_of_a_successor_that_fails_name_the_node_that_it_was_for() {
    let warned =
        |number, _| (number == 0).then(|| Forewarning::preemption(Duration::from_secs(30), Duration::from_secs(300)));
    let death = |number, _| (number == 2).then_some((Duration::from_secs(30), Death::Machine));
    let provider = Cloud { forewarning: warned, death, ..Cloud::default() }.provider();
    let pool = Pool::builder().provider(provider).nodes(2).tasks(once()).start().await.unwrap();
    let events = tokio::spawn(all(pool.events()));
    let work: Vec<_> = (0..2).map(|_| task(240)).collect();
    skyward_core::compute::ComputePoolExt::map(&pool, work).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    pool.shutdown(SHUTDOWN).await.unwrap();
    let events = events.await.unwrap();
    let failed: Vec<_> = events
        .iter()
        .filter_map(|event| match &**event {
            PoolEvent::NodeFailed { node, .. } => Some(node.0),
            _ => None,
        })
        .collect();
    assert!(!failed.is_empty(), "{events:?}");
    assert!(failed.iter().all(|node| *node < 2), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_has_the_reason_that_the_provider_reports_a_moment_later() {
    let death = |_, machine| (machine == 0).then_some((Duration::from_secs(60), Death::Preemption));
    let (lingers, explains_after) = (Duration::from_secs(20), Duration::from_millis(500));
    let provider = Cloud { death, lingers, explains_after, ..Cloud::default() }.provider();
    let pool = Pool::builder().provider(provider).nodes(1).tasks(once()).start().await.unwrap();
    let events = tokio::spawn(all(pool.events()));
    let error = task(120).run(&pool).await.unwrap_err();
    assert_eq!(error.exit(), Some(&WorkerExit::Preempted), "{error:?}");
    task(1).run(&pool).await.unwrap();
    pool.shutdown(SHUTDOWN).await.unwrap();
    let events = events.await.unwrap();
    let lost = events.iter().find_map(|event| match &**event {
        PoolEvent::NodeLost { error, .. } => Some(error),
        _ => None,
    });
    assert_eq!(lost.unwrap().exit(), Some(&WorkerExit::Preempted), "{lost:?}");
}
