//! scikit-learn on a table of pandas: cross-validation on all workers, and a test.
//!
//! ```sh
//! cargo run --release --example pandas_pipeline
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use skyward::prelude::*;

#[derive(Debug, Deserialize)]
struct Report {
    rows: u32,
    /// The share of benign tumours, from the smallest quarter to the largest.
    benign: Vec<f64>,
    scores: BTreeMap<String, f64>,
    best: String,
    accuracy: f64,
}

#[skyward::compute(python = "examples/payloads/pandas_pipeline.py", payload = Compare)]
fn compare(folds: u32) -> Report;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let report = Pool::builder()
        .provider(Local::default())
        .nodes(2)
        .payload::<Compare>()
        .plugin(plugins::sklearn())
        .terminal(Terminal::auto())
        .scope(async |pool| compare(5).run(pool).await)
        .await?;
    for (name, score) in &report.scores {
        println!("{name:10} {score:.3}");
    }
    println!("{} is right on {:.1} % of the rows that it has not seen", report.best, report.accuracy * 100.0);
    assert_eq!((report.rows, report.benign.len()), (569, 4));
    assert!(report.benign[0] > 0.9 && report.benign[3] < 0.1, "{report:?}");
    assert!(report.accuracy > 0.93, "{report:?}");
    Ok(())
}
