//! Pools that grow and shrink, with real Python: by themselves, by `resize`, and as a joined world.

use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{assert_nothing_left, limits, python, soon, until};
use futures_util::future::join_all;
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::compute::{ComputePool, PoolStatus, WaitingFor};
use skyward::error::ErrorKind;
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::NodeIndex;
use skyward::payload::Target;
use skyward::plugin::plugin;
use skyward::pool::Pool;
use skyward::spec::Nodes;

/// Waits for the test. Returns its node, the number of nodes when its worker was started, and the
/// generation.
fn meet(folder: &Folder) -> PendingCompute<(u32, u32, u64)> {
    python(indoc! {"
        import os, pathlib, time
        import skyward as sky
        def f(folder):
            info = sky.instance_info()
            pathlib.Path(folder, f'begun{info.node}').touch()
            while not os.path.exists(f'{folder}/go'):
                time.sleep(0.002)
            return (info.node, info.total_nodes, info.generation)
    "})
    .arg("folder", folder.path.to_str().unwrap().to_owned())
    .into()
}

async fn end(pool: Pool) {
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_nothing_left(pool.id());
}

/// How many nodes take any task.
fn nodes(status: &PoolStatus) -> usize {
    status.nodes.iter().filter(|node| !node.draining).count()
}

/// The events so far about nodes that joined and left.
async fn told(events: &mut Events) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(Some(EventItem::Event(event))) = tokio::time::timeout(Duration::from_millis(1), events.next()).await {
        match &*event {
            PoolEvent::NodeJoined { node, .. } => all.push(format!("{node} joined")),
            PoolEvent::NodeDraining { node, .. } => all.push(format!("{node} leaves")),
            PoolEvent::NodeGone { node, .. } => all.push(format!("{node} gone")),
            PoolEvent::Resized { nodes, .. } => all.push(format!("now {nodes}")),
            _ => {}
        }
    }
    all
}

#[tokio::test]
async fn an_elastic_pool_grows_while_tasks_wait_and_releases_idle_nodes() {
    let (mut limits, folder) = (limits(), Folder::new());
    limits.idle = Duration::from_millis(400);
    let pool = Pool::builder().nodes(Nodes::elastic(1, 3)).limits(limits).start().await.unwrap();
    let mut events = pool.events();
    let calls = (0..9).map(|_| meet(&folder).run(&pool));
    let work = async {
        until("the pool has its most nodes, and they take tasks", || {
            let status = pool.status();
            nodes(&status) == 3 && status.running == 3
        })
        .await;
        assert_eq!(pool.status().waiting_for, []);
        folder.open("go");
    };
    let (results, ()) = tokio::join!(join_all(calls), work);
    let mut seen: Vec<(u32, u32)> =
        results.into_iter().map(Result::unwrap).map(|(node, total, _)| (node, total)).collect();
    seen.sort_unstable();
    assert!(seen.iter().all(|(node, total)| total > node && *total <= 3), "{seen:?}");
    assert!(seen.iter().any(|(node, _)| *node == 2), "{seen:?}");
    until("the pool has its least nodes, and the others are gone", || {
        let status = pool.status();
        status.nodes.len() == 1 && status.waiting_for.is_empty()
    })
    .await;
    let told = told(&mut events).await;
    for event in ["1 joined", "2 joined", "now 3", "1 leaves", "2 leaves", "1 gone", "2 gone", "now 1"] {
        assert!(told.iter().any(|told| told == event), "{event}: {told:?}");
    }
    assert!(!told.iter().any(|told| told.starts_with('0')), "{told:?}");
    assert_eq!(meet(&folder).run(&pool).await.unwrap().0, 0);
    end(pool).await;
}

#[tokio::test]
async fn a_resized_pool_reaches_its_size_and_leaving_nodes_finish_first() {
    let folder = Folder::new();
    let pool = crate::common::pool(1).start().await.unwrap();
    soon("the pool grows", pool.resize(Nodes::fixed(3))).await.unwrap();
    let on_last = pool.submit(meet(&folder).into_task().unwrap(), Target::Node(NodeIndex(2))).await.unwrap();
    folder.reached("begun2").await;
    let shrink = {
        let pool = pool.clone();
        tokio::spawn(async move { pool.resize(Nodes::fixed(1)).await })
    };
    until("the last node finishes its task, and the one before it is gone", || {
        let status = pool.status();
        let left = status.nodes.iter().filter(|node| node.draining && node.ready).count();
        nodes(&status) == 1 && left == 1 && status.waiting_for == [WaitingFor::Tasks { node: NodeIndex(2) }]
    })
    .await;
    let refused = pool.submit(meet(&folder).into_task().unwrap(), Target::Node(NodeIndex(2))).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!shrink.is_finished());
    folder.open("go");
    assert!(soon("the task returns", on_last.outcome()).await.is_ok());
    soon("the pool shrinks", shrink).await.unwrap().unwrap();
    assert_eq!(pool.status().nodes.len(), 1);
    assert_eq!(meet(&folder).broadcast(&pool).await.unwrap().len(), 1);
    let refused = pool.resize(Nodes::fixed(0)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidSpec);
    end(pool).await;
}

#[tokio::test]
async fn a_joined_world_is_resized_between_two_gangs() {
    let folder = Folder::new();
    let world = plugin("world").joins_world();
    let pool = crate::common::pool(2).plugin(world).start().await.unwrap();
    let first = meet(&folder).broadcast(&pool);
    let work = async {
        folder.reached("begun0").await;
        folder.reached("begun1").await;
        let resize = {
            let pool = pool.clone();
            tokio::spawn(async move { pool.resize(Nodes::fixed(3)).await })
        };
        until("the resize waits for the gang", || pool.status().waiting_for == [WaitingFor::World]).await;
        let second = meet(&folder).broadcast(&pool);
        let go = async {
            assert_eq!(pool.status().generation.0, 1);
            folder.open("go");
        };
        let (second, ()) = tokio::join!(second, go);
        soon("the pool grows", resize).await.unwrap().unwrap();
        second.unwrap()
    };
    let (first, second) = tokio::join!(first, work);
    assert_eq!(first.unwrap(), [(0, 2, 1), (1, 2, 1)]);
    assert_eq!(second, [(0, 3, 2), (1, 3, 2), (2, 3, 2)], "the gang waited for the resize");
    soon("the pool shrinks", pool.resize(Nodes::fixed(1))).await.unwrap();
    assert_eq!(meet(&folder).broadcast(&pool).await.unwrap(), [(0, 1, 3)]);
    let refused = pool.resize(Nodes::elastic(1, 3)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Plugins, "a world has no elastic size");
    end(pool).await;
}
