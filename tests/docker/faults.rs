//! A worker or an agent in a container is killed or stopped while a task runs.

use std::time::Duration;

use futures_util::future::join_all;
use skyward::compute::PendingCompute;
use skyward::error::{Error, ErrorKind, WorkerExit};
use skyward::event::{EventItem, PoolEvent};
use skyward::ids::Rank;
use skyward::payload::{RetryPolicy, Target};
use skyward::pool::Pool;
use skyward::provider::Docker;

use super::common::scene::{Folder, Victim};
use super::common::{limits, python, soon};
use super::{container, ended, engine, who};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn killed_and_stopped_workers_and_agents_are_distinguished() {
    let image = engine::node_image();
    let folder = Folder::new();
    let here = folder.path.to_str().unwrap();
    let nodes = FAULTS.len() as u32;
    let mut limits = limits();
    limits.lease = Duration::from_secs(8);
    let docker = Docker::new(image).bind(here, here);
    let pool = Pool::builder().provider(docker).nodes(nodes).limits(limits).start().await.unwrap();
    let mut events = pool.events();
    let faults = join_all((0..).zip(FAULTS).map(async |(node, fault)| {
        let (begun, gate) = (format!("begun{node}"), folder.gate(&format!("gate{node}")));
        let call: PendingCompute<u32> = python(WAIT).arg("begun", folder.gate(&begun)).arg("gate", gate).into();
        let call = call.timeout(Duration::from_secs(fault.timeout)).retry(fault.retry());
        let make = async {
            folder.reached(&begun).await;
            let pids = std::fs::read_to_string(folder.gate(&begun)).unwrap();
            let (worker, agent) = pids.split_once(' ').unwrap();
            let victim = if fault.victim == Victim::Worker { worker } else { agent };
            engine::inside(&container(&pool, node), &format!("kill -{} {victim}", fault.signal)).unwrap();
        };
        tokio::join!(call.run_on(&pool, Target::Rank(Rank(node))), make).0
    }));
    let heard = async {
        let mut heard = Heard::default();
        while !heard.all() {
            if let EventItem::Event(event) = soon("each fault is reported", events.next()).await.unwrap() {
                heard.hear(&event);
            }
        }
        // Retried tasks may end now.
        (0..nodes).for_each(|node| folder.open(&format!("gate{node}")));
        heard
    };
    let (outcomes, heard) = tokio::join!(faults, heard);
    for (fault, outcome) in FAULTS.iter().zip(outcomes) {
        fault.assert_outcome(outcome);
    }
    for (node, fault) in (0..).zip(FAULTS) {
        let told = heard.of(fault.victim, node);
        // The pool looks for a lost agent once more, and reports the result after the cause.
        assert!(told.len() == 1 && told[0].starts_with(fault.told), "{fault:?}: {told:?}");
        let after = soon("a task after the fault", who().run_on(&pool, Target::Rank(Rank(node)))).await.unwrap();
        assert_eq!(after.0, format!("node-{node}"), "{fault:?}");
        let first = container(&pool, node);
        let there = engine::left(pool.id().as_str()).iter().any(|left| left.contains(&first));
        assert_eq!(there, fault.victim == Victim::Worker, "{fault:?}: {first}");
    }
    ended(pool).await;
}

/// A fault of a process of a node while its worker runs a task.
#[derive(Debug, Clone, Copy)]
struct Fault {
    victim: Victim,
    signal: &'static str,
    /// How often the task is tried again after its worker ended.
    crashes: u32,
    /// The timeout of the task, in seconds. The timeout shows that a worker is stopped.
    timeout: u64,
    /// The reported exit of the worker, or the reported reason of the node's loss.
    told: &'static str,
}

/// One fault for each node.
const FAULTS: [Fault; 5] = [
    Fault { victim: Victim::Worker, signal: "KILL", crashes: 0, timeout: 60, told: "was ended by SIGKILL (signal 9)" },
    Fault { victim: Victim::Worker, signal: "KILL", crashes: 1, timeout: 60, told: "was ended by SIGKILL (signal 9)" },
    Fault {
        victim: Victim::Worker,
        signal: "STOP",
        crashes: 0,
        timeout: 3,
        told: "was killed because it did not end a cancelled or overdue task",
    },
    Fault { victim: Victim::Agent, signal: "KILL", crashes: 0, timeout: 60, told: "the agent ended its connection" },
    Fault { victim: Victim::Agent, signal: "STOP", crashes: 0, timeout: 60, told: "the agent did not answer for 8s" },
];

impl Fault {
    fn retry(self) -> RetryPolicy {
        RetryPolicy::default().crash(self.crashes)
    }

    fn assert_outcome(self, outcome: Result<u32, Error>) {
        match (self.victim, self.signal, outcome) {
            (Victim::Worker, "KILL", Err(error)) if self.crashes == 0 => {
                assert_eq!(error.exit(), Some(&WorkerExit::Signal(9)), "{error}");
            }
            (Victim::Worker, "STOP", Err(error)) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
            // The task was tried again: by its policy, or because its node was lost.
            (Victim::Worker, "KILL", Ok(_)) if self.crashes > 0 => {}
            (Victim::Agent, _, Ok(_)) => {}
            (_, _, outcome) => panic!("{self:?}: {outcome:?}"),
        }
    }
}

/// What a pool reported about its nodes.
#[derive(Debug, Default)]
struct Heard {
    exits: Vec<(u32, String)>,
    lost: Vec<(u32, String)>,
    replaced: Vec<u32>,
}

impl Heard {
    fn hear(&mut self, event: &PoolEvent) {
        match event {
            PoolEvent::WorkerExited { rank, exit } => self.exits.push((rank.0, exit.to_string())),
            PoolEvent::NodeLost { node, error } => self.lost.push((node.0, format!("{error:#}"))),
            PoolEvent::NodeReplaced { node, .. } => self.replaced.push(node.0),
            _ => {}
        }
    }

    /// The reports about this process of a node.
    fn of(&self, victim: Victim, node: u32) -> Vec<&str> {
        let all = if victim == Victim::Worker { &self.exits } else { &self.lost };
        all.iter().filter(|(of, _)| *of == node).map(|(_, what)| what.as_str()).collect()
    }

    /// Whether each fault was reported, and each lost node has another machine.
    fn all(&self) -> bool {
        (0..).zip(FAULTS).all(|(node, fault)| match fault.victim {
            Victim::Worker => self.exits.iter().any(|(rank, _)| *rank == node),
            Victim::Agent => self.replaced.contains(&node),
        })
    }
}

const WAIT: &str = "
import os
import time

def f(begun, gate):
    with open(begun + '.new', 'w') as file:
        file.write(f'{os.getpid()} {os.getppid()}')
    os.rename(begun + '.new', begun)
    while not os.path.exists(gate):
        time.sleep(0.002)
    return os.getpid()
";
