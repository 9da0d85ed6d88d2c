//! The machines of a world whose provider launches all or none.

use std::time::Duration;

use skyward_core::error::Refusal;
use skyward_core::plugin::plugin;
use skyward_core::pool::Pool;
use skyward_core::testkit::fake_provider::{Death, FakeProvider};
use tokio::time::{Instant, sleep};

use super::cloud::{Cloud, task};

const SHUTDOWN: Duration = Duration::from_secs(60);

/// The nodes 1 and 3 lose their first machines after this time.
const LOSS: Duration = Duration::from_secs(60);

fn lossy() -> Cloud {
    let death = |node, machine| (node % 2 == 1 && machine == 0).then_some((LOSS, Death::Machine));
    Cloud { gangs: true, death, ..Cloud::default() }
}

async fn world(provider: &FakeProvider) -> Pool {
    let world = Pool::builder().provider(provider.clone()).nodes(4).plugin(plugin("world").joins_world());
    world.start().await.unwrap()
}

fn batches(provider: &FakeProvider) -> Vec<Vec<u32>> {
    provider.batches().iter().map(|batch| batch.iter().map(|number| number.0).collect()).collect()
}

#[tokio::test(start_paused = true)]
async fn machines_that_are_lost_together_are_replaced_together() {
    for gangs in [true, false] {
        let provider = Cloud { gangs, ..lossy() }.provider();
        let pool = world(&provider).await;
        sleep(LOSS).await;
        task(1).broadcast(&pool).await.unwrap();
        let bought = batches(&provider);
        match gangs {
            true => assert_eq!(bought, [vec![0, 1, 2, 3], vec![1, 3]]),
            false => assert!(bought.iter().all(|batch| batch.len() == 1), "{bought:?}"),
        }
        assert_eq!(provider.launched(), 6);
        pool.shutdown(SHUTDOWN).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn with_capacity_for_some_none_is_bought_and_it_is_tried_again() {
    // Four machines at first, then one; more after that.
    let provider = Cloud { refusal: |_, call| (call == 5).then_some(Refusal::Capacity), ..lossy() }.provider();
    let pool = world(&provider).await;
    sleep(LOSS * 2).await;
    assert_eq!(batches(&provider), [vec![0, 1, 2, 3], vec![1, 3]]);
    assert_eq!(provider.launched(), 4, "none is bought");
    assert_eq!(provider.machines().len(), 2, "none is bought");
    let refused = Instant::now();
    task(1).broadcast(&pool).await.unwrap();
    assert!(refused.elapsed() > LOSS, "the offer is tried again later");
    assert_eq!(batches(&provider), [vec![0, 1, 2, 3], vec![1, 3], vec![1, 3]]);
    assert_eq!(provider.launched(), 6);
    assert_eq!(provider.machines().len(), 4);
    pool.shutdown(SHUTDOWN).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_lost_while_others_wait_for_capacity_is_bought_with_them() {
    let death = |node, machine| match (node, machine) {
        (1 | 3, 0) => Some((LOSS, Death::Machine)),
        (2, 0) => Some((LOSS * 2, Death::Machine)),
        _ => None,
    };
    let refusal = |_: &str, call| (call == 5).then_some(Refusal::Capacity);
    let provider = Cloud { death, refusal, ..lossy() }.provider();
    let pool = world(&provider).await;
    sleep(LOSS).await;
    task(1).broadcast(&pool).await.unwrap();
    assert_eq!(batches(&provider), [vec![0, 1, 2, 3], vec![1, 3], vec![1, 2, 3]]);
    assert_eq!(provider.launched(), 7);
    assert_eq!(provider.machines().len(), 4);
    pool.shutdown(SHUTDOWN).await.unwrap();
}
