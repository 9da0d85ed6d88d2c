//! `cargo xtask bench docker`: nodes that are containers of this host's engine, beside what the
//! engine does alone.

use anyhow::{Result, anyhow};

use super::Bench;
use super::rows::Measured;
use crate::context::Context;
use crate::ec2::Build;
use crate::nodes::{Nodes, Place};

pub(super) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    let nodes = Nodes::make(Place::Docker, 2, context, Build::Release)?.map_err(|reason| anyhow!("{reason}"))?;
    context.cargo(super::MACHINES.iter().copied().chain(["--no-run"])).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        let run = context.cargo(super::MACHINES.iter().copied().chain(["--", "docker", &nodes.image]));
        measured.add_all(&bench.read(run, &bench.rows)?);
    }
    Ok(())
}
