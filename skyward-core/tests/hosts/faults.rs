//! Faults of a node on a host while a task runs there: its worker or its agent is stopped, or its
//! disk is full.

use std::path::{Path, PathBuf};
use std::time::Duration;

use skyward_core::error::{ErrorKind, WorkerExit};
use skyward_core::event::{EventItem, Events, PoolEvent};
use skyward_core::ids::{NodeIndex, Rank};
use skyward_core::payload::{RetryPolicy, Target};

use crate::disk::Disk;
use crate::pool::{builder, work};
use crate::scene::{Process, Scene, kill, lives, wait};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_stopped_worker_is_ended_with_its_task_and_replaced() {
    let scene = Scene::new(2);
    builder(&scene, Duration::from_secs(60))
        .scope(async |pool| {
            let mut events = pool.events();
            let gate = scene.servers[1].path("never");
            let on = Target::Rank(Rank(1));
            let call = work(1, gate.to_str().unwrap()).timeout(Duration::from_secs(3));
            let stop = async { stopped(begun(&gate)) };
            let (outcome, worker) = tokio::join!(call.run_on(pool, on), stop);
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Timeout);
            let exit = told(&mut events, |event| match event {
                PoolEvent::WorkerExited { rank: Rank(1), exit } => Some(exit.clone()),
                PoolEvent::NodeLost { error, .. } => panic!("the node was given up: {error}"),
                _ => None,
            });
            assert_eq!(exit.await, WorkerExit::Killed);
            assert_ne!(work(2, "").run_on(pool, on).await?.1, worker.id);
            assert!(!lives(worker));
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_node_whose_agent_is_stopped_is_ended_with_its_worker_and_launched_anew() {
    let scene = Scene::new(2);
    let lease = Duration::from_secs(8);
    builder(&scene, lease)
        .scope(async |pool| {
            let mut events = pool.events();
            let gate = scene.servers[1].path("go");
            let call = work(1, gate.to_str().unwrap()).retry(RetryPolicy::never().node_lost(1));
            let fault = async {
                let worker = begun(&gate);
                let agent = stopped(worker.parent());
                let cause = told(&mut events, |event| match event {
                    PoolEvent::NodeLost { node: NodeIndex(1), error } => Some(format!("{error:#}")),
                    _ => None,
                });
                let cause = cause.await;
                assert!(cause.starts_with("the agent did not answer for 8s"), "{cause}");
                told(&mut events, |event| matches!(event, PoolEvent::NodeReplaced { .. }).then_some(())).await;
                assert!(!lives(worker) && !lives(agent), "they outlived their machine");
                std::fs::write(&gate, "").unwrap();
                worker
            };
            let (outcome, worker) = tokio::join!(call.run_on(pool, Target::Rank(Rank(1))), fault);
            assert_ne!(outcome?.1, worker.id);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, mount"]
async fn a_full_disk_of_a_host_is_reported_and_a_node_starts_when_there_is_room() {
    let scene = Scene::new(1);
    let base = scene.base(0);
    std::fs::create_dir(&base).unwrap();
    let disk = Disk::mount(&base, PAGE);
    disk.fill();
    let (mut size, mut errors) = (PAGE, Vec::new());
    loop {
        let ran = builder(&scene, Duration::from_secs(60)).nodes(1).scope(async |pool| work(1, "").run(pool).await);
        let Err(error) = ran.await else { break };
        let left: Vec<_> = scene.machines(0).into_iter().filter(|path| !path.ends_with("filler")).collect();
        assert!(left.is_empty(), "{left:?}: {error}");
        errors.push(format!("{error:#}"));
        size += PAGE;
        assert!(size < MOST, "the node never fits: {errors:#?}");
        disk.resize(size);
    }
    assert!(errors.iter().all(|error| error.contains("No space left on device")), "{errors:#?}");
    let claim = errors.first().unwrap();
    assert!(claim.contains("could not claim a slot") && claim.contains("its folder's disk is full"), "{claim}");
}

/// The process of the worker that waits at a gate.
fn begun(gate: &Path) -> Process {
    let file = PathBuf::from(format!("{}.begun", gate.display()));
    let read = || std::fs::read_to_string(&file).ok()?.trim().parse().ok();
    wait("the task began", || read().is_some());
    Process::of(read().unwrap())
}

/// Stops a process, and returns it.
fn stopped(process: Process) -> Process {
    kill("STOP", process.id);
    process
}

/// Waits for the first event for which `wanted` returns a value.
async fn told<T>(events: &mut Events, wanted: impl Fn(&PoolEvent) -> Option<T>) -> T {
    let told = async {
        while let Some(item) = events.next().await {
            if let EventItem::Event(event) = item
                && let Some(found) = wanted(&event)
            {
                return found;
            }
        }
        panic!("the pool ended");
    };
    tokio::time::timeout(Duration::from_secs(120), told).await.unwrap()
}

const PAGE: u64 = 4096;
const MOST: u64 = 1 << 20;
