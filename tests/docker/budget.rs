//! Containers that end because of their pool's budget, while their client lives and after it was
//! killed.

use std::time::{Duration, Instant};

use skyward::compute::ComputePool;
use skyward::compute::PendingCompute;
use skyward::error::ErrorKind;
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::Target;
use skyward::pool::Pool;
use skyward::provider::Docker;
use skyward::spec::Budget;

use super::common::user::User;
use super::common::{SLEEP, limits, python, soon};
use super::{engine, who};

/// A pool whose containers end only by their budget during the test.
async fn start(image: String) -> Pool {
    let mut limits = limits();
    limits.lease = Duration::from_secs(3600);
    let budget = Budget::default().hours(BUDGETED_LIFE.as_secs_f64() / 3600.0);
    Pool::builder().provider(Docker::new(image)).nodes(2).limits(limits).budget(budget).start().await.unwrap()
}

/// The containers of a pool.
fn containers(pool: &str) -> Vec<String> {
    engine::left(pool).into_iter().filter(|left| left.starts_with("container")).collect()
}

/// Starts a pool, prints its id, and never ends it.
pub(super) async fn client(image: String) {
    let pool = start(image).await;
    println!("\npool {}", pool.id());
    std::future::pending::<()>().await;
}

#[test]
#[ignore = "needs docker"]
fn containers_of_a_killed_client_end_at_the_end_of_their_budget_however_long_their_lease() {
    let mut user = User::new();
    let (client, pool) = user.start_until("budget", "pool ");
    user.kill(client);
    let killed = Instant::now();
    assert_eq!(containers(&pool).len(), 2, "the containers do not end with their client");
    while !containers(&pool).is_empty() {
        assert!(killed.elapsed() < BUDGETED_LIFE * 3, "{:?}", containers(&pool));
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("gone {:?} after the client was killed", killed.elapsed());
    assert_eq!(user.run("reap"), format!("ended {pool}"));
    assert_eq!(engine::left(&pool), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_pool_of_containers_ends_itself_before_their_time_is_over() {
    let image = engine::node_image();
    let pool = start(image).await;
    let mut events = pool.events();
    let sleeps: PendingCompute<()> = python(SLEEP).into();
    let running = pool.submit(sleeps.into_task().unwrap(), Target::Head).await.unwrap();
    let error = soon("the running task ends", running.outcome()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    let ended = async {
        let mut lost = Vec::new();
        while let Some(item) = events.next().await {
            match item {
                EventItem::Event(event) if matches!(*event, PoolEvent::Closed) => break,
                EventItem::Event(event) if matches!(*event, PoolEvent::NodeLost { .. }) => lost.push(event),
                _ => {}
            }
        }
        lost
    };
    let lost = soon("the pool has ended", ended).await;
    assert!(lost.is_empty(), "the pool ends before its machines do: {lost:?}");
    assert_eq!(engine::left(pool.id().as_str()), Vec::<String>::new());
    let error = pool.submit(who().into_task().unwrap(), Target::Any).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains(".budget(")), "{error}");
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
}

/// The time that the budget gives each machine; half of it is left for the pool's end.
const BUDGETED_LIFE: Duration = Duration::from_secs(30);
