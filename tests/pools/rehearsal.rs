//! Rehearsals on this host, with real Python: what a payload does wrong on several ranks is found, and nothing is left.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{assert_nothing_left, ledger, limits, processes_of, python, soon, until};
use crate::traces::Traces;
use skyward::error::WorkerExit;
use skyward::ids::{PoolId, Rank};
use skyward::payload::PendingCompute;
use skyward::plugin::plugin;
use skyward::pool::{Finding, FindingKind, Pool, PoolBuilder, Rehearsal, RehearsalLimits};
use skyward::prelude::plugins;
use skyward::provider::{Architecture, Local};
use tracing::instrument::WithSubscriber as _;

/// A pool that cannot be had here, whose workers are one world.
fn dear() -> PoolBuilder {
    Pool::builder()
        .provider(Local::default())
        .nodes(64)
        .cpus(1000)
        .architecture(Architecture::Aarch64)
        .limits(limits())
        .plugin(plugin("world").joins_world())
}

fn short() -> RehearsalLimits {
    let mut limits = RehearsalLimits::default();
    limits.start = Duration::from_secs(60);
    limits.stall = Duration::from_secs(3);
    limits
}

/// The only finding; nothing of the rehearsal is left.
#[track_caller]
fn only<T: std::fmt::Debug>(rehearsal: &Rehearsal<T>) -> &Finding {
    assert_nothing_left(rehearsal.pool.as_ref().unwrap());
    assert!(!rehearsal.is_clean() && rehearsal.results.is_none(), "{rehearsal}");
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    finding
}

/// All ranks but this one wait for it at a socket; what it does itself stands behind.
const MEET: &str = "import os, socket, sys, threading\nimport skyward as sky\n\ndef meet():\n    socket.create_server(('127.0.0.1', 0)).accept()\n\ndef elsewhere():\n    threading.Event().wait()\n\ndef f():\n    if sky.instance_info().global_worker_index != 1:\n        meet()\n";

#[tokio::test]
async fn what_a_payload_returns_comes_by_rank_from_a_pool_that_could_not_be_had() {
    let call: PendingCompute<(u32, u32, String)> = python(
        "import os\nimport skyward as sky\ndef f():\n    info = sky.instance_info()\n    return info.global_worker_index, info.total_nodes, os.environ['JAX_NUM_CPU_DEVICES']\n",
    )
    .into();
    let rehearsal = dear().rehearse(call.clone(), 3, 2).await.unwrap();
    assert!(rehearsal.is_clean() && rehearsal.findings.is_empty(), "{rehearsal}");
    assert_eq!(rehearsal.results, Some(vec![(0, 3, "2".into()), (1, 3, "2".into()), (2, 3, "2".into())]));
    assert!(rehearsal.start_took.unwrap() > Duration::ZERO && rehearsal.run_took.unwrap() > Duration::ZERO);
    assert_nothing_left(rehearsal.pool.as_ref().unwrap());
    assert!(dear().start().await.is_err(), "the pool itself");
    // Without a world the ranks are no gang, which may be all right.
    let apart = Pool::builder().limits(limits()).rehearse(call, 2, 1).await.unwrap();
    assert!(apart.is_clean(), "{apart}");
    assert_eq!(apart.findings.iter().map(|one| one.kind).collect::<Vec<_>>(), [FindingKind::NoGang]);
}

#[tokio::test]
async fn a_rank_that_raises_is_named_while_the_others_wait_for_it() {
    let text = format!("{MEET}    raise ValueError('the shard is empty')\n");
    let call: PendingCompute<()> = python(text.leak()).into();
    let rehearsal = dear().rehearse(call, 2, 1).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!((finding.kind, &finding.ranks[..]), (FindingKind::Raised, &[Rank(1)][..]), "{rehearsal}");
    assert_eq!(finding.message, "the payload raised ValueError on rank 1: the shard is empty");
    assert!(rehearsal.to_string().contains("payload.py\", line 13, in f"), "{rehearsal}");
    assert!(rehearsal.run_took.unwrap() < Duration::from_secs(30), "the others were not waited for: {rehearsal}");
}

#[tokio::test]
async fn a_rank_that_never_arrives_is_found_with_the_stacks_of_all() {
    let text = format!("{MEET}    elsewhere()\n");
    let call: PendingCompute<()> = python(text.leak()).into();
    let rehearsal = dear().rehearse_within(call, 2, 1, short()).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!(finding.kind, FindingKind::Stalled, "{rehearsal}");
    assert_eq!((finding.ranks.len(), finding.stacks().len()), (2, 2), "{rehearsal}");
    assert!(finding.message.contains("of `meet` (payload.py:5), rank 1 was in `wait` (threading.py:"), "{rehearsal}");
    assert!(finding.stacks()[1].text.contains("in elsewhere") && rehearsal.to_string().contains("in elsewhere"));
}

#[tokio::test]
async fn a_call_that_does_not_return_in_time_is_told_with_the_ranks_that_are_left() {
    // It prints, and so it makes progress.
    let call: PendingCompute<()> = python(
        "import time\nimport skyward as sky\ndef f():\n    while sky.instance_info().global_worker_index == 1:\n        print('.', flush=True)\n        time.sleep(0.1)\n",
    )
    .into();
    let mut limits = short();
    limits.call = Duration::from_secs(5);
    let rehearsal = Pool::builder()
        .limits(crate::common::limits())
        .plugin(plugin("world").joins_world())
        .rehearse_within(call, 2, 1, limits)
        .await
        .unwrap();
    let finding = only(&rehearsal);
    assert_eq!(finding.kind, FindingKind::Deadline, "{rehearsal}");
    // What the other one returned is kept back until all have.
    assert_eq!(finding.message, "ranks 0, 1 had not returned after 5s");
}

#[tokio::test]
async fn a_worker_that_ends_and_a_result_that_does_not_fit_are_found() {
    let text = format!("{MEET}    os._exit(9)\n");
    let call: PendingCompute<()> = python(text.leak()).into();
    let rehearsal = dear().rehearse(call, 2, 1).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!((finding.kind, &finding.ranks[..]), (FindingKind::WorkerLost, &[Rank(1)][..]), "{rehearsal}");
    assert_eq!(finding.error.as_ref().unwrap().exit(), Some(&WorkerExit::Code(9)));

    let call: PendingCompute<Vec<u32>> = python("def f():\n    return {'loss': 0.5}\n").into();
    let rehearsal = dear().rehearse(call, 2, 1).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!((finding.kind, &finding.ranks[..]), (FindingKind::Result, &[Rank(0), Rank(1)][..]), "{rehearsal}");
}

#[tokio::test]
async fn a_hook_that_raises_and_a_silence_that_ends_are_found() {
    let call: PendingCompute<u32> = python("import time\ndef f():\n    time.sleep(9)\n    return 1\n").into();
    let broken =
        plugin("broken").around_app("def around_app(config):\n    raise RuntimeError('no licence')\n    yield\n");
    let rehearsal = dear().plugin(broken).rehearse(call.clone(), 2, 1).await.unwrap();
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    assert_eq!(finding.kind, FindingKind::Hook, "{rehearsal}");
    assert!(rehearsal.to_string().contains("no licence") && rehearsal.start_took.is_none(), "{rehearsal}");

    let mut limits = short();
    limits.stall = Duration::from_secs(12);
    let rehearsal = dear().rehearse_within(call, 2, 1, limits).await.unwrap();
    assert!(rehearsal.is_clean() && rehearsal.results == Some(vec![1, 1]), "{rehearsal}");
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    assert_eq!((finding.kind, finding.is_hint()), (FindingKind::Silence, true), "{rehearsal}");
    assert!(finding.message.contains("made progress for 6s: rank 0 was in `f` (payload.py:3)"), "{rehearsal}");
}

#[tokio::test]
async fn what_the_pool_itself_would_be_refused_with_is_found_beside_what_the_rehearsal_shows() {
    let call: PendingCompute<u32> = python("def f():\n    return 1\n").into();
    let elastic = Pool::builder().nodes(1..=4).limits(limits()).plugin(plugin("world").joins_world());
    let rehearsal = elastic.rehearse(call, 2, 1).await.unwrap();
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    assert_eq!(finding.kind, FindingKind::Refused, "{rehearsal}");
    assert!(finding.message.contains("one world of fixed size"), "{rehearsal}");
    assert_eq!((rehearsal.results.as_deref(), rehearsal.is_clean()), (Some(&[1, 1][..]), false));
}

#[tokio::test]
async fn a_rehearsal_that_nobody_waits_for_ends() {
    let folder = Folder::new();
    let call: PendingCompute<()> = python(
        "import os, pathlib, threading\nimport skyward as sky\ndef f(folder):\n    rank = sky.instance_info().global_worker_index\n    pathlib.Path(folder, f'{rank}.part').write_text(str(os.getpid()))\n    os.rename(f'{folder}/{rank}.part', f'{folder}/{rank}')\n    threading.Event().wait()\n",
    )
    .arg("folder", folder.path.to_str().unwrap().to_owned())
    .into();
    let spawned = tokio::spawn(async move { dear().rehearse(call, 2, 1).await });
    let mut pids = Vec::new();
    for rank in ["0", "1"] {
        folder.reached(rank).await;
        pids.push(std::fs::read_to_string(folder.path.join(rank)).unwrap());
    }
    assert!(pids.iter().all(|pid| std::path::Path::new("/proc").join(pid).exists()));
    spawned.abort();
    assert!(soon("it is dropped", spawned).await.unwrap_err().is_cancelled());
    let gone = |pid: &String| !std::path::Path::new("/proc").join(pid).exists();
    until("its workers are gone", || pids.iter().all(gone)).await;
}

/// Where pools of this host have their folders.
fn folder_of(pool: &PoolId) -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    let from = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let runtime = from("XDG_RUNTIME_DIR").filter(|folder| folder.is_dir()).unwrap_or_else(std::env::temp_dir);
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    from("SKYWARD_RUNTIME_DIR").unwrap_or_else(|| runtime.join(format!("skyward-{user}"))).join(pool.as_str())
}

#[tokio::test]
async fn nothing_is_left_of_a_rehearsal_that_is_dropped_while_it_starts_runs_or_ends() {
    let call: PendingCompute<u32> = python("import time\ndef f():\n    time.sleep(0.3)\n    return 1\n").into();
    let mut seen = 0;
    // The last one comes to its end.
    for time in [0, 10, 40, 150, 400, 700, 1000, 1500, 2500, 60_000] {
        let traces = Traces::default();
        let builder = dear();
        let rehearsal = builder.rehearse(call.clone(), 2, 1).with_subscriber(traces.clone());
        let ended = tokio::time::timeout(Duration::from_millis(time), rehearsal).await;
        assert!(ended.is_ok_and(|ended| ended.unwrap().is_clean()) || time < 60_000);
        for span in traces.spans("pool") {
            let pool = PoolId::new(span.field("pool").to_owned());
            seen += usize::from(folder_of(&pool).exists());
            let record = ledger().join(format!("{pool}.ledger"));
            until(&format!("{pool} is gone, dropped after {time} ms"), || {
                processes_of(&pool).is_empty() && !folder_of(&pool).exists() && !record.exists()
            })
            .await;
        }
    }
    assert!(seen > 0, "the folders are somewhere else");
}

#[tokio::test]
async fn jax_has_the_devices_of_all_ranks_whatever_the_image_says() {
    let call: PendingCompute<(usize, usize, f64)> = python(
        "import jax\nimport numpy as np\nfrom jax.experimental import multihost_utils\ndef f():\n    total = multihost_utils.process_allgather(np.array([jax.process_index() + 1.0])).sum()\n    return jax.device_count(), jax.local_device_count(), float(total)\n",
    )
    .into();
    let mut limits = limits();
    limits.hooks = Duration::from_secs(240);
    let flags = "--xla_force_host_platform_device_count=8";
    let image = skyward::spec::Image::new().env("XLA_FLAGS", flags).env("JAX_PLATFORMS", "cuda");
    let rehearsal = Pool::builder()
        .nodes(2)
        .accelerator(skyward::spec::Accelerator::new("H100", 2))
        .limits(limits)
        .image(image)
        .plugin(plugins::jax())
        .rehearse(call, 2, 2)
        .await
        .unwrap();
    assert!(rehearsal.is_clean(), "{rehearsal}");
    assert_eq!(rehearsal.results, Some(vec![(4, 2, 3.0), (4, 2, 3.0)]));
    assert_nothing_left(rehearsal.pool.as_ref().unwrap());
}
