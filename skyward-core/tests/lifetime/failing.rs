//! A pool that cannot go on ends by itself, and says why.

use skyward_core::compute::{ComputePool, PoolPhase};
use skyward_core::error::ErrorKind;
use skyward_core::event::{EventItem, PoolEvent};
use skyward_core::payload::Target;
use skyward_core::pool::Pool;
use skyward_core::spec::Nodes;
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::{sleep, timeout};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A pool of two nodes; the second one loses every machine that it gets.
async fn start(plugin: Option<&str>) -> (FakeProvider, Pool) {
    let provider = FakeProvider::new(Arc::new(Machines { dies_after: Some(MINUTE), ..Machines::default() }));
    let mut builder = Pool::builder().provider(provider.clone()).nodes(2);
    if let Some(name) = plugin {
        builder = builder.plugin(skyward_core::plugin::plugin(name).joins_world());
    }
    (provider, builder.start().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_fails_reports_it_and_ends_its_machines() {
    for plugin in [None, Some("world")] {
        let (provider, pool) = start(plugin).await;
        let mut events = pool.events();
        let running = pool.submit(echo(ENDLESS).into_task().unwrap(), Target::Any).await.unwrap();
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
        assert_eq!(running.outcome().await.unwrap_err().kind(), ErrorKind::Failed);
        assert_eq!(provider.machines(), [], "nobody has called `shutdown`");
        let (status, spent) = (pool.status(), provider.spent());
        assert_eq!((status.phase, status.failure.unwrap().kind()), (PoolPhase::Closed, ErrorKind::Failed));
        sleep(60 * MINUTE).await;
        assert_eq!((provider.spent(), pool.status().spent), (spent, status.spent));
        for error in [echo(1).run(&pool).await.map(drop).unwrap_err(), pool.resize(Nodes::fixed(3)).await.unwrap_err()]
        {
            assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
        }
        pool.shutdown(MINUTE).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_resize_of_a_pool_that_fails_gets_the_failure() {
    let (provider, pool) = start(None).await;
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
    let provider = FakeProvider::new(Arc::new(machines));
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
