//! Trains Keras on a JAX cluster: scikit-learn's handwritten digits, sharded over the nodes, one
//! world, equal weights everywhere.
//!
//! ```sh
//! cargo run --release --example keras_digits                         # two nodes on this host, a table
//! cargo run --release --example keras_digits -- --nodes 4 --json     # the last line is JSON
//! cargo run --release --example keras_digits -- --provider docker    # two containers
//! cargo run --release --example keras_digits -- --plan               # shows what would be launched, and launches nothing
//! cargo run --release --example keras_digits -- --provider ssh --host alice@gpu1 --host alice@gpu2:2222
//! ```

mod machines;

use std::time::Instant;

use machines::{Machines, read_words};

use serde::{Deserialize, Serialize};
use skyward::prelude::*;

/// The report of each node.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    node: usize,
    samples: usize,
    /// Mean loss of each epoch.
    loss: Vec<f64>,
    test_accuracy: f64,
    /// Digest of all weights after training.
    weights_digest: String,
}

/// Trains on this node's shard; evaluates on digits that no node has trained on.
#[skyward::compute(python = "examples/payloads/keras_digits.py", payload = Train)]
fn train(epochs: u32, batch_size: u32) -> Report;

struct Options {
    machines: Machines,
    nodes: u32,
    epochs: u32,
    json: bool,
    plan: bool,
    budget: Budget,
    accelerator: Option<String>,
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let options = options();
    let begin = Instant::now();
    let mut builder = Pool::builder()
        .shared_provider(options.machines.provider())
        .budget(options.budget)
        .nodes(options.nodes)
        .payload::<Train>()
        .plugin(plugins::jax())
        .plugin(plugins::keras().backend(Backend::Jax).seed(7))
        .terminal(Terminal::auto().output(!options.json));
    if let Some(name) = &options.accelerator {
        builder = builder.accelerator(Accelerator::new(name, 1));
    }
    if options.plan {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    let (reports, start, train_seconds) = builder
        .scope(async |pool| {
            let ready = Instant::now();
            let reports = train(options.epochs, 64).broadcast(pool).await?;
            Ok((reports, ready - begin, ready.elapsed()))
        })
        .await?;
    check(&reports, options.nodes as usize);
    if options.json {
        let seconds = serde_json::json!({ "start": start.as_secs_f64(), "train": train_seconds.as_secs_f64() });
        println!("{}", serde_json::json!({ "nodes": options.nodes, "reports": reports, "seconds": seconds }));
    } else {
        print_table(&reports);
        println!("ready after {:.1} s, trained in {:.1} s", start.as_secs_f64(), train_seconds.as_secs_f64());
    }
    Ok(())
}

/// Checks the claims of the example.
fn check(reports: &[Report], nodes: usize) {
    assert_eq!(reports.len(), nodes, "one report per node");
    let first = &reports[0];
    for report in reports {
        assert_eq!(report.loss, first.loss, "all nodes see the same losses");
        assert_eq!(report.weights_digest, first.weights_digest, "all nodes end with the same weights");
        assert_eq!(report.samples, first.samples, "the shards are equal");
        assert!(report.test_accuracy >= 0.93, "node {} has learned: {}", report.node, report.test_accuracy);
    }
}

fn print_table(reports: &[Report]) {
    println!(
        "{:>4}  {:>7}  {:>10}  {:>9}  {:>13}  weights",
        "node", "samples", "first loss", "last loss", "test accuracy"
    );
    for report in reports {
        let (first, last) = (report.loss.first().unwrap_or(&f64::NAN), report.loss.last().unwrap_or(&f64::NAN));
        println!(
            "{:>4}  {:>7}  {first:>10.4}  {last:>9.4}  {:>13.4}  {:.12}",
            report.node, report.samples, report.test_accuracy, report.weights_digest
        );
    }
}

fn options() -> Options {
    let mut options = Options {
        machines: Machines::default(),
        nodes: 2,
        epochs: 12,
        json: false,
        plan: false,
        budget: Budget::default(),
        accelerator: None,
    };
    read_words(
        "keras_digits [--nodes N] [--epochs N] [--json] [--plan] [--budget-hours HOURS] [--accelerator NAME]",
        |word, words| {
            match word {
                "--nodes" => options.nodes = words.next()?.parse().ok()?,
                "--epochs" => options.epochs = words.next()?.parse().ok()?,
                "--budget-hours" => options.budget = options.budget.hours(words.next()?.parse().ok()?),
                "--accelerator" => options.accelerator = Some(words.next()?),
                "--json" => options.json = true,
                "--plan" => options.plan = true,
                other => options.machines.read(other, words)?,
            }
            Some(())
        },
    );
    options
}
