//! joblib on a pool: `Parallel(n_jobs=-1)` in a payload uses all workers of all nodes, and the Rust
//! side sees one call.
//!
//! ```sh
//! cargo run --release --example joblib_parallel
//! cargo run --release --example joblib_parallel -- --nodes 4 --concurrency 2 --provider docker
//! cargo run --release --example joblib_parallel -- --plan   # shows what would be launched, and launches nothing
//! ```

mod machines;

use machines::{Machines, read_words};

use serde::Deserialize;
use skyward::prelude::*;

#[derive(Debug, Deserialize)]
struct Report {
    pi: f64,
    /// How many parts ran at the same time.
    jobs: u32,
    /// The workers that ran some of them.
    ranks: Vec<u32>,
}

/// Counts random points in this many parts. `jobs` is joblib's `n_jobs`.
#[skyward::compute(python = "examples/payloads/joblib_parallel.py", payload = Estimate)]
fn estimate(parts: u32, samples: u32, jobs: i32) -> Report;

struct Options {
    machines: Machines,
    nodes: u32,
    concurrency: u32,
    plan: bool,
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let Options { machines, nodes, concurrency, plan } = options();
    let builder = Pool::builder()
        .shared_provider(machines.provider())
        .nodes(nodes)
        .payload::<Estimate>()
        .plugin(plugins::joblib().concurrency(concurrency).inner_threads(1))
        .terminal(Terminal::auto());
    if plan {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    let (all, one) = builder
        .scope(async |pool| {
            let all = estimate(200, 100_000, -1).run(pool).await?;
            let one = estimate(200, 100_000, 1).run(pool).await?;
            Ok((all, one))
        })
        .await?;
    let workers = nodes * concurrency;
    println!("pi is about {:.5}, by {} of {workers} workers", all.pi, all.ranks.len());
    assert_eq!(all.jobs, workers, "-1 stands for all workers");
    assert_eq!(all.ranks, (0..workers).collect::<Vec<_>>(), "all of them took part");
    assert_eq!(one.jobs, 1);
    assert_eq!(one.ranks.len(), 1);
    assert_eq!(all.pi, one.pi, "the result does not depend on where the parts run");
    assert!((all.pi - std::f64::consts::PI).abs() < 0.01);
    Ok(())
}

fn options() -> Options {
    let mut options = Options { machines: Machines::default(), nodes: 2, concurrency: 2, plan: false };
    read_words("joblib_parallel [--nodes N] [--concurrency N] [--plan]", |word, words| {
        match word {
            "--nodes" => options.nodes = words.next()?.parse().ok()?,
            "--concurrency" => options.concurrency = words.next()?.parse().ok()?,
            "--plan" => options.plan = true,
            other => options.machines.read(other, words)?,
        }
        Some(())
    });
    options
}
