//! Slow readers, in a pool with real Python: nothing else waits for them, and the data that waits
//! for them is bounded.

use std::time::Duration;

use crate::common::{pool, python};
use bytes::Bytes;
use futures_util::StreamExt;
use indoc::indoc;
use skyward::compute::ComputePoolExt;
use skyward::compute::PendingCompute;
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::{Streaming, Target};

#[tokio::test]
async fn a_slow_reader_of_a_stream_slows_nothing_else_down() {
    let counter: PendingCompute<Streaming<u64>> = python(indoc! {"
        def f(n):
            yield from range(n)
    "})
    .arg("n", 500_u64)
    .into();
    let other: PendingCompute<u64> = python(indoc! {"
        def f(n):
            return n
    "})
    .arg("n", 7)
    .into();
    pool(2)
        .scope(async |pool| {
            let mut stream = counter.run_on(pool, Target::Head).await?;
            assert_eq!(stream.next().await.transpose()?, Some(0));
            // The generator has no more credit, while its reader does something else.
            let all = pool.map((0..2000).map(|_| other.clone())).await?;
            assert_eq!(all, vec![7; 2000]);
            assert_eq!(stream.collect().await?, (1..500).collect::<Vec<_>>());
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_of_large_results_passes_a_slow_reader_with_bounded_memory() {
    let large: PendingCompute<Bytes> = python(indoc! {"
        def f():
            return bytes(64 << 20)
    "})
    .into();
    let handle = pool(2).start().await.unwrap();
    let mut events = handle.events();
    let before = resident_mib();
    let mut results = handle.map_unordered((0..16).map(|_| large.clone()));
    let (mut read, mut most) = (0, 0);
    let mut finished = 0;
    while let Some((_, result)) = results.next().await {
        assert_eq!(result.unwrap().len(), 64 << 20);
        read += 1;
        // The reader does something else until all workers are idle.
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        while handle.status().running > 0 || handle.status().queued > 0 {
            assert!(tokio::time::Instant::now() < end, "the workers do not become idle");
            tokio::task::yield_now().await;
        }
        while let Some(Some(item)) = futures_util::FutureExt::now_or_never(events.next()) {
            let EventItem::Event(event) = item else { panic!("an event was missed") };
            finished += usize::from(matches!(*event, PoolEvent::TaskFinished { .. }));
        }
        assert!(finished - read <= 4, "{finished} results came, and {read} were read");
        most = most.max(resident_mib());
    }
    assert_eq!(read, 16);
    handle.shutdown(Duration::from_secs(30)).await.unwrap();
    assert!(most < before + 640, "a gibibyte of results raised the memory from {before} to {most} MiB");
}

/// The resident memory of this process, in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() >> 10
}
