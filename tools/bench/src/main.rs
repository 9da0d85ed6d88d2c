//! `bench`: runs the programs that measure Skyward and those that measure others, and prints which
//! budgets are met.

mod args;
mod aws;
mod bench;
mod data;
mod docker;
mod expansion;
mod local;
mod rows;
mod ssh;

use std::process::ExitCode;

use args::Command;
use skyward_tools::context::Context;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<()> {
    match args::parse(std::env::args().skip(1))? {
        Command::Help => print!("{}", args::HELP),
        Command::Measure(bench) => bench::run(&bench, &Context::discover()?)?,
    }
    Ok(())
}
