//! scikit-learn's grid search on a pool: 105 fits on all workers, with the same scores as on one
//! worker.
//!
//! ```sh
//! cargo run --release --example grid_search                               # two nodes on this host, two workers on each
//! cargo run --release --example grid_search -- --nodes 4 --json           # the last line is JSON
//! cargo run --release --example grid_search -- --provider docker          # two containers
//! cargo run --release --example grid_search -- --plan                     # shows what would be launched, and launches nothing
//! ```

mod machines;

use std::collections::BTreeMap;

use machines::{Machines, read_words};

use serde::Deserialize;
use skyward::prelude::*;

#[derive(Debug, Deserialize)]
struct Report {
    workers: u32,
    fits: u32,
    best: BTreeMap<String, f64>,
    best_score: f64,
    /// The scores of all candidates on each fold.
    scores: Vec<Vec<f64>>,
    seconds: f64,
}

/// Searches with `n_jobs=jobs`.
#[skyward::compute(python = "examples/payloads/grid_search.py", payload = Search)]
fn search(jobs: i32) -> Report;

struct Options {
    machines: Machines,
    nodes: u32,
    concurrency: u32,
    json: bool,
    plan: bool,
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let Options { machines, nodes, concurrency, json, plan } = options();
    let builder = Pool::builder()
        .shared_provider(machines.provider())
        .nodes(nodes)
        .payload::<Search>()
        .plugin(plugins::sklearn().concurrency(concurrency).inner_threads(1))
        .terminal(Terminal::auto().output(!json));
    if plan {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    let (all, one) = builder
        .scope(async |pool| {
            let all = search(-1).run(pool).await?;
            let one = search(1).run(pool).await?;
            Ok((all, one))
        })
        .await?;
    let equal = (&all.scores, &all.best, all.best_score) == (&one.scores, &one.best, one.best_score);
    assert_eq!(all.workers, nodes * concurrency, "-1 stands for all workers");
    assert_eq!(all.fits, 105, "21 candidates on 5 folds");
    assert_eq!(one.fits, 105, "21 candidates on 5 folds");
    assert!(equal, "the scores are those of one worker: {all:?}, {one:?}");
    assert!(all.best_score > 0.97, "{}", all.best_score);
    if json {
        let report = serde_json::json!({
            "nodes": nodes, "workers": all.workers, "fits": all.fits, "best_score": all.best_score,
            "seconds": all.seconds, "equals_sequential": equal,
        });
        println!("{report}");
    } else {
        println!("the best is {:?}, with a score of {:.4}", all.best, all.best_score);
        println!("{} fits: {:.1} s on {} workers, {:.1} s on one", all.fits, all.seconds, all.workers, one.seconds);
    }
    Ok(())
}

fn options() -> Options {
    let mut options = Options { machines: Machines::default(), nodes: 2, concurrency: 2, json: false, plan: false };
    read_words("grid_search [--nodes N] [--concurrency N] [--json] [--plan]", |word, words| {
        match word {
            "--nodes" => options.nodes = words.next()?.parse().ok()?,
            "--concurrency" => options.concurrency = words.next()?.parse().ok()?,
            "--json" => options.json = true,
            "--plan" => options.plan = true,
            other => options.machines.read(other, words)?,
        }
        Some(())
    });
    options
}
