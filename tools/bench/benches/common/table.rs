//! The measured rows, printed as one line of JSON: an object for each system, with its rows.

use std::future::Future;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

/// The options of the command line.
pub(crate) struct Options {
    /// The rows to measure; all when empty.
    only: Vec<String>,
    pub(crate) quick: bool,
}

/// The results.
pub(crate) struct Table {
    pub(crate) options: Options,
    systems: Map<String, Value>,
}

impl Options {
    /// Reads the command line. Returns the options and the other words; prints `usage` and exits
    /// when it cannot.
    pub(crate) fn read(usage: &str) -> (Self, Vec<String>) {
        let (mut options, mut others) = (Self { only: Vec::new(), quick: false }, Vec::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.quick = true,
                "--only" => {
                    let rows = words.next().unwrap_or_default();
                    options.only.extend(rows.split(',').filter(|row| !row.is_empty()).map(str::to_owned));
                }
                // From `cargo bench`.
                "--bench" => {}
                other if other.starts_with('-') => {
                    eprintln!("usage: {usage} [--only ROW,…] [--quick]; cannot read `{other}`");
                    std::process::exit(2);
                }
                _ => others.push(word),
            }
        }
        (options, others)
    }
}

impl Table {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, systems: Map::new() }
    }

    pub(crate) fn wants(&self, row: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|wanted| wanted == row)
    }

    /// Measures a row of Skyward, if it is wanted.
    pub(crate) async fn row(
        &mut self,
        name: &str,
        measured: impl Future<Output = skyward::Result<f64>>,
    ) -> skyward::Result<()> {
        self.beside("skyward", name, measured).await
    }

    /// Measures a row of another system, if it is wanted.
    pub(crate) async fn beside(
        &mut self,
        system: &str,
        name: &str,
        measured: impl Future<Output = skyward::Result<f64>>,
    ) -> skyward::Result<()> {
        if self.wants(name) {
            let value = measured.await?;
            eprintln!("{name:<28} {system:<10} {value:.3}");
            let rows = self.systems.entry(system).or_insert_with(|| Map::new().into());
            if let Value::Object(rows) = rows {
                rows.insert(name.to_owned(), value.into());
            }
        }
        Ok(())
    }

    /// How often to repeat a measurement: less often with `--quick`.
    pub(crate) fn times(&self, count: usize) -> usize {
        if self.options.quick { (count / 10).max(2) } else { count }
    }

    /// Prints the rows as the last line of standard output.
    pub(crate) fn print(self) {
        println!("{}", Value::Object(self.systems));
    }
}

pub(crate) async fn timed<T>(what: impl Future<Output = skyward::Result<T>>) -> skyward::Result<(T, Duration)> {
    let begin = Instant::now();
    let value = what.await?;
    Ok((value, begin.elapsed()))
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
