//! `cargo xtask bench local`: ours beside Ray, Dask and a process pool, on this host, one after another.

pub(crate) mod rows;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::environment::Environment;
use crate::process::Run;
use rows::{Measured, Row};

/// What is asked for.
pub(crate) struct Bench {
    /// In the order of [`rows::ROWS`].
    pub(crate) rows: Vec<&'static Row>,
    pub(crate) quick: bool,
    /// Without the peers.
    pub(crate) ours: bool,
}

/// Runs rounds of all of them, prints a table, and as the last line JSON.
pub(crate) fn run(bench: &Bench, context: &Context) -> Result<()> {
    let peers = if bench.ours { None } else { Some(Environment::peers(context)?) };
    context.cargo(BUILD.iter().copied().chain(["--no-run"])).check()?;
    let mut measured = Measured::default();
    let rounds = if bench.quick { 1 } else { ROUNDS };
    for round in 1..=rounds {
        println!("\n== round {round} of {rounds}");
        let ours = context.cargo(BUILD.iter().copied().chain(["--"]));
        measured.add("skyward", &read(ours, bench, &bench.rows)?);
        for (peer, program) in peers.iter().flat_map(|_| PEERS) {
            let rows: Vec<_> = bench.rows.iter().copied().filter(|row| row.peers).collect();
            if let Some(peers) = &peers
                && !rows.is_empty()
            {
                let python = peers.run("python", context).args([context.root.join("xtask/bench").join(program)]);
                measured.add(peer, &read(python, bench, &rows)?);
            }
        }
    }
    println!("\n{}", measured.table(&bench.rows));
    println!("the median of {rounds} rounds; budgets by what Ray took in them\n");
    println!("{}", measured.json(&bench.rows));
    Ok(())
}

/// Runs one of them; its last line with a brace is the result.
fn read(run: Run, bench: &Bench, rows: &[&Row]) -> Result<Map<String, Value>> {
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let run = run.args(["--only", &names.join(",")]).args(bench.quick.then_some("--quick"));
    let output = run.check()?.output;
    let line = output.lines().rev().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("{run} printed no line of JSON"))?;
    serde_json::from_str(line).with_context(|| format!("what {run} printed is not the JSON that was promised: {line}"))
}

const BUILD: &[&str] = &["bench", "--quiet", "--package=skyward", "--features=testkit", "--bench=local"];
/// The name of each in the table, and its program.
const PEERS: [(&str, &str); 3] =
    [("ray_actor", "ray_actor.py"), ("dask", "dask_cluster.py"), ("process_pool", "process_pool.py")];
const ROUNDS: usize = 3;
