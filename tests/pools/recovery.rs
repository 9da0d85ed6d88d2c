//! What is ended while it runs, with real Python: gangs that make no progress, tasks whose caller does not wait any more.

use std::sync::Arc;
use std::time::Duration;

use crate::common::scene::Folder;
use crate::common::{limits, processes_of, python, soon};
use skyward::error::{Cause, ErrorKind, WorkerExit};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::ids::{Rank, TaskId};
use skyward::payload::{PendingCompute, Streaming, Target};
use skyward::plugin::plugin;
use skyward::pool::{ComputePool, Pool, PoolBuilder};

/// Two nodes that are one world, whose gangs are ended when they make no progress for so long.
fn watched(stall: Duration) -> PoolBuilder {
    let mut limits = limits();
    limits.stall = Some(stall);
    Pool::builder().nodes(2).limits(limits).plugin(plugin("world").joins_world())
}

#[tokio::test]
async fn a_rank_that_never_enters_the_barrier_is_told_by_the_stacks_of_all() {
    let barrier: PendingCompute<()> = python(
        "import socket, threading, time\nimport skyward as sky\n\ndef meet():\n    socket.create_server(('127.0.0.1', 0)).accept()\n\ndef elsewhere():\n    threading.Event().wait()\n\ndef f():\n    elsewhere() if sky.instance_info().global_worker_index == 1 else meet()\n",
    )
    .into();
    let generation: PendingCompute<u64> =
        python("import skyward as sky\ndef f():\n    return sky.instance_info().generation\n").into();
    watched(Duration::from_secs(3))
        .scope(async |pool| {
            let error = barrier.broadcast(pool).await.unwrap_err();
            assert_eq!((error.kind(), Cause::of(&error)), (ErrorKind::Stalled, Some(Cause::Stall)), "{error}");
            let message = error.message();
            assert!(message.contains("rank 0 was in `accept` (socket.py:"), "{message}");
            assert!(message.contains("of `meet` (payload.py:5), rank 1 was in `wait` (threading.py:"), "{message}");
            assert!(message.contains("of `elsewhere` (payload.py:8)"), "{message}");
            let ranks: Vec<Rank> = error.stacks().iter().map(|one| one.rank).collect();
            assert_eq!(ranks, [Rank(0), Rank(1)]);
            assert!(
                error.stacks()[1].text.contains("in elsewhere") && error.to_string().contains("in elsewhere"),
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
    let barrier: PendingCompute<u32> = python(
        "import os, time\nimport skyward as sky\n\ndef meet(folder):\n    while not os.path.exists(f'{folder}/go'):\n        time.sleep(0.01)\n\ndef elsewhere(folder):\n    meet(folder)\n\ndef f(folder):\n    rank = sky.instance_info().global_worker_index\n    elsewhere(folder) if rank == 1 else meet(folder)\n    return rank\n",
    )
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
    let report = soon("it is reported", reported(&mut events)).await;
    let PoolEvent::GangStalled { entry, payload, silent, message, stacks, .. } = &*report else { unreachable!() };
    assert!(entry == "f" && payload == "payload.py" && silent.as_secs() == 2, "{report:?}");
    let places = message.strip_prefix("no rank of the gang made progress for 2s: rank 0 was in ").unwrap();
    assert_eq!(places.matches("`meet` (payload.py:").count(), 2, "{message}");
    let ranks: Vec<Rank> = stacks.iter().map(|one| one.rank).collect();
    assert!(ranks == [Rank(0), Rank(1)] && stacks[1].text.contains("in elsewhere"), "{stacks:?}");
    let again = tokio::time::timeout(Duration::from_secs(6), reported(&mut events)).await;
    assert!(again.is_err(), "{again:?}");
    folder.open("go");
    let returned = soon("it returns", running).await.unwrap().unwrap();
    assert_eq!((returned, pool.status().generation.0), (vec![0, 1], 1), "the question has not disturbed it");
    pool.shutdown(Duration::from_secs(20)).await.unwrap();
}

/// The next report of a gang without progress.
async fn reported(events: &mut Events) -> Arc<PoolEvent> {
    loop {
        match events.next().await.unwrap() {
            EventItem::Event(event) if matches!(*event, PoolEvent::GangStalled { .. }) => return event,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_long_computation_that_says_so_is_left_alone() {
    let silent: PendingCompute<bool> = python(
        "import time\nimport skyward as sky\ndef f():\n    end = time.monotonic() + 8\n    while time.monotonic() < end:\n        time.sleep(0.05)\n        if sky.is_head:\n            sky.progress()\n    return True\n",
    )
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
    let many: PendingCompute<Streaming<u32>> = python("def f():\n    yield from range(40)\n").into();
    watched(Duration::from_secs(1))
        .scope(async |pool| {
            let streams = many.broadcast(pool).await?;
            // Both have filled their windows, and wait for their readers: for longer than ranks get
            // to say where they are.
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

/// Waits until a task has printed, and says which.
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

/// Cancels a payload of each sort while it runs and another task waits behind it. That one runs, on the same worker where the first heeds; what was cancelled is told as that.
async fn cancel(text: &'static str, heeds: bool) {
    let stubborn: PendingCompute<()> = python(text).into();
    let behind: PendingCompute<u32> = python("import os\ndef f():\n    return os.getpid()\n").into();
    let mut limits = limits();
    if heeds {
        // However busy this host is.
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
                PoolEvent::TaskFailed { task, error } => panic!("task {task} is told as failed: {error}"),
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
        "import time\ndef f():\n    print('began', flush=True)\n    while True:\n        try:\n            time.sleep(3600)\n        except BaseException:\n            pass\n",
        false,
    )
    .await;
}

#[tokio::test]
async fn a_payload_that_swallows_the_interrupt_and_returns_has_ended() {
    cancel(
        "import time\ndef f():\n    print('began', flush=True)\n    try:\n        time.sleep(3600)\n    except KeyboardInterrupt:\n        return\n",
        true,
    )
    .await;
}

#[tokio::test]
async fn a_payload_that_waits_in_native_code_is_interrupted_where_a_signal_reaches_it() {
    for call in ["pause()", "sleep(3600)"] {
        let text = format!("import ctypes\ndef f():\n    print('began', flush=True)\n    ctypes.CDLL(None).{call}\n");
        cancel(text.leak(), true).await;
    }
}

#[tokio::test]
async fn a_payload_that_blocks_in_native_code_is_killed() {
    // A lock that is taken twice, which no signal gets out of.
    cancel(
        "import ctypes\ndef f():\n    libc = ctypes.CDLL(None)\n    lock = ctypes.create_string_buffer(128)\n    libc.pthread_mutex_init(lock, None)\n    libc.pthread_mutex_lock(lock)\n    print('began', flush=True)\n    libc.pthread_mutex_lock(lock)\n",
        false,
    )
    .await;
    // The same with the interpreter's own lock held: no other thread of the process runs either.
    cancel(
        "import ctypes\ndef f():\n    libc = ctypes.PyDLL(None)\n    lock = ctypes.create_string_buffer(128)\n    libc.pthread_mutex_init(lock, None)\n    libc.pthread_mutex_lock(lock)\n    print('began', flush=True)\n    libc.pthread_mutex_lock(lock)\n",
        false,
    )
    .await;
}
