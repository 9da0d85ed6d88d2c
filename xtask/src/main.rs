//! The project's own commands: `cargo xtask test` runs all checks that a change must pass, `cargo
//! xtask bench` measures performance.

mod args;
mod bench;
mod book;
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
mod files;
mod fuzz;
mod image;
mod interrupt;
mod leftovers;
mod metadata;
mod modules;
mod nodes;
mod openssh;
mod process;
mod programs;
mod python;
mod release;
mod rust;
mod sdk;
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
        Command::Docs { write } => return book::run(write, &Context::discover()?),
        Command::Demo(demo) => return demo::run(demo, &Context::discover()?),
        Command::Test(steps) => return step::run_all(&steps, &Context::discover()?),
    }
    Ok(true)
}

/// The steps in their order, except for those that run beside others. Steps that fail quickly come
/// first.
fn steps() -> Vec<Step> {
    [
        rust::lint_steps(),
        python::steps(),
        documents::steps(),
        book::steps(),
        dependencies::steps(),
        modules::steps(),
        deny::steps(),
        release::steps(),
        image::steps(),
    ]
    .into_iter()
    .chain([rust::test_steps(), fuzz::steps(), features::steps(), chaos::steps(), examples::steps(), demo::steps()])
    .flatten()
    .collect()
}
