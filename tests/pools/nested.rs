//! Calls within calls, with real Python: a payload submits work to other workers of its pool.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::common::scene::Folder;
use crate::common::{pool, processes_of, soon, until};
use skyward::compute::PendingCompute;
use skyward::compute::{CallsStatus, ComputePoolExt};
use skyward::error::ErrorKind;
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::{Output, Payload, Streaming};
use skyward::plugin::plugin;

const SOURCE: &str = include_str!("../payloads/nested.py");

/// A call of a function without arguments.
fn plain<T: Output>(entry: &'static str) -> PendingCompute<T> {
    Payload::python("nested.py", SOURCE, entry).into()
}

/// A call of a function with one argument.
fn nested<T: Output>(
    entry: &'static str,
    name: &'static str,
    value: impl Serialize + Send + Sync + 'static,
) -> PendingCompute<T> {
    Payload::python("nested.py", SOURCE, entry).arg(name, value).into()
}

/// The sum of the squares below a number.
fn squares(count: i64) -> i64 {
    (0..count).map(|number| number * number).sum()
}

#[tokio::test]
async fn as_many_callers_as_workers_need_no_other_process() {
    for (nodes, per_node) in [(1, 1), (1, 2), (2, 2)] {
        let workers = (nodes * per_node) as usize;
        pool(nodes)
            .workers_per_node(per_node)
            .scope(async |pool| {
                let before = processes_of(&pool.status().pool).len();
                for entry in ["results", "mapped", "hidden"] {
                    let callers = (0..workers).map(|_| nested::<i64>(entry, "count", 20));
                    let sums = soon(entry, pool.map(callers)).await?;
                    assert_eq!(sums, vec![squares(20); workers], "{entry} on {workers} workers");
                }
                let stream: PendingCompute<Streaming<i64>> = nested("streamed", "count", 5);
                let items = soon("a stream", stream.run(pool).await?.collect()).await?;
                assert_eq!(items, [0, 1, 4, 9, 16]);
                assert_eq!(processes_of(&pool.status().pool).len(), before, "calls start no process");
                Ok(())
            })
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn events_and_status_report_how_many_calls_a_task_has() {
    let folder = Folder::new();
    let gate = folder.gate("open");
    pool(1)
        .scope(async |pool| {
            let mut events = pool.events();
            let call = nested::<i64>("gated", "gate", gate.clone()).run(pool);
            let seen = async {
                let stand = || {
                    let status = pool.status();
                    let CallsStatus { waiting, running, helped, .. } = status.calls;
                    (waiting, running, helped, status.workers[0].helps.len(), status.running) == (8, 1, 1, 1, 1)
                };
                until("one of nine calls runs in the wait of its caller", stand).await;
                let task = pool.status().workers[0].task.unwrap();
                soon("an event", async {
                    loop {
                        if let Some(EventItem::Event(event)) = events.next().await
                            && let PoolEvent::Calls { task: of, done: 0, running: 1, waiting: 8 } = *event
                        {
                            return assert_eq!(of, task);
                        }
                    }
                })
                .await;
                folder.open("open");
                task
            };
            let (sum, task) = tokio::join!(soon("the caller", call), seen);
            assert_eq!(sum?, 36);
            let mut reports = Vec::new();
            soon("the end of the task", async {
                while let Some(item) = events.next().await {
                    let EventItem::Event(event) = item else { continue };
                    match *event {
                        PoolEvent::Calls { done, running, waiting, .. } => reports.push((done, running, waiting)),
                        PoolEvent::TaskFinished { task: of, .. } if of == task => return,
                        _ => {}
                    }
                }
            })
            .await;
            assert_eq!(reports.last(), Some(&(9, 0, 0)), "{reports:?}");
            assert_eq!(pool.status().calls, CallsStatus::default());
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn calls_recurse_and_reach_every_worker() {
    pool(2)
        .workers_per_node(2)
        .scope(async |pool| {
            assert_eq!(soon("a recursion", nested::<i64>("fibonacci", "number", 9).run(pool)).await?, 34);
            let places = nested::<Vec<(u32, u32)>>("spread", "count", 24).run(pool).await?;
            let ranks: BTreeSet<u32> = places.iter().map(|(rank, _)| *rank).collect();
            assert_eq!(ranks.len(), 4, "{places:?}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_call_that_no_other_worker_takes_runs_on_its_callers_worker_and_its_timeouts_fire() {
    let folder = Folder::new();
    for (workers, elsewhere) in
        [(2, "TimeoutError: the task was not started within"), (1, "CallError: the call must not run")]
    {
        let gate = folder.gate(&format!("open{workers}"));
        pool(1)
            .workers_per_node(workers)
            .scope(async |pool| {
                let others = async {
                    let held = (1..workers).map(|_| nested::<i64>("held_once", "gate", gate.clone()));
                    soon("the other workers", pool.map(held)).await
                };
                let callers = async {
                    until("the other workers are busy", || pool.status().running == workers as usize - 1).await;
                    for (how, said) in [
                        ("timeout", "9"),
                        ("deadline", "9"),
                        ("hidden", "9"),
                        ("overrun", "TimeoutError: the task ran longer than its timeout"),
                        ("elsewhere", elsewhere),
                    ] {
                        let got = soon(how, nested::<String>("alone", "how", how).run(pool)).await?;
                        assert!(got.starts_with(said), "{how} on {workers} workers: {got}");
                    }
                    folder.open(&format!("open{workers}"));
                    Ok::<_, skyward::error::Error>(())
                };
                let (others, callers) = tokio::join!(others, callers);
                others.and(callers)
            })
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn an_exception_of_a_call_is_raised_in_its_caller_with_its_remote_traceback() {
    let told = pool(1).workers_per_node(2).scope(async |pool| plain::<Vec<String>>("raised").run(pool).await).await;
    let told = told.unwrap();
    assert_eq!(told[..2], ["Odd".to_owned(), "3 is odd".to_owned()]);
    assert!(told[2].contains("nested.py") && told[2].contains("in refuse"), "{}", told[2]);
}

#[tokio::test]
async fn a_call_that_kills_its_worker_is_lost_after_its_tries_and_its_caller_lives() {
    let folder = Folder::new();
    let marker = folder.gate("deaths");
    pool(1)
        .workers_per_node(2)
        .scope(async |pool| {
            let call = nested::<Vec<String>>("survives", "marker", marker.clone()).run(pool);
            let told = soon("the caller", call).await?;
            assert!(told[0].contains("SIGKILL") && told[1] == "49", "{told:?}");
            let deaths = std::fs::read_to_string(&marker).unwrap();
            assert_eq!(deaths.lines().count(), 2, "one more try after a crash");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn cancelling_a_caller_cancels_its_whole_tree() {
    let folder = Folder::new();
    pool(1)
        .workers_per_node(3)
        .scope(async |pool| {
            let root = nested::<i64>("tree", "folder", folder.path.to_str().unwrap().to_owned());
            let call = tokio::spawn({
                let pool = pool.clone();
                async move { root.run(&pool).await }
            });
            let begun = |name: &str| {
                let files = std::fs::read_dir(&folder.path).unwrap().flatten();
                files.filter_map(|file| file.file_name().into_string().ok()).any(|file| file.starts_with(name))
            };
            until("both calls run", || begun("leaf.") && begun("deep.")).await;
            call.abort();
            let idle = || pool.status().workers.iter().all(|worker| worker.ready && worker.task.is_none());
            until("all workers are idle", idle).await;
            assert!(begun("leaf.ended") && begun("deep.ended"), "both were interrupted, not killed");
            assert_eq!(pool.status().queued, 0);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_killed_caller_ends_with_one_outcome_and_its_workers_recover() {
    let folder = Folder::new();
    pool(1)
        .workers_per_node(2)
        .scope(async |pool| {
            let root = nested::<i64>("tree", "folder", folder.path.to_str().unwrap().to_owned());
            let call = tokio::spawn({
                let pool = pool.clone();
                async move { root.run(&pool).await }
            });
            until("the calls run", || pool.status().workers.iter().all(|worker| worker.task.is_some())).await;
            let root = pool.status().workers.iter().min_by_key(|worker| worker.task).and_then(|worker| worker.pid);
            crate::common::signal("KILL", root.unwrap()).await;
            let error = soon("the outcome of the caller", call).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WorkerExited, "{error}");
            let idle = || pool.status().workers.iter().all(|worker| worker.ready && worker.task.is_none());
            until("all workers are idle", idle).await;
            assert_eq!(soon("the next call", nested::<i64>("mapped", "count", 9).run(pool)).await?, squares(9));
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn invalid_calls_fail_with_errors_that_explain_them() {
    pool(1)
        .workers_per_node(2)
        .scope(async |pool| {
            let bottomless = soon("a recursion", plain::<String>("bottomless").run(pool)).await?;
            assert!(bottomless.contains("64"), "{bottomless}");
            let unpicklable = plain::<String>("unpicklable").run(pool).await?;
            assert!(unpicklable.contains("lock"), "{unpicklable}");
            Ok(())
        })
        .await
        .unwrap();
    let gang = pool(2)
        .plugin(plugin("world").joins_world())
        .scope(async |pool| nested::<i64>("results", "count", 1).broadcast(pool).await)
        .await;
    let error = gang.unwrap_err();
    assert!(format!("{error:#}").contains("gang"), "{error}");
}
