//! A joined world loses its first rank, its last rank, or a node: while a broadcast runs, while the
//! world is idle, and just before a broadcast.

use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{assert_nothing_left, limits, processes_of, python, signal, soon};
use futures_util::future::join_all;
use indoc::indoc;
use skyward::compute::ComputePool;
use skyward::compute::PendingCompute;
use skyward::error::{Error, ErrorKind, WorkerExit};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::Rank;
use skyward::payload::{RetryPolicy, Value};
use skyward::plugin::plugin;
use skyward::pool::Pool;

/// All ranks wait for the test at the same time, and return their world's generation.
fn meet(folder: &Folder) -> PendingCompute<u64> {
    python(indoc! {"
        import os, pathlib, time
        import skyward as sky
        def f(folder):
            info = sky.instance_info()
            pathlib.Path(folder, f'begun{info.generation}.{info.global_worker_index}').touch()
            while not os.path.exists(f'{folder}/go'):
                time.sleep(0.002)
            return info.generation
    "})
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

/// The outcomes of a call on all ranks, one for each rank; a single outcome if the pool refuses the
/// call.
async fn outcomes(pool: &Pool, call: PendingCompute<u64>) -> Vec<skyward::Result<Value>> {
    let handles = match soon("the call is taken or refused", pool.submit_all(call.into_task().unwrap())).await {
        Ok(handles) => handles,
        Err(error) => return vec![Err(error)],
    };
    assert_eq!(handles.len(), NODES as usize);
    soon("every task has an outcome", join_all(handles.into_iter().map(|handle| handle.outcome()))).await
}

/// The first reported exit of a worker.
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
async fn a_rank_lost_during_a_broadcast_fails_all_ranks_or_retries_all() {
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
            assert_eq!(
                soon("the loss is reported", first_exit(&mut events)).await,
                (Rank(lost), WorkerExit::Signal(9))
            );
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
                Ok(_) => assert!(retry, "the values of the other ranks belong to a world that has ended"),
                Err(error) => {
                    assert!(!retry, "{error}");
                    assert_eq!(error.exit(), Some(&WorkerExit::Signal(9)), "{error}");
                    assert!(error.message().contains(&format!("rank {lost} ")), "{error}");
                }
            }
        }
        assert_eq!(soon("the next broadcast", meet(&folder).broadcast(&pool)).await.unwrap(), [2; NODES as usize]);
        end(pool).await;
    }))
    .await;
}

#[tokio::test]
async fn a_rank_lost_while_idle_is_restarted_for_the_next_broadcast() {
    join_all([0, NODES - 1].map(async |lost| {
        let (folder, pool) = (Folder::new(), start().await);
        folder.open("go");
        assert_eq!(meet(&folder).broadcast(&pool).await.unwrap(), [1; NODES as usize]);
        let mut events = pool.events();
        kill(&pool, lost).await;
        assert_eq!(soon("the loss is reported", first_exit(&mut events)).await, (Rank(lost), WorkerExit::Signal(9)));
        // The broadcast waits for the next generation, and never runs in an incomplete one.
        assert_eq!(soon("the next broadcast", meet(&folder).broadcast(&pool)).await.unwrap(), [2; NODES as usize]);
        end(pool).await;
    }))
    .await;
}

#[tokio::test]
async fn a_broadcast_during_the_loss_of_a_node_has_one_outcome_on_each_rank() {
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
        // The first broadcast starts before the pool knows of the loss, the second after.
        let first = outcomes(&pool, meet(&folder)).await;
        let noticed = async {
            while let Some(item) = events.next().await {
                if matches!(item, EventItem::Event(event) if matches!(*event, PoolEvent::NodeLost { .. })) {
                    return;
                }
            }
        };
        soon("the loss is reported", noticed).await;
        let second = soon("a broadcast after the loss", meet(&folder).broadcast(&pool)).await.unwrap();
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
