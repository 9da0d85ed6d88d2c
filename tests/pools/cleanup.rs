//! No process outlives its scope, however the scope ended.

use std::sync::Mutex;

use crate::common::{SLEEP, assert_gone, assert_running, pool, processes_of, python, until};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::{Error, ErrorKind, WorkerExit};
use skyward::event::{EventItem, PoolEvent};
use skyward::ids::{PoolId, Rank};
use skyward::plugin::plugin;

/// Leaves child processes behind, some of them in sessions of their own.
fn children() -> PendingCompute<u32> {
    python(indoc! {"
        import subprocess
        def f():
            for n in range(10):
                subprocess.Popen(['sleep', '3600'], start_new_session=n % 2 == 0)
            return 10
    "})
    .into()
}

#[tokio::test]
async fn after_success_and_after_an_error() {
    for fails in [false, true] {
        let seen = Mutex::new(None);
        let result = pool(2)
            .scope(async |pool| {
                *seen.lock().unwrap() = Some(pool.id().clone());
                children().broadcast(pool).await?;
                // Two agents, two workers, twenty children.
                assert_running(pool.id(), 24).await;
                if fails { Err(Error::new(ErrorKind::NotFound, "the body failed")) } else { Ok(()) }
            })
            .await;
        assert_eq!(result.is_err(), fails);
        let id = seen.into_inner().unwrap().unwrap();
        assert_eq!(processes_of(&id), Vec::<String>::new());
    }
}

#[tokio::test]
async fn after_a_panic() {
    let seen = std::sync::Arc::new(Mutex::new(None));
    let task = tokio::spawn({
        let seen = std::sync::Arc::clone(&seen);
        pool(1).scope(async move |pool| -> skyward::Result<()> {
            *seen.lock().unwrap() = Some(pool.id().clone());
            panic!("the body panics");
        })
    });
    assert!(task.await.unwrap_err().is_panic());
    let id: PoolId = seen.lock().unwrap().clone().unwrap();
    assert_eq!(processes_of(&id), Vec::<String>::new());
}

#[tokio::test]
async fn after_a_hook_that_raises_at_its_end() {
    let first = plugin("first").around_app(indoc! {"
        def around_app(config):
            yield
            print('the first is left too')
    "});
    let broken = plugin("broken").around_app(indoc! {"
        def around_app(config):
            yield
            raise RuntimeError('no way out')
    "});
    let (mut written, mut exits) = (String::new(), Vec::new());
    let builder = pool(2).plugin(first).plugin(broken);
    let (id, mut events) = builder
        .scope(async |pool| {
            children().broadcast(pool).await?;
            Ok((pool.id().clone(), pool.events()))
        })
        .await
        .unwrap();
    assert_eq!(processes_of(&id), Vec::<String>::new());
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { continue };
        match &*event {
            PoolEvent::Output(output) => written.push_str(&String::from_utf8_lossy(&output.bytes)),
            PoolEvent::WorkerExited { rank, exit } => exits.push((*rank, exit.clone())),
            _ => {}
        }
    }
    // The task's result counts; later errors are reported as events.
    exits.sort_by_key(|(rank, _)| *rank);
    assert_eq!(exits, [(Rank(0), WorkerExit::Code(3)), (Rank(1), WorkerExit::Code(3))]);
    assert_eq!(written.matches("the hook of plugin broken failed in phase exit: no way out").count(), 2, "{written}");
    assert!(written.contains("around_app.py\", line 3, in around_app"), "{written}");
    assert_eq!(written.matches("the first is left too").count(), 2, "{written}");
}

#[tokio::test]
async fn after_the_scope_was_dropped() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let scope = pool(2).scope(async move |pool| {
        sender.send(pool.id().clone()).unwrap();
        std::future::pending::<skyward::Result<()>>().await
    });
    let task = tokio::spawn(scope);
    let id = receiver.await.unwrap();
    assert!(!processes_of(&id).is_empty());
    task.abort();
    assert_gone(&id).await;
}

#[tokio::test]
async fn after_the_last_handle_was_dropped() {
    let handle = pool(1).start().await.unwrap();
    let (id, mut events) = (handle.id().clone(), handle.events());
    drop(handle);
    while events.next().await.is_some() {}
    assert_eq!(processes_of(&id), Vec::<String>::new());
}

#[test]
fn after_the_runtime_ended() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let handle = runtime.block_on(pool(1).start()).unwrap();
    let id = handle.id().clone();
    drop(runtime);
    drop(handle);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(assert_gone(&id));
}

#[test]
fn calls_from_another_runtime_end_with_the_pools_runtime() {
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (owner, other) = (build(), build());
    let handle = owner.block_on(pool(1).start()).unwrap();
    let sleepy: PendingCompute<()> = python(SLEEP).into();
    let call = other.spawn({
        let handle = handle.clone();
        async move { sleepy.run(&handle).await }
    });
    other.block_on(until("the task runs", || handle.status().running > 0));
    drop(owner);
    let error = other.block_on(call).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    other.block_on(assert_gone(handle.id()));
}
