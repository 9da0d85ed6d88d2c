//! A fine-tune with Transformers: a tiny language model learns from 64 labels to classify reviews.
//!
//! ```sh
//! cargo run --release --example fine_tune
//! ```

use serde::Deserialize;
use skyward::prelude::*;

#[derive(Debug, Deserialize)]
struct Report {
    pretraining_loss: f64,
    labelled: u32,
    /// The accuracy without the fine-tuning.
    before: f64,
    after: f64,
}

#[skyward::compute(python = "examples/payloads/fine_tune.py", payload = FineTune)]
fn fine_tune(epochs: u32) -> Report;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let report = Pool::builder()
        .provider(Local::default())
        .payload::<FineTune>()
        .plugin(plugins::transformers())
        .terminal(Terminal::auto())
        .scope(async |pool| fine_tune(15).run(pool).await)
        .await?;
    let Report { pretraining_loss, labelled, before, after } = report;
    println!("loss of the pretraining: {pretraining_loss:.2}");
    println!("accuracy: {before:.2}, and {after:.2} after {labelled} labels");
    assert!(before < 0.7 && after > 0.9, "{before} {after}");
    Ok(())
}
