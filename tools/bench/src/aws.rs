//! `cargo xtask bench aws`: instances of an EC2 on loopback, beside `ssh` to the same ones.

use anyhow::{Result, bail};
use skyward_tools::context::Context;
use skyward_tools::ec2::{Build, program};
use skyward_tools::environment::Environment;
use skyward_tools::needs;

use crate::bench::Bench;
use crate::rows::Measured;

pub(crate) fn measure(bench: &Bench, context: &Context, measured: &mut Measured) -> Result<()> {
    if let Some(reason) = needs::EC2_MACHINES.missing(context)? {
        bail!("{reason}");
    }
    let python = Environment::moto(context)?.program("python");
    let program = program(context, Build::Release)?;
    // The profile of benches is that of a release.
    let arguments = || Build::Release.arguments().iter().copied().filter(|word| *word != "--release");
    let run = || context.cargo(["bench", "--quiet", "--bench=aws"].into_iter().chain(arguments()));
    run().args(["--no-run"]).check()?;
    for round in 1..=bench.rounds() {
        println!("\n== round {round} of {}", bench.rounds());
        let run = run().args(["--"]).args([&program]).quiet_env("SKYWARD_MOTO_PYTHON", &python);
        measured.add_all(&bench.read(run, &bench.rows)?);
    }
    Ok(())
}
