//! `cargo xtask bench local` and `bench python`: ours beside other systems, on this host, one after
//! another.

use anyhow::Result;
use skyward_tools::context::Context;
use skyward_tools::environment::Environment;

use crate::bench::Bench;
use crate::rows::Measured;

/// Programs that measure the same rows.
pub(crate) struct Programs {
    /// The name of our own bench.
    ours: &'static str,
    /// The name of each peer in the table, and its program with the words that it takes.
    peers: &'static [(&'static str, &'static [&'static str])],
}

pub(crate) fn measure(bench: &Bench, context: &Context, measured: &mut Measured, programs: &Programs) -> Result<()> {
    let peers = if bench.ours { None } else { Some(Environment::peers(context)?) };
    let ours = format!("--bench={}", programs.ours);
    let build = || context.cargo(["bench", "--quiet", "--package=skyward-bench", &ours]);
    build().args(["--no-run"]).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        measured.add_all(&bench.read(build().args(["--"]), &bench.rows)?);
        for (peer, words) in peers.iter().flat_map(|_| programs.peers) {
            let rows: Vec<_> = bench.rows.iter().copied().filter(|row| row.peers).collect();
            if let (Some(peers), [program, words @ ..]) = (&peers, words)
                && !rows.is_empty()
            {
                let python = peers.run("python", context).args([context.root.join(PEERS).join(program)]);
                let python = python.quiet_env("PYTHONPATH", context.root.join(SHARED));
                measured.add(peer, &bench.read(python.args(words), &rows)?);
            }
        }
    }
    Ok(())
}

/// What ours and the peers run alike; the processes that a peer starts import it too.
const SHARED: &str = "tools/bench/benches/python";
/// The programs of the peers.
const PEERS: &str = "tools/bench/peers";

pub(crate) const LOCAL: Programs = Programs {
    ours: "local",
    peers: &[("ray_actor", &["ray_actor.py"]), ("dask", &["dask_cluster.py"]), ("process_pool", &["process_pool.py"])],
};

pub(crate) const PYTHON: Programs = Programs {
    ours: "python",
    peers: &[
        ("loky", &["joblib_backend.py", "loky"]),
        ("dask", &["joblib_backend.py", "dask"]),
        ("ray", &["joblib_backend.py", "ray"]),
    ],
};
