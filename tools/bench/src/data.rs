//! `cargo xtask bench data`: files in and out of a node that is an SSH server of this host, beside other
//! programs that copy.

use anyhow::{Result, bail};
use skyward_tools::context::Context;
use skyward_tools::needs;

use crate::bench::{Bench, MACHINES};
use crate::rows::Measured;

pub(crate) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    for need in [&needs::SSHD, &needs::COPIERS] {
        if let Some(reason) = need.missing(context)? {
            bail!("{reason}");
        }
    }
    context.cargo(MACHINES.iter().copied().chain(["--no-run"])).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        let run = context.cargo(MACHINES.iter().copied().chain(["--", "data"]));
        measured.add_all(&bench.read(run, &bench.rows)?);
    }
    Ok(())
}
