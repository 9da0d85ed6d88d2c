//! `cargo xtask bench docker`: nodes that are containers of this host's engine, beside what the
//! engine does alone.

use anyhow::{Result, anyhow};
use skyward_tools::context::Context;
use skyward_tools::image::Images;

use crate::bench::{Bench, MACHINES};
use crate::rows::Measured;

pub(crate) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    let images = Images::ensure(context)?.map_err(|reason| anyhow!("{reason}"))?;
    context.cargo(MACHINES.iter().copied().chain(["--no-run"])).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        let run = context.cargo(MACHINES.iter().copied().chain(["--", "docker", &images.node]));
        measured.add_all(&bench.read(run, &bench.rows)?);
    }
    Ok(())
}
