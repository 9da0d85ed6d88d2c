//! A subscriber that keeps everything that is traced, as text, and the spans with their fields.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Everything that was traced. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traces(Arc<Kept>);

#[derive(Debug, Default)]
struct Kept {
    next: AtomicU64,
    spans: Mutex<BTreeMap<u64, Span>>,
    text: Mutex<String>,
}

/// A span with all its recorded fields.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) id: u64,
    pub(crate) name: &'static str,
    metadata: &'static Metadata<'static>,
    pub(crate) parent: Option<u64>,
    pub(crate) fields: BTreeMap<&'static str, String>,
    pub(crate) closed: bool,
    /// The number of handles to the span.
    count: usize,
}

thread_local! {
    static CURRENT: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Traces {
    /// Receives everything that this program traces from now on.
    pub(crate) fn of_program() -> Self {
        let traces = Self::default();
        tracing::subscriber::set_global_default(traces.clone()).unwrap();
        traces
    }

    /// All fields of all spans and events.
    pub(crate) fn text(&self) -> String {
        self.0.text.lock().unwrap().clone()
    }

    pub(crate) fn spans(&self, name: &str) -> Vec<Span> {
        self.all().values().filter(|span| span.name == name).cloned().collect()
    }

    /// The id of the current span.
    pub(crate) fn current() -> Option<u64> {
        CURRENT.with_borrow(|stack| stack.last().copied())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Span>> {
        self.0.spans.lock().unwrap()
    }

    fn keep(&self, fields: &BTreeMap<&'static str, String>) {
        use fmt::Write as _;
        writeln!(self.0.text.lock().unwrap(), "{fields:?}").unwrap();
    }
}

impl Span {
    pub(crate) fn target(&self) -> &'static str {
        self.metadata.target()
    }

    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no `{name}` in {self:?}"))
    }
}

impl Subscriber for Traces {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("skyward")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        self.keep(&fields.0);
        let parent = match attributes.is_contextual() {
            true => Self::current(),
            false => attributes.parent().map(Id::into_u64),
        };
        let metadata = attributes.metadata();
        let span = Span { id, name: metadata.name(), metadata, parent, fields: fields.0, closed: false, count: 1 };
        self.all().insert(id, span);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.keep(&fields.0);
        self.all().get_mut(&span.into_u64()).unwrap().fields.append(&mut fields.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.keep(&fields.0);
    }

    fn enter(&self, span: &Id) {
        CURRENT.with_borrow_mut(|stack| stack.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        CURRENT.with_borrow_mut(|stack| {
            if let Some(place) = stack.iter().rposition(|entered| *entered == span.into_u64()) {
                stack.remove(place);
            }
        });
    }

    fn current_span(&self) -> tracing_core::span::Current {
        let Some(id) = Self::current() else { return tracing_core::span::Current::none() };
        tracing_core::span::Current::new(Id::from_u64(id), self.all()[&id].metadata)
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.all().get_mut(&span.into_u64()).unwrap().count += 1;
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut spans = self.all();
        let span = spans.get_mut(&span.into_u64()).unwrap();
        span.count -= 1;
        span.closed = span.count == 0;
        span.closed
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}
