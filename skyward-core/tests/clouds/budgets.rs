//! Budgets of pools.

use std::time::Duration;

use skyward_core::compute::{ComputePool, PoolPhase};
use skyward_core::error::ErrorKind;
use skyward_core::event::PoolEvent;
use skyward_core::payload::Target;
use skyward_core::pool::Pool;
use skyward_core::spec::Budget;
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
        assert_eq!((pool.status().phase, provider.machines().len()), (PoolPhase::Closed, 0));
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
    assert_eq!((error.kind(), provider.launched()), (ErrorKind::Budget, launched), "{error}");
    assert!(
        format!("{error:#}").contains("2 machines at $6.00/h") && format!("{error:#}").contains("not known"),
        "{error}"
    );
    let plan = builder().budget(Budget::usd_per_hour(7.0)).assume_usd_per_hour(1.0).plan().await.unwrap();
    assert_eq!(plan.first().unwrap().id.as_str(), "c");
}
