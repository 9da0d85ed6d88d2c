//! The third step of the tutorial: one function on every node, each with its own part of the data.
//!
//! ```sh
//! cargo run --example tutorial_shard
//! ```

use skyward::prelude::*;

#[derive(Debug, serde::Deserialize)]
struct Part {
    node: u32,
    total_nodes: u32,
    first: u64,
    count: u64,
    sum: u64,
}

/// Runs on every node. `sky.shard` gives each node a part: no number is lost or in two parts.
#[skyward::compute]
fn part_of_sum(upto: u64) -> Part {
    "
    import skyward as sky

    info = sky.instance_info()
    mine = sky.shard(range(upto))
    return {
        'node': info.node,
        'total_nodes': info.total_nodes,
        'first': mine[0],
        'count': len(mine),
        'sum': sum(mine),
    }
    "
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    Pool::builder()
        .provider(Local::default())
        .nodes(3)
        .scope(async |pool| {
            let parts: Vec<Part> = part_of_sum(1_000_000).broadcast(pool).await?;
            for part in &parts {
                let Part { node, total_nodes, first, count, sum } = part;
                println!("node {node} of {total_nodes}: {count} numbers from {first} on, sum {sum}");
            }
            println!("together: {}", parts.iter().map(|part| part.sum).sum::<u64>());
            Ok(())
        })
        .await
}
