//! `sky.report`, with real Python: each report of a running payload reaches its caller once.

use std::time::Duration;

use indoc::indoc;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::common::scene::Folder;
use crate::common::{pool, soon};
use skyward::compute::PendingCompute;
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::{Output, Payload, RetryPolicy};
use skyward::plugin::plugin;

const SOURCE: &str = include_str!("../payloads/reports.py");

#[derive(Debug, Deserialize, PartialEq)]
struct Epoch {
    rank: i64,
    epoch: u32,
}

fn reporting<T: Output>(
    entry: &'static str,
    name: &'static str,
    value: impl Serialize + Send + Sync + 'static,
) -> PendingCompute<T> {
    Payload::python("reports.py", SOURCE, entry).arg(name, value).into()
}

#[tokio::test]
async fn the_reports_of_all_ranks_arrive_in_order_in_one_stream_that_ends_with_the_call() {
    pool(2)
        .workers_per_node(2)
        .scope(async |pool| {
            let (call, mut reports) = reporting::<u32>("epochs", "count", 1000).reports::<Epoch>();
            let read = async {
                let mut epochs = [0; 4];
                while let Some(report) = reports.next().await {
                    let report = report?;
                    let rank = report.rank.0 as usize;
                    assert_eq!(report.value, Epoch { rank: rank as i64, epoch: epochs[rank] });
                    assert_eq!(report.node.0, report.rank.0 / 2);
                    assert_eq!(report.attempt.0, 1);
                    epochs[rank] += 1;
                }
                Ok(epochs)
            };
            let both = async { tokio::try_join!(call.broadcast(pool), read) };
            let (returned, epochs) = soon("the reports of a broadcast", both).await?;
            assert_eq!(returned, vec![1000; 4]);
            assert_eq!(epochs, [1000; 4]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn reports_of_nested_calls_reach_the_caller_in_rust() {
    pool(1)
        .workers_per_node(2)
        .scope(async |pool| {
            let (call, mut reports) = reporting::<u32>("nested", "count", 20).reports::<Epoch>();
            assert_eq!(soon("the calls", call.run(pool)).await?, 190);
            let mut numbers = Vec::new();
            while let Some(report) = soon("a report", reports.next()).await {
                numbers.push(report?.value.epoch);
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..20).collect::<Vec<_>>());
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn reports_of_a_lost_try_are_kept_and_the_next_try_reports_again() {
    let folder = Folder::new();
    pool(1)
        .scope(async |pool| {
            let call = reporting::<String>("dies_once", "marker", folder.gate("died"));
            let (call, mut reports) = call.retry(RetryPolicy::default().crash(1)).reports::<String>();
            assert_eq!(soon("the call", call.run(pool)).await?, "end");
            let mut told = Vec::new();
            while let Some(report) = soon("a report", reports.next()).await {
                let report = report?;
                told.push((report.attempt.0, report.value));
            }
            assert_eq!(told, [(1, "began".to_owned()), (2, "began".to_owned()), (2, "went on".to_owned())]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_payload_waits_for_the_reader_of_its_reports_and_goes_on_when_it_is_dropped() {
    for reads in [true, false] {
        pool(1)
            .scope(async |pool| {
                // 96 MiB: more than may be unread or under way.
                let call = Payload::python("reports.py", SOURCE, "flood").arg("count", 96).arg("size", 1 << 20);
                let (call, mut reports) = PendingCompute::<f64>::from(call).reports::<serde::de::IgnoredAny>();
                let late = async {
                    sleep(Duration::from_secs(2)).await;
                    let mut count = 0;
                    while reads && reports.next().await.transpose()?.is_some() {
                        count += 1;
                    }
                    drop(reports);
                    Ok(count)
                };
                let both = async { tokio::try_join!(call.run(pool), late) };
                let (took, count) = soon("a flood of reports", both).await?;
                assert!(took > 1.0, "the payload did not wait: {took} s");
                assert_eq!(count, if reads { 96 } else { 0 });
                Ok(())
            })
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn reports_are_events_of_the_pool_including_those_of_hooks() {
    let around = indoc! {"
        import skyward as sky


        def around_task(config):
            sky.report({'rank': -2, 'epoch': 7})
            yield
    "};
    pool(1)
        .plugin(plugin("reporter").around_task(around))
        .scope(async |pool| {
            let mut events = pool.events();
            let task = reporting::<u32>("epochs", "count", 2).run(pool);
            assert_eq!(soon("the call", task).await?, 2);
            let mut epochs = Vec::new();
            while epochs.len() < 3 {
                if let Some(EventItem::Event(event)) = soon("a report", events.next()).await
                    && let PoolEvent::Report(report) = &*event
                {
                    assert!(report.task.is_some());
                    epochs.push(report.decode::<Epoch>()?.value.epoch);
                }
            }
            assert_eq!(epochs, [7, 0, 1]);
            Ok(())
        })
        .await
        .unwrap();
}
