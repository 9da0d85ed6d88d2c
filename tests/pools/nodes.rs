//! Lost nodes are replaced: the node's machine is ended, another machine takes its place, and the
//! pool goes on.

use std::time::Duration;

use crate::common::{SLEEP, limits, pool, processes_of, python};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::compute::PoolPhase;
use skyward::error::{ErrorKind, WorkerExit};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::{NodeIndex, PoolId, Rank};
use skyward::payload::{RetryPolicy, Target};
use skyward::pool::Pool;
use skyward::prelude::plugins;

/// Returns the machine that it runs on.
fn machine() -> PendingCompute<String> {
    python(indoc! {"
        import os
        def f():
            return os.environ['SKYWARD_MACHINE']
    "})
    .into()
}

/// Runs for ever on the first machine of a node, and returns at once on another.
fn stays() -> PendingCompute<String> {
    python(indoc! {"
        import os
        import time
        def f():
            machine = os.environ['SKYWARD_MACHINE']
            while machine.endswith('-a1'):
                time.sleep(0.01)
            return machine
    "})
    .into()
}

/// Sends a signal to a node's agent. On `KILL`, the workers die with the agent.
fn signal_agent(pool: &PoolId, node: u32, signal: &str) {
    let agent = processes_of(pool)
        .into_iter()
        .find(|line| line.contains("skyward.agent") && line.contains(&format!("/n{node}-")))
        .unwrap();
    let pid = agent.split('"').nth(1).unwrap().to_owned();
    assert!(std::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
}

/// The events until the node is replaced, in short form.
async fn until_replaced(events: &mut Events, node: u32) -> Vec<String> {
    let mut told = Vec::new();
    let wait = async {
        while let Some(item) = events.next().await {
            let EventItem::Event(event) = item else { continue };
            match &*event {
                PoolEvent::NodeLost { node, error } => told.push(format!("{node} lost: {}", error.message())),
                PoolEvent::NodeGone { node, machine } => {
                    told.push(format!("{node} gone: {}", suffix(machine.as_str())))
                }
                PoolEvent::NodeLaunched { node, machine, .. } => {
                    told.push(format!("{node} launched: {}", suffix(machine.as_str())));
                }
                PoolEvent::GenerationStarting { generation, workers } => {
                    told.push(format!("generation {generation}: {workers}"));
                }
                PoolEvent::NodeReplaced { node: replaced, machine, .. } => {
                    told.push(format!("{replaced} replaced: {}", suffix(machine.as_str())));
                    if *replaced == NodeIndex(node) {
                        return;
                    }
                }
                _ => {}
            }
        }
        panic!("the pool ended: {told:?}");
    };
    if tokio::time::timeout(Duration::from_secs(60), wait).await.is_err() {
        panic!("the node was not replaced");
    }
    told
}

fn suffix(machine: &str) -> &str {
    machine.rsplit_once('.').unwrap().1
}

async fn until_running(pool: &Pool, count: usize) {
    let running = async {
        while pool.status().running < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), running).await.unwrap();
}

#[tokio::test]
async fn an_idle_node_whose_agent_is_killed_is_replaced_and_other_nodes_go_on() {
    let go = std::env::temp_dir().join(format!("skyward-go-{}", std::process::id()));
    let waits: PendingCompute<u64> = python(indoc! {"
        import os
        import time
        def f(path):
            while not os.path.exists(path):
                time.sleep(0.01)
            return os.getpid()
    "})
    .arg("path", go.to_str().unwrap().to_owned())
    .into();
    let handle = pool(2).start().await.unwrap();
    let before = handle.status();
    let mut events = handle.events();
    let call = tokio::spawn({
        let handle = handle.clone();
        async move { waits.retry(RetryPolicy::never()).run_on(&handle, Target::Rank(Rank(0))).await }
    });
    until_running(&handle, 1).await;
    signal_agent(handle.id(), 1, "KILL");
    let told = until_replaced(&mut events, 1).await;
    assert!(told[0].starts_with("1 lost: "), "{told:?}");
    assert_eq!(
        told[1..],
        ["1 gone: n1-a1", "1 launched: n1-a2", "generation 1: 1", "1 replaced: n1-a2"],
        "the lost machine is gone before another is launched, and no other worker is started"
    );
    let status = handle.status();
    assert_eq!(status.phase, PoolPhase::Ready);
    assert_eq!(status.nodes[0], before.nodes[0]);
    assert!(status.nodes[1].ready && status.nodes[1].machine != before.nodes[1].machine, "{:?}", status.nodes);
    assert!(machine().run_on(&handle, Target::Node(NodeIndex(1))).await.unwrap().ends_with(".n1-a2"));
    // The task on the other node returns from the process in which it began.
    std::fs::write(&go, "").unwrap();
    assert_eq!(call.await.unwrap().unwrap(), u64::from(before.workers[0].pid.unwrap()));
    std::fs::remove_file(go).unwrap();
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_eq!(processes_of(handle.id()), Vec::<String>::new());
}

#[tokio::test]
async fn a_task_of_a_lost_node_runs_again_on_the_replacement() {
    pool(1)
        .workers_per_node(2)
        .scope(async |pool| {
            let call = tokio::spawn({
                let pool = pool.clone();
                async move { stays().broadcast(&pool).await }
            });
            until_running(pool, 2).await;
            signal_agent(pool.id(), 0, "KILL");
            let machines = call.await.unwrap()?;
            assert!(machines.len() == 2 && machines.iter().all(|machine| machine.ends_with(".n0-a2")), "{machines:?}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_task_without_retries_fails_with_its_node_and_the_next_task_runs() {
    pool(1)
        .scope(async |pool| {
            let call = tokio::spawn({
                let pool = pool.clone();
                async move { stays().retry(RetryPolicy::never()).run(&pool).await }
            });
            until_running(pool, 1).await;
            signal_agent(pool.id(), 0, "KILL");
            let error = call.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NodeLost, "{error}");
            assert_eq!(error.exit(), Some(&WorkerExit::AgentGone), "{error}");
            assert!(!pool.status().nodes[0].ready);
            assert!(machine().run(pool).await?.ends_with(".n0-a2"));
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_node_whose_agent_is_stopped_is_replaced_when_its_lease_expires() {
    let mut limits = limits();
    limits.lease = Duration::from_secs(2);
    let handle = pool(1).limits(limits).start().await.unwrap();
    let mut events = handle.events();
    let call = tokio::spawn({
        let handle = handle.clone();
        async move { stays().retry(RetryPolicy::never()).run(&handle).await }
    });
    until_running(&handle, 1).await;
    signal_agent(handle.id(), 0, "STOP");
    let told = until_replaced(&mut events, 0).await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeLost, "{error}");
    assert_eq!(error.exit(), Some(&WorkerExit::LeaseEnded), "{error}");
    assert_eq!(told[0], "0 lost: the agent did not answer for 2s");
    assert!(machine().run(&handle).await.unwrap().ends_with(".n0-a2"));
    assert!(!processes_of(handle.id()).iter().any(|line| line.contains("/n0-a1")), "the stopped agent is ended");
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_eq!(processes_of(handle.id()), Vec::<String>::new());
}

#[tokio::test]
async fn a_world_that_loses_its_head_continues_as_a_new_generation_with_a_new_head() {
    let place: PendingCompute<(u64, String, Vec<String>, u16, String)> = python(indoc! {"
        import os
        import time
        import skyward as sky
        def f():
            info = sky.instance_info()
            while info.generation == 1:
                time.sleep(0.01)
            return info.generation, info.head_addr, [peer.addr for peer in info.peers], info.head_port, info.addr
    "})
    .into();
    Pool::builder()
        .nodes(2)
        .limits(limits())
        .plugin(plugins::plugin("world").joins_world())
        .scope(async |pool| {
            let mut events = pool.events();
            let call = tokio::spawn({
                let (pool, place) = (pool.clone(), place.clone());
                async move { place.broadcast(&pool).await }
            });
            until_running(pool, 2).await;
            signal_agent(pool.id(), 0, "KILL");
            let told = until_replaced(&mut events, 0).await;
            assert_eq!(told[1..], ["0 gone: n0-a1", "0 launched: n0-a2", "generation 2: 2", "0 replaced: n0-a2"]);
            let all = call.await.unwrap()?;
            let addresses: Vec<_> = pool.status().nodes.into_iter().map(|node| node.address).collect();
            let port = all[0].3;
            assert!(port > 0);
            for (rank, (generation, head, peers, head_port, addr)) in all.into_iter().enumerate() {
                assert_eq!(generation, 2);
                assert_eq!(&head, &addresses[0]);
                assert_eq!(&peers, &addresses);
                assert_eq!(head_port, port);
                assert_eq!(addr, addresses[rank]);
            }
            // Without a retry, the broadcast fails as a whole with the real cause, and the next one
            // runs.
            let call = tokio::spawn({
                let pool = pool.clone();
                let forever: PendingCompute<()> = python(SLEEP).into();
                async move { forever.retry(RetryPolicy::never()).broadcast(&pool).await }
            });
            until_running(pool, 2).await;
            signal_agent(pool.id(), 1, "KILL");
            assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::NodeLost);
            assert_eq!(place.broadcast(pool).await?[1].0, 3);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn the_end_of_a_pool_does_not_wait_for_a_replacement() {
    let slow = plugins::plugin("slow").bootstrap("case $SKYWARD_MACHINE in *-a1) ;; *) sleep 3600 ;; esac");
    let handle = pool(1).plugin(slow).start().await.unwrap();
    let mut events = handle.events();
    signal_agent(handle.id(), 0, "KILL");
    while let Some(item) = events.next().await {
        if matches!(&item, EventItem::Event(event) if matches!(**event, PoolEvent::BootstrapStep { step: "setup", .. }))
        {
            break;
        }
    }
    let waits = tokio::spawn({
        let handle = handle.clone();
        async move { machine().run(&handle).await }
    });
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(processes_of(handle.id()), Vec::<String>::new());
}

#[tokio::test]
async fn a_node_that_cannot_be_replaced_ends_the_pool_with_the_cause() {
    let broken =
        plugins::plugin("broken").bootstrap("case $SKYWARD_MACHINE in *-a1) ;; *) echo no disk >&2; exit 3 ;; esac");
    let handle = pool(1).plugin(broken).start().await.unwrap();
    let call = tokio::spawn({
        let handle = handle.clone();
        async move { stays().run(&handle).await }
    });
    until_running(&handle, 1).await;
    signal_agent(handle.id(), 0, "KILL");
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
    assert!(error.message().starts_with("node 0 was lost 4 times in a row"), "{error}");
    assert!(format!("{error:?}").contains("no disk"), "{error:?}");
    assert_eq!(format!("{:#}", machine().run(&handle).await.unwrap_err()), format!("{error:#}"));
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    assert_eq!(processes_of(handle.id()), Vec::<String>::new());
}
