//! The spans of a pool, and the traces that its payloads see.

use skyward::compute::PendingCompute;
use skyward::payload::{RetryPolicy, Target, TraceContext};
use skyward::spec::Image;

use super::common::{pool, python, until};
use super::traces::Traces;
use super::{RAISES, traces};

/// Returns the trace that a payload sees, and checks that a child process sees the same.
const SEES_TRACE: &str = r"
import os
import subprocess
import sys

import skyward as sky


def f():
    program = 'import os; print(os.environ.get(\'TRACEPARENT\', \'\'), end=\'\')'
    child = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True).stdout
    context = sky.trace_context()
    assert os.environ.get('TRACEPARENT', '') == context.get('traceparent', '') == child
    return [context.get('traceparent', ''), context.get('tracestate', '')]
";

/// A `traceparent` of this span.
fn trace_of(span: u64) -> String {
    format!("00-0af7651916cd43dd8448eb211c80319c-{span:016x}-01")
}

#[tokio::test]
async fn python_sees_the_trace_of_each_call() {
    let traces = traces();
    let call = || PendingCompute::<[String; 2]>::from(python(SEES_TRACE));
    let own = TraceContext::new(trace_of(7)).unwrap().with_state("vendor=1").unwrap();
    let source = || {
        let context = TraceContext::new(trace_of(Traces::current()?)).ok()?;
        context.with_state("tests=1").ok()
    };
    let builder = pool(2).trace_context(source);
    let caller = tracing::info_span!(target: "skyward::tests", "caller");
    let caller_id = caller.id().unwrap().into_u64();
    let id = builder
        .scope(async |pool| {
            let said = call().trace(own.clone()).run_on(pool, Target::Head).await?;
            assert_eq!(said, [trace_of(7), "vendor=1".to_owned()], "the call's own trace comes first");
            let all = call().trace(own.clone()).broadcast(pool).await?;
            assert_eq!(all, [said.clone(), said]);

            use tracing::Instrument as _;
            let all = call().broadcast(pool).instrument(caller).await?;
            let tasks: Vec<_> =
                traces.spans("task").into_iter().filter(|task| task.parent == Some(caller_id)).collect();
            assert_eq!(tasks.len(), 2, "a span for each rank, below the caller's");
            for (rank, task) in tasks.iter().enumerate() {
                assert_eq!(all[rank], [trace_of(task.id), "tests=1".to_owned()]);
                assert_eq!(task.field("rank"), rank.to_string().as_str());
                assert_eq!(task.field("outcome"), "returned");
                assert_eq!(task.target(), "skyward::task");
                assert!(task.closed);
                task.field("queued_us").parse::<u64>().unwrap();
                let tries: Vec<_> =
                    traces.spans("attempt").into_iter().filter(|one| one.parent == Some(task.id)).collect();
                assert_eq!(tries.len(), 1);
                assert!(tries[0].closed);
                assert_eq!(tries[0].field("attempt"), "1");
                // A child process was started in the meantime.
                assert!(tries[0].field("ran_us").parse::<u64>().unwrap() > 100);
            }
            Ok(pool.id().clone())
        })
        .await
        .unwrap();

    let of_pool = |name| {
        traces.spans(name).into_iter().filter(|span| span.fields.get("pool").is_some_and(|of| of == id.as_str()))
    };
    let spans: Vec<_> = of_pool("pool").collect();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(span.field("provider"), "local");
    until("the pool's span has ended with it", || of_pool("pool").all(|span| span.closed)).await;
    let below = |name, parent| {
        traces.spans(name).into_iter().filter(move |span| span.parent == Some(parent)).collect::<Vec<_>>()
    };
    let nodes = below("node", span.id);
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert!(node.closed && node.field("machine").contains(id.as_str()), "{node:?}");
        let steps = below("step", node.id);
        let names: Vec<_> = steps.iter().map(|step| step.field("step")).collect();
        assert!(steps.iter().all(|step| step.closed) && names.starts_with(&["launch", "wait", "connect"]), "{steps:?}");
        assert!(names.contains(&"agent"), "{names:?}");
    }
    let workers = below("workers", span.id);
    assert_eq!(workers.len(), 1);
    assert!(workers[0].closed);
    assert_eq!(workers[0].field("generation"), "1");
}

#[tokio::test]
async fn a_task_without_a_trace_sees_that_of_its_workers_environment() {
    let call = || PendingCompute::<[String; 2]>::from(python(SEES_TRACE));
    let image = Image::new().env("TRACEPARENT", trace_of(1));
    pool(1)
        .image(image)
        .scope(async |pool| {
            let outside = [trace_of(1), String::new()];
            assert_eq!(call().run(pool).await?, outside);
            let own = TraceContext::new(trace_of(2))?;
            assert_eq!(call().trace(own).run(pool).await?[0], trace_of(2));
            assert_eq!(call().run(pool).await?, outside, "the trace of one task is not visible to the next");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn failed_tasks_and_steps_are_marked() {
    let traces = traces();
    let broken: PendingCompute<()> = python(RAISES).into();
    let id = pool(1)
        .scope(async |pool| {
            broken.retry(RetryPolicy::times(1)).run(pool).await.unwrap_err();
            Ok(pool.id().clone())
        })
        .await
        .unwrap();
    let tasks = traces.spans("task");
    let task = tasks.iter().find(|task| task.field("pool") == id.as_str()).unwrap();
    assert_eq!(task.field("outcome"), "failed");
    assert_eq!(task.field("otel.status_code"), "ERROR");
    assert_eq!(task.field("attempts"), "2");
    let tries = traces.spans("attempt").into_iter().filter(|one| one.parent == Some(task.id)).count();
    assert_eq!(tries, 2);

    let image = Image::new().python("/no/such/python");
    let error = pool(1).image(image).start().await.unwrap_err();
    let step = format!("{error:#}");
    let failed: Vec<_> =
        traces.spans("step").into_iter().filter(|step| step.fields.contains_key("otel.status_code")).collect();
    assert!(
        failed.iter().any(|failed| failed.closed && step.contains(&format!("step: {}", failed.field("step")))),
        "{step}: {failed:?}"
    );
}
