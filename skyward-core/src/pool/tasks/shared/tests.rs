use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Instant;

use futures_util::FutureExt;
use tokio::task::unconstrained;

use super::Shared;
use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind};
use crate::event::{EventItem, Events, PoolEvent};
use crate::ids::NodeIndex;
use crate::payload::{Args, Source, Target, Task, TaskHandle};
use crate::pool::tasks::effect::Effect;
use crate::pool::tasks::replies::tests::{pool, submit};
use crate::scheduler::Eligible;

/// What there is to read now: the numbers of the nodes that are launching, and the end of a task as
/// `None`.
fn read(events: &mut Events) -> Vec<Option<u32>> {
    let mut read = Vec::new();
    while let Some(Some(EventItem::Event(event))) = unconstrained(events.next()).now_or_never() {
        match &*event {
            PoolEvent::NodeLaunching { node } => read.push(Some(node.0)),
            PoolEvent::TaskCancelled { .. } => read.push(None),
            _ => {}
        }
    }
    read
}

fn put_reports(shared: &Shared, count: u32) {
    let launching = |node| Effect::Event(PoolEvent::NodeLaunching { node: NodeIndex(node) });
    (0..count).for_each(|node| shared.outbox.push(launching(node)));
}

async fn submit_many(shared: &Arc<Shared>, count: usize) -> Vec<TaskHandle> {
    let mut handles = Vec::new();
    for _ in 0..count {
        handles.push(submit(shared, false).await);
    }
    handles
}

/// Each task has its outcome now: the pool is closed.
fn all_are_closed(handles: Vec<TaskHandle>) {
    for handle in handles {
        let outcome = unconstrained(handle.outcome()).now_or_never().unwrap();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[tokio::test]
async fn a_dropped_handle_leaves_the_work_of_others_to_the_pools_own_task() {
    let shared = pool();
    let mut handles = submit_many(&shared, 5000).await;
    shared.lock().scheduler.close(Error::new(ErrorKind::Budget, "the money is spent"));
    drop(handles.pop());
    assert!(shared.lock().tasks.numbers().queued > 4000, "{} tasks are left", shared.lock().tasks.numbers().queued);
    // As the task does when it is woken.
    assert!(shared.background.notified().now_or_never().is_some());
    shared.act_in_slices(|_, _| ()).await;
    let outcomes = handles.into_iter().map(|handle| unconstrained(handle.outcome()).now_or_never());
    assert_eq!(outcomes.filter(Option::is_none).count(), 1, "one task runs");
}

#[tokio::test]
async fn a_dropped_handle_delivers_few_reports_of_others_and_all_come_in_order() {
    let shared = pool();
    let (handle, mut events) = (submit(&shared, false).await, shared.events());
    put_reports(&shared, 2000);
    drop(handle);
    let first = read(&mut events);
    assert!(first.len() < 500, "{} reports were delivered", first.len());
    shared.act_in_slices(|_, _| ()).await;
    let all: Vec<_> = first.into_iter().chain(read(&mut events)).collect();
    assert_eq!(all, (0..2000).map(Some).chain([None]).collect::<Vec<_>>());
}

#[tokio::test]
async fn without_a_driver_nothing_is_left_to_its_task() {
    let shared = pool();
    let handles = submit_many(&shared, 1000).await;
    let mut events = shared.events();
    put_reports(&shared, 1000);
    shared.on_driver_lost(Error::new(ErrorKind::Closed, "the driver is lost"));
    all_are_closed(handles);
    assert_eq!(read(&mut events), (0..1000).map(Some).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_left_to_the_pools_own_task_is_done_when_the_pool_has_ended() {
    let shared = pool();
    let handles = submit_many(&shared, 1000).await;
    shared.enter(PoolPhase::Closed);
    // Another thread has done this, and the task that does the rest ends with the driver.
    let error = Error::new(ErrorKind::Closed, "the pool was shut down");
    shared.lock().scheduler.drain(Instant::now(), &error);
    shared.on_driver_ended(Ok(()));
    all_are_closed(handles);
}

/// Counts how often it is woken, and then may panic.
#[derive(Default)]
struct Count {
    woken: AtomicUsize,
    panics: bool,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "not the pool's fault");
    }
}

fn task() -> Task {
    Task::new(Arc::new(Source::file("a.py", "def f(): pass", "f")), Args::new().encode().unwrap())
}

/// Polls each future until it waits, with wakers of which every other one panics.
fn poll_all<F: Future + Unpin>(futures: &mut [F]) -> Vec<Arc<Count>> {
    let mut counts = Vec::new();
    for future in futures {
        let count = Arc::new(Count { panics: counts.len() % 2 == 0, ..Count::default() });
        let waker = Waker::from(Arc::clone(&count));
        assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
        counts.push(count);
    }
    counts
}

fn all_are_woken(counts: &[Arc<Count>]) -> bool {
    counts.iter().all(|count| count.woken.load(Ordering::Relaxed) > 0)
}

/// The pool's world waits for a resize, or does not.
fn hold(shared: &Shared, held: bool) {
    shared.act(|state, _| state.scheduler.follow(Eligible { active: 1, held, ..Eligible::default() }));
}

#[tokio::test]
async fn a_waker_that_panics_keeps_no_broadcast_waiting() {
    let shared = pool();
    hold(&shared, true);
    let mut broadcasts: Vec<_> = (0..4).map(|_| Box::pin(shared.submit_all(task()))).collect();
    let counts = poll_all(&mut broadcasts);
    hold(&shared, false);
    assert!(all_are_woken(&counts));
    for broadcast in broadcasts {
        assert!(broadcast.now_or_never().unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_waker_that_panics_keeps_no_caller_in_the_queue_of_a_pool_that_ends() {
    let shared = pool();
    let _full = Arc::clone(&shared.room).try_acquire_many_owned(shared.room.available_permits() as u32).unwrap();
    let mut callers: Vec<_> = (0..4).map(|_| Box::pin(shared.submit(task(), Target::Any))).collect();
    let counts = poll_all(&mut callers);
    shared.on_driver_lost(Error::new(ErrorKind::Closed, "the driver is lost"));
    assert!(all_are_woken(&counts));
    for caller in callers {
        assert!(caller.now_or_never().unwrap().is_err());
    }
}

#[tokio::test]
async fn a_broadcast_does_not_wait_for_a_world_of_a_pool_that_has_ended() {
    let shared = pool();
    hold(&shared, true);
    let mut broadcast = Box::pin(shared.submit_all(task()));
    assert!(broadcast.as_mut().now_or_never().is_none());
    // The world stays held: its scheduler cannot be changed any more.
    shared.lock().life.lose_driver(&Error::new(ErrorKind::Closed, "a defect"));
    shared.conclude(Ok(()));
    let error = broadcast.now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(error.message(), "a defect");
}
