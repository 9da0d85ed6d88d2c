//! `chaos`: pools whose workers, agents, machines and clients are killed, stopped and cut off at
//! random moments, and counts what that cost.

mod args;
mod client;
mod count;
mod place;
mod plan;
mod player;
mod processes;
mod progress;
mod round;
mod timing;
mod words;

use std::process::ExitCode;

use args::Command;
use words::CLIENT;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.split_first() {
        Some((first, words)) if first == CLIENT => client::run(words).map(|()| ExitCode::SUCCESS),
        _ => run(words),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(words: Vec<String>) -> anyhow::Result<ExitCode> {
    match args::parse(words)? {
        Command::Help => {
            print!("{}", args::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Command::Play(options) => player::run(options),
    }
}
