//! Pools whose nodes are containers, and faults of containers: killed, paused, cut off, out of
//! memory, out of disk, left by their client.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod budget;
mod cache;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../skyward-core/tests/support/docker.rs"]
mod engine;
mod faults;
mod paused;
#[path = "../../skyward-core/tests/support/printed.rs"]
mod printed;
mod secrets;

use std::time::{Duration, Instant};

use common::user::{ROLE, User, until};
use common::{limits, python, soon};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::{ErrorKind, WorkerExit};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::{NodeIndex, PoolId, Rank};
use skyward::payload::{RetryPolicy, Target};
use skyward::pool::{Pool, PoolBuilder};
use skyward::provider::{Docker, MachineState, PoolRequest, Provider};

fn pool(docker: Docker, nodes: u32) -> PoolBuilder {
    let mut limits = limits();
    limits.lease = Duration::from_secs(20);
    Pool::builder().provider(docker).nodes(nodes).limits(limits)
}

fn who() -> PendingCompute<(String, u32)> {
    python(indoc! {"
        import os, socket
        def f():
            return socket.gethostname(), os.getuid()
    "})
    .into()
}

/// The first container of a node.
fn container(pool: &Pool, node: u32) -> String {
    format!("skyward-{}-n{node}-a1", pool.id())
}

async fn replaced(events: &mut Events, node: u32) -> String {
    let wait = async {
        while let Some(item) = events.next().await {
            let EventItem::Event(event) = item else { continue };
            if let PoolEvent::NodeReplaced { node: of, machine, .. } = &*event
                && *of == NodeIndex(node)
            {
                return machine.to_string();
            }
        }
        panic!("the pool ended");
    };
    soon("the node is replaced", wait).await
}

/// For each process in a container that passes bytes between a client and a worker: how many bytes
/// it has read and written.
fn bridges(container: &str) -> Vec<u64> {
    let said = engine::inside(container, BRIDGES).unwrap();
    let bytes = |line: &str| line.split(' ').map(|number| number.parse::<u64>().unwrap()).sum();
    said.lines().map(bytes).collect()
}

fn docker(args: &[&str]) {
    engine::ask(args).unwrap();
}

async fn ended(pool: Pool) {
    let id = pool.id().clone();
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
    assert_eq!(engine::left(id.as_str()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn two_containers_run_payloads_and_are_gone() {
    let image = engine::node_image();
    let begin = Instant::now();
    let pool = pool(Docker::new(image), 2).start().await.unwrap();
    println!("ready after {:?}", begin.elapsed());
    let found = who().broadcast(&pool).await.unwrap();
    println!("first results after {:?}", begin.elapsed());
    assert_eq!(found, [("node-0".to_owned(), 0), ("node-1".to_owned(), 0)]);
    let large: PendingCompute<bytes::Bytes> = python(indoc! {"
        def f(data):
            return data
    "})
    .arg("data", bytes::Bytes::from(vec![7; 64 << 20]))
    .into();
    let begin = Instant::now();
    assert_eq!(large.run(&pool).await.unwrap().len(), 64 << 20);
    println!("64 MiB there and back after {:?}", begin.elapsed());
    // The workers have read and written the data themselves.
    let passed: Vec<u64> = (0..2).flat_map(|node| bridges(&container(&pool, node))).collect();
    println!("bytes through each process in between: {passed:?}");
    assert!(!passed.is_empty() && passed.iter().all(|bytes| *bytes < 16 << 20), "{passed:?}");
    let mut took: Vec<_> = Vec::new();
    for _ in 0..1000 {
        let begin = Instant::now();
        who().run(&pool).await.unwrap();
        took.push(begin.elapsed());
    }
    took.sort();
    println!("a call took {:?} (median of 1000)", took[500]);
    printed::printed_before_outcome(&pool, 5).await;
    let begin = Instant::now();
    ended(pool).await;
    println!("gone after {:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn an_abandoned_creation_leaves_one_network_that_is_removed_with_its_pool() {
    let image = engine::node_image();
    let docker = Docker::new(image);
    let pool = PoolId::random();
    let request = PoolRequest::new(pool.clone(), Duration::from_secs(60));
    for millis in [1, 3, 9, 27] {
        let _ = tokio::time::timeout(Duration::from_millis(millis), docker.prepare(&request)).await;
    }
    docker.prepare(&request).await.unwrap();
    assert_eq!(engine::left(pool.as_str()), [format!("network skyward-{pool}")]);
    docker.teardown(&pool).await.unwrap();
    for millis in [1, 3, 9, 27] {
        let _ = tokio::time::timeout(Duration::from_millis(millis), docker.prepare(&request)).await;
        docker.teardown(&pool).await.unwrap();
        assert!(engine::left(pool.as_str()).is_empty(), "given up after {millis} ms");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn an_image_whose_user_is_not_root_works() {
    let image = engine::node_image();
    let pool = pool(Docker::new(image).user("1234:1234"), 1).start().await.unwrap();
    assert_eq!(who().run(&pool).await.unwrap().1, 1234);
    ended(pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_container_that_is_killed_is_replaced_at_once() {
    let image = engine::node_image();
    let pool = pool(Docker::new(image), 2).start().await.unwrap();
    let (mut events, container) = (pool.events(), container(&pool, 1));
    let begin = Instant::now();
    docker(&["kill", &container]);
    let other = replaced(&mut events, 1).await;
    assert_ne!(other, container);
    // The time is far below half the lease, which the pool waits for machines that may come back.
    println!("replaced after {:?}", begin.elapsed());
    let on = who().run_on(&pool, Target::Rank(Rank(1))).await.unwrap();
    assert_eq!(on.0, "node-1");
    ended(pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_container_goes_on_after_it_was_paused_or_cut_off() {
    let image = engine::node_image();
    let pool = pool(Docker::new(image), 1).start().await.unwrap();
    let container = container(&pool, 0);
    docker(&["pause", &container]);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { who().run(&pool).await }
    });
    assert!(!waiting.is_finished());
    docker(&["unpause", &container]);
    assert_eq!(soon("the call is answered", waiting).await.unwrap().unwrap().0, "node-0");
    let network = format!("skyward-{}", pool.id());
    docker(&["network", "disconnect", &network, &container]);
    assert_eq!(who().run(&pool).await.unwrap().0, "node-0", "the connection to a container does not use its network");
    docker(&["network", "connect", &network, &container]);
    ended(pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_container_that_was_never_started_is_found_and_removed() {
    let image = engine::node_image();
    let docker = Docker::new(&image);
    let pool = PoolId::random();
    docker.prepare(&PoolRequest::new(pool.clone(), Duration::from_secs(60))).await.unwrap();
    let name = format!("skyward-{pool}-n0-a1");
    let labels = [format!("skyward.pool={pool}"), format!("skyward.launch={pool}-n0-a1"), "skyward.node=0".to_owned()];
    let mut args = vec!["create", "--name", &name];
    labels.iter().for_each(|label| args.extend(["--label", label]));
    engine::ask(&[args.as_slice(), &[&image, "true"]].concat()).unwrap();
    let machines = docker.list(&pool).await.unwrap();
    assert_eq!(machines.len(), 1, "{machines:?}");
    assert_eq!(docker.inspect(&[machines[0].id.clone()]).await.unwrap()[0].state, MachineState::Starting);
    docker.teardown(&pool).await.unwrap();
    assert_eq!(engine::left(pool.as_str()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_worker_that_is_out_of_memory_is_reported_as_such() {
    let image = engine::node_image();
    let pool = pool(Docker::new(image).memory_gib(0.25), 1).start().await.unwrap();
    let greedy: PendingCompute<u64> = python(indoc! {"
        def f():
            return len(bytearray(b'x' * (1 << 29)))
    "})
    .into();
    let error = greedy.retry(RetryPolicy::never()).run(&pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WorkerExited, "{error}");
    assert_eq!(error.exit(), Some(&WorkerExit::OutOfMemory), "{error}");
    assert_eq!(who().run(&pool).await.unwrap().0, "node-0");
    ended(pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_machine_that_is_out_of_disk_is_reported_as_such() {
    let image = engine::node_image();
    let full = Docker::new(image).tmpfs("/skyward/cache", 1.0 / 1024.0);
    let error = pool(full, 1).start().await.unwrap_err();
    assert!(format!("{error:#}").contains("space"), "{error}");
}

#[tokio::test]
#[ignore = "needs docker"]
async fn an_unavailable_image_is_reported_with_a_hint() {
    let error = pool(Docker::new("127.0.0.1:9/no/such:image"), 1).start().await.unwrap_err();
    assert!(
        error.message().contains("does not have the image 127.0.0.1:9/no/such:image, and cannot pull it"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("docker pull"), "{error}");
}

#[test]
#[ignore = "needs docker"]
fn a_killed_client_leaves_nothing_after_the_lease() {
    let mut user = User::new();
    let (client, pool) = user.start_until("idle", "pool ");
    user.kill(client);
    until("the containers end with their lease", || engine::left(&pool).iter().all(|left| left.starts_with("network")));
    assert_eq!(user.run("reap"), format!("ended {pool}"));
    assert_eq!(engine::left(&pool), Vec::<String>::new());
}

#[test]
#[ignore = "needs docker"]
fn a_client_killed_during_its_start_leaves_only_what_reap_finds() {
    // The stages: the network exists; a container was made; a container runs.
    for stage in ["network", "container", "Up"] {
        let mut user = User::new();
        let client = user.start("idle");
        let mut pool = String::new();
        until(stage, || {
            pool = user.pools().first().map(ToString::to_string).unwrap_or_default();
            !pool.is_empty() && engine::left(&pool).iter().any(|left| left.contains(stage))
        });
        user.kill(client);
        user.run("reap");
        assert_eq!(engine::left(&pool), Vec::<String>::new(), "killed when there was: {stage}");
        assert!(!user.pools().contains(&PoolId::new(pool)), "{stage}");
    }
}

#[test]
#[ignore = "a client of the other tests"]
fn client() {
    let image = engine::node_image();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match std::env::var(ROLE).as_deref() {
        Ok("idle") => runtime.block_on(async {
            let mut limits = limits();
            limits.lease = Duration::from_secs(2);
            let pool = Pool::builder().provider(Docker::new(image)).nodes(2).limits(limits).start().await.unwrap();
            println!("\npool {}", pool.id());
            std::future::pending::<()>().await;
        }),
        Ok("budget") => runtime.block_on(budget::client(image)),
        Ok("build") => runtime.block_on(async {
            let mut limits = limits();
            limits.lease = Duration::from_secs(2);
            let environment = skyward::spec::Image::new().pip(["numpy"]);
            let pool = Pool::builder().provider(cache::client(&image)).image(environment).limits(limits);
            pool.start().await.unwrap();
        }),
        Ok("reap") => runtime.block_on(async {
            let reaped = skyward::pool::reap([std::sync::Arc::new(Docker::new(image)) as _]).await.unwrap();
            for ended in &reaped.ended {
                println!("\nsaid ended {}", ended.pool);
            }
            assert!(reaped.unconfirmed.is_empty(), "{reaped}");
        }),
        other => panic!("no such role: {other:?}"),
    }
}

/// The pattern is written so that it does not match this script itself.
const BRIDGES: &str = r#"
for process in $(grep -lzE "hand[_]over" /proc/[0-9]*/cmdline); do
    awk '/^[rw]char/ { printf "%s%s", gap, $2; gap = " " } END { print "" }' "${process%/cmdline}/io"
done
"#;
