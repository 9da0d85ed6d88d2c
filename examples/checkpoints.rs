//! PyTorch with a `DataLoader` and checkpoints: the first try crashes after two epochs, and the
//! second one goes on from the checkpoint, which is in a folder of this host.
//!
//! ```sh
//! cargo run --release --example checkpoints
//! ```

use serde::Deserialize;
use skyward::prelude::*;

#[derive(Debug, Deserialize)]
struct Report {
    first_epoch: usize,
    loss: Vec<f64>,
    accuracy: f64,
}

#[skyward::compute(python = "examples/payloads/checkpoints.py", payload = Train)]
fn train(epochs: u32, crash_after: u32) -> Report;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let folder = std::env::temp_dir().join(format!("skyward-checkpoints-{}", std::process::id()));
    let trained = run(Storage::folder(&folder)).await;
    // Of a failed example nothing is left either.
    let _ = std::fs::remove_dir_all(&folder);
    let report = trained?;
    println!("went on with epoch {} to an accuracy of {:.3}", report.first_epoch, report.accuracy);
    assert_eq!(report.first_epoch, 2, "two epochs were done before the crash");
    assert_eq!(report.loss.len(), 5, "the losses of both tries");
    assert!(report.loss[4] < report.loss[0] / 5.0 && report.accuracy > 0.8, "{report:?}");
    Ok(())
}

async fn run(storage: Storage) -> skyward::Result<Report> {
    Pool::builder()
        .provider(Local::default())
        .storage(storage)
        .payload::<Train>()
        .plugin(plugins::torch())
        .terminal(Terminal::auto())
        .scope(async |pool| train(5, 2).retry(RetryPolicy::default().crash(1)).run(pool).await)
        .await
}
