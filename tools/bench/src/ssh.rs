//! `cargo xtask bench ssh`: nodes that are SSH servers of this host, beside `ssh` to the same ones
//! and the same processes started by hand.

use anyhow::{Result, anyhow};
use skyward_tools::context::Context;
use skyward_tools::openssh;
use skyward_tools::sshd::Sshd;

use crate::bench::{Bench, MACHINES};
use crate::rows::Measured;

pub(crate) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    openssh::ensure();
    Sshd::program().map_err(|reason| anyhow!("{reason}"))?;
    context.cargo(MACHINES.iter().copied().chain(["--no-run"])).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        let run = context.cargo(MACHINES.iter().copied().chain(["--", "ssh"]));
        measured.add_all(&bench.read(run, &bench.rows)?);
    }
    Ok(())
}
