//! Calls that succeed, on a pool on this host with real Python.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::common::{limits, pool, python, soon, unique, until};
use indoc::{formatdoc, indoc};
use skyward::compute::{ComputePool, ComputePoolExt, PoolPhase};
use skyward::compute::{PendingCompute, join_all};
use skyward::event::{EventItem, OutputStream, PoolEvent};
use skyward::ids::{NodeIndex, Rank};
use skyward::payload::{Payload, Streaming, Target};
use skyward::plugin::plugin;
use skyward::spec::Nodes;

fn add(a: i64, b: i64) -> PendingCompute<i64> {
    python(indoc! {"
        def f(a, b):
            return a + b
    "})
    .arg("a", a)
    .arg("b", b)
    .into()
}

fn rank() -> PendingCompute<u32> {
    python(indoc! {"
        import skyward as sky
        def f():
            return sky.instance_info().global_worker_index
    "})
    .into()
}

#[tokio::test]
async fn calls_reach_every_target() {
    pool(2)
        .workers_per_node(2)
        .scope(async |pool| {
            assert_eq!(add(1, 2).run(pool).await?, 3);
            assert_eq!((add(1, 2) >> pool).await?, 3);
            assert_eq!(rank().run_on(pool, Target::Head).await?, 0);
            assert!([2, 3].contains(&rank().run_on(pool, Target::Node(NodeIndex(1))).await?));
            assert_eq!(rank().run_on(pool, Target::Rank(Rank(3))).await?, 3);
            assert_eq!(rank().broadcast(pool).await?, [0, 1, 2, 3]);
            let text: PendingCompute<String> = python(indoc! {"
                def f():
                    return 'text'
            "})
            .into();
            let (sum, text, more) = (add(2, 2) & text & add(3, 3)).run(pool).await?;
            assert_eq!(sum, 4);
            assert_eq!(text.as_str(), "text");
            assert_eq!(more, 6);
            assert_eq!(((add(1, 1) & add(2, 2)) >> pool).await?, (2, 4));
            assert_eq!(
                join_all((0..10).map(|n| add(n, n))).run(pool).await?,
                (0..10).map(|n| 2 * n).collect::<Vec<_>>()
            );
            assert_eq!((join_all([add(1, 1), add(2, 2)]) >> pool).await?, [2, 4]);
            let status = pool.status();
            assert_eq!(status.phase, PoolPhase::Ready);
            assert_eq!(status.nodes.len(), 2);
            assert_eq!(status.workers.len(), 4);
            assert!(status.workers.iter().all(|worker| worker.ready && worker.pid.is_some()));
            assert_ne!(status.nodes[0].address, status.nodes[1].address, "each node has its own address");
            Ok(())
        })
        .await
        .unwrap();
}

#[skyward::compute(python = "tests/ui/payloads/train.py")]
fn later(epochs: u32) -> u32;

#[tokio::test]
async fn a_declared_coroutine_is_awaited() {
    let result = pool(1).scope(async |pool| later(3).run(pool).await).await;
    assert_eq!(result.unwrap(), 3);
}

#[tokio::test]
async fn map_keeps_the_order_and_map_unordered_returns_each_index_once() {
    pool(2)
        .scope(async |pool| {
            let doubled = pool.map((0..5000).map(|n| add(n, n))).await?;
            assert_eq!(doubled, (0..5000).map(|n| 2 * n).collect::<Vec<_>>());
            let mut seen = BTreeMap::new();
            let mut results = pool.map_unordered((0..100).map(|n| add(n, 1)));
            while let Some((index, result)) = futures_util::StreamExt::next(&mut results).await {
                assert_eq!(seen.insert(index, result?), None);
            }
            assert!(seen.iter().all(|(index, value)| *value == *index as i64 + 1) && seen.len() == 100);
            Ok(())
        })
        .await
        .unwrap();
}

/// Makes a file, and returns when another file exists.
fn hold(path: &Path) -> PendingCompute<()> {
    python(indoc! {"
        import os, time
        def f(path):
            open(path + '.began', 'w').close()
            end = time.monotonic() + 300
            while not os.path.exists(path + '.end') and time.monotonic() < end:
                time.sleep(0.01)
    "})
    .arg("path", path.to_path_buf())
    .into()
}

#[tokio::test]
async fn short_calls_that_wait_behind_a_long_one_run_on_another_worker() {
    let folder = std::env::temp_dir().join(format!("skyward-recall-{}-{}", std::process::id(), unique()));
    std::fs::create_dir_all(&folder).unwrap();
    let (other, long) = (folder.join("other"), folder.join("long"));
    let there = |path: &Path, what: &str| path.with_extension(what).exists();
    let end = |path: &Path| std::fs::write(path.with_extension("end"), "").unwrap();
    pool(2)
        .scope(async |pool| {
            // Both workers have reported short calls, and one worker is busy when the long call is
            // submitted.
            pool.map((0..1000).map(|n| add(n, 1))).await?;
            let held = pool.submit(hold(&other).into_task()?, Target::Rank(Rank(1))).await?;
            until("the other worker is busy", || there(&other, "began")).await;
            let runs = pool.submit(hold(&long).into_task()?, Target::Any).await?;
            let mut short = Vec::new();
            for n in 0..100 {
                short.push(pool.submit(add(n, 1).into_task()?, Target::Any).await?);
            }
            until("the long call has begun", || there(&long, "began")).await;
            end(&other);
            held.outcome().await?;
            for call in short {
                assert_eq!(soon("a short call returns", call.outcome()).await?.rank, Rank(1));
            }
            end(&long);
            assert_eq!(runs.outcome().await?.rank, Rank(0));
            Ok(())
        })
        .await
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_generator_streams_no_faster_than_it_is_read_and_is_closed_when_dropped() {
    let counter: PendingCompute<Streaming<u64>> = python(indoc! {"
        made = 0
        closed = False
        def f(n):
            global made, closed
            try:
                for made in range(1, n + 1):
                    yield made
            finally:
                closed = True
    "})
    .arg("n", 1000)
    .into();
    pool(1)
        .scope(async |pool| {
            let all = counter.clone().run(pool).await?.collect().await?;
            assert_eq!(all, (1..=1000).collect::<Vec<_>>());
            let mut stream = counter.clone().run(pool).await?;
            for wanted in 1..=3 {
                assert_eq!(stream.next().await.transpose()?, Some(wanted));
            }
            drop(stream);
            // The worker takes the next task only when it is done with the generator.
            let made: PendingCompute<(u64, bool)> = python(indoc! {"
                import sys
                def f():
                    for module in list(sys.modules.values()):
                        if getattr(module, 'made', None) is not None and hasattr(module, 'closed'):
                            return [module.made, module.closed]
            "})
            .into();
            let (made, closed) = made.run(pool).await?;
            assert!(closed && made < 100, "the generator made {made} items for a reader that took 3; closed: {closed}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn output_arrives_byte_for_byte_with_its_task() {
    let noisy: PendingCompute<()> = python(indoc! {r"
        import os, sys
        def f(text):
            os.write(1, b'\xff\xfe' + text.encode() + b'\n')
            print('to stderr', file=sys.stderr)
    "})
    .arg("text", "one")
    .into();
    let handle = pool(1).start().await.unwrap();
    let mut events = handle.events();
    noisy.run(&handle).await.unwrap();
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    let (mut stdout, mut stderr, mut started) = (Vec::new(), Vec::new(), None);
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { panic!("no event is missed: {item:?}") };
        match &*event {
            PoolEvent::TaskStarted { task, .. } => started = Some(*task),
            PoolEvent::Output(output) => {
                assert_eq!(output.task, started);
                let kept = if output.stream == OutputStream::Stdout { &mut stdout } else { &mut stderr };
                assert_eq!(output.offset, kept.len() as u64);
                kept.extend_from_slice(&output.bytes);
            }
            _ => {}
        }
    }
    assert_eq!(stdout, b"\xff\xfeone\n");
    assert_eq!(stderr, b"to stderr\n");
}

#[tokio::test]
async fn sixty_four_mebibytes_of_output_and_of_bytes_arrive_whole() {
    let shout: PendingCompute<u64> = python(indoc! {r"
        import sys
        def f():
            line = b'x' * 1023 + b'\n'
            for _ in range(64 * 1024):
                sys.stdout.buffer.write(line)
            return 64 * 1024 * 1024
    "})
    .into();
    let echo = |bytes: Vec<u8>| -> PendingCompute<Vec<u8>> {
        python(indoc! {"
            def f(data):
                return data
        "})
        .arg("data", bytes)
        .into()
    };
    let handle = pool(1).start().await.unwrap();
    let mut events = handle.events();
    let reader = tokio::spawn(async move {
        let (mut bytes, mut missed) = (0_u64, 0);
        while let Some(item) = events.next().await {
            match item {
                EventItem::Event(event) => {
                    if let PoolEvent::Output(output) = &*event {
                        bytes += output.bytes.len() as u64;
                    }
                }
                EventItem::Missed(count) => missed += count,
                _ => {}
            }
        }
        (bytes, missed)
    });
    assert_eq!(shout.run(&handle).await.unwrap(), 64 << 20);
    let data = vec![7_u8; 64 << 20];
    assert!(echo(data.clone()).run(&handle).await.unwrap() == data);
    handle.shutdown(Duration::from_secs(30)).await.unwrap();
    let (bytes, missed) = reader.await.unwrap();
    assert!(bytes == 64 << 20 || missed > 0, "{bytes} bytes of output arrived, and no event was missed");
}

#[tokio::test]
async fn hooks_are_entered_once_before_the_first_task_and_left_in_reverse() {
    let around = |name: &str| {
        formatdoc! {r"
            from contextlib import contextmanager
            import os
            @contextmanager
            def around_app(config):
                path = os.environ['TRACE']
                open(path, 'a').write('enter {name}\n')
                yield
                open(path, 'a').write('leave {name}\n')
        "}
    };
    let trace = std::env::temp_dir().join(format!("skyward-hooks-{}", std::process::id()));
    let _ = std::fs::remove_file(&trace);
    let image = skyward::spec::Image::new().env("TRACE", trace.to_str().unwrap());
    let outer = plugin("outer").around_app(around("outer"));
    let inner = plugin("inner").around_app(around("inner"));
    pool(1)
        .image(image)
        .plugin(outer)
        .plugin(inner)
        .scope(async |pool| {
            assert_eq!(std::fs::read_to_string(&trace).unwrap(), "enter outer\nenter inner\n");
            add(1, 1).run(pool).await?;
            add(1, 1).run(pool).await
        })
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "enter outer\nenter inner\nleave inner\nleave outer\n");
    std::fs::remove_file(trace).unwrap();
}

#[tokio::test]
async fn partial_and_elastic_pools_start_and_report_their_size() {
    for (nodes, count) in [(Nodes::partial(1, 2), 2), (Nodes::elastic(1, 4), 1)] {
        let total: PendingCompute<u32> = python(indoc! {"
            import skyward as sky
            def f():
                return sky.instance_info().total_nodes
        "})
        .into();
        let builder = skyward::pool::Pool::builder().nodes(nodes).limits(limits());
        assert_eq!(builder.scope(async |pool| total.run(pool).await).await.unwrap(), count);
    }
}

#[tokio::test]
async fn two_scopes_at_once_are_independent() {
    let scope = |n: i64| pool(2).scope(async move |pool| add(n, 1).broadcast(pool).await);
    let (a, b) = tokio::join!(scope(10), scope(20));
    assert_eq!(a.unwrap(), vec![11, 11]);
    assert_eq!(b.unwrap(), vec![21, 21]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_can_be_spawned() {
    let task = tokio::spawn(pool(1).scope(async |pool| add(20, 22).run(pool).await));
    assert_eq!(task.await.unwrap().unwrap(), 42);
}

#[tokio::test]
async fn a_payload_of_several_files_imports_its_own_modules() {
    use skyward::payload::{Source, SourceFile};
    let file = |path: &'static str, text: &'static str| SourceFile { path: path.into(), text: text.into() };
    let source = Source::package(
        "trainer/__init__.py",
        vec![
            file(
                "trainer/__init__.py",
                indoc! {"
                    from .model import width
                    import trainer.model as m
                    def f():
                        return width() + m.width()
                "},
            ),
            file(
                "trainer/model.py",
                indoc! {"
                    def width():
                        return 21
                "},
            ),
        ],
        "f",
    );
    let call: PendingCompute<i64> = Payload::new(std::sync::Arc::new(source)).into();
    assert_eq!(pool(1).scope(async |pool| call.run(pool).await).await.unwrap(), 42);
}

/// The worker's part of four items, whether it is the head, and what it prints for the head alone.
fn seen() -> PendingCompute<(Vec<u32>, bool, String)> {
    python(indoc! {"
        import io
        import skyward as sky
        def f():
            kept = io.StringIO()
            with sky.redirect_output(stdout=kept):
                sky.stdout(only='head')(print)('spoken', end='')
            return (sky.shard([0, 1, 2, 3]), bool(sky.is_head), kept.getvalue())
    "})
    .into()
}

#[tokio::test]
async fn a_task_that_is_no_part_of_a_broadcast_is_alone_on_every_worker() {
    let alone = (vec![0, 1, 2, 3], true, "spoken".to_owned());
    pool(2)
        .scope(async |pool| {
            for rank in [0, 1] {
                assert_eq!(seen().run_on(pool, Target::Rank(Rank(rank))).await?, alone);
            }
            let parts = [(vec![0, 1], true, "spoken".to_owned()), (vec![2, 3], false, String::new())];
            assert_eq!(seen().broadcast(pool).await?, parts);
            assert_eq!(join_all([seen(), seen()]).run(pool).await?, [alone.clone(), alone.clone()]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn tasks_of_a_broadcast_without_a_world_submit_calls() {
    type Parts = (Vec<u32>, Vec<Vec<u32>>, Vec<u32>);
    let call: PendingCompute<Parts> = python(indoc! {"
        import skyward as sky
        def part(_=None):
            return sky.shard([0, 1, 2, 3])
        def f():
            return (part(), list(sky.map(part, range(5), chunksize=1)), part())
    "})
    .into();
    let whole = vec![vec![0, 1, 2, 3]; 5];
    pool(2)
        .scope(async |pool| {
            let found = call.broadcast(pool).await?;
            assert_eq!(found, [vec![0, 1], vec![2, 3]].map(|part| (part.clone(), whole.clone(), part)));
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_task_knows_whether_all_ranks_run_it() {
    let gang: PendingCompute<bool> = python(indoc! {"
        from skyward._core import state
        def f():
            return state.gang
    "})
    .into();
    pool(2)
        .scope(async |pool| {
            assert!(!gang.clone().run(pool).await?);
            assert_eq!(gang.broadcast(pool).await?, [true, true]);
            Ok(())
        })
        .await
        .unwrap();
}
