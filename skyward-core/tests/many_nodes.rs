//! A pool of many nodes, simulated in this process.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are not tests themselves")]

use std::sync::Arc;
use std::time::Duration;

use skyward_core::compute::ComputePool;
use skyward_core::payload::{Args, Source, Task};
use skyward_core::plugin::plugin;
use skyward_core::pool::Pool;
use skyward_core::testkit::fake_provider::{FakeProvider, Faults, Forewarning};
use skyward_core::testkit::fake_worker::{Fate, Faultless};
use tokio::time::sleep;

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

/// The first machine of each number is taken back, all at the same time.
#[derive(Debug)]
struct TakenBack;

impl Fate for TakenBack {}

impl Faults for TakenBack {
    fn forewarning(&self, _: u32, machine: u32) -> Option<Forewarning> {
        (machine == 0).then(|| Forewarning::preemption(Duration::from_secs(20), Duration::from_secs(600)))
    }
}

#[tokio::test(start_paused = true)]
async fn machines_with_one_deadline_cost_one_notice_each_and_leave_with_few_lists() {
    for joined in [false, true] {
        let provider = FakeProvider::new(Arc::new(TakenBack));
        let builder = Pool::builder().provider(provider.clone()).nodes(MANY);
        let builder = if joined { builder.plugin(plugin("world").joins_world()) } else { builder };
        let pool = builder.start().await.unwrap();
        while provider.launched() < 2 * MANY as usize || provider.machines().len() > MANY as usize {
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(provider.witness().notices(), MANY as usize, "joined: {joined}");
        assert!(provider.lists() < 10, "joined: {joined}: {} lists", provider.lists());
        pool.shutdown(Duration::from_secs(30)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_leave_at_the_same_time_are_looked_for_in_one_list() {
    let provider = FakeProvider::new(Arc::new(Faultless));
    let pool = Pool::builder().provider(provider.clone()).nodes(MANY).start().await.unwrap();
    pool.resize(1).await.unwrap();
    while provider.machines().len() > 1 {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(provider.lists() < 5, "{} lists", provider.lists());
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

/// Enough for a cost per pair of nodes to show.
const MANY: u32 = 200;
