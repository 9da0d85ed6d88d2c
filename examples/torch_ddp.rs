//! PyTorch's `DistributedDataParallel` on two nodes of this host: each rank trains on its part of
//! the data, and all ranks end with the same weights.
//!
//! ```sh
//! cargo run --release --example torch_ddp
//! cargo run --release --example torch_ddp -- --plan   # shows what would be launched, and launches nothing
//! ```

use serde::Deserialize;
use skyward::prelude::*;

#[derive(Debug, Deserialize)]
struct Report {
    rank: u32,
    samples: u32,
    loss: Vec<f64>,
    test_accuracy: f64,
    weights_digest: String,
}

#[skyward::compute(python = "examples/payloads/torch_ddp.py", payload = Train)]
fn train(epochs: u32, batch_size: u32) -> Report;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let builder = Pool::builder().nodes(2).payload::<Train>().plugin(plugins::torch()).terminal(Terminal::auto());
    if std::env::args().any(|word| word == "--plan") {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    let reports = builder.scope(async |pool| train(8, 64).broadcast(pool).await).await?;
    println!("rank  samples  last loss  test accuracy  weights");
    for report in &reports {
        let loss = report.loss.last().copied().unwrap_or(f64::NAN);
        println!(
            "{:>4}  {:>7}  {loss:>9.4}  {:>13.4}  {}",
            report.rank, report.samples, report.test_accuracy, report.weights_digest
        );
    }
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0].weights_digest, reports[1].weights_digest, "all ranks end with the same weights");
    assert_ne!(reports[0].loss, reports[1].loss, "each rank has trained on its own part");
    assert!(reports.iter().all(|report| report.test_accuracy >= 0.9));
    Ok(())
}
