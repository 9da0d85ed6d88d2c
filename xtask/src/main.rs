//! The project's own commands: `cargo xtask test` is everything that must hold before a change lands, `cargo xtask bench` how fast it is.

mod args;
mod bench;
mod chaos;
mod console;
mod context;
mod demo;
mod deny;
mod dependencies;
mod digits;
mod documents;
mod ec2;
mod environment;
mod examples;
mod features;
mod fuzz;
mod image;
mod interrupt;
mod leftovers;
mod metadata;
mod nodes;
mod openssh;
mod process;
mod programs;
mod python;
mod rust;
#[path = "../../skyward-core/tests/support/sshd.rs"]
mod sshd;
mod step;
mod tally;

use std::process::ExitCode;

use args::Command;
use context::Context;
use step::Step;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<bool> {
    match args::parse(std::env::args().skip(1), &steps())? {
        Command::Help => print!("{}", args::HELP),
        Command::List => {
            for step in steps() {
                println!("{:<14} {}", step.name, step.about);
            }
        }
        Command::Chaos(options) => return chaos::run(&Context::discover()?, options),
        Command::Fuzz(fuzz) => return fuzz::run(&fuzz, &Context::discover()?),
        Command::Bench(bench) => bench::run(&bench, &Context::discover()?)?,
        Command::Image => match image::Images::ensure(&Context::discover()?)? {
            Ok(images) => println!("{}\n{}", images.node, images.bare),
            Err(reason) => println!("SKIPPED: {reason}"),
        },
        Command::Demo(demo) => return demo::run(demo, &Context::discover()?),
        Command::Test(steps) => return step::run_all(&steps, &Context::discover()?),
    }
    Ok(true)
}

/// In the order in which they run, but for those that run beside others: what is quick to fail comes first.
fn steps() -> Vec<Step> {
    [rust::lint_steps(), python::steps(), documents::steps(), dependencies::steps(), deny::steps(), image::steps()]
        .into_iter()
        .chain([rust::test_steps(), fuzz::steps(), features::steps(), chaos::steps(), examples::steps(), demo::steps()])
        .flatten()
        .collect()
}
