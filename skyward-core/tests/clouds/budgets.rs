//! Budgets of pools.

use std::time::Duration;

use futures_util::StreamExt;
use skyward_core::compute::{ComputePool, ComputePoolExt, PoolPhase};
use skyward_core::error::{ErrorKind, Refusal};
use skyward_core::event::PoolEvent;
use skyward_core::payload::Target;
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::spec::{Budget, Nodes};
use skyward_core::testkit::fake_provider::{Death, FakeProvider};
use tokio::time::{Instant, sleep};

use super::cloud::{Cloud, all, offer, task};

const HOUR: Duration = Duration::from_secs(3600);
const SHUTDOWN: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_pool_ends_before_its_hours_or_dollars_are_spent_and_reports_it() {
    for budget in [Budget::default().hours(1.0), Budget::default().usd(12.0)] {
        let provider = Cloud::default().provider();
        let pool = Pool::builder().provider(provider.clone()).nodes(2).budget(budget).start().await.unwrap();
        let events = tokio::spawn(all(pool.events()));
        let began = Instant::now();
        while began.elapsed() < HOUR - Duration::from_secs(400) {
            task(100).run(&pool).await.unwrap();
        }
        let spent = pool.status().spent;
        assert!((spent.usd - provider.spent()).abs() < 0.1 && spent.usd_per_hour == 12.0, "{spent:?}");
        // One task runs when the budget is nearly spent and may finish; the other waits.
        let running =
            pool.submit(task(250).into_task().unwrap(), Target::Rank(skyward_core::ids::Rank(0))).await.unwrap();
        let waiting =
            pool.submit(task(1).into_task().unwrap(), Target::Rank(skyward_core::ids::Rank(0))).await.unwrap();
        running.outcome().await.unwrap();
        let error = waiting.outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
        assert!(error.hint().unwrap().contains(".budget("), "{error}");
        sleep(SHUTDOWN * 2).await;
        assert_eq!(pool.status().phase, PoolPhase::Closed);
        assert_eq!(provider.machines().len(), 0);
        assert!(provider.lived() < HOUR && provider.spent() < 12.0, "{:?}, ${}", provider.lived(), provider.spent());
        assert_eq!(task(1).run(&pool).await.unwrap_err().kind(), ErrorKind::Budget);
        pool.shutdown(SHUTDOWN).await.unwrap();
        assert!(events.await.unwrap().iter().any(|event| matches!(**event, PoolEvent::BudgetSpent { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_end_is_interrupted_in_time() {
    let provider = Cloud::default().provider();
    let builder = Pool::builder().provider(provider.clone()).budget(Budget::default().hours(0.1));
    let error = builder.scope(async |pool| task(255).run(pool).await.and(task(255).run(pool).await)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    assert!(provider.lived() <= HOUR / 10, "{:?}", provider.lived());
}

#[tokio::test(start_paused = true)]
async fn machines_that_cannot_be_terminated_end_at_their_share_of_the_budget() {
    let provider = Cloud { is_stuck: true, ..Cloud::default() }.provider();
    let budget = Budget::default().usd(2.0);
    let pool = Pool::builder().provider(provider.clone()).nodes(2).budget(budget).start().await.unwrap();
    drop(pool);
    sleep(HOUR / 60).await;
    assert_eq!(provider.machines().len(), 2, "they cannot be terminated");
    sleep(HOUR).await;
    assert!(provider.spent() <= 2.0 && provider.machines().is_empty(), "${}", provider.spent());
}

#[tokio::test(start_paused = true)]
async fn no_offer_above_the_budget_is_launched_and_an_unknown_price_needs_an_assumed_one() {
    let offers = vec![offer("a", "1", 6.0), offer("b", "1", 4.0), offer("c", "1", 0.0).usd_per_hour(None)];
    let cloud = Cloud { offers, ..Cloud::default() };
    let provider = cloud.clone().provider();
    let builder = || Pool::builder().provider(provider.clone()).nodes(2);
    let pool = builder().budget(Budget::usd_per_hour(9.0)).start().await.unwrap();
    assert!(provider.machines().iter().all(|machine| machine.offer.as_str() == "b"));
    let error = pool.resize(3).await.unwrap_err();
    assert!(format!("{error:?}").contains("would exceed the budget of $9.00/h"), "{error:?}");
    task(1).run(&pool).await.unwrap();
    pool.shutdown(SHUTDOWN).await.unwrap();
    let launched = provider.launched();
    let error = builder().budget(Budget::usd_per_hour(7.0)).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    assert_eq!(provider.launched(), launched, "{error}");
    assert!(
        format!("{error:#}").contains("2 machines at $6.00/h") && format!("{error:#}").contains("not known"),
        "{error}"
    );
    let plan = builder().budget(Budget::usd_per_hour(7.0)).assume_usd_per_hour(1.0).plan().await.unwrap();
    assert_eq!(plan.first().unwrap().id.as_str(), "c");
}

/// An elastic pool of up to 64 nodes, whose machines cost six dollars an hour.
fn growing(provider: &FakeProvider, budget: Budget) -> PoolBuilder {
    Pool::builder().provider(provider.clone()).nodes(Nodes::elastic(1, 64)).budget(budget)
}

#[tokio::test(start_paused = true)]
async fn an_elastic_pool_uses_its_sum_for_the_nodes_that_it_has() {
    // Before, each machine had a share of 64, and the fourth one that ended ended the pool.
    for (usd, tasks) in [(10.0, 20), (50.0, 100), (500.0, 150)] {
        let provider = Cloud::default().provider();
        let pool = growing(&provider, Budget::default().usd(usd)).start().await.unwrap();
        let events = tokio::spawn(all(pool.events()));
        // One after another, so that the pool stays at one node.
        for _ in 0..tasks {
            task(250).run(&pool).await.unwrap();
        }
        assert_eq!(provider.launched(), 1, "${usd}");
        assert_eq!(provider.machines().len(), 1, "${usd}");
        pool.shutdown(SHUTDOWN).await.unwrap();
        assert!(!events.await.unwrap().iter().any(|event| matches!(**event, PoolEvent::NodeLost { .. })), "${usd}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_elastic_pool_grows_as_far_as_its_sum_covers_and_its_error_names_the_budget() {
    for usd in [3.0, 20.0, 50.0] {
        let provider = Cloud::default().provider();
        let pool = growing(&provider, Budget::default().usd(usd)).start().await.unwrap();
        let events = tokio::spawn(all(pool.events()));
        let mut results = pool.map_unordered((0..100_000).map(|_| task(60)));
        let (mut done, mut most) = (0, 0);
        let error = loop {
            match results.next().await.unwrap().1 {
                Ok(_) => done += 1,
                Err(error) => break error,
            }
            most = most.max(pool.status().nodes.len());
        };
        assert_eq!(error.kind(), ErrorKind::Budget, "${usd}: {error:#}");
        drop(results);
        pool.shutdown(SHUTDOWN).await.unwrap();
        let lost = events.await.unwrap().iter().filter(|event| matches!(***event, PoolEvent::NodeLost { .. })).count();
        assert_eq!(lost, 0, "${usd}");
        assert!(provider.spent() <= usd && provider.spent() > usd * 0.3, "${} of ${usd}", provider.spent());
        // A node runs 60 tasks in an hour, of six dollars.
        assert!(f64::from(done) > usd * 2.0 && most > 1, "${usd}: {done} tasks on at most {most} nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_that_the_budget_does_not_replace_leaves_the_others_at_work() {
    // The second machine of node 1 costs more than the rate allows, so the node stays lost.
    let offers = vec![offer("a", "1", 4.0), offer("b", "1", 6.0)];
    let cloud = Cloud {
        offers,
        refusal: |offer, call| (offer == "a" && call >= 2).then_some(Refusal::NotOffered),
        death: |node, machine| (node == 1 && machine == 0).then_some((HOUR, Death::Machine)),
        ..Cloud::default()
    };
    let provider = cloud.provider();
    let pool = Pool::builder().provider(provider.clone()).budget(Budget::usd_per_hour(9.0)).start().await.unwrap();
    pool.resize(2).await.unwrap();
    let began = Instant::now();
    while began.elapsed() < HOUR * 6 {
        task(200).run(&pool).await.unwrap();
    }
    assert_eq!(pool.status().phase, PoolPhase::Ready);
    assert_eq!(provider.machines().len(), 1);
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_pay_for_the_machine_that_it_needs_ends_with_its_budget() {
    let cloud = Cloud { death: |_, machine| (machine == 0).then_some((HOUR, Death::Machine)), ..Cloud::default() };
    let provider = cloud.provider();
    let pool = Pool::builder().provider(provider.clone()).budget(Budget::default().usd(6.5)).start().await.unwrap();
    let error = loop {
        if let Err(error) = task(100).run(&pool).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Budget, "{error:#}");
    pool.shutdown(SHUTDOWN).await.unwrap();
    assert!(provider.spent() <= 6.5 && provider.machines().is_empty(), "${}", provider.spent());
}
