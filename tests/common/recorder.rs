//! A recorder that keeps the values of metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

/// The values by name and labels: `name{label=value,…}`, with the labels in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    values: BTreeMap<String, f64>,
    /// How many values each histogram received.
    counts: BTreeMap<String, usize>,
    described: BTreeMap<String, Unit>,
    registered: usize,
}

struct Handle(Recorder, String);

impl Recorder {
    /// The value of a counter or gauge, or the sum of a histogram; 0 when nothing was recorded.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.0.lock().unwrap().values.get(name).copied().unwrap_or_default()
    }

    /// How many values a histogram received.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap().counts.get(name).copied().unwrap_or_default()
    }

    /// The metrics whose name begins with this prefix and whose value is not 0.
    pub(crate) fn standing(&self, prefix: &str) -> Vec<(String, f64)> {
        let kept = self.0.lock().unwrap();
        let found = kept.values.iter().filter(|(name, value)| name.starts_with(prefix) && **value != 0.0);
        found.map(|(name, value)| (name.clone(), *value)).collect()
    }

    pub(crate) fn described(&self) -> BTreeMap<String, Unit> {
        self.0.lock().unwrap().described.clone()
    }

    /// How often a handle was registered.
    pub(crate) fn registered(&self) -> usize {
        self.0.lock().unwrap().registered
    }

    fn describe(&self, key: KeyName, unit: Option<Unit>) {
        self.0.lock().unwrap().described.insert(key.as_str().to_owned(), unit.unwrap());
    }

    fn handle(&self, key: &Key) -> Arc<Handle> {
        self.0.lock().unwrap().registered += 1;
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Handle(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Handle {
    fn add(&self, more: f64) {
        *self.0.0.lock().unwrap().values.entry(self.1.clone()).or_default() += more;
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

impl CounterFn for Handle {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        panic!("{}: set to {value}", self.1);
    }
}

impl GaugeFn for Handle {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        panic!("{}: several pools may share it, and one set it to {value}", self.1);
    }
}

impl HistogramFn for Handle {
    fn record(&self, value: f64) {
        self.add(value);
        *self.0.0.lock().unwrap().counts.entry(self.1.clone()).or_default() += 1;
    }
}
