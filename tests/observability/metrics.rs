//! The metrics of a pool, which add up.

use indoc::indoc;
use skyward::compute::{ComputePoolExt, PendingCompute};
use skyward::error::ErrorKind;
use skyward::event::{EventItem, PoolEvent};
use skyward::ids::{NodeIndex, Rank};
use skyward::payload::{RetryPolicy, Streaming, Target};
use skyward::pool::Pool;

use super::RAISES;
use super::common;
use super::common::{limits, pool, python, soon, until};
use super::recorder::Recorder;

/// The name of a metric of the provider `local`.
fn of(name: &str, labels: &str) -> String {
    format!("{name}{{provider=local{labels}}}")
}

/// Ends a pool, whose metrics all have a description, and of which nothing is counted after that.
async fn end(pool: Pool, recorder: &Recorder) {
    pool.shutdown(limits().shutdown).await.unwrap();
    drop(pool);
    for level in ["skyward_nodes{", "skyward_workers_ready", "skyward_tasks_queued", "skyward_tasks_running"] {
        assert_eq!(recorder.standing(level), [], "a closed pool counts nothing");
    }
    let described = recorder.described();
    for (name, value) in recorder.standing("skyward_") {
        assert!(described.contains_key(name.split('{').next().unwrap()), "{name} {value}");
    }
}

#[tokio::test]
async fn the_metrics_of_a_start_and_of_calls_add_up() {
    let recorder = Recorder::default();
    let _here = metrics::set_default_local_recorder(&recorder);
    let echo = |n: usize| {
        PendingCompute::<Vec<u8>>::from(
            python(indoc! {"
                def f(x):
                    return bytes(len(x))
            "})
            .arg("x", vec![0_u8; n]),
        )
    };
    let pool = pool(2).start().await.unwrap();
    assert_eq!(recorder.value(&of("skyward_nodes", ",phase=up")), 2.0);
    assert_eq!(recorder.value(&of("skyward_workers_ready", "")), 2.0);
    assert_eq!(recorder.count(&of("skyward_pool_start_seconds", "")), 1);
    for (step, count) in [("launch", 2), ("connect", 2), ("workers", 1)] {
        assert_eq!(recorder.count(&of("skyward_bring_up_seconds", &format!(",step={step}"))), count, "{step}");
    }
    assert!(recorder.count(&of("skyward_bring_up_seconds", ",step=agent")) >= 2);

    pool.map((0..50).map(|_| echo(1000))).await.unwrap();
    let handles = recorder.registered();
    pool.map((0..50).map(|_| echo(1000))).await.unwrap();
    assert_eq!(recorder.registered(), handles, "no call makes a handle");
    assert_eq!(recorder.value(&of("skyward_tasks_total", ",outcome=returned,cause=none")), 100.0);
    for seconds in ["skyward_task_seconds", "skyward_task_queue_seconds", "skyward_task_overhead_seconds"] {
        assert_eq!(recorder.count(&of(seconds, "")), 100, "{seconds}");
        let sum = recorder.value(&of(seconds, ""));
        assert!(sum > 0.0 && sum < 600.0, "{seconds}: {sum}");
    }
    let sent = recorder.value(&of("skyward_sent_bytes_total", ""));
    let received = recorder.value(&of("skyward_received_bytes_total", ""));
    assert!((100_000.0..110_000.0).contains(&sent) && (100_000.0..110_000.0).contains(&received), "{sent} {received}");
    end(pool, &recorder).await;
}

#[tokio::test]
async fn the_metrics_of_tasks_add_up_by_their_outcomes() {
    let recorder = Recorder::default();
    let _here = metrics::set_default_local_recorder(&recorder);
    let broken: PendingCompute<()> = python(RAISES).into();
    let long: PendingCompute<()> = python(indoc! {"
        import time
        def f():
            time.sleep(600)
    "})
    .into();
    let stream: PendingCompute<Streaming<u32>> = python(indoc! {"
        def f():
            yield from range(5)
    "})
    .into();
    let pool = pool(2).start().await.unwrap();

    broken.retry(RetryPolicy::times(2)).run(&pool).await.unwrap_err();
    assert_eq!(recorder.value(&of("skyward_task_retries_total", ",cause=raised")), 2.0);
    assert_eq!(recorder.value(&of("skyward_tasks_total", ",outcome=failed,cause=raised")), 1.0);
    let mut items = stream.run(&pool).await.unwrap();
    while let Some(item) = items.next().await {
        item.unwrap();
    }
    let running = long.clone().run_on(&pool, Target::Rank(Rank(0)));
    let late = long.clone().timeout(std::time::Duration::from_millis(1)).run_on(&pool, Target::Rank(Rank(0)));
    {
        let mut running = Box::pin(running);
        let behind = Box::pin(long.run_on(&pool, Target::Rank(Rank(0))));
        let both = futures_util::future::join(&mut running, behind);
        let seen = until("one task runs and one waits", || {
            recorder.value(&of("skyward_tasks_running", "")) == 1.0
                && recorder.value(&of("skyward_tasks_queued", "")) == 1.0
        });
        tokio::select! {
            _ = both => panic!("both tasks sleep"),
            () = seen => {}
        }
    }
    until("both are cancelled", || recorder.value(&of("skyward_tasks_total", ",outcome=cancelled,cause=none")) == 2.0)
        .await;
    assert_eq!(recorder.standing(&of("skyward_tasks_running", "")), []);
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(recorder.value(&of("skyward_tasks_total", ",outcome=failed,cause=timeout")), 1.0);
    end(pool, &recorder).await;
}

#[tokio::test]
async fn the_metrics_of_losses_add_up() {
    let recorder = Recorder::default();
    let _here = metrics::set_default_local_recorder(&recorder);
    let pool = pool(2).start().await.unwrap();

    // Kills a worker, and then the agent of the other node.
    let status = pool.status();
    let ready = || recorder.value(&of("skyward_workers_ready", ""));
    let mut events = pool.events();
    common::signal("KILL", status.workers[0].pid.unwrap()).await;
    until("the end of the worker is counted", || {
        recorder.value(&of("skyward_worker_exits_total", ",exit=signal")) >= 1.0
    })
    .await;
    until("the worker is started again", || ready() == 2.0).await;
    let agent = std::fs::read_to_string(format!("/proc/{}/stat", status.workers[1].pid.unwrap())).unwrap();
    let agent = agent.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    common::signal("KILL", agent).await;
    soon("the node is replaced", async {
        while let Some(item) = events.next().await {
            if let EventItem::Event(event) = item
                && let PoolEvent::NodeReplaced { node: NodeIndex(1), .. } = &*event
            {
                return;
            }
        }
    })
    .await;
    assert_eq!(
        recorder.value(&of("skyward_nodes_lost_total", ",cause=agent")),
        1.0,
        "{:?}",
        recorder.standing("skyward_nodes")
    );
    assert_eq!(recorder.value(&of("skyward_nodes_replaced_total", "")), 1.0);
    assert_eq!(recorder.value(&of("skyward_nodes", ",phase=up")), 2.0);
    assert_eq!(
        recorder.value(&of("skyward_generations_total", "")),
        1.0,
        "a pool without a world keeps its generation"
    );
    until("leases are renewed", || recorder.value(&of("skyward_lease_renewals_total", "")) >= 2.0).await;
    assert_eq!(recorder.value(&of("skyward_lease_silences_total", "")), 0.0);
    end(pool, &recorder).await;
}
