//! Cut connections: while the worker lives, nothing is lost. Distant workers: they do not wait for
//! their next task.

use std::time::Duration;

use crate::common::{limits, python};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::Streaming;
use skyward::pool::Pool;
use skyward::provider::Local;
use skyward::testkit::cuttable::Cuttable;

#[tokio::test]
async fn a_task_goes_on_while_its_connection_is_cut_and_returns_once() {
    let gate = std::env::temp_dir().join(format!("skyward-gate-{}", std::process::id()));
    let _ = std::fs::remove_file(&gate);
    let wait: PendingCompute<u32> = python(indoc! {"
        import os, time
        calls = 0
        def f(gate):
            global calls
            calls += 1
            end = time.monotonic() + 60
            while not os.path.exists(gate) and time.monotonic() < end:
                time.sleep(0.01)
            return calls
    "})
    .arg("gate", gate.to_str().unwrap().to_owned())
    .into();
    let provider = Cuttable::new(Local::default());
    Pool::builder()
        .provider(provider.clone())
        .limits(limits())
        .scope(async |pool| {
            let mut events = pool.events();
            let cut_and_open = async {
                while let Some(EventItem::Event(event)) = events.next().await {
                    if matches!(*event, PoolEvent::TaskStarted { .. }) {
                        break;
                    }
                }
                assert!(provider.cut() > 0);
                std::fs::write(&gate, "").unwrap();
            };
            let (calls, ()) = tokio::join!(wait.clone().run(pool), cut_and_open);
            assert_eq!(calls?, 1);
            assert_eq!(wait.run(pool).await?, 2, "the first call ran once");
            Ok(())
        })
        .await
        .unwrap();
    std::fs::remove_file(gate).unwrap();
}

#[tokio::test]
async fn a_stream_continues_where_it_was_cut() {
    let count: PendingCompute<Streaming<u64>> = python(indoc! {"
        def f(n):
            yield from range(n)
    "})
    .arg("n", 500)
    .into();
    let provider = Cuttable::new(Local::default());
    Pool::builder()
        .provider(provider.clone())
        .limits(limits())
        .scope(async |pool| {
            let mut stream = count.run(pool).await?;
            for wanted in 0..500 {
                assert_eq!(stream.next().await.transpose()?, Some(wanted));
                if wanted % 200 == 100 {
                    assert!(provider.cut() > 0);
                }
            }
            assert!(stream.next().await.is_none());
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn output_after_a_cut_of_the_agents_connection_arrives_once_and_the_node_stays() {
    let gate = std::env::temp_dir().join(format!("skyward-say-{}", std::process::id()));
    let _ = std::fs::remove_file(&gate);
    let say: PendingCompute<()> = python(indoc! {"
        import os, time
        def f(gate):
            print('before', flush=True)
            while not os.path.exists(gate):
                time.sleep(0.01)
            print('after', flush=True)
    "})
    .arg("gate", gate.to_str().unwrap().to_owned())
    .into();
    let provider = Cuttable::new(Local::default());
    Pool::builder()
        .provider(provider.clone())
        .limits(limits())
        .scope(async |pool| {
            let mut events = pool.events();
            let listen = async {
                let mut text = String::new();
                while let Some(EventItem::Event(event)) = events.next().await {
                    match &*event {
                        PoolEvent::Output(output) => text += &String::from_utf8_lossy(&output.bytes),
                        PoolEvent::NodeLost { error, .. } => panic!("{error}"),
                        _ => {}
                    }
                    if text == "before\n" && !gate.exists() {
                        assert!(provider.cut() >= 2, "the connections to the worker and to the agent");
                        std::fs::write(&gate, "").unwrap();
                    }
                    if text.ends_with("after\n") {
                        break;
                    }
                }
                text
            };
            let listen = tokio::time::timeout(std::time::Duration::from_secs(30), listen);
            let (said, text) = tokio::join!(say.run(pool), listen);
            said?;
            assert_eq!(text.unwrap(), "before\nafter\n");
            Ok(())
        })
        .await
        .unwrap();
    std::fs::remove_file(gate).unwrap();
}

#[tokio::test]
async fn a_distant_worker_has_further_tasks_while_results_are_on_the_way() {
    let nap: PendingCompute<()> = python(indoc! {"
        import time
        def f():
            time.sleep(0.005)
    "})
    .into();
    let provider = Cuttable::new(Local::default()).latency(Duration::from_millis(50));
    Pool::builder()
        .provider(provider)
        .limits(limits())
        .scope(async |pool| {
            let mut calls: FuturesUnordered<_> = (0..60).map(|_| nap.clone().run(pool)).collect();
            let mut most = 0;
            while let Some(called) = calls.next().await {
                called?;
                most = most.max(calls.len() - pool.status().queued);
            }
            // Results that have arrived are counted too until this loop sees them: one, if the only
            // worker had one task at a time.
            assert!(most >= 5, "the worker never had more than {most} tasks");
            Ok(())
        })
        .await
        .unwrap();
}
