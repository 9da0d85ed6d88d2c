//! `cargo xtask bench local`: ours beside Ray, Dask and a process pool, on this host, one after another.

use anyhow::Result;

use super::Bench;
use super::rows::Measured;
use crate::context::Context;
use crate::environment::Environment;

pub(super) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    let peers = if bench.ours { None } else { Some(Environment::peers(context)?) };
    context.cargo(BUILD.iter().copied().chain(["--no-run"])).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        let ours = context.cargo(BUILD.iter().copied().chain(["--"]));
        measured.add_all(&bench.read(ours, &bench.rows)?);
        for (peer, program) in peers.iter().flat_map(|_| PEERS) {
            let rows: Vec<_> = bench.rows.iter().copied().filter(|row| row.peers).collect();
            if let Some(peers) = &peers
                && !rows.is_empty()
            {
                let python = peers.run("python", context).args([context.root.join("xtask/bench").join(program)]);
                measured.add(peer, &bench.read(python, &rows)?);
            }
        }
    }
    Ok(())
}

const BUILD: &[&str] = &["bench", "--quiet", "--package=skyward", "--features=testkit", "--bench=local"];
/// The name of each in the table, and its program.
const PEERS: [(&str, &str); 3] =
    [("ray_actor", "ray_actor.py"), ("dask", "dask_cluster.py"), ("process_pool", "process_pool.py")];
