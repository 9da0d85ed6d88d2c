//! Elastic pools grow with their work.

use futures_util::StreamExt;
use skyward_core::compute::ComputePoolExt;
use skyward_core::pool::Pool;
use skyward_core::spec::Nodes;
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::timeout;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_map_keeps_all_nodes_busy_that_an_elastic_pool_may_have() {
    for (begins, nodes) in [(1, 8), (1, 32), (3, 100)] {
        let provider = FakeProvider::new(Machines { takes: HOUR, ..Machines::default() });
        let sizes = Nodes::elastic(begins, nodes);
        let pool = Pool::builder().provider(provider.clone()).nodes(sizes).start().await.unwrap();
        let mut results = pool.map_unordered((0..10_000).map(|_| echo(1)));
        assert!(timeout(HOUR / 2, results.next()).await.is_err(), "a call takes an hour");
        assert_eq!(pool.status().nodes.len(), nodes as usize);
        drop(results);
        pool.shutdown(Duration::from_secs(60)).await.unwrap();
        assert_eq!(provider.machines(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_follows_a_pool_that_is_resized() {
    for sizes in [Nodes::fixed(40), Nodes::elastic(1, 40)] {
        let provider = FakeProvider::new(Machines { takes: HOUR, ..Machines::default() });
        let pool = Pool::builder().provider(provider.clone()).nodes(2).start().await.unwrap();
        let mut results = pool.map_unordered((0..10_000).map(|_| echo(1)));
        assert!(timeout(HOUR / 4, results.next()).await.is_err(), "a call takes an hour");
        pool.resize(sizes).await.unwrap();
        assert!(timeout(HOUR / 2, results.next()).await.is_err(), "a call takes an hour");
        assert_eq!(pool.status().running, 40);
        drop(results);
        pool.shutdown(Duration::from_secs(60)).await.unwrap();
    }
}

const HOUR: Duration = Duration::from_secs(3600);
