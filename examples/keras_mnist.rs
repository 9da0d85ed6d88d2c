//! The first training with Keras, step by step: one function, whose decorator joins the nodes. The
//! pool has no plugin.
//!
//! ```sh
//! cargo run --release --example keras_mnist                       # scikit-learn's digits, on two nodes of this host
//! cargo run --release --example keras_mnist -- --mnist            # MNIST, which each node downloads
//! cargo run --release --example keras_mnist -- --nodes 4 --json   # the last line is JSON
//! cargo run --release --example keras_mnist -- --plan             # shows what would be launched, and launches nothing
//! ```

mod machines;

use machines::{Machines, read_words};

use serde::{Deserialize, Serialize};
use skyward::prelude::*;

/// The report of each node.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    node: u32,
    samples: u32,
    /// Mean loss of each epoch.
    loss: Vec<f64>,
    /// On images that no node has trained on.
    accuracy: f64,
}

/// Trains on this node's shard. `Train` declares the payload to the pool, which reads from it that
/// the decorator joins JAX's world.
#[skyward::compute(python = "examples/payloads/keras_mnist.py", payload = Train)]
fn train(epochs: u32, batch_size: u32, mnist: bool) -> Report;

struct Options {
    machines: Machines,
    nodes: u32,
    epochs: u32,
    mnist: bool,
    json: bool,
    plan: bool,
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let Options { machines, nodes, epochs, mnist, json, plan } = options();
    let builder = Pool::builder()
        .shared_provider(machines.provider())
        .nodes(nodes)
        .payload::<Train>()
        .terminal(Terminal::auto().output(!json));
    if plan {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    // The number of steps does not depend on the number of nodes.
    let batch_size = (64 / nodes.max(1)).max(1);
    let reports = builder.scope(async |pool| train(epochs, batch_size, mnist).broadcast(pool).await).await?;
    assert_eq!(reports.len(), nodes as usize, "one report per node");
    for (node, report) in reports.iter().enumerate() {
        assert_eq!(report.node as usize, node);
        assert_eq!(report.samples, reports[0].samples, "the shards are equal");
        assert_eq!(report.loss, reports[0].loss, "the nodes train one model");
        assert_eq!(report.accuracy, reports[0].accuracy, "the nodes train one model");
        assert!(report.accuracy >= 0.9, "the model has learned: {}", report.accuracy);
    }
    if json {
        println!("{}", serde_json::json!({ "nodes": nodes, "reports": reports }));
    } else {
        for Report { node, samples, accuracy, .. } in &reports {
            println!("node {node} has trained on {samples} images: an accuracy of {accuracy:.4}");
        }
    }
    Ok(())
}

fn options() -> Options {
    let mut options =
        Options { machines: Machines::default(), nodes: 2, epochs: 10, mnist: false, json: false, plan: false };
    read_words("keras_mnist [--nodes N] [--epochs N] [--mnist] [--json] [--plan]", |word, words| {
        match word {
            "--nodes" => options.nodes = words.next()?.parse().ok()?,
            "--epochs" => options.epochs = words.next()?.parse().ok()?,
            "--mnist" => options.mnist = true,
            "--json" => options.json = true,
            "--plan" => options.plan = true,
            other => options.machines.read(other, words)?,
        }
        Some(())
    });
    options
}
