use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use tracing::span::{Attributes, Id, Record};

use super::lock;
use crate::event::{EventItem, PoolEvent};
use crate::payload::{Args, RetryPolicy, Source, Target, Task, TaskOptions};
use crate::pool::{ComputePool, Pool};
use crate::testkit::fake_provider::{FakeProvider, Script};
use crate::testkit::fake_worker::{Fate, Work};

/// Asks the pool how it stands, from another thread, whenever it is told something.
#[derive(Debug, Clone, Default)]
struct Curious(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    pool: Mutex<Option<Pool>>,
    answers: AtomicUsize,
    spans: AtomicU64,
    /// What was told while the pool did not answer.
    unanswered: Mutex<Vec<String>>,
}

impl Curious {
    fn ask(&self, what: &str) {
        let Some(pool) = lock(&self.0.pool).clone() else { return };
        if !lock(&self.0.unanswered).is_empty() {
            // One is enough, and each takes its time.
            return;
        }
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = answer.send(pool.status());
        });
        match answered.recv_timeout(DEADLINE) {
            Ok(_) => drop(self.0.answers.fetch_add(1, Ordering::Relaxed)),
            Err(_) => lock(&self.0.unanswered).push(what.to_owned()),
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

/// Each task raises at its first try.
#[derive(Debug)]
struct RaisesOnce;

impl Script for RaisesOnce {}

impl Fate for RaisesOnce {
    fn work(&self, _: &[u8], run: u32) -> Work {
        if run == 1 { Work::Raise(Duration::ZERO) } else { Work::Return(Duration::ZERO) }
    }
}

#[test]
fn the_pool_answers_whoever_is_told_of_a_span_an_event_or_a_number() {
    let curious = Curious::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = metrics::with_local_recorder(&curious, || {
        let _default = tracing::subscriber::set_default(curious.clone());
        runtime.block_on(async {
            let pool = Pool::builder().provider(FakeProvider::new(Arc::new(RaisesOnce))).start().await.unwrap();
            *lock(&curious.0.pool) = Some(pool.clone());
            let mut events = pool.events();
            let source = Arc::new(Source::file("a.py", "def f(): pass", "f"));
            for retry in [RetryPolicy::never().raised(1), RetryPolicy::never()] {
                let args = Args::new().with("of", &format!("{retry:?}")).encode().unwrap();
                let task = Task::new(Arc::clone(&source), args).with_options(TaskOptions::default().retry(retry));
                let _ = pool.submit(task, Target::Any).await.unwrap().outcome().await;
            }
            lock(&curious.0.pool).take();
            pool.shutdown(Duration::from_secs(30)).await.unwrap();
            let mut told = Vec::new();
            while let Some(item) = events.next().await {
                let EventItem::Event(event) = item else { continue };
                told.push(match &*event {
                    PoolEvent::TaskStarted { .. } => "started",
                    PoolEvent::TaskRetried { .. } => "retried",
                    PoolEvent::TaskFinished { .. } => "finished",
                    PoolEvent::TaskFailed { .. } => "failed",
                    _ => continue,
                });
            }
            told
        })
    });
    assert_eq!(*lock(&curious.0.unanswered), Vec::<String>::new());
    assert!(curious.0.answers.load(Ordering::Relaxed) > 20, "{curious:?}");
    assert_eq!(told, ["started", "retried", "started", "finished", "started", "failed"]);
}

/// Well above what a thread takes to start on a busy machine.
const DEADLINE: Duration = Duration::from_secs(5);
