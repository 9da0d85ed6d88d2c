//! joblib and scikit-learn on a pool, through their plugins, with real packages.

use serde::Deserialize;

use crate::common::{pool, processes_of, soon};
use skyward::compute::ComputePoolExt;
use skyward::compute::PendingCompute;
use skyward::payload::{Output, Payload, RetryPolicy};
use skyward::prelude::plugins;

const SOURCE: &str = include_str!("../payloads/searched.py");

fn call<T: Output>(entry: &'static str) -> PendingCompute<T> {
    Payload::python("searched.py", SOURCE, entry).into()
}

#[derive(Debug, Deserialize)]
struct Found {
    equal: bool,
    jobs: u32,
    ranks: Vec<u32>,
    limits: Vec<String>,
}

#[tokio::test]
async fn a_grid_search_runs_on_all_workers_and_finds_the_same_as_on_one() {
    pool(2)
        .plugin(plugins::sklearn().concurrency(2).inner_threads(1).retry(RetryPolicy::for_calls()))
        .scope(async |pool| {
            let before = processes_of(&pool.status().pool).len();
            let found: Found = soon("the search", call("search").run(pool)).await?;
            assert!(found.equal, "{found:?}");
            assert_eq!((found.jobs, &found.ranks[..]), (4, &[0, 1, 2, 3][..]));
            assert!(found.limits.iter().all(|limit| limit == "1"), "{found:?}");
            assert_eq!(processes_of(&pool.status().pool).len(), before, "a search starts no process");
            // As many searches as workers: each worker helps with its own search.
            let all: Vec<Found> = soon("four searches", pool.map((0..4).map(|_| call("search")))).await?;
            assert!(all.iter().all(|found| found.equal), "{all:?}");
            let killed: String = soon("a lost worker", call("killed").run(pool)).await?;
            assert!(killed.contains("SIGKILL"), "{killed}");
            Ok(())
        })
        .await
        .unwrap();
}
