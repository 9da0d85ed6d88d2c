//! Tasks that are ended while they run, with real Python: gangs without progress, and cancelled
//! tasks.

use std::sync::Arc;
use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{PID, limits, processes_of, python, soon};
use indoc::{formatdoc, indoc};
use skyward::compute::ComputePool;
use skyward::compute::PendingCompute;
use skyward::error::{Cause, ErrorKind, WorkerExit};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::{Rank, TaskId};
use skyward::payload::{Streaming, Target};
use skyward::plugin::plugin;
use skyward::pool::{Pool, PoolBuilder};

/// A world of two nodes whose gangs are ended after this time without progress.
fn watched(stall: Duration) -> PoolBuilder {
    let mut limits = limits();
    limits.stall = Some(stall);
    Pool::builder().nodes(2).limits(limits).plugin(plugin("world").joins_world())
}

#[tokio::test]
async fn a_rank_that_never_enters_the_barrier_is_reported_with_the_stacks_of_all() {
    let barrier: PendingCompute<()> = python(indoc! {"
        import socket, threading, time
        import skyward as sky

        def meet():
            socket.create_server(('127.0.0.1', 0)).accept()

        def elsewhere():
            threading.Event().wait()

        def f():
            elsewhere() if sky.instance_info().global_worker_index == 1 else meet()
    "})
    .into();
    let generation: PendingCompute<u64> = python(indoc! {"
        import skyward as sky
        def f():
            return sky.instance_info().generation
    "})
    .into();
    watched(Duration::from_secs(3))
        .scope(async |pool| {
            let error = barrier.broadcast(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stalled, "{error}");
            assert_eq!(Cause::of(&error), Some(Cause::Stalled), "{error}");
            let message = error.message();
            assert!(message.contains("rank 0 was in `accept` (socket.py:"), "{message}");
            assert!(message.contains("of `meet` (payload.py:5), rank 1 was in `wait` (threading.py:"), "{message}");
            assert!(message.contains("of `elsewhere` (payload.py:8)"), "{message}");
            let ranks: Vec<Rank> = error.stacks().iter().map(|one| one.rank).collect();
            assert_eq!(ranks, [Rank(0), Rank(1)]);
            assert!(
                error.stacks()[1].text.contains("in elsewhere") && format!("{error:#}").contains("in elsewhere"),
                "{error}"
            );
            assert_eq!(generation.broadcast(pool).await?, [2, 2], "the world goes on as its next generation");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_rank_that_never_enters_the_barrier_is_reported_once_and_the_gang_goes_on() {
    let folder = Folder::new();
    let barrier: PendingCompute<u32> = python(indoc! {"
        import os, time
        import skyward as sky

        def meet(folder):
            while not os.path.exists(f'{folder}/go'):
                time.sleep(0.01)

        def elsewhere(folder):
            meet(folder)

        def f(folder):
            rank = sky.instance_info().global_worker_index
            elsewhere(folder) if rank == 1 else meet(folder)
            return rank
    "})
    .arg("folder", folder.path.to_str().unwrap().to_owned())
    .into();
    let mut limits = limits();
    limits.stall_report = Duration::from_secs(2);
    let pool = Pool::builder().nodes(2).limits(limits).plugin(plugin("world").joins_world()).start().await.unwrap();
    let mut events = pool.events();
    let running = tokio::spawn({
        let pool = pool.clone();
        async move { barrier.broadcast(&pool).await }
    });
    let report = soon("the stall is reported", reported(&mut events)).await;
    let PoolEvent::TaskStalled { entry, payload, silent, message, stacks, .. } = &*report else { unreachable!() };
    assert!(entry == "f" && payload == "payload.py" && silent.as_secs() == 2, "{report:?}");
    let places = message.strip_prefix("no progress for 2s: rank 0 was in ").unwrap();
    assert_eq!(places.matches("`meet` (payload.py:").count(), 2, "{message}");
    let ranks: Vec<Rank> = stacks.iter().map(|one| one.rank).collect();
    assert!(ranks == [Rank(0), Rank(1)] && stacks[1].text.contains("in elsewhere"), "{stacks:?}");
    let again = tokio::time::timeout(Duration::from_secs(6), reported(&mut events)).await;
    assert!(again.is_err(), "{again:?}");
    folder.open("go");
    let returned = soon("the gang returns", running).await.unwrap().unwrap();
    assert_eq!(returned, vec![0, 1]);
    assert_eq!(pool.status().generation.0, 1, "the request for stacks has not disturbed the gang");
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
}

#[tokio::test]
async fn a_task_that_holds_a_lock_which_its_call_takes_is_reported() {
    let folder = Folder::new();
    let holder: PendingCompute<String> = python(indoc! {"
        import threading
        import skyward as sky

        LOCK = threading.Lock()

        def take():
            with LOCK:
                return 'taken'

        def f(file):
            with LOCK:
                call = sky.submit(take)
                try:
                    call.result(timeout=8)
                except TimeoutError:
                    pass
            return call.result()
    "})
    .arg("file", folder.path.to_str().unwrap().to_owned())
    .into();
    let mut limits = limits();
    limits.stall_report = Duration::from_secs(2);
    let pool = Pool::builder().limits(limits).start().await.unwrap();
    let mut events = pool.events();
    let running = tokio::spawn({
        let pool = pool.clone();
        async move { holder.run(&pool).await }
    });
    let report = soon("the stall is reported", reported(&mut events)).await;
    let PoolEvent::TaskStalled { entry, stacks, .. } = &*report else { unreachable!() };
    assert!(entry == "f" && stacks.len() == 1 && stacks[0].text.contains("in take"), "{report:?}");
    assert_eq!(soon("the task returns", running).await.unwrap().unwrap(), "taken");
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
}

/// The next report of a task without progress.
async fn reported(events: &mut Events) -> Arc<PoolEvent> {
    loop {
        match events.next().await.unwrap() {
            EventItem::Event(event) if matches!(*event, PoolEvent::TaskStalled { .. }) => return event,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_long_computation_that_reports_progress_is_not_ended() {
    let silent: PendingCompute<bool> = python(indoc! {"
        import time
        import skyward as sky
        def f():
            end = time.monotonic() + 8
            while time.monotonic() < end:
                time.sleep(0.05)
                if sky.is_head:
                    sky.progress()
            return True
    "})
    .into();
    watched(Duration::from_secs(3))
        .scope(async |pool| {
            assert_eq!(silent.broadcast(pool).await?, [true, true]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_stream_whose_reader_takes_its_time_is_no_stall() {
    let many: PendingCompute<Streaming<u32>> = python(indoc! {"
        def f():
            yield from range(40)
    "})
    .into();
    watched(Duration::from_secs(1))
        .scope(async |pool| {
            let streams = many.broadcast(pool).await?;
            // Both streams have filled their windows, and wait for their readers for longer than
            // ranks may take to report their stacks.
            tokio::time::sleep(Duration::from_secs(8)).await;
            for stream in streams {
                assert_eq!(stream.collect().await?, (0..40).collect::<Vec<u32>>());
            }
            assert_eq!(pool.status().generation.0, 1);
            Ok(())
        })
        .await
        .unwrap();
}

/// Waits until a task has printed. Returns the task.
async fn printed(events: &mut Events) -> TaskId {
    loop {
        match events.next().await {
            Some(EventItem::Event(event)) => match &*event {
                PoolEvent::Output(output) => return output.task.unwrap(),
                PoolEvent::TaskFailed { error, .. } => panic!("{error}"),
                _ => {}
            },
            Some(_) => {}
            None => panic!("the pool has ended"),
        }
    }
}

/// Cancels a payload while it runs and another task waits behind it. The other task must run, on
/// the same worker if the first task reacts to its interrupt (`heeds`). The first task must be
/// reported as cancelled.
async fn cancel(text: &'static str, heeds: bool) {
    let stubborn: PendingCompute<()> = python(text).into();
    let behind: PendingCompute<u32> = python(PID).into();
    let mut limits = limits();
    if heeds {
        // Long enough for a busy host.
        limits.grace = Duration::from_secs(30);
    }
    let pool = Pool::builder().limits(limits).start().await.unwrap();
    let before = behind.clone().run(&pool).await.unwrap();
    let mut events = pool.events();
    let running = tokio::spawn({
        let pool = pool.clone();
        async move { stubborn.run(&pool).await }
    });
    let task = printed(&mut events).await;
    let next = pool.submit(behind.into_task().unwrap(), Target::Any).await.unwrap();
    running.abort();
    let after = next.outcome().await.unwrap();
    let after: u32 = skyward::payload::value::decode(&after.bytes).unwrap();
    assert_eq!(after == before, heeds);
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
    let (mut cancelled, mut exits) = (Vec::new(), Vec::new());
    while let Some(item) = events.next().await {
        match item {
            EventItem::Event(event) => match &*event {
                PoolEvent::TaskCancelled { task } => cancelled.push(*task),
                PoolEvent::TaskFailed { task, error } => panic!("task {task} is reported as failed: {error}"),
                PoolEvent::WorkerExited { exit, .. } => exits.push(exit.clone()),
                _ => {}
            },
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cancelled, [task]);
    assert_eq!(exits.contains(&WorkerExit::Killed), !heeds, "{exits:?}");
    assert_eq!(processes_of(pool.id()), Vec::<String>::new());
}

#[tokio::test]
async fn a_payload_that_swallows_the_interrupt_is_killed() {
    cancel(
        indoc! {"
            import time
            def f():
                print('began', flush=True)
                while True:
                    try:
                        time.sleep(3600)
                    except BaseException:
                        pass
        "},
        false,
    )
    .await;
}

#[tokio::test]
async fn a_payload_that_swallows_the_interrupt_and_returns_has_ended() {
    cancel(
        indoc! {"
            import time
            def f():
                print('began', flush=True)
                try:
                    time.sleep(3600)
                except KeyboardInterrupt:
                    return
        "},
        true,
    )
    .await;
}

#[tokio::test]
async fn a_payload_that_waits_in_native_code_is_interrupted_if_a_signal_reaches_it() {
    for call in ["pause()", "sleep(3600)"] {
        let text = formatdoc! {"
            import ctypes
            def f():
                print('began', flush=True)
                ctypes.CDLL(None).{call}
        "};
        cancel(text.leak(), true).await;
    }
}

#[tokio::test]
async fn a_payload_that_blocks_in_native_code_is_killed() {
    // A lock that is taken twice; no signal ends the wait for it.
    cancel(
        indoc! {"
            import ctypes
            def f():
                libc = ctypes.CDLL(None)
                lock = ctypes.create_string_buffer(128)
                libc.pthread_mutex_init(lock, None)
                libc.pthread_mutex_lock(lock)
                print('began', flush=True)
                libc.pthread_mutex_lock(lock)
        "},
        false,
    )
    .await;
    // The same while holding the interpreter's own lock: no other thread of the process runs
    // either.
    cancel(
        indoc! {"
            import ctypes
            def f():
                libc = ctypes.PyDLL(None)
                lock = ctypes.create_string_buffer(128)
                libc.pthread_mutex_init(lock, None)
                libc.pthread_mutex_lock(lock)
                print('began', flush=True)
                libc.pthread_mutex_lock(lock)
        "},
        false,
    )
    .await;
}
