//! Calls that do not return to Python for longer than any deadline: their worker keeps running
//! while its agent answers, however often its connection is cut, on every provider.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

#[path = "support/docker.rs"]
mod docker;
#[path = "hosts/scene.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod scene;
#[path = "support/sshd.rs"]
mod sshd;

use std::sync::Arc;
use std::time::{Duration, Instant};

use skyward_core::compute::PendingCompute;
use skyward_core::payload::{Args, Source};
use skyward_core::pool::Pool;
use skyward_core::provider::{Docker, Local, Provider};
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::cuttable::Cuttable;

use self::scene::Scene;

const PAYLOAD: &str = "
import ctypes, os, time

calls = 0

def work(native, seconds, pause):
    global calls
    calls += 1
    left = 0
    if native:
        # The interpreter's lock is held: no other thread of the worker goes on either. What an interrupt leaves is returned.
        left = ctypes.PyDLL(None).sleep(seconds)
    else:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if pause:
                time.sleep(pause)
    return [calls, left, os.getpid()]
";

fn work(native: bool, seconds: u32, pause: f64) -> PendingCompute<(u32, u32, u32)> {
    let source = Arc::new(Source::file("work.py", PAYLOAD, "work"));
    PendingCompute::new(source, Args::new().with("native", &native).with("seconds", &seconds).with("pause", &pause))
}

/// Runs a native call on rank 0 and a loop with pauses on rank 1 of one node, over connections that
/// are cut again and again. Both must return.
async fn both_return(provider: Cuttable, pause: f64) {
    let mut limits = Limits::default();
    limits.grace = Duration::from_secs(1);
    let builder = Pool::builder().provider(provider.clone()).nodes(Nodes::fixed(1)).workers_per_node(2).limits(limits);
    let name = provider.name().to_owned();
    let returned = builder.scope(async |pool| {
        // A first call on each worker, so that it has answered and has loaded the payload.
        work(false, 0, pause).broadcast(pool).await?;
        let before: Vec<Option<u32>> = pool.status().workers.iter().map(|worker| worker.pid).collect();
        let cut = async {
            for pause in [5, 15, 15, 15] {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                assert!(provider.cut_workers() > 0, "{name}: there was no connection to cut");
            }
        };
        let began = Instant::now();
        let (native, looped, ()) =
            tokio::join!(work(true, LONG, pause).run(pool), work(false, LONG, pause).run(pool), cut);
        let (native, looped) = (native?, looped?);
        assert!(began.elapsed() >= Duration::from_secs(LONG.into()), "{name}: {:?}", began.elapsed());
        assert_eq!(native.0, 2, "{name}: the native call ran once, for its whole time, beside the same globals");
        assert_eq!(native.1, 0, "{name}: the native call ran once, for its whole time, beside the same globals");
        assert_eq!(looped.0, 2, "{name}: so did the loop");
        let after: Vec<Option<u32>> = pool.status().workers.iter().map(|worker| worker.pid).collect();
        assert_eq!(before, after, "{name}: no worker was ended");
        Ok(())
    });
    returned.await.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs time"]
async fn a_worker_that_does_not_return_to_python_for_long_is_not_ended() {
    both_return(Cuttable::new(Local::default()), BUSY).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, time"]
async fn a_worker_on_an_ssh_host_that_does_not_return_to_python_for_long_is_not_ended() {
    let scene = Scene::new(1);
    both_return(Cuttable::new(scene.hosts(1)), SPARING).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker, time"]
async fn a_worker_in_a_container_that_does_not_return_to_python_for_long_is_not_ended() {
    both_return(Cuttable::new(Docker::new(docker::node_image())), SPARING).await;
}

/// In seconds; an earlier version treated a worker as unreachable after 55 s without an answer.
const LONG: u32 = 70;
/// Pauses of the loop, in seconds: one test computes all the time, and the others leave the processors
/// to the tests beside them.
const BUSY: f64 = 0.0;
const SPARING: f64 = 0.01;
