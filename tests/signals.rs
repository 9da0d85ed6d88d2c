//! A worker or an agent is killed or stopped at each moment of its pool's life: every task has an
//! outcome, the pool ends in time, and nothing of it is left.
//!
//! `ownership.rs` tests killed clients, and `stopped_client.rs` stopped ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod common;

use std::time::Duration;

use common::scene::{Entered, Scene, Victim};
use common::{PID, assert_nothing_left, python, soon};
use futures_util::future::join_all;
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::{Error, ErrorKind, WorkerExit};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::{NodeIndex, Rank};
use skyward::payload::Target;
use skyward::pool::Pool;
use skyward::spec::Limits;

/// A fault of node 1, which has rank 1.
#[derive(Debug, Clone, Copy)]
struct Fault {
    victim: Victim,
    signal: &'static str,
}

const FAULTS: [Fault; 4] = [
    Fault { victim: Victim::Worker, signal: "KILL" },
    Fault { victim: Victim::Worker, signal: "STOP" },
    Fault { victim: Victim::Agent, signal: "KILL" },
    Fault { victim: Victim::Agent, signal: "STOP" },
];

#[tokio::test]
async fn while_the_pool_starts() {
    join_all(FAULTS.map(async |fault| {
        let scene = Scene::new();
        let start = tokio::spawn(scene.pool(|limits| fault.limits(limits)).start());
        let process = scene.entered().await;
        process.signal(fault.victim, fault.signal).await;
        scene.open("enter");
        scene.open("leave");
        match soon("the start ends", start).await.unwrap() {
            Err(error) => fault.assert_start_error(&error),
            // The client notices a stopped agent only when its lease has expired.
            Ok(pool) => {
                assert_eq!(fault.victim, Victim::Agent);
                assert_eq!(fault.signal, "STOP");
                let mut events = pool.events();
                fault.wait_until_noticed(&mut events).await;
                soon("a task after the fault", own_pid().run_on(&pool, ON_NODE_1)).await.unwrap();
                pool.shutdown(POOL_END).await.unwrap();
            }
        }
        assert_nothing_left(&process.pool);
    }))
    .await;
}

#[tokio::test]
async fn while_it_is_idle() {
    join_all(FAULTS.map(async |fault| {
        let (_scene, pool, process) = fault.ready().await;
        let before = own_pid().run_on(&pool, ON_NODE_1).await.unwrap();
        let mut events = pool.events();
        process.signal(fault.victim, fault.signal).await;
        if (fault.victim, fault.signal) == (Victim::Worker, "STOP") {
            // A stopped worker is noticed only because it does not answer.
            let call = own_pid().timeout(Duration::from_millis(300));
            let error = soon("the timeout", call.run_on(&pool, ON_NODE_1)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        }
        fault.wait_until_noticed(&mut events).await;
        let after = soon("a task after the fault", own_pid().run_on(&pool, ON_NODE_1)).await;
        let other = soon("a task elsewhere", own_pid().run_on(&pool, Target::Rank(Rank(0)))).await;
        assert_ne!(after.unwrap(), before, "{fault:?}: a fresh worker runs the task");
        other.unwrap();
        pool.shutdown(POOL_END).await.unwrap();
        assert_nothing_left(&process.pool);
    }))
    .await;
}

#[tokio::test]
async fn while_tasks_run() {
    join_all(FAULTS.map(async |fault| {
        let (scene, pool, process) = fault.ready().await;
        let wait = |name: &str, seconds| -> PendingCompute<u32> {
            let call: PendingCompute<u32> =
                python(WAIT).arg("begun", scene.gate(name)).arg("gate", scene.gate("go")).into();
            call.timeout(Duration::from_secs(seconds))
        };
        // The task's timeout detects a stopped worker.
        let seconds = if (fault.victim, fault.signal) == (Victim::Worker, "STOP") { 1 } else { 60 };
        let (running, waiting) = (wait("running", seconds), wait("waiting", 60));
        let elsewhere = wait("elsewhere", 60);
        let on = async |call: PendingCompute<u32>, rank| call.run_on(&pool, Target::Rank(Rank(rank))).await;
        let make_fault = async {
            scene.reached("running").await;
            scene.reached("elsewhere").await;
            let mut events = pool.events();
            process.signal(fault.victim, fault.signal).await;
            fault.wait_until_noticed(&mut events).await;
            scene.open("go");
        };
        let all = async { tokio::join!(on(running, 1), on(waiting, 1), on(elsewhere, 0), make_fault) };
        let (running, waiting, elsewhere, ()) = soon("every task has an outcome", all).await;
        match fault.victim {
            Victim::Worker => {
                fault.assert_task_error(&running.unwrap_err());
            }
            // The task is not at fault, and is tried again on the machine that replaces the node's.
            Victim::Agent => {
                running.unwrap();
            }
        }
        waiting.unwrap();
        elsewhere.unwrap();
        pool.shutdown(POOL_END).await.unwrap();
        assert_nothing_left(&process.pool);
    }))
    .await;
}

#[tokio::test]
async fn while_it_ends() {
    join_all(FAULTS.map(async |fault| {
        let scene = Scene::new();
        scene.open("enter");
        let pool = scene.pool(|limits| limits.grace = Duration::from_secs(60)).start().await.unwrap();
        let process = scene.entered().await;
        let mut events = pool.events();
        let endless: PendingCompute<u32> =
            python(WAIT).arg("begun", scene.gate("running")).arg("gate", scene.gate("never")).into();
        let make_fault = async {
            scene.reached("leaving1").await;
            process.signal(fault.victim, fault.signal).await;
            scene.open("leave");
        };
        let end = async {
            scene.reached("running").await;
            pool.shutdown(POOL_END).await
        };
        let all = async { tokio::join!(endless.run_on(&pool, Target::Rank(Rank(0))), end, make_fault) };
        let (task, ended, ()) = soon("the pool ends", all).await;
        assert_eq!(task.unwrap_err().kind(), ErrorKind::Closed);
        ended.unwrap();
        assert_nothing_left(&process.pool);
        let mut exits = Vec::new();
        while let Some(item) = events.next().await {
            if let EventItem::Event(event) = item
                && let PoolEvent::WorkerExited { rank: Rank(1), exit } = &*event
            {
                exits.push(exit.clone());
            }
        }
        if fault.victim == Victim::Worker {
            assert_eq!(
                exits,
                [WorkerExit::Signal(9)],
                "{fault:?}: the agent ended the worker, not the end of the machine"
            );
        }
    }))
    .await;
}

impl Fault {
    /// Starts a pool with the limits for this fault, whose hooks do not wait.
    async fn ready(self) -> (Scene, Pool, Entered) {
        let scene = Scene::new();
        scene.open("enter");
        scene.open("leave");
        let pool = scene.pool(|limits| self.limits(limits)).start().await.unwrap();
        let process = scene.entered().await;
        (scene, pool, process)
    }

    /// Shortens the deadline that must expire in this case.
    fn limits(self, limits: &mut Limits) {
        match (self.victim, self.signal) {
            (Victim::Worker, "STOP") => limits.hooks = Duration::from_secs(5),
            (Victim::Agent, "STOP") => limits.lease = Duration::from_secs(3),
            _ => {}
        }
    }

    /// Waits until the pool has reported that a process of node 1 is gone.
    async fn wait_until_noticed(self, events: &mut Events) {
        let noticed = async {
            while let Some(item) = events.next().await {
                let EventItem::Event(event) = item else { continue };
                match (&*event, self.victim) {
                    (PoolEvent::WorkerExited { rank: Rank(1), .. }, Victim::Worker)
                    | (PoolEvent::NodeLost { node: NodeIndex(1), .. }, Victim::Agent) => return,
                    _ => {}
                }
            }
        };
        soon("the pool reports the loss", noticed).await;
    }

    /// Checks that the error of a failed start names the process and the reason.
    fn assert_start_error(self, error: &Error) {
        let text = format!("{error:#}");
        let (kind, words) = match (self.victim, self.signal) {
            (Victim::Worker, "KILL") => (ErrorKind::Start, "rank 1 was ended by SIGKILL"),
            (Victim::Worker, _) => (
                ErrorKind::Hook,
                "1 of 2 workers had not entered their hooks and imported their payloads after 5s: rank 1",
            ),
            (Victim::Agent, _) => (ErrorKind::NodeLost, "node 1 was lost"),
        };
        assert!(error.kind() == kind && text.contains(words), "{self:?}: {:?}: {text}", error.kind());
    }

    /// Checks the error of the task that the worker ran.
    fn assert_task_error(self, error: &Error) {
        let right = match self.signal {
            "KILL" => error.exit() == Some(&WorkerExit::Signal(9)) && error.message().contains("rank 1"),
            _ => error.kind() == ErrorKind::Timeout,
        };
        assert!(right, "{self:?}: {:?}: {error}", error.kind());
    }
}

fn own_pid() -> PendingCompute<u32> {
    python(PID).into()
}

const ON_NODE_1: Target = Target::Rank(Rank(1));
const WAIT: &str = indoc! {"
    import os, pathlib, time
    def f(begun, gate):
        pathlib.Path(begun).touch()
        while not os.path.exists(gate):
            time.sleep(0.002)
        return os.getpid()
"};
/// How long a pool may take to end, on a busy host; its agents get half of it.
const POOL_END: Duration = Duration::from_secs(20);
