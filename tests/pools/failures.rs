//! Failures on this host with real Python, and their errors.

use std::time::Duration;

use crate::common::{PID, SLEEP, limits, pool, processes_of, python, signal, soon, until};
use indoc::{formatdoc, indoc};
use skyward::compute::PendingCompute;
use skyward::compute::{ComputePool, ComputePoolExt};
use skyward::error::{Cause, Error, ErrorKind, WorkerExit};
use skyward::event::{EventItem, PoolEvent};
use skyward::ids::Rank;
use skyward::payload::{RetryPolicy, Streaming, Target, TaskOptions};
use skyward::plugin::{Plugin, plugin};
use skyward::pool::Pool;
use skyward::spec::{ClusterInfo, Image};

/// Returns at once.
const ALIVE: &str = indoc! {"
    def f():
        return True
"};

/// Runs one call on a pool of one node. Returns its error.
async fn error_of<T: skyward::payload::Output + std::fmt::Debug>(call: impl Into<PendingCompute<T>>) -> Error {
    let call = call.into();
    pool(1).scope(async |pool| Ok(call.run(pool).await)).await.unwrap().unwrap_err()
}

#[tokio::test]
async fn nothing_is_started_for_an_invalid_pool() {
    let changed = |change: fn(&mut skyward::spec::Limits)| {
        let mut limits = limits();
        change(&mut limits);
        Pool::builder().limits(limits)
    };
    for (builder, words) in [
        (changed(|limits| limits.poison = 0), "`Limits::poison` is 0; it can be 1 or more"),
        (changed(|limits| limits.stall = Some(Duration::ZERO)), "`Limits::stall` is 0ns; it can be 1ms or more"),
        (pool(0), "0 nodes"),
        (pool(1).workers_per_node(0), "0 workers"),
        (pool(1).image(Image::new().pip(["not a requirement ==="])), "not a requirement"),
    ] {
        let error = builder.start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
        assert!(format!("{error:#}").contains(words) && error.hint().is_some(), "{error}");
    }
}

#[tokio::test]
async fn an_exception_has_its_type_message_and_correct_lines() {
    let error = error_of::<i64>(python(indoc! {"
        class Diverged(Exception):
            pass

        def step(x):
            raise Diverged(f'loss is {x}')

        def f():
            return step(1.5)
    "}))
    .await;
    assert_eq!(error.kind(), ErrorKind::Raised);
    let exception = error.exception().unwrap();
    assert!(exception.type_name.ends_with("Diverged"), "{exception:?}");
    assert_eq!(exception.message.as_str(), "loss is 1.5");
    assert_eq!(exception.rank, Rank(0));
    assert!(exception.traceback.contains("\"payload.py\", line 8, in f"), "{}", exception.traceback);
    assert!(exception.traceback.contains("\"payload.py\", line 5, in step"), "{}", exception.traceback);
    assert!(!exception.traceback.contains("skyward/"), "only the payload's frames: {}", exception.traceback);
}

#[tokio::test]
async fn sys_exit_ends_the_task_and_not_the_worker() {
    let exit: PendingCompute<()> = python(indoc! {"
        import sys
        def f():
            sys.exit(3)
    "})
    .into();
    let pid: PendingCompute<u32> = python(PID).into();
    pool(1)
        .scope(async |pool| {
            let before = pid.clone().run(pool).await?;
            let error = exit.run(pool).await.unwrap_err();
            assert_eq!(error.exception().unwrap().type_name, "SystemExit");
            assert_eq!(pid.run(pool).await?, before);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_worker_that_ends_in_a_task_is_told_by_its_cause_and_replaced() {
    let exit: PendingCompute<()> = python(indoc! {"
        import os
        def f():
            os._exit(7)
    "})
    .into();
    let crash: PendingCompute<()> = python(indoc! {"
        import ctypes
        def f():
            ctypes.string_at(0)
    "})
    .into();
    let alive: PendingCompute<bool> = python(ALIVE).into();
    let port: PendingCompute<u16> = python(indoc! {"
        import skyward as sky
        def f():
            return sky.instance_info().head_port
    "})
    .into();
    pool(2)
        .scope(async |pool| {
            let error = exit.run_on(pool, Target::Rank(Rank(0))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WorkerExited);
            assert_eq!(error.exit(), Some(&WorkerExit::Code(7)));
            let error = crash.run_on(pool, Target::Rank(Rank(1))).await.unwrap_err();
            assert_eq!(error.exit(), Some(&WorkerExit::Signal(11)));
            assert!(format!("{error:#}").contains("SIGSEGV"), "{error}");
            assert_eq!(alive.broadcast(pool).await?, [true, true]);
            let ports = port.broadcast(pool).await?;
            assert_eq!(ports[0], ports[1], "both workers have the same head port");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_crash_is_tried_again_only_when_asked() {
    let marker = std::env::temp_dir().join(format!("skyward-retry-{}", std::process::id()));
    let _ = std::fs::remove_file(&marker);
    let flaky = |retry| -> PendingCompute<String> {
        let call: PendingCompute<String> = python(indoc! {"
            import os
            def f(path):
                if not os.path.exists(path):
                    open(path, 'w').close()
                    os._exit(1)
                os.remove(path)
                return 'second'
        "})
        .arg("path", marker.to_str().unwrap().to_owned())
        .into();
        call.retry(retry)
    };
    pool(1)
        .scope(async |pool| {
            assert_eq!(flaky(RetryPolicy::times(1)).run(pool).await?, "second");
            assert_eq!(flaky(RetryPolicy::never()).run(pool).await.unwrap_err().kind(), ErrorKind::WorkerExited);
            Ok(())
        })
        .await
        .unwrap();
    std::fs::remove_file(marker).unwrap();
}

#[tokio::test]
async fn a_poison_task_is_reported_and_refused_while_the_pool_goes_on() {
    let poison = |code: i32| -> PendingCompute<()> {
        let call: PendingCompute<()> = python(indoc! {"
            import os
            def f(code):
                os._exit(code)
        "})
        .arg("code", code)
        .into();
        call.retry(RetryPolicy::times(100))
    };
    let alive: PendingCompute<bool> = python(ALIVE).into();
    pool(1)
        .scope(async |pool| {
            for code in [7, 8, 9] {
                let error = poison(code).run(pool).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
                assert_eq!(error.exit(), Some(&WorkerExit::Code(code)), "{error}");
                let text = format!("{error:#}");
                assert!(
                    text.contains("ended its worker 3 times") && text.contains("entry: f, payload: payload.py"),
                    "{text}"
                );
                assert_eq!(text.matches(&format!("exited with code {code}")).count(), 3, "{text}");
                let causes: Vec<_> = error.tries().iter().map(|one| one.cause).collect();
                assert_eq!(causes, [Some(Cause::Crash); 3]);
            }
            assert!(alive.clone().run(pool).await?);
            let worker = pool.status().workers[0].pid;
            let error = poison(7).run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            assert!(error.message().contains("refused"), "{error}");
            assert!(alive.run(pool).await?);
            assert_eq!(pool.status().workers[0].pid, worker, "a refused task ends no worker");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_task_that_is_not_started_in_time_reports_what_it_waited_for() {
    let sleepy: PendingCompute<()> = python(SLEEP).into();
    let alive: PendingCompute<bool> = python(ALIVE).into();
    pool(1)
        .tasks(TaskOptions::default().queue_timeout(Duration::from_millis(300)))
        .scope(async |pool| {
            let running = tokio::spawn({
                let pool = pool.clone();
                async move { sleepy.queue_timeout(Duration::from_secs(60)).run(&pool).await }
            });
            until("the task runs", || pool.status().running > 0).await;
            let error = alive.clone().run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::QueueTimeout);
            assert!(error.is_temporary());
            assert!(error.message().contains("the worker of rank 0 ran task"), "{error}");
            running.abort();
            assert!(alive.queue_timeout(Duration::from_secs(60)).run(pool).await?, "the task's own deadline counts");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_missing_package_is_named_only_if_its_name_is_known() {
    let hint = async |text: &'static str| error_of::<()>(python(text)).await.hint().unwrap_or_default().to_owned();
    let known = hint("import cv2\ndef f(): ...\n").await;
    assert!(known.contains(".pip([\"opencv-python-headless\"])"), "{known}");
    let unknown = hint("import no_such_package_here\ndef f(): ...\n").await;
    assert!(unknown.contains("no installed package has the name") && !unknown.contains(".pip"), "{unknown}");
    let listed =
        "# /// script\n# dependencies = [\"no-such-package-here\"]\n# ///\nimport no_such_package_here\ndef f(): ...\n";
    let listed = hint(listed).await;
    assert!(listed.contains("lists `no-such-package-here`") && listed.contains(".payload_of"), "{listed}");
}

#[skyward::compute(python = "tests/payloads/lonely.py")]
fn lonely() -> String;

#[tokio::test]
async fn a_file_beside_the_payload_is_named_with_its_folder() {
    let error = error_of::<String>(lonely()).await;
    let hint = error.hint().unwrap_or_default();
    assert!(hint.starts_with("`searched` lies beside the payload"), "{error:#}");
    assert!(hint.contains("`python = \"tests/payloads\", main = \"lonely.py\"`"), "{error:#}");
}

#[tokio::test]
async fn a_result_that_does_not_fit_is_reported_with_its_place() {
    #[derive(Debug, serde::Deserialize)]
    struct Report {
        #[allow(dead_code, reason = "only its type matters")]
        losses: Vec<f64>,
    }
    let error = error_of::<Report>(python(indoc! {"
        def f():
            return {'losses': [0.5, 'nan?']}
    "}))
    .await;
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(format!("{error:#}").contains("losses[1]") && format!("{error:#}").contains("nan?"), "{error}");

    let error = error_of::<()>(python(indoc! {"
        def f():
            return {'a': [1, object()]}
    "}))
    .await;
    assert_eq!(error.kind(), ErrorKind::Encode);
    assert!(format!("{error:#}").contains("a[1]") && format!("{error:#}").contains("object"), "{error}");

    let error = error_of::<u64>(python(indoc! {"
        def f():
            return 2 ** 70
    "}))
    .await;
    assert_eq!(error.kind(), ErrorKind::Encode);
    assert!(format!("{error:#}").contains("64"), "{error}");
}

#[tokio::test]
async fn arguments_that_the_function_does_not_take_are_refused() {
    let error = error_of::<()>(
        python(indoc! {"
            def f(a):
                pass
        "})
        .arg("b", 1),
    )
    .await;
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[tokio::test]
async fn a_generator_that_raises_half_way_returns_its_items_first() {
    let call: PendingCompute<Streaming<u32>> = python(indoc! {"
        def f():
            yield 1
            yield 2
            raise ValueError('half way')
    "})
    .into();
    pool(1)
        .scope(async |pool| {
            let mut stream = call.run(pool).await?;
            assert_eq!(stream.next().await.unwrap()?, 1);
            assert_eq!(stream.next().await.unwrap()?, 2);
            let error = stream.next().await.unwrap().unwrap_err();
            assert_eq!(error.exception().unwrap().message, "half way");
            assert!(stream.next().await.is_none());
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn data_larger_than_a_frame_is_refused_in_both_directions() {
    let mut limits = limits();
    limits.max_frame_bytes = 1 << 20;
    let send: PendingCompute<u64> = python(indoc! {"
        def f(data):
            return len(data)
    "})
    .arg("data", vec![0_u8; 2 << 20])
    .into();
    let receive: PendingCompute<Vec<u8>> = python(indoc! {"
        def f():
            return bytes(2 << 20)
    "})
    .into();
    Pool::builder()
        .limits(limits)
        .scope(async |pool| {
            let error = send.run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Payload);
            assert!(error.hint().is_some_and(|hint| hint.contains("max_frame_bytes")), "{error}");
            let error = receive.run(pool).await.unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("max_frame_bytes")), "{error}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_hook_that_raises_keeps_the_pool_from_starting() {
    let broken = plugin("broken").around_app(indoc! {"
        def around_app(config):
            raise RuntimeError('no licence')
    "});
    let error = pool(2).plugin(broken).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hook, "{error}");
    assert!(error.message().contains("`broken`") && error.message().contains("no licence"), "{error}");
}

#[tokio::test]
async fn a_worker_that_ends_in_a_hook_is_reported_with_its_cause() {
    for (end, exit) in [("os._exit(7)", WorkerExit::Code(7)), ("os.kill(os.getpid(), 9)", WorkerExit::Signal(9))] {
        let ends = plugin("ends").around_app(formatdoc! {"
            import os
            def around_app(config):
                {end}
                yield
        "});
        let error = pool(1).plugin(ends).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Start, "{error}");
        assert!(error.message().contains(&format!("rank 0 {exit}")), "{error}");
    }
}

/// Joins a world that rank 1 never reaches.
#[derive(Debug)]
struct Stuck;

impl Plugin for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }

    fn joins_world(&self, _: &ClusterInfo) -> bool {
        true
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<skyward::plugin::Hook> {
        let source = indoc! {"
            import time
            from contextlib import contextmanager
            import skyward as sky
            @contextmanager
            def around_app(config):
                if sky.instance_info().global_worker_index == 1:
                    time.sleep(3600)
                yield
        "};
        Some(skyward::plugin::Hook::new(skyward::plugin::HookKind::App, "stuck.py", source, "around_app"))
    }
}

#[tokio::test]
async fn a_hook_that_hangs_is_reported_with_its_rank() {
    let mut limits = limits();
    limits.hooks = Duration::from_secs(3);
    let error = Pool::builder().nodes(2).limits(limits).plugin(Stuck).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hook, "{error}");
    assert!(error.message().contains("rank 1") && error.message().contains("stuck"), "{error}");
}

#[tokio::test]
async fn a_task_over_its_timeout_also_ends_on_the_node() {
    let sleepy: PendingCompute<()> = python(SLEEP).into();
    let stubborn: PendingCompute<()> = python(indoc! {"
        import signal, time
        def f():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
    "})
    .into();
    let pid: PendingCompute<u32> = python(PID).into();
    pool(1)
        .scope(async |pool| {
            let before = pid.clone().run(pool).await?;
            let error = sleepy.timeout(Duration::from_millis(200)).run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert_eq!(pid.clone().run(pool).await?, before, "an interrupt is enough");
            let error = stubborn.timeout(Duration::from_millis(200)).run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert_ne!(
                pid.run(pool).await?,
                before,
                "a task that ignores the interrupt is killed, and its worker is replaced"
            );
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn tasks_sent_to_a_stopped_worker_run_on_its_replacement() {
    let rank: PendingCompute<i64> = python(PID).into();
    pool(1)
        .scope(async |pool| {
            // After short calls, the pool sends several tasks to the worker at once.
            let before = pool.map((0..200).map(|_| rank.clone())).await?[0];
            signal("STOP", before as u32).await;
            let mut sent = Vec::new();
            for _ in 0..5 {
                let task = rank.clone().timeout(Duration::from_secs(2)).into_task()?;
                sent.push(pool.submit(task, Target::Rank(Rank(0))).await?);
            }
            let mut outcomes = Vec::new();
            for call in sent {
                outcomes.push(soon("a call has its outcome", call.outcome()).await.map_err(|error| error.kind()));
            }
            assert_eq!(outcomes[0].as_ref().err(), Some(&ErrorKind::Timeout));
            assert!(outcomes[1..].iter().all(Result::is_ok), "{outcomes:?}");
            assert_ne!(rank.run(pool).await?, before, "another process");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_dropped_call_ends_on_the_node_and_the_next_one_runs() {
    let sleepy: PendingCompute<()> = python(SLEEP).into();
    let alive: PendingCompute<bool> = python(ALIVE).into();
    pool(1)
        .scope(async |pool| {
            let mut events = pool.events();
            let run = tokio::spawn({
                let pool = pool.clone();
                async move { sleepy.run(&pool).await }
            });
            while let Some(item) = events.next().await {
                if matches!(&item, EventItem::Event(event) if matches!(**event, PoolEvent::TaskStarted { .. })) {
                    break;
                }
            }
            run.abort();
            assert!(alive.run(pool).await?);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn shutdown_while_tasks_run_ends_them_with_a_reason() {
    let sleepy = || -> PendingCompute<()> { python(SLEEP).into() };
    let handle = pool(1).start().await.unwrap();
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move { sleepy().run(&handle).await })
        })
        .collect();
    until("one task runs and the others wait", || handle.status().running > 0 && handle.status().queued >= 2).await;
    handle.shutdown(Duration::from_secs(20)).await.unwrap();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(sleepy().run(&handle).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(processes_of(handle.id()), Vec::<String>::new());
    handle.shutdown(Duration::from_secs(1)).await.unwrap();
}
