//! The project's own commands: `cargo xtask test` runs all checks that a change must pass.

mod args;
mod bench;
mod book;
mod chaos;
mod count;
mod demo;
mod deny;
mod dependencies;
mod digits;
mod documents;
mod examples;
mod failed;
mod features;
mod files;
mod fuzz;
mod ignored;
mod images;
mod leftovers;
mod modules;
mod mutants;
mod nodes;
mod programs;
mod python;
mod python_check;
mod release;
mod rust;
mod sdk;
mod sources;
mod step;
mod tally;

use std::process::ExitCode;

use args::Command;
use context::Context;
// Under these names, steps use the modules of the kit as they use those beside them.
use skyward_tools::{console, context, ec2, environment, image, interrupt, metadata, needs, process, selection, sshd};
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
    match args::parse(std::env::args_os().skip(1), &steps())? {
        Command::Help => print!("{}", args::HELP),
        Command::List => {
            for step in steps() {
                println!("{:<14} {}", step.name, step.about);
            }
        }
        Command::Chaos(words) => return chaos::run(&words, &Context::discover()?),
        Command::Fuzz(fuzz) => return fuzz::run(&fuzz, &Context::discover()?),
        Command::Mutants(mutants) => return mutants::run(&mutants, &Context::discover()?),
        Command::Count { list } => count::run(list, &Context::discover()?)?,
        Command::Bench(words) => return bench::run(&words, &Context::discover()?),
        Command::Image => match image::Images::ensure(&Context::discover()?)? {
            Ok(images) => println!("{}\n{}", images.node, images.bare),
            Err(reason) => println!("SKIPPED: {reason}"),
        },
        Command::Docs { write } => return book::run(write, &Context::discover()?),
        Command::PythonCheck(words) => return python_check::run(&words, &Context::discover()?),
        Command::Demo(demo) => return demo::run(demo, &Context::discover()?),
        Command::Test(steps) => return step::run_all(&steps, &Context::discover()?),
    }
    Ok(true)
}

/// The steps in their order, except for those that run beside others. Those of `--fast` come first.
fn steps() -> Vec<Step> {
    [
        rust::fast_steps(),
        python::steps(),
        documents::steps(),
        book::steps(),
        dependencies::steps(),
        modules::steps(),
        deny::steps(),
        release::steps(),
        images::steps(),
    ]
    .into_iter()
    .chain([rust::steps(), features::steps(), fuzz::steps(), chaos::steps(), examples::steps(), demo::steps()])
    .flatten()
    .collect()
}
