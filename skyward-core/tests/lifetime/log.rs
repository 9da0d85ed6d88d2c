//! What a service sees of a pool in its log, at level WARN and without any span.

use skyward_core::event::EventItem;
use skyward_core::payload::{RetryPolicy, TaskOptions};
use skyward_core::pool::Pool;
use skyward_core::spec::Nodes;
use skyward_core::testkit::fake_provider::FakeProvider;
use tokio::time::timeout;
use tracing::Level;

use super::lines::Lines;
use super::*;

/// The lines about a pool until it has ended.
async fn lines(script: Script, nodes: Nodes, submits: u32) -> Vec<String> {
    let log = Lines::of(Level::WARN);
    let _current = tracing::subscriber::set_default(log.clone());
    let provider = FakeProvider::new(script);
    let builder = Pool::builder().provider(provider).nodes(nodes);
    let builder = builder.tasks(TaskOptions::default().retry(RetryPolicy::default().crash(1)));
    let pool = builder.start().await.unwrap();
    let mut events = pool.events();
    for _ in 0..submits {
        let _ = timeout(Duration::from_secs(600), echo(1).run(&pool)).await;
    }
    let id = pool.id().to_string();
    if submits == 0 {
        while let Some(item) = timeout(Duration::from_secs(36_000), events.next()).await.unwrap() {
            assert!(matches!(item, EventItem::Event(_)));
        }
    }
    pool.shutdown(Duration::from_secs(60)).await.unwrap();
    let lines = log.said();
    for line in &lines {
        assert!(line.contains(&format!("pool={id}")), "{line} does not name its pool");
    }
    lines
}

fn has(lines: &[String], level: &str, text: &str, field: &str) -> bool {
    lines.iter().any(|line| line.starts_with(level) && line.contains(text) && line.contains(field))
}

#[tokio::test(start_paused = true)]
async fn losses_and_the_failure_of_a_pool_are_in_the_log() {
    let machines = Machines { dies_after: Some(Duration::from_secs(60)), ..Machines::default() };
    let lines = lines(machines.into(), Nodes::fixed(2), 0).await;
    assert!(has(&lines, "WARN", "node 1 is lost", " node=1"), "{lines:#?}");
    assert!(has(&lines, "ERROR", "the pool has failed, and ends", "pool="), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn exits_and_retries_are_in_the_log() {
    let exits = Rule::all().answer(|_| Answer::exits(7));
    let lines = lines(Script::new().rule(exits), Nodes::fixed(1), 1).await;
    assert!(has(&lines, "WARN", "the worker of rank 0 exited with code 7", " rank=0"), "{lines:#?}");
    assert!(has(&lines, "WARN", "task 1 is retried (attempt 2)", " task=1"), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_pool_that_works_is_empty() {
    let lines = lines(Machines::default().into(), Nodes::fixed(2), 3).await;
    assert_eq!(lines, Vec::<String>::new());
}
