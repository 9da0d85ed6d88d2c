//! The relation of a pool to the runtime of the program that embeds it.

use std::sync::mpsc;

use skyward_core::event::{EventItem, PoolEvent};
use skyward_core::pool::Pool;
use skyward_core::spec::{Image, Limits};
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::runtime::Builder;
use tokio::time::{advance, sleep};

use super::freeze::freeze;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_runtime_that_was_blocked_is_reported_with_how_late_it_was() {
    let provider = FakeProvider::new(Machines::default());
    let mut limits = Limits::default();
    limits.lease = Duration::from_secs(60);
    let pool = Pool::builder().provider(provider).nodes(2).limits(limits).start().await.unwrap();
    let mut events = pool.events();
    // A runtime that only waits is never late.
    sleep(Duration::from_secs(600)).await;
    // The clock advances here while nothing else runs.
    advance(Duration::from_secs(10)).await;
    sleep(Duration::from_secs(600)).await;
    advance(Duration::from_secs(40)).await;
    sleep(Duration::from_secs(600)).await;
    pool.shutdown(Duration::from_secs(5)).await.unwrap();
    let mut reported = Vec::new();
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item
            && let PoolEvent::RuntimeBlocked { late, lease } = *event
        {
            reported.push((late, lease));
        }
    }
    let [(late, lease)] = reported[..] else { panic!("{reported:?}") };
    assert_eq!(lease, Duration::from_secs(60));
    // The pool sees up to a sixteenth of the lease less than the real delay.
    assert!(late > Duration::from_secs(36) && late <= Duration::from_secs(40), "{late:?}");
}

#[test]
fn a_frozen_runtime_stops_and_then_continues() {
    const THREADS: usize = 2;
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
    let (done, rounds) = mpsc::channel();
    let frozen = std::thread::spawn(move || {
        for round in 0..400 {
            // The runtime's own timers are about to fire, or have fired, at the moment at which it
            // freezes.
            let after = Duration::from_micros(1_000 + round * 10);
            let time = Duration::from_millis(if round == 0 { 50 } else { 1 });
            let (ticks, ticked) = mpsc::channel();
            let ticking = runtime.spawn(async move {
                while ticks.send(std::time::Instant::now()).is_ok() {
                    sleep(Duration::from_millis(1)).await;
                }
            });
            freeze(runtime.handle().clone(), THREADS, after, time).join().unwrap();
            let end = std::time::Instant::now();
            let (mut longest, mut last) = (Duration::ZERO, ticked.recv().unwrap());
            while last < end {
                let next = ticked.recv().unwrap();
                longest = longest.max(next - last);
                last = next;
            }
            assert!(longest >= time, "round {round}: the runtime went on, the longest pause was {longest:?}");
            drop(ticked);
            runtime.block_on(ticking).unwrap();
            done.send(round).unwrap();
        }
    });
    let mut last = None;
    loop {
        match rounds.recv_timeout(Duration::from_secs(10)) {
            Ok(round) => last = Some(round),
            Err(mpsc::RecvTimeoutError::Disconnected) => return frozen.join().unwrap(),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the runtime does not go on after round {last:?}"),
        }
    }
}

#[test]
fn the_files_of_an_image_are_read_on_a_blocking_thread() {
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (go_on, wait) = mpsc::channel::<()>();
        // The only blocking thread is busy.
        let taken = tokio::task::spawn_blocking(move || wait.recv());
        let provider = FakeProvider::new(Machines::default());
        let image = Image::new().file(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lifetime/runtime.rs"), "runtime.rs");
        let start = tokio::spawn(Pool::builder().provider(provider.clone()).image(image).start());
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(provider.launched(), 0, "the file was read on a thread that other tasks need");
        drop(go_on);
        taken.await.unwrap().unwrap_err();
        let pool = start.await.unwrap().unwrap();
        assert_eq!(provider.launched(), 1);
        pool.shutdown(Duration::from_secs(5)).await.unwrap();
    });
}
