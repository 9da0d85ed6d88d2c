//! The fourth and later steps of the tutorial: two nodes train one Keras model as one JAX program.
//!
//! ```sh
//! cargo run --release --example tutorial_train                         # two nodes on this host
//! cargo run --release --example tutorial_train -- --provider docker    # two containers
//! cargo run --release --example tutorial_train -- --provider ssh --host alice@gpu1 --host alice@gpu2
//! ```

mod machines;

use machines::{Machines, read_words};

use std::sync::Arc;

use skyward::prelude::*;

/// The report of each node.
#[derive(Debug, serde::Deserialize)]
struct Report {
    node: u32,
    images: u32,
    first_loss: f64,
    last_loss: f64,
    accuracy: f64,
}

/// `payload = Train` creates the type `Train`, which you pass to `.payload::<Train>()`.
#[skyward::compute(python = "examples/payloads/tutorial_train.py", payload = Train)]
fn train(epochs: u32) -> Report;

async fn train_on(provider: Arc<dyn Provider>) -> skyward::Result<Vec<Report>> {
    Pool::builder()
        .shared_provider(provider)
        .nodes(2)
        .payload::<Train>() // its packages (PEP 723) join the environment
        .plugin(plugins::jax())
        .plugin(plugins::keras().backend(Backend::Jax).seed(7))
        .scope(async |pool| train(5).broadcast(pool).await)
        .await
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let mut machines = Machines::default();
    read_words("tutorial_train", |word, words| machines.read(word, words));
    let reports = train_on(machines.provider()).await?;
    for Report { node, images, first_loss, last_loss, accuracy } in &reports {
        println!("node {node}: {images} images, loss {first_loss:.2}, then {last_loss:.2}, accuracy {accuracy:.2}");
    }
    let one_model = reports.iter().all(|report| report.last_loss == reports[0].last_loss);
    println!("one model on both: {one_model}");
    Ok(())
}
