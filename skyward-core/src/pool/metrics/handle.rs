//! The handles through which metrics are recorded, made once per pool: those of the crate
//! `metrics`, or without the feature types that do nothing.

use std::sync::atomic::{AtomicI64, Ordering};

#[cfg(not(feature = "metrics"))]
pub(super) use none::{Counter, Gauge, Histogram};
#[cfg(feature = "metrics")]
pub(super) use with::{Counter, Gauge, Histogram};

use super::table::Metric;

/// A gauge to which one pool contributes: the gauge is the sum over all pools of the process, and a
/// pool that ends takes its contribution back.
#[derive(Debug)]
pub(super) struct Level {
    gauge: Gauge,
    recorded: AtomicI64,
}

/// A label's name and value.
pub(super) type Label<'a> = (&'static str, &'a str);

impl Level {
    pub(super) fn new(metric: &Metric, labels: &[Label<'_>]) -> Self {
        Self { gauge: gauge(metric, labels), recorded: AtomicI64::new(0) }
    }

    pub(super) fn set(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let before = self.recorded.swap(count, Ordering::Relaxed);
        match count - before {
            0 => {}
            more if more > 0 => self.gauge.increment(more as f64),
            less => self.gauge.decrement(-less as f64),
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(feature = "metrics")]
pub(super) use with::{counter, describe, histogram};

#[cfg(feature = "metrics")]
use with::gauge;

#[cfg(feature = "metrics")]
mod with {
    use metrics::{Key, Level, Metadata, with_recorder};

    use super::Label;
    use crate::pool::foreign::foreign;
    use crate::pool::metrics::table::{ALL, Kind, Metric, Unit};

    #[derive(Debug)]
    pub(in super::super) struct Counter(metrics::Counter);
    #[derive(Debug)]
    pub(in super::super) struct Gauge(metrics::Gauge);
    #[derive(Debug)]
    pub(in super::super) struct Histogram(metrics::Histogram);

    impl Counter {
        pub(in super::super) fn increment(&self, by: u64) {
            foreign(|| self.0.increment(by));
        }
    }

    impl Gauge {
        pub(in super::super) fn increment(&self, by: f64) {
            foreign(|| self.0.increment(by));
        }

        pub(in super::super) fn decrement(&self, by: f64) {
            foreign(|| self.0.decrement(by));
        }
    }

    impl Histogram {
        pub(in super::super) fn record(&self, value: f64) {
            foreign(|| self.0.record(value));
        }
    }

    /// Registers the unit and the description of each metric with the recorder.
    pub(in super::super) fn describe() {
        with_recorder(|recorder| {
            for metric in ALL {
                let unit = Some(match metric.unit {
                    Unit::Count => metrics::Unit::Count,
                    Unit::Seconds => metrics::Unit::Seconds,
                    Unit::Bytes => metrics::Unit::Bytes,
                });
                match metric.kind {
                    Kind::Counter => recorder.describe_counter(metric.name.into(), unit, metric.about.into()),
                    Kind::Gauge => recorder.describe_gauge(metric.name.into(), unit, metric.about.into()),
                    Kind::Histogram => recorder.describe_histogram(metric.name.into(), unit, metric.about.into()),
                }
            }
        });
    }

    pub(in super::super) fn counter(metric: &Metric, labels: &[Label<'_>]) -> Counter {
        Counter(with_recorder(|recorder| recorder.register_counter(&key(metric, labels), &METADATA)))
    }

    pub(super) fn gauge(metric: &Metric, labels: &[Label<'_>]) -> Gauge {
        Gauge(with_recorder(|recorder| recorder.register_gauge(&key(metric, labels), &METADATA)))
    }

    pub(in super::super) fn histogram(metric: &Metric, labels: &[Label<'_>]) -> Histogram {
        Histogram(with_recorder(|recorder| recorder.register_histogram(&key(metric, labels), &METADATA)))
    }

    fn key(metric: &Metric, labels: &[Label<'_>]) -> Key {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| metrics::Label::new(*name, (*value).to_owned())).collect();
        Key::from_parts(metric.name, labels)
    }

    static METADATA: Metadata<'static> = Metadata::new("skyward::pool", Level::INFO, Some(module_path!()));
}

#[cfg(not(feature = "metrics"))]
pub(super) use none::{counter, describe, histogram};

#[cfg(not(feature = "metrics"))]
use none::gauge;

#[cfg(not(feature = "metrics"))]
mod none {
    use super::Label;
    use crate::pool::metrics::table::Metric;

    #[derive(Debug)]
    pub(in super::super) struct Counter;
    #[derive(Debug)]
    pub(in super::super) struct Gauge;
    #[derive(Debug)]
    pub(in super::super) struct Histogram;

    impl Counter {
        pub(in super::super) fn increment(&self, _: u64) {}
    }

    impl Gauge {
        pub(in super::super) fn increment(&self, _: f64) {}
        pub(in super::super) fn decrement(&self, _: f64) {}
    }

    impl Histogram {
        pub(in super::super) fn record(&self, _: f64) {}
    }

    pub(in super::super) fn describe() {}

    pub(in super::super) fn counter(_: &Metric, _: &[Label<'_>]) -> Counter {
        Counter
    }

    pub(super) fn gauge(_: &Metric, _: &[Label<'_>]) -> Gauge {
        Gauge
    }

    pub(in super::super) fn histogram(_: &Metric, _: &[Label<'_>]) -> Histogram {
        Histogram
    }
}
