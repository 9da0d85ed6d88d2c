//! Rehearsals on this host, with real Python: a rehearsal finds the faults of a payload on several
//! ranks, and leaves nothing.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{assert_nothing_left, ledger, limits, processes_of, python, soon, until};
use crate::traces::Traces;
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::WorkerExit;
use skyward::ids::{PoolId, Rank};
use skyward::plugin::plugin;
use skyward::plugins::{Distribution, ModelParallel};
use skyward::pool::{Finding, FindingKind, Pool, PoolBuilder, Rehearsal, RehearsalLimits};
use skyward::prelude::plugins;
use skyward::provider::{Architecture, Local};
use skyward::spec::Nodes;
use tracing::instrument::WithSubscriber as _;

/// A pool of one world that this host cannot provide.
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

/// The only finding. Checks that nothing of the rehearsal is left.
#[track_caller]
fn only<T: std::fmt::Debug>(rehearsal: &Rehearsal<T>) -> &Finding {
    assert_nothing_left(rehearsal.pool.as_ref().unwrap());
    assert!(!rehearsal.is_clean() && rehearsal.results.is_none(), "{rehearsal}");
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    finding
}

/// The start of a payload: all ranks but rank 1 wait for it at a socket. A test appends what rank 1
/// does.
const MEET: &str = indoc! {"
    import os, socket, sys, threading
    import skyward as sky

    def meet():
        socket.create_server(('127.0.0.1', 0)).accept()

    def elsewhere():
        threading.Event().wait()

    def f():
        if sky.instance_info().global_worker_index != 1:
            meet()
"};

#[tokio::test]
async fn results_are_returned_by_rank_even_if_the_pool_itself_cannot_start() {
    let call: PendingCompute<(u32, u32, String)> = python(indoc! {"
        import os
        import skyward as sky
        def f():
            info = sky.instance_info()
            return info.global_worker_index, info.total_nodes, os.environ['JAX_NUM_CPU_DEVICES']
    "})
    .into();
    let rehearsal = dear().rehearse(call.clone(), 3, 2).await.unwrap();
    assert!(rehearsal.is_clean() && rehearsal.findings.is_empty(), "{rehearsal}");
    assert_eq!(rehearsal.results, Some(vec![(0, 3, "2".into()), (1, 3, "2".into()), (2, 3, "2".into())]));
    assert!(rehearsal.start_took.unwrap() > Duration::ZERO && rehearsal.run_took.unwrap() > Duration::ZERO);
    assert_nothing_left(rehearsal.pool.as_ref().unwrap());
    assert!(dear().start().await.is_err(), "the pool itself cannot start");
    // Without a world the ranks are no gang, which may be intended.
    let apart = Pool::builder().limits(limits()).rehearse(call, 2, 1).await.unwrap();
    assert!(apart.is_clean(), "{apart}");
    assert_eq!(apart.findings.iter().map(|one| one.kind).collect::<Vec<_>>(), [FindingKind::NoGang]);
}

#[tokio::test]
async fn a_rank_that_raises_is_named_while_the_others_wait_for_it() {
    let text = format!("{MEET}    raise ValueError('the shard is empty')");
    let call: PendingCompute<()> = python(text.leak()).into();
    let rehearsal = dear().rehearse(call, 2, 1).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!(finding.kind, FindingKind::Raised, "{rehearsal}");
    assert_eq!(&finding.ranks[..], &[Rank(1)][..], "{rehearsal}");
    assert_eq!(finding.message, "the payload raised ValueError on rank 1: the shard is empty");
    assert!(rehearsal.to_string().contains("payload.py\", line 13, in f"), "{rehearsal}");
    assert!(
        rehearsal.run_took.unwrap() < Duration::from_secs(30),
        "the rehearsal does not wait for the others: {rehearsal}"
    );
}

#[tokio::test]
async fn a_rank_that_never_arrives_is_found_with_the_stacks_of_all() {
    let text = format!("{MEET}    elsewhere()");
    let call: PendingCompute<()> = python(text.leak()).into();
    let rehearsal = dear().rehearse_within(call, 2, 1, short()).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!(finding.kind, FindingKind::Stalled, "{rehearsal}");
    assert_eq!(finding.ranks.len(), 2, "{rehearsal}");
    assert_eq!(finding.stacks().len(), 2, "{rehearsal}");
    assert!(finding.message.contains("of `meet` (payload.py:5), rank 1 was in `wait` (threading.py:"), "{rehearsal}");
    assert!(finding.stacks()[1].text.contains("in elsewhere") && rehearsal.to_string().contains("in elsewhere"));
}

#[tokio::test]
async fn a_call_that_does_not_return_in_time_is_reported_with_the_remaining_ranks() {
    // The payload prints, which is progress.
    let call: PendingCompute<()> = python(indoc! {"
        import time
        import skyward as sky
        def f():
            while sky.instance_info().global_worker_index == 1:
                print('.', flush=True)
                time.sleep(0.1)
    "})
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
    // The value of the other rank is held back until all ranks have returned.
    assert_eq!(finding.message, "ranks 0, 1 had not returned after 5s");
}

#[tokio::test]
async fn a_worker_that_ends_and_a_result_that_does_not_fit_are_found() {
    let text = format!("{MEET}    os._exit(9)");
    let call: PendingCompute<()> = python(text.leak()).into();
    let rehearsal = dear().rehearse(call, 2, 1).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!(finding.kind, FindingKind::WorkerLost, "{rehearsal}");
    assert_eq!(&finding.ranks[..], &[Rank(1)][..], "{rehearsal}");
    assert_eq!(finding.error.as_ref().unwrap().exit(), Some(&WorkerExit::Code(9)));

    let call: PendingCompute<Vec<u32>> = python(indoc! {"
        def f():
            return {'loss': 0.5}
    "})
    .into();
    let rehearsal = dear().rehearse(call, 2, 1).await.unwrap();
    let finding = only(&rehearsal);
    assert_eq!(finding.kind, FindingKind::Result, "{rehearsal}");
    assert_eq!(&finding.ranks[..], &[Rank(0), Rank(1)][..], "{rehearsal}");
}

#[tokio::test]
async fn a_hook_that_raises_and_a_silence_that_ends_are_found() {
    let call: PendingCompute<u32> = python(indoc! {"
        import time
        def f():
            time.sleep(9)
            return 1
    "})
    .into();
    let broken = plugin("broken").around_app(indoc! {"
        def around_app(config):
            raise RuntimeError('no licence')
            yield
    "});
    let rehearsal = dear().plugin(broken).rehearse(call.clone(), 2, 1).await.unwrap();
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    assert_eq!(finding.kind, FindingKind::Hook, "{rehearsal}");
    assert!(rehearsal.to_string().contains("no licence") && rehearsal.start_took.is_none(), "{rehearsal}");

    let mut limits = short();
    limits.stall = Duration::from_secs(12);
    let rehearsal = dear().rehearse_within(call, 2, 1, limits).await.unwrap();
    assert!(rehearsal.is_clean() && rehearsal.results == Some(vec![1, 1]), "{rehearsal}");
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    assert_eq!(finding.kind, FindingKind::Silence, "{rehearsal}");
    assert!(finding.is_hint(), "{rehearsal}");
    assert!(finding.message.contains("no progress for 6s: rank 0 was in `f` (payload.py:3)"), "{rehearsal}");
}

#[tokio::test]
async fn a_refusal_of_the_pool_itself_is_found_beside_the_results_of_the_rehearsal() {
    let call: PendingCompute<u32> = python(indoc! {"
        def f():
            return 1
    "})
    .into();
    let elastic = Pool::builder().nodes(Nodes::elastic(1, 4)).limits(limits()).plugin(plugin("world").joins_world());
    let rehearsal = elastic.rehearse(call, 2, 1).await.unwrap();
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    assert_eq!(finding.kind, FindingKind::Refused, "{rehearsal}");
    assert!(finding.message.contains("one world of fixed size"), "{rehearsal}");
    assert_eq!(rehearsal.results.as_deref(), Some(&[1, 1][..]));
    assert!(!rehearsal.is_clean());
}

#[tokio::test]
async fn a_dropped_rehearsal_ends() {
    let folder = Folder::new();
    let call: PendingCompute<()> = python(indoc! {"
        import os, pathlib, threading
        import skyward as sky
        def f(folder):
            rank = sky.instance_info().global_worker_index
            pathlib.Path(folder, f'{rank}.part').write_text(str(os.getpid()))
            os.rename(f'{folder}/{rank}.part', f'{folder}/{rank}')
            threading.Event().wait()
    "})
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
    assert!(soon("the rehearsal is dropped", spawned).await.unwrap_err().is_cancelled());
    let gone = |pid: &String| !std::path::Path::new("/proc").join(pid).exists();
    until("the workers are gone", || pids.iter().all(gone)).await;
}

/// The folder of a pool on this host.
fn folder_of(pool: &PoolId) -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    let from = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let runtime = from("XDG_RUNTIME_DIR").filter(|folder| folder.is_dir()).unwrap_or_else(std::env::temp_dir);
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    from("SKYWARD_RUNTIME_DIR").unwrap_or_else(|| runtime.join(format!("skyward-{user}"))).join(pool.as_str())
}

#[tokio::test]
async fn a_rehearsal_dropped_at_any_moment_leaves_nothing() {
    let call: PendingCompute<u32> = python(indoc! {"
        import time
        def f():
            time.sleep(0.3)
            return 1
    "})
    .into();
    let mut seen = 0;
    // The last rehearsal is not dropped.
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
    assert!(seen > 0, "the folders were never seen");
}

#[tokio::test]
async fn a_layout_that_matches_nothing_is_found() {
    let call: PendingCompute<Vec<usize>> = python(indoc! {"
        import keras
        import numpy as np
        def f():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
            model.compile('sgd', 'mse')
            model.fit(np.ones((16, 4), 'float32'), np.ones((16, 2), 'float32'), batch_size=8, verbose=0)
            return [layer.kernel.value.addressable_shards[0].data.shape[1] for layer in model.layers]
    "})
    .into();
    let mut limits = limits();
    limits.hooks = Duration::from_secs(240);
    let mesh = ModelParallel::new([("data", 1), ("model", 2)])
        .layout(".*dense/kernel", [None, Some("model")])
        .layout("dense_1/kernel", [None, Some("model")]);
    let rehearsal = Pool::builder()
        .nodes(2)
        .limits(limits)
        .plugin(plugins::jax())
        .plugin(plugins::keras().distribution(Distribution::ModelParallel(mesh)))
        .rehearse(call, 2, 1)
        .await
        .unwrap();
    assert_eq!(rehearsal.results, Some(vec![vec![4, 2], vec![4, 2]]), "{rehearsal}");
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    assert_eq!(finding.kind, FindingKind::NoEffect, "{rehearsal}");
    assert_eq!(&finding.ranks[..], &[Rank(0), Rank(1)][..], "{rehearsal}");
    assert!(finding.message.contains("the layout of 'dense_1/kernel' has no effect"), "{rehearsal}");
    assert!(finding.message.contains("sequential/dense_1/kernel"), "{rehearsal}");
    assert!(finding.hint.contains("'.*dense_1/kernel'"), "{rehearsal}");
    assert!(!rehearsal.is_clean() && rehearsal.to_string().contains("no effect, ranks 0, 1: "), "{rehearsal}");
    assert_nothing_left(rehearsal.pool.as_ref().unwrap());
}

#[tokio::test]
async fn jax_has_the_devices_of_all_ranks_whatever_the_image_sets() {
    let call: PendingCompute<(usize, usize, f64)> = python(indoc! {"
        import jax
        import numpy as np
        from jax.experimental import multihost_utils
        def f():
            total = multihost_utils.process_allgather(np.array([jax.process_index() + 1.0])).sum()
            return jax.device_count(), jax.local_device_count(), float(total)
    "})
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
