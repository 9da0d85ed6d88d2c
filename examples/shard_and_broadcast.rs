//! All workers get the same data, and each takes its own part: no item is lost or taken twice, and
//! every run gives the same parts.
//!
//! ```sh
//! cargo run --example shard_and_broadcast
//! cargo run --example shard_and_broadcast -- --plan   # shows what would be launched, and launches nothing
//! ```

use serde::Deserialize;
use skyward::prelude::*;

#[derive(Debug, Deserialize)]
struct Part {
    node: u32,
    rank: u32,
    numbers: Vec<i64>,
    sum: i64,
}

#[skyward::compute(python = "examples/payloads/shard_and_broadcast.py")]
fn part(numbers: &[i64], shuffle: Option<bool>, seed: Option<u32>) -> Part;

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let builder = Pool::builder().nodes(2).workers_per_node(2).terminal(Terminal::auto());
    if std::env::args().any(|word| word == "--plan") {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    let numbers: Vec<i64> = (1..=100).collect();
    builder
        .scope(async |pool| {
            let parts = part(&numbers, Some(true), Some(7)).broadcast(pool).await?;
            for (rank, part) in parts.iter().enumerate() {
                assert_eq!(part.rank, rank as u32, "results come in the order of ranks");
                assert_eq!(part.node, rank as u32 / 2, "results come in the order of ranks");
                println!("node {}, rank {}: {} numbers, sum {}", part.node, part.rank, part.numbers.len(), part.sum);
            }
            let mut all: Vec<i64> = parts.iter().flat_map(|part| part.numbers.clone()).collect();
            assert_ne!(all, numbers, "shuffled");
            all.sort_unstable();
            assert_eq!(all, numbers, "together the parts are the whole");

            let again = part(&numbers, Some(true), Some(7)).broadcast(pool).await?;
            assert!(parts.iter().zip(&again).all(|(a, b)| a.numbers == b.numbers), "the seed decides");
            println!("together: {}", parts.iter().map(|part| part.sum).sum::<i64>());
            Ok(())
        })
        .await
}
