#![expect(clippy::unwrap_used, clippy::panic, reason = "a poisoned lock fails the test, and panics are tested")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use tracing::span::{Attributes, Id, Record};

use crate::compute::ComputePool;
use crate::error::{Error, ErrorKind};
use crate::event::{EventItem, PoolEvent};
use crate::ids::Rank;
use crate::payload::{Args, RetryPolicy, Source, Target, Task, TaskOptions};
use crate::pool::Pool;
use crate::testkit::fake_provider::FakeProvider;
use crate::testkit::fake_worker::Work;
use crate::testkit::script::{Answer, Rule, Script};

/// Queries the status of the pool, from another thread, whenever it is called.
#[derive(Debug, Clone, Default)]
struct Curious(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    pool: Mutex<Option<Pool>>,
    answers: AtomicUsize,
    spans: AtomicU64,
    /// The calls during which the pool did not answer.
    unanswered: Mutex<Vec<String>>,
    /// What panics.
    panics: Mutex<&'static str>,
    panicked: AtomicUsize,
}

impl Curious {
    fn ask(&self, what: &str) {
        if *self.0.panics.lock().unwrap() == what {
            self.0.panicked.fetch_add(1, Ordering::Relaxed);
            panic!("not the pool's fault: {what}");
        }
        let Some(pool) = self.0.pool.lock().unwrap().clone() else { return };
        if !self.0.unanswered.lock().unwrap().is_empty() {
            // One missing answer is enough, and each takes long.
            return;
        }
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = answer.send(pool.status());
        });
        match answered.recv_timeout(THREAD_START) {
            Ok(_) => drop(self.0.answers.fetch_add(1, Ordering::Relaxed)),
            Err(_) => self.0.unanswered.lock().unwrap().push(what.to_owned()),
        }
    }
}

impl tracing::Subscriber for Curious {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("skyward")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        self.ask(attributes.metadata().name());
        Id::from_u64(self.0.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.ask("record");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        self.ask(event.metadata().name());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        self.ask("close");
        true
    }
}

impl CounterFn for Curious {
    fn increment(&self, _: u64) {
        self.ask("counter");
    }

    fn absolute(&self, _: u64) {
        self.ask("counter");
    }
}

impl GaugeFn for Curious {
    fn increment(&self, _: f64) {
        self.ask("gauge");
    }

    fn decrement(&self, _: f64) {
        self.ask("gauge");
    }

    fn set(&self, _: f64) {
        self.ask("gauge");
    }
}

impl HistogramFn for Curious {
    fn record(&self, _: f64) {
        self.ask("histogram");
    }
}

impl metrics::Recorder for Curious {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(self.clone()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.clone()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(self.clone()))
    }
}

/// A provider on which each task raises an exception at its first try.
fn raising_once() -> FakeProvider {
    FakeProvider::new(Script::new().rule(Rule::all().answer(|task| {
        Answer::does(if task.start() == 1 { Work::Raise(Duration::ZERO) } else { Work::Return(Duration::ZERO) })
    })))
}

#[test]
fn the_pool_answers_while_subscribers_and_recorders_run() {
    let curious = Curious::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seen = metrics::with_local_recorder(&curious, || {
        let _default = tracing::subscriber::set_default(curious.clone());
        runtime.block_on(async {
            let pool = Pool::builder().provider(raising_once()).start().await.unwrap();
            *curious.0.pool.lock().unwrap() = Some(pool.clone());
            let mut events = pool.events();
            let source = Arc::new(Source::file("a.py", "def f(): pass", "f"));
            for retry in [RetryPolicy::never().raised(1), RetryPolicy::never()] {
                let args = Args::new().with("of", &format!("{retry:?}")).encode().unwrap();
                let task = Task::new(Arc::clone(&source), args).with_options(TaskOptions::default().retry(retry));
                let _ = pool.submit(task, Target::Any).await.unwrap().outcome().await;
            }
            // Tasks that the pool refuses have spans, too.
            let task = || Task::new(Arc::clone(&source), Args::new().encode().unwrap());
            pool.submit(task(), Target::Rank(Rank(9))).await.unwrap_err();
            pool.end_tasks(&Error::new(ErrorKind::Closed, "it is over"));
            pool.submit(task(), Target::Any).await.unwrap_err();
            pool.submit_all(task()).await.unwrap_err();
            curious.0.pool.lock().unwrap().take();
            pool.shutdown(Duration::from_secs(30)).await.unwrap();
            let mut seen = Vec::new();
            while let Some(item) = events.next().await {
                let EventItem::Event(event) = item else { continue };
                seen.push(match &*event {
                    PoolEvent::TaskStarted { .. } => "started",
                    PoolEvent::TaskRetried { .. } => "retried",
                    PoolEvent::TaskFinished { .. } => "finished",
                    PoolEvent::TaskFailed { .. } => "failed",
                    _ => continue,
                });
            }
            seen
        })
    });
    assert_eq!(*curious.0.unanswered.lock().unwrap(), Vec::<String>::new());
    assert!(curious.0.answers.load(Ordering::Relaxed) > 20, "{curious:?}");
    assert_eq!(seen, ["started", "retried", "started", "finished", "started", "failed"]);
}

#[test]
fn a_panic_in_a_subscriber_or_a_recorder_costs_no_outcome_and_no_connection() {
    for what in ["counter", "gauge", "histogram", "record", "close", "attempt"] {
        let curious = Curious::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        metrics::with_local_recorder(&curious, || {
            let _default = tracing::subscriber::set_default(curious.clone());
            runtime.block_on(async {
                let pool = Pool::builder().provider(raising_once()).start().await.unwrap();
                let source = Arc::new(Source::file("a.py", "def f(): pass", "f"));
                let task = |number: u32, retry: RetryPolicy| {
                    let args = Args::new().with("of", &number).encode().unwrap();
                    Task::new(Arc::clone(&source), args).with_options(TaskOptions::default().retry(retry))
                };
                *curious.0.panics.lock().unwrap() = what;
                for round in 0..3 {
                    let mut handles = Vec::new();
                    for number in 0..20 {
                        let retry = RetryPolicy::never().raised(number % 2);
                        let task = task(100 * round + number, retry);
                        handles.push(pool.submit(task, Target::Any).await.unwrap());
                    }
                    for (number, handle) in handles.into_iter().enumerate() {
                        let outcome = tokio::time::timeout(THREAD_START, handle.outcome()).await.unwrap();
                        let kind = outcome.err().map(|error| error.kind());
                        assert_eq!(kind, (number % 2 == 0).then_some(ErrorKind::Raised), "{what}, {round}: {number}");
                    }
                }
                *curious.0.panics.lock().unwrap() = "";
                assert!(curious.0.panicked.load(Ordering::Relaxed) > 0, "{what}");
                assert!(pool.status().failure.is_none());
                pool.shutdown(Duration::from_secs(30)).await.unwrap();
            });
        });
    }
}

/// Well above the time that a thread takes to start on a busy machine.
const THREAD_START: Duration = Duration::from_secs(5);
