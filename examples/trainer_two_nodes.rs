//! The `Trainer` of Transformers on two nodes: a broadcast trains one model on both nodes, and a
//! single task trains on one of them.
//!
//! ```sh
//! cargo run --release --example trainer_two_nodes                      # two nodes on this host
//! cargo run --release --example trainer_two_nodes -- --json            # the last line is JSON
//! cargo run --release --example trainer_two_nodes -- --provider docker # two containers
//! cargo run --release --example trainer_two_nodes -- --plan            # shows what would be launched, and launches nothing
//! ```

mod machines;

use machines::{Machines, read_words};

use serde::{Deserialize, Serialize};
use skyward::prelude::*;

#[derive(Debug, Deserialize, Serialize)]
struct Report {
    /// The rank of this process, as `Trainer` sees it.
    rank: u32,
    /// The processes that trained together.
    ranks: u32,
    steps: u32,
    /// The loss of each epoch, over all ranks.
    loss: Vec<f64>,
    test_accuracy: f64,
    weights_digest: String,
}

/// Trains with `batch_size` images for each rank in a step.
#[skyward::compute(python = "examples/payloads/trainer_two_nodes.py", payload = Train)]
fn train(epochs: u32, batch_size: u32) -> Report;

#[derive(Default)]
struct Options {
    machines: Machines,
    json: bool,
    plan: bool,
}

const NODES: u32 = 2;
const EPOCHS: u32 = 6;
const BATCH: u32 = 64;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let Options { machines, json, plan } = options();
    let builder = Pool::builder()
        .shared_provider(machines.provider())
        .nodes(NODES)
        .payload::<Train>()
        .plugin(plugins::transformers())
        // The model is small: threads of several ranks on one host would only wait for each other.
        .image(Image::new().env("OMP_NUM_THREADS", "1"))
        .terminal(Terminal::auto().output(!json));
    if plan {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    let (together, alone) = builder
        .scope(async |pool| {
            let together = train(EPOCHS, BATCH / NODES).broadcast(pool).await?;
            let alone = train(EPOCHS, BATCH).run(pool).await?;
            Ok((together, alone))
        })
        .await?;
    check(&together, &alone);
    if json {
        println!("{}", serde_json::json!({"together": together, "alone": alone}));
        return Ok(());
    }
    println!("rank  of  steps  first loss  last loss  test accuracy  weights");
    for report in together.iter().chain([&alone]) {
        let Report { rank, ranks, steps, loss, test_accuracy, weights_digest } = report;
        let (first, last) = (loss[0], loss[loss.len() - 1]);
        println!(
            "{rank:>4}  {ranks:>2}  {steps:>5}  {first:>10.4}  {last:>9.4}  {test_accuracy:>13.4}  {weights_digest}"
        );
    }
    Ok(())
}

fn check(together: &[Report], alone: &Report) {
    let places: Vec<_> = together.iter().map(|report| (report.rank, report.ranks)).collect();
    assert_eq!(places, [(0, 2), (1, 2)], "both nodes are ranks of one world");
    let [first, second] = together else { unreachable!("there are two places") };
    assert_eq!(first.weights_digest, second.weights_digest, "both end with the same weights");
    assert_eq!(first.loss, second.loss, "the loss is that of all ranks");
    assert_eq!(alone.rank, 0, "a task alone finds no world");
    assert_eq!(alone.ranks, 1, "a task alone finds no world");
    // Half of the batch on each of two ranks equals the whole batch on one rank.
    assert_eq!(first.steps, alone.steps);
    assert!((first.loss[0] / alone.loss[0] - 1.0).abs() < 0.01, "{first:?}, {alone:?}");
    for report in [first, alone] {
        assert!(report.loss[report.loss.len() - 1] < report.loss[0] / 2.0, "the loss falls: {:?}", report.loss);
        assert!(report.test_accuracy > 0.85, "{}", report.test_accuracy);
    }
}

fn options() -> Options {
    let mut options = Options::default();
    read_words("trainer_two_nodes [--json] [--plan]", |word, words| {
        match word {
            "--json" => options.json = true,
            "--plan" => options.plan = true,
            other => options.machines.read(other, words)?,
        }
        Some(())
    });
    options
}
