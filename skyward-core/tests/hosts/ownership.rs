//! Machines that a killed client leaves on hosts, and how `reap` ends them. The client and the
//! reaper are processes of their own: this program, started again with a role.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skyward_core::compute::PendingCompute;
use skyward_core::payload::{Args, Source};
use skyward_core::pool::Pool;
use skyward_core::provider::{Host, Hosts, Provider};
use skyward_core::remote::ssh::{HostKeys, Key};
use skyward_core::spec::{Budget, Limits, Nodes};

use crate::scene::{LONG_LEASE, One, Process, Scene, batch, lives, tear_down};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn reap_ends_machines_of_a_killed_client_long_before_their_lease() {
    let scene = Scene::new(2);
    let (mut client, pool, processes) = client(&scene, all(&scene));
    assert_eq!(reap(&scene, all(&scene)), [format!("alive {pool}")], "a pool whose client lives is left alone");
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(scene.machines(0).len(), 1);
    assert_eq!(scene.machines(1).len(), 1);
    assert!(processes.iter().all(|pid| lives(*pid)), "without reap, only the lease ends them");

    assert_eq!(reap(&scene, all(&scene)), [format!("ended {pool} 2")]);
    assert_eq!(processes.into_iter().filter(|process| lives(*process)).collect::<Vec<Process>>(), []);
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 0);
    assert!(reap(&scene, all(&scene)).is_empty());
    let (hosts, next) = (scene.hosts(1), skyward_core::ids::PoolId::random());
    for node in 0..2 {
        hosts.launch_one(&batch(&next, node, LONG_LEASE)).await.unwrap();
    }
    tear_down(&hosts, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn hosts_of_a_killed_client_are_free_at_the_end_of_its_budget_however_long_their_lease() {
    let scene = Scene::new(2);
    let mut client = command(&scene, all(&scene), "budget").spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
    let processes = lines.find_map(|line| Some(line.strip_prefix("processes ")?.to_owned())).unwrap();
    let processes: Vec<Process> = processes.split(' ').map(|id| Process::of(id.parse().unwrap())).collect();
    client.kill().unwrap();
    client.wait().unwrap();
    let killed = Instant::now();
    assert!(processes.iter().all(|process| lives(*process)), "the machines do not end with their client");
    while (0..2).any(|server| !scene.machines(server).is_empty()) || processes.iter().any(|process| lives(*process)) {
        assert!(killed.elapsed() < BUDGETED_LIFE * 3, "the machines outlive the budget");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("gone {:?} after the client was killed", killed.elapsed());
    let (hosts, next) = (scene.hosts(1), skyward_core::ids::PoolId::random());
    for node in 0..2 {
        hosts.launch_one(&batch(&next, node, LONG_LEASE)).await.unwrap();
    }
    tear_down(&hosts, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn reap_ends_a_pool_by_a_list_with_one_host_more_in_another_order_and_with_other_names() {
    let scene = Scene::new(3);
    let (mut client, pool, processes) = client(&scene, vec![told(&scene, 0), told(&scene, 1)]);
    client.kill().unwrap();
    client.wait().unwrap();
    let list = vec![told(&scene, 2), renamed(&scene, 1), renamed(&scene, 0)];
    assert_eq!(reap(&scene, list), [format!("ended {pool} 2")]);
    assert!(processes.into_iter().all(|process| !lives(process)));
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 0);
    assert!(reap(&scene, all(&scene)).is_empty(), "the pool is off the record");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn reap_names_a_host_that_is_not_listed_any_more_and_ends_the_machines_of_the_others() {
    let mut scene = Scene::new(3);
    let (mut client, pool, _) = client(&scene, vec![told(&scene, 0), told(&scene, 1)]);
    client.kill().unwrap();
    client.wait().unwrap();
    let name = scene.host(1).to_string();
    // A new host that does not answer keeps no other from being asked.
    scene.servers[2].stop();
    let left = reap(&scene, vec![told(&scene, 0), told(&scene, 2)]);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with(&format!("left {pool} its machines are at `hosts` ({name}), but only")), "{left:?}");
    assert!(left[0].contains("the record is kept") && left[0].contains("remove the pool's file"), "{left:?}");
    assert_eq!(scene.machines(0).len(), 0);
    assert_eq!(scene.machines(1).len(), 1);
    // Its host is listed and does not answer.
    scene.servers[1].stop();
    let left = reap(&scene, vec![told(&scene, 0), told(&scene, 1)]);
    assert!(left.len() == 1 && left[0].starts_with(&format!("left {pool} ")) && left[0].contains(&name), "{left:?}");
    scene.servers[1].listen().unwrap();
    assert_eq!(reap(&scene, vec![told(&scene, 1)]).len(), 1, "the other host has to confirm that it has nothing");
    assert_eq!(scene.machines(1).len(), 0);
    assert_eq!(reap(&scene, vec![renamed(&scene, 1), told(&scene, 0)]), [format!("ended {pool} 2")]);
}

/// Starts a client with a pool of two nodes on these hosts. Returns it with its pool and with
/// processes of the nodes.
fn client(scene: &Scene, hosts: Vec<String>) -> (Child, String, Vec<Process>) {
    let mut client = command(scene, hosts, "client").spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = |word: &str| lines.find_map(|line| Some(line.strip_prefix(word)?.to_owned())).unwrap();
    let (pool, processes) = (said("pool "), said("processes "));
    let processes = processes.split(' ').map(|id| Process::of(id.parse().unwrap())).collect();
    (client, pool, processes)
}

fn all(scene: &Scene) -> Vec<String> {
    (0..scene.servers.len()).map(|server| told(scene, server)).collect()
}

/// A command that runs this program in a role, as a user with a ledger of its own.
fn command(scene: &Scene, hosts: Vec<String>, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["ownership::role", "--exact", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .env(HOSTS, hosts.join("\n"))
        .env("SKYWARD_STATE_DIR", scene.servers[0].path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn reap(scene: &Scene, hosts: Vec<String>) -> Vec<String> {
    let output = command(scene, hosts, "reap").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text.lines().filter_map(|line| Some(line.strip_prefix("said ")?.to_owned())).collect()
}

/// The text from which another process makes the host.
fn told(scene: &Scene, server: usize) -> String {
    let sshd = &scene.servers[server];
    let (key, base) = (sshd.client_key(), scene.base(server));
    let words = [sshd.address(), &sshd.port().to_string(), &sshd.user(), key.to_str().unwrap(), base.to_str().unwrap()];
    format!("{} {}", words.join(" "), sshd.host_key())
}

/// The same, by another name of the host.
fn renamed(scene: &Scene, server: usize) -> String {
    let address: std::net::Ipv4Addr = scene.servers[server].address().parse().unwrap();
    told(scene, server).replacen(&address.to_string(), &u32::from(address).to_string(), 1)
}

fn host(told: &str) -> Host {
    let words: Vec<&str> = told.splitn(6, ' ').collect();
    let [address, port, user, key, base, host_key] = words[..] else { panic!("{told}") };
    let host = Host::new(address).port(port.parse().unwrap()).user(user).key(Key::file(key));
    host.host_keys(HostKeys::pinned(host_key)).folder(base)
}

/// The roles in which the tests start this program.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a role that the other tests play"]
async fn role() {
    println!();
    let told = std::env::var(HOSTS).unwrap();
    let hosts = Hosts::new(told.lines().map(host));
    if std::env::var(ROLE).unwrap() == "reap" {
        let reaped = skyward_core::reap([Arc::new(hosts) as Arc<dyn Provider>]).await.unwrap();
        reaped.ended.iter().for_each(|ended| println!("said ended {} {}", ended.pool, ended.machines.len()));
        reaped.elsewhere.iter().for_each(|other| println!("said alive {}", other.pool));
        let line = |text: String| text.replace('\n', " ");
        reaped
            .unconfirmed
            .iter()
            .for_each(|left| println!("said left {} {}", left.pool, line(format!("{:#}", left.error))));
        return;
    }
    let mut limits = Limits::default();
    limits.lease = LONG_LEASE;
    limits.grace = Duration::from_secs(1);
    let mut pool = Pool::builder().provider(hosts).nodes(Nodes::fixed(2)).limits(limits);
    if std::env::var(ROLE).unwrap() == "budget" {
        pool = pool.budget(Budget::default().hours(BUDGETED_LIFE.as_secs_f64() / 3600.0));
    }
    let pool = pool.start().await.unwrap();
    println!("pool {}", pool.id());
    let source = Arc::new(Source::file("children.py", CHILDREN, "children"));
    let call: PendingCompute<Vec<u32>> = PendingCompute::new(source, Args::new());
    let processes = call.broadcast(&pool).await.unwrap().concat();
    println!("processes {}", processes.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    std::future::pending().await
}

/// The ids of the agent, the worker and two processes that it leaves, one of them in a session of
/// its own.
const CHILDREN: &str = "
import os, subprocess

def children():
    left = [subprocess.Popen(['sleep', '3600'], start_new_session=apart).pid for apart in (False, True)]
    return [os.getppid(), os.getpid(), *left]
";
/// The time that a client's budget gives each machine. The client leaves half of it for the end of
/// its pool.
const BUDGETED_LIFE: Duration = Duration::from_secs(30);
const ROLE: &str = "SKYWARD_TEST_ROLE";
const HOSTS: &str = "SKYWARD_TEST_HOSTS";
