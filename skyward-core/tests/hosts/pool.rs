//! A whole pool on two hosts, with real Python: cut connections are restored, lost nodes are
//! replaced, and nothing is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use skyward_core::compute::PendingCompute;
use skyward_core::event::{EventItem, PoolEvent};
use skyward_core::ids::Rank;
use skyward_core::payload::{Args, RetryPolicy, Source, Target};
use skyward_core::plugin::plugin;
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::provider::Hosts;
use skyward_core::remote::ssh::{self, HostKeys, Key};
use skyward_core::spec::{Image, Limits, Nodes};

use crate::printed::printed_before_outcome;
use crate::scene::{Process, Scene, Tool, kill, lives, wait};
use crate::sshd::Options;

const PAYLOAD: &str = "
import os, time

def work(number, until):
    print('begun', number, flush=True)
    if until:
        part = f'{until}.{os.getpid()}'
        with open(part, 'w') as file:
            file.write(str(os.getpid()))
        os.rename(part, f'{until}.begun')
    while until and not os.path.exists(until):
        time.sleep(0.01)
    print('done', number, flush=True)
    return [number, os.getpid(), os.environ['SKYWARD_MACHINE']]
";

pub(crate) type Answer = (u32, u32, String);

/// Makes a file that shows that the task has begun, beside the file that the task waits for, if
/// there is one.
pub(crate) fn work(number: u32, until: &str) -> PendingCompute<Answer> {
    let source = Arc::new(Source::file("work.py", PAYLOAD, "work"));
    PendingCompute::new(source, Args::new().with("number", &number).with("until", &until.to_owned()))
}

pub(crate) fn builder(scene: &Scene, lease: Duration) -> PoolBuilder {
    let mut limits = Limits::default();
    limits.lease = lease;
    limits.grace = Duration::from_secs(1);
    Pool::builder().provider(scene.hosts(1)).nodes(Nodes::fixed(2)).limits(limits)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_pool_on_two_hosts_returns_results_and_leaves_nothing() {
    let scene = Scene::new(2);
    let (answers, workers) = builder(&scene, Duration::from_secs(60))
        .scope(async |pool| {
            printed_before_outcome(pool, 5).await;
            let answers = work(7, "").broadcast(pool).await?;
            let workers: Vec<Process> = answers.iter().map(|answer| Process::of(answer.1)).collect();
            Ok((answers, workers))
        })
        .await
        .unwrap();
    assert_eq!(answers.iter().map(|answer| answer.0).collect::<Vec<_>>(), [7, 7]);
    assert_ne!(answers[0].2, answers[1].2);
    assert!(workers.iter().all(|worker| !lives(*worker)));
    for server in 0..2 {
        assert_eq!(scene.machines(server).len(), 0);
        wait("the server's sessions ended", || scene.servers[server].sessions().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn what_a_payload_changes_in_its_environment_reaches_no_other_pool() {
    let scene = Scene::new(1);
    let changes = |entry| -> PendingCompute<Vec<String>> {
        let text = include_str!("../../../tests/payloads/changes.py");
        PendingCompute::new(Arc::new(Source::file("changes.py", text, entry)), Args::new())
    };
    let pool = || {
        let image = Image::new().pip(["iniconfig==2.0.0"]).env("WHERE", "ssh");
        Pool::builder().provider(scene.hosts(2)).image(image)
    };
    pool()
        .scope(async |first| {
            assert_eq!(changes("change").run(first).await?.len(), 10);
            let seen = pool().scope(async |second| changes("seen").run(second).await).await?;
            assert_eq!(seen, Vec::<String>::new());
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn all_slots_of_a_host_behind_a_bastion_become_one_pool() {
    // The defaults of OpenSSH.
    let stock = Options::new().line("MaxStartups 10:30:100").line("MaxSessions 10");
    let (scene, gate) = (Scene::with(1, &stock), Scene::with(1, &stock));
    let sshd = &gate.servers[0];
    let bastion = ssh::Target::new(sshd.address()).port(sshd.port()).user(sshd.user());
    let bastion = bastion.key(Key::file(sshd.client_key())).host_keys(HostKeys::pinned(sshd.host_key()));
    let hosts = Hosts::new([scene.host(0).slots(SLOTS).jump(bastion)]);
    let mut limits = Limits::default();
    // Each termination reads all processes of the host, several times: with so many nodes on two
    // cores, that takes a while.
    limits.shutdown = Duration::from_secs(180);
    // Renewals wait for a channel behind everything else that the bastion carries while the nodes
    // are made.
    limits.lease = Duration::from_secs(300);
    let pool = Pool::builder().provider(hosts).nodes(Nodes::fixed(SLOTS)).limits(limits);
    let answers = pool.scope(async |pool| work(7, "").broadcast(pool).await).await.unwrap();
    let machines: BTreeSet<String> = answers.into_iter().map(|(_, _, machine)| machine).collect();
    assert_eq!(machines.len() as u32, SLOTS);
    assert_eq!(scene.machines(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_lease_is_renewed_during_bootstrap_and_never_made_again() {
    let touch = Tool::new("touch", "echo \"$@\" >>\"$0.log\"\nexec /usr/bin/touch \"$@\"");
    let renewals = || {
        let log = std::fs::read_to_string(touch.path("touch.log")).unwrap_or_default();
        log.lines().filter(|line| line.ends_with("/lease")).count()
    };
    let scene = Scene::with(1, &touch.options());
    let gate = scene.servers[0].path("never");
    let waits = plugin("waits").bootstrap(format!("until [ -e {} ]; do sleep 0.1; done", gate.display()));
    let pool = builder(&scene, Duration::from_secs(8)).nodes(1).plugin(waits);
    let start = tokio::spawn(pool.start());
    // Four renewals happen within the time of a lease.
    wait("the lease is renewed for longer than it lasts", || renewals() > 6);
    let [machine] = &scene.machines(0)[..] else { panic!("the machine has ended") };
    let keeper = scene.keeper(0, 0);
    kill("STOP", keeper);
    std::fs::remove_file(machine.join("lease")).unwrap();
    let before = renewals();
    wait("a renewal has ended", || renewals() > before + 1);
    assert!(!machine.join("lease").exists(), "a renewal made a removed lease again");
    kill("CONT", keeper);
    wait("the machine ended without its lease", || !machine.exists());
    start.abort();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn results_and_output_arrive_once_after_a_cut_connection() {
    let scene = Scene::new(2);
    let go = scene.servers[0].path("go").to_str().unwrap().to_owned();
    builder(&scene, Duration::from_secs(60))
        .scope(async |pool| {
            let mut events = pool.events();
            let both = async {
                tokio::join!(
                    work(1, &go).run_on(pool, Target::Rank(Rank(0))),
                    work(2, &go).run_on(pool, Target::Rank(Rank(1)))
                )
            };
            let cut = async {
                let (mut text, mut begun, mut lost, mut back) = (String::new(), 0, 0, 0);
                while let Some(item) = events.next().await {
                    let EventItem::Event(event) = item else { continue };
                    match &*event {
                        PoolEvent::Output(output) => {
                            text.push_str(&String::from_utf8_lossy(&output.bytes));
                            let now = text.matches("begun").count();
                            if now == 2 && begun < 2 {
                                assert!(scene.servers[1].signal_sessions("KILL") > 0);
                            }
                            begun = now;
                            if text.matches("done").count() == 2 {
                                break;
                            }
                        }
                        PoolEvent::NodeDisconnected { .. } => lost += 1,
                        PoolEvent::NodeReconnected { .. } => {
                            back += 1;
                            std::fs::write(&go, "").unwrap();
                        }
                        PoolEvent::NodeLost { error, .. } => panic!("the node was given up: {error}"),
                        PoolEvent::TaskRetried { error, .. } => panic!("a task was tried again: {error}"),
                        _ => {}
                    }
                }
                (text, lost, back)
            };
            // The timeout bounds the wait if the output of a task never comes.
            let (both, cut) = tokio::join!(both, tokio::time::timeout(Duration::from_secs(120), cut));
            let ((one, two), (text, lost, back)) = (both, cut.expect("the output of both tasks comes"));
            assert_eq!(one?.0, 1);
            assert_eq!(two?.0, 2);
            // A host with much else to do may lose it once more.
            assert!(lost >= 1 && back >= 1, "{lost}, {back}");
            assert_eq!(text.lines().count(), 4, "each line arrives once: {text}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_node_whose_agent_is_killed_is_claimed_anew() {
    let scene = Scene::new(2);
    builder(&scene, Duration::from_secs(60))
        .scope(async |pool| {
            let first = work(1, "").run_on(pool, Target::Rank(Rank(1))).await?;
            let worker = Process::of(first.1);
            kill("KILL", worker.parent().id);
            // Until the worker has ended, it may answer once more.
            wait("the worker ended with its agent", || !lives(worker));
            let retries = RetryPolicy::never().node_lost(5).crash(5);
            let second = work(2, "").retry(retries).run_on(pool, Target::Rank(Rank(1))).await?;
            assert_ne!(first.2, second.2, "the second task ran on another machine");
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_node_of_a_host_that_is_down_moves_to_another_and_its_machine_ends_by_itself() {
    let mut scene = Scene::new(3);
    let pool = builder(&scene, Duration::from_secs(3)).start().await.unwrap();
    let mut events = pool.events();
    let first = work(1, "").run_on(&pool, Target::Rank(Rank(1))).await.unwrap();
    let worker = Process::of(first.1);
    assert_eq!(scene.machines(1).len(), 1);
    scene.servers[1].stop();
    let replaced = async {
        while let Some(item) = events.next().await {
            if let EventItem::Event(event) = item
                && let PoolEvent::NodeReplaced { .. } = &*event
            {
                return;
            }
        }
        panic!("the pool ended");
    };
    tokio::time::timeout(Duration::from_secs(120), replaced).await.unwrap();
    let second = work(2, "").run_on(&pool, Target::Rank(Rank(1))).await.unwrap();
    assert_ne!(first.2, second.2);
    wait("the machine ended by its lease", || scene.machines(1).is_empty() && !lives(worker));
    scene.servers[1].listen().unwrap();
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(2).len(), 0);
}

/// More connections than a server accepts at a time.
const SLOTS: u32 = 40;
