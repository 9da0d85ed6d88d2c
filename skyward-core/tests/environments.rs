//! Nodes of one pool have the same environment: on fake machines and a paused clock.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use skyward_core::compute::ComputePool;
use skyward_core::error::{Error, ErrorKind};
use skyward_core::event::{EventItem, PoolEvent};
use skyward_core::payload::{Args, Source, Target, Task};
use skyward_core::plugin::plugin;
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::spec::Nodes;
use skyward_core::testkit::fake_provider::{Death, FakeProvider, Faults};
use skyward_core::testkit::fake_worker::{Fate, Work};
use skyward_core::testkit::script::{Answer, Rule, Script};
use tokio::time::Instant;

/// The versions of Python on the machines of each node, in the order of the machines; the last one
/// counts for all further machines.
#[derive(Debug)]
struct Pythons {
    versions: Vec<Vec<&'static str>>,
    /// How many machines of each node have greeted.
    greeted: Vec<AtomicU32>,
    /// Whether the first machine of each node dies.
    dies: Vec<bool>,
}

impl Pythons {
    fn new(versions: &[&[&'static str]]) -> Self {
        let versions: Vec<_> = versions.iter().map(|node| node.to_vec()).collect();
        let dies = versions.iter().map(|node| node.len() > 1).collect();
        Self { greeted: versions.iter().map(|_| AtomicU32::new(0)).collect(), versions, dies }
    }

    /// The index of a node; the last one counts for all further nodes.
    fn node(&self, node: u32) -> usize {
        (node as usize).min(self.versions.len() - 1)
    }
}

impl Fate for Pythons {
    fn python(&self, node: u32) -> &str {
        let node = self.node(node);
        let machine = self.greeted[node].fetch_add(1, Ordering::Relaxed) as usize;
        self.versions[node][machine.min(self.versions[node].len() - 1)]
    }
}

impl Faults for Pythons {
    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        (machine == 0 && self.dies[self.node(node)]).then_some((Duration::from_secs(100), Death::Machine))
    }
}

fn pool(pythons: Pythons) -> (FakeProvider, PoolBuilder) {
    let nodes = pythons.versions.len() as u32;
    let calls = Rule::all().answer(|task| match task.path() {
        [] => Answer::does(Work::Call(1, false)),
        _ => Answer::does(Work::Return(Duration::ZERO)),
    });
    let provider = FakeProvider::new(Script::new().faults(pythons).rule(calls));
    (provider.clone(), Pool::builder().provider(provider).nodes(nodes))
}

fn arguments() -> bytes::Bytes {
    Args::new().with("number", &7).encode().unwrap()
}

/// The errors of lost nodes until so many nodes are replaced, or in an hour; and how many are.
async fn losses(pool: &Pool, nodes: usize) -> (Vec<Error>, usize) {
    let (mut events, mut lost, mut replaced) = (pool.events(), Vec::new(), 0);
    let end = Instant::now() + Duration::from_secs(3600);
    while replaced < nodes
        && let Ok(Some(item)) = tokio::time::timeout_at(end, events.next()).await
    {
        let EventItem::Event(event) = item else { panic!("{item:?}") };
        match &*event {
            PoolEvent::NodeLost { error, .. } => lost.push(error.clone()),
            PoolEvent::NodeReplaced { .. } => replaced += 1,
            _ => {}
        }
    }
    (lost, replaced)
}

#[tokio::test(start_paused = true)]
async fn a_pool_does_not_start_on_different_environments() {
    let (provider, pool) = pool(Pythons::new(&[&["3.12"], &["3.12"], &["3.11"]]));
    let error = pool.start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Environment);
    assert_eq!(error.message(), "node 2 has another environment than node 0: python 3.11 instead of 3.12");
    assert!(error.hint().unwrap().contains("`.mixed_environments(true)`"), "{error:#}");
    assert!(provider.machines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_environment_never_takes_the_place_of_a_lost_node() {
    let (provider, pool) = pool(Pythons::new(&[&["3.12"], &["3.12", "3.11"]]));
    let pool = pool.start().await.unwrap();
    let (lost, replaced) = losses(&pool, 1).await;
    assert_eq!(replaced, 0);
    let other = "node 1 has another environment than node 0: python 3.11 instead of 3.12";
    assert!(lost.len() > 1);
    for error in &lost[1..] {
        assert!(error.summary().contains(other), "{error:#}");
    }
    let _ = pool.shutdown(Duration::from_secs(30)).await;
    assert!(provider.machines().is_empty());
}

#[tokio::test(start_paused = true)]
async fn machines_that_replace_all_nodes_may_have_another_environment() {
    for versions in [&[&["3.12", "3.11"][..]][..], &[&["3.12", "3.11"], &["3.12", "3.11"]]] {
        let (_, pool) = pool(Pythons::new(versions));
        let pool = pool.start().await.unwrap();
        let (lost, replaced) = losses(&pool, versions.len()).await;
        assert_eq!(lost.len(), versions.len(), "{lost:?}");
        assert_eq!(replaced, versions.len(), "{lost:?}");
        pool.shutdown(Duration::from_secs(30)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_does_not_grow_by_another_environment() {
    let (_, pool) = pool(Pythons::new(&[&["3.12"], &["3.11"], &["3.11"], &["3.11"]]));
    let pool = pool.nodes(1).start().await.unwrap();
    let error = pool.resize(Nodes::fixed(2)).await.unwrap_err();
    assert!(error.summary().contains("has another environment than node 0: python 3.11 instead of 3.12"), "{error:#}");
    assert_eq!(pool.status().nodes.len(), 1);
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mixed_pool_starts_grows_and_replaces_and_refuses_calls() {
    let (_, pool) = pool(Pythons::new(&[&["3.12"], &["3.11", "3.10"], &["3.9"]]));
    let pool = pool.nodes(2).mixed_environments(true).start().await.unwrap();
    pool.resize(Nodes::fixed(3)).await.unwrap();
    assert_eq!(losses(&pool, 1).await.1, 1);
    let source = Arc::new(Source::file("a.py", "def f(number): return number", "f"));
    let outcome = pool.submit(Task::new(source, arguments()), Target::Any).await.unwrap().outcome().await;
    // The fake raises when one of its calls fails.
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Raised);
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

#[test]
fn a_world_of_mixed_environments_is_refused() {
    let (_, builder) = pool(Pythons::new(&[&["3.12"], &["3.12"]]));
    let world = plugin("world").joins_world();
    builder.clone().plugin(world.clone()).check().unwrap();
    let error = builder.clone().plugin(world.clone()).mixed_environments(true).check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec);
    assert!(error.message().contains("joins its workers into one world"), "{error}");
    // One worker is no world.
    builder.nodes(1).plugin(world).mixed_environments(true).check().unwrap();
}
