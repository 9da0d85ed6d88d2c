//! A joined world that loses its first rank, its last, or a node: while a broadcast runs, while it is idle, and just before a broadcast.

use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{assert_nothing_left, limits, processes_of, python, signal, soon};
use futures_util::future::join_all;
use skyward::error::{Error, ErrorKind, WorkerExit};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::Rank;
use skyward::payload::{PendingCompute, RetryPolicy, Value};
use skyward::plugin::plugin;
use skyward::pool::{ComputePool, Pool};

/// All ranks wait for the test at the same time, and return their world's generation.
fn meet(folder: &Folder) -> PendingCompute<u64> {
    python(
        "import os, pathlib, time\nimport skyward as sky\ndef f(folder):\n    info = sky.instance_info()\n    pathlib.Path(folder, f'begun{info.generation}.{info.global_worker_index}').touch()\n    while not os.path.exists(f'{folder}/go'):\n        time.sleep(0.002)\n    return info.generation\n",
    )
    .arg("folder", folder.path.to_str().unwrap().to_owned())
    .into()
}

async fn start() -> Pool {
    let world = plugin("world").joins_world();
    Pool::builder().nodes(NODES).limits(limits()).plugin(world).start().await.unwrap()
}

async fn kill(pool: &Pool, rank: u32) {
    let pid = pool.status().workers[rank as usize].pid.unwrap();
    signal("KILL", pid).await;
}

async fn end(pool: Pool) {
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_nothing_left(pool.id());
}

/// The outcomes of a call on all ranks, each for itself; one for all where the pool does not take it.
async fn outcomes(pool: &Pool, call: PendingCompute<u64>) -> Vec<skyward::Result<Value>> {
    let handles = match soon("it is taken or refused", pool.submit_all(call.into_task().unwrap())).await {
        Ok(handles) => handles,
        Err(error) => return vec![Err(error)],
    };
    assert_eq!(handles.len(), NODES as usize);
    soon("every task has an outcome", join_all(handles.into_iter().map(|handle| handle.outcome()))).await
}

/// The first end of a worker that is told.
async fn first_exit(events: &mut Events) -> (Rank, WorkerExit) {
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item
            && let PoolEvent::WorkerExited { rank, exit } = &*event
        {
            return (*rank, exit.clone());
        }
    }
    panic!("the pool has ended");
}

#[tokio::test]
async fn a_rank_lost_while_a_broadcast_runs_fails_all_of_it_or_has_all_run_again() {
    let cells = [(0, false), (0, true), (NODES - 1, false), (NODES - 1, true)];
    join_all(cells.map(async |(lost, retry)| {
        let (folder, pool) = (Folder::new(), start().await);
        let call = meet(&folder).retry(if retry { RetryPolicy::times(1) } else { RetryPolicy::never() });
        let make_fault = async {
            for rank in 0..NODES {
                folder.reached(&format!("begun1.{rank}")).await;
            }
            let mut events = pool.events();
            kill(&pool, lost).await;
            assert_eq!(soon("the loss is told", first_exit(&mut events)).await, (Rank(lost), WorkerExit::Signal(9)));
            if retry {
                for rank in 0..NODES {
                    folder.reached(&format!("begun2.{rank}")).await;
                }
            }
            folder.open("go");
        };
        let (outcomes, ()) = tokio::join!(outcomes(&pool, call), make_fault);
        assert_eq!(outcomes.len(), NODES as usize);
        for outcome in outcomes {
            match outcome {
                Ok(_) => assert!(retry, "the others' values are of a world that has ended"),
                Err(error) => {
                    assert!(!retry, "{error}");
                    assert_eq!(error.exit(), Some(&WorkerExit::Signal(9)), "{error}");
                    assert!(error.message().contains(&format!("rank {lost} ")), "{error}");
                }
            }
        }
        assert_eq!(soon("the next one", meet(&folder).broadcast(&pool)).await.unwrap(), [2; NODES as usize]);
        end(pool).await;
    }))
    .await;
}

#[tokio::test]
async fn a_rank_lost_while_it_is_idle_is_there_again_for_the_next_broadcast() {
    join_all([0, NODES - 1].map(async |lost| {
        let (folder, pool) = (Folder::new(), start().await);
        folder.open("go");
        assert_eq!(meet(&folder).broadcast(&pool).await.unwrap(), [1; NODES as usize]);
        let mut events = pool.events();
        kill(&pool, lost).await;
        assert_eq!(soon("the loss is told", first_exit(&mut events)).await, (Rank(lost), WorkerExit::Signal(9)));
        // It waits for the next generation, and runs in no half of one.
        assert_eq!(soon("the next one", meet(&folder).broadcast(&pool)).await.unwrap(), [2; NODES as usize]);
        end(pool).await;
    }))
    .await;
}

#[tokio::test]
async fn a_broadcast_that_meets_the_loss_of_a_node_has_one_outcome_on_each_rank() {
    join_all([0, NODES - 1].map(async |lost| {
        let (folder, pool) = (Folder::new(), start().await);
        folder.open("go");
        assert_eq!(meet(&folder).broadcast(&pool).await.unwrap(), [1; NODES as usize]);
        let of_node = format!("/n{lost}-");
        let agent =
            processes_of(pool.id()).into_iter().find(|line| line.contains("skyward.agent") && line.contains(&of_node));
        let agent = agent.unwrap().split('"').nth(1).unwrap().parse().unwrap();
        let mut events = pool.events();
        signal("KILL", agent).await;
        // The first comes before the pool knows, the second after.
        let first = outcomes(&pool, meet(&folder)).await;
        let noticed = async {
            while let Some(item) = events.next().await {
                if matches!(item, EventItem::Event(event) if matches!(*event, PoolEvent::NodeLost { .. })) {
                    return;
                }
            }
        };
        soon("the loss is told", noticed).await;
        let second = soon("a broadcast after it", meet(&folder).broadcast(&pool)).await.unwrap();
        assert!(second.iter().all(|generation| *generation == second[0] && *generation > 1), "{second:?}");
        for error in first.into_iter().filter_map(Result::err) {
            assert_of_loss(&error);
        }
        end(pool).await;
    }))
    .await;
}

#[track_caller]
fn assert_of_loss(error: &Error) {
    let known = [ErrorKind::NodeLost, ErrorKind::WorkerExited].contains(&error.kind());
    assert!(known && (error.message().contains("node ") || error.message().contains("rank ")), "{error}");
}

const NODES: u32 = 3;
