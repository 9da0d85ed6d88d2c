//! Our side of `cargo xtask bench local`: measures rows on this host, and prints them as one line of JSON.
//!
//! ```sh
//! cargo bench --features testkit --bench local -- --only call_p50_us,calls_per_s --quick
//! ```

mod calls;
mod idle;
mod start;
mod training;
mod values;

use std::future::Future;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use skyward::prelude::*;
use skyward::spec::Image;

/// What is asked for.
struct Options {
    /// Rows; all when empty.
    only: Vec<String>,
    quick: bool,
}

/// What was measured, in the order in which it was.
struct Table<'o> {
    options: &'o Options,
    rows: Map<String, Value>,
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    // As a service calls: from a task of the runtime. The thread that waits for `main` is one more to wake.
    tokio::spawn(measure(options())).await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn measure(options: Options) -> skyward::Result<()> {
    let mut table = Table { options: &options, rows: Map::new() };
    calls::measure(&mut table).await?;
    values::measure(&mut table).await?;
    start::measure(&mut table).await?;
    training::measure(&mut table).await?;
    idle::measure(&mut table).await?;
    println!("{}", Value::Object(table.rows));
    Ok(())
}

impl Table<'_> {
    fn wants(&self, row: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|wanted| wanted == row)
    }

    /// Measures a row, unless it is not asked for.
    async fn row(&mut self, name: &str, measured: impl Future<Output = skyward::Result<f64>>) -> skyward::Result<()> {
        if self.wants(name) {
            let value = measured.await?;
            eprintln!("{name:<24} {value:.3}");
            self.rows.insert(name.to_owned(), value.into());
        }
        Ok(())
    }

    /// How often something is done: less when it has to be quick.
    fn times(&self, count: usize) -> usize {
        if self.options.quick { (count / 10).max(2) } else { count }
    }
}

/// Two workers, as the peers have.
fn two_workers() -> skyward::pool::PoolBuilder {
    Pool::builder().provider(Local::default()).nodes(2)
}

/// An environment with NumPy, for what needs it.
fn numpy() -> Image {
    // One thread each: two programs that share two cores are to be compared, not their thread pools.
    Image::new().pip(["numpy"]).env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1")
}

async fn timed<T>(what: impl Future<Output = skyward::Result<T>>) -> skyward::Result<(T, Duration)> {
    let begin = Instant::now();
    let value = what.await?;
    Ok((value, begin.elapsed()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn options() -> Options {
    let mut options = Options { only: Vec::new(), quick: false };
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
            other => {
                eprintln!("usage: local [--only ROW,…] [--quick]; cannot read `{other}`");
                std::process::exit(2);
            }
        }
    }
    options
}
