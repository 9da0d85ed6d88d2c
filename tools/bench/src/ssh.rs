//! `cargo xtask bench ssh`: nodes that are SSH servers of this host, beside `ssh` to the same ones
//! and the same processes started by hand.

use anyhow::{Result, bail};
use skyward_tools::context::Context;
use skyward_tools::needs;

use crate::bench::{Bench, MACHINES};
use crate::rows::Measured;

pub(crate) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    if let Some(reason) = needs::SSHD.missing(context)? {
        bail!("{reason}");
    }
    context.cargo(MACHINES.iter().copied().chain(["--no-run"])).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        let run = context.cargo(MACHINES.iter().copied().chain(["--", "ssh"]));
        measured.add_all(&bench.read(run, &bench.rows)?);
    }
    Ok(())
}
