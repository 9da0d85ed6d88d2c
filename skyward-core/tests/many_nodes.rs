//! A pool of many nodes, simulated in this process.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are not tests themselves")]

use std::sync::Arc;
use std::time::Duration;

use skyward_core::compute::ComputePool;
use skyward_core::payload::{Args, Source, Task};
use skyward_core::pool::Pool;
use skyward_core::testkit::fake_provider::FakeProvider;
use skyward_core::testkit::fake_worker::Faultless;

/// The number of nodes: more than the reads and writes that the runtime allows a task before it
/// must yield. `SKYWARD_NODES=10000` takes a minute or two and 3 GiB, most of it for the agents'
/// side.
fn nodes() -> u32 {
    std::env::var("SKYWARD_NODES").map_or(1_000, |nodes| nodes.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn many_nodes_become_ready_answer_and_end() {
    let provider = FakeProvider::new(Arc::new(Faultless));
    let pool = Pool::builder().provider(provider.clone()).nodes(nodes()).start().await.unwrap();
    let source = Source::file("a.py", "def f(n): return n", "f");
    let args = Args::new().with("n", &7).encode().unwrap();
    let handles = pool.submit_all(Task::new(Arc::new(source), args.clone())).await.unwrap();
    assert_eq!(handles.len(), nodes() as usize);
    for handle in handles {
        assert_eq!(handle.outcome().await.unwrap().bytes, args);
    }
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
    assert!(provider.machines().is_empty());
    assert_eq!(provider.witness().wrongs(), Vec::<String>::new());
}
