//! joblib and scikit-learn on a pool, through their plugins, with real packages.

use serde::Deserialize;

use crate::common::scene::Folder;
use crate::common::{limits, pool, processes_of, soon};
use skyward::compute::ComputePoolExt;
use skyward::compute::PendingCompute;
use skyward::payload::{Output, Payload, RetryPolicy};
use skyward::pool::Pool;
use skyward::prelude::plugins;
use skyward::spec::Nodes;

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
            assert_eq!(found.jobs, 4);
            assert_eq!(&found.ranks[..], &[0, 1, 2, 3][..]);
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

const THREADS: &str = include_str!("../payloads/parallel.py");

fn parallel<T: Output>(entry: &'static str, folder: &Folder) -> PendingCompute<T> {
    let call = Payload::python("parallel.py", THREADS, entry);
    call.arg("folder", folder.path.to_str().unwrap().to_owned()).into()
}

#[tokio::test]
async fn joblib_uses_the_pool_on_each_thread_of_a_task_and_of_its_calls() {
    let folder = Folder::new();
    pool(2)
        .plugin(plugins::joblib().retry(RetryPolicy::for_calls().crash(3)))
        .scope(async |pool| {
            let before = processes_of(&pool.status().pool).len();
            let found: Vec<(String, u32, u32)> = soon("threads", parallel("on_threads", &folder).run(pool)).await?;
            assert_eq!(found, vec![("SkywardBackend".to_owned(), 2, 3); 6], "backend, jobs and retries");
            assert_eq!(processes_of(&pool.status().pool).len(), before, "joblib starts no process");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn an_elastic_pool_grows_for_joblib_and_a_resize_changes_the_jobs() {
    let folder = Folder::new();
    let builder = Pool::builder().nodes(Nodes::elastic(1, 3)).limits(limits()).plugin(plugins::joblib());
    builder
        .scope(async |pool| {
            let (jobs, ranks): (u32, Vec<u32>) = soon("growth", parallel("grow", &folder).run(pool)).await?;
            assert_eq!(jobs, 3);
            assert_eq!(ranks, vec![0, 1, 2]);
            // The worker of node 0 is the one of the start.
            for (nodes, jobs) in [(Nodes::fixed(2), 2), (Nodes::elastic(1, 5), 5)] {
                soon("the resize", pool.resize(nodes)).await?;
                assert_eq!(soon("jobs", parallel::<u32>("jobs", &folder).run(pool)).await?, jobs);
            }
            Ok(())
        })
        .await
        .unwrap();
}
