//! Checks each Python file of a folder as `#[skyward::compute]` would check it as a payload of one
//! file, and prints which files it accepts, and why it refuses the others.

mod args;
mod check;
mod files;
mod report;

use std::io::{self, BufWriter, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};

use args::Command;
use report::Report;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}", report::visible(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

/// Whether all files are accepted.
fn run() -> Result<bool> {
    let paths = match args::parse(std::env::args_os().skip(1))? {
        Command::Check(paths) => paths,
        Command::Help => {
            print!("{}", args::HELP);
            return Ok(true);
        }
    };
    let begin = Instant::now();
    let files = files::find(&paths)?;
    let mut report = Report::new(BufWriter::new(io::stdout().lock()));
    check::all(&files, |file, verdict| report.add(file, verdict))?;
    let (accepted, mut output) = report.finish().context("cannot write the report")?;
    output.flush().context("cannot write the report")?;
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!("{seconds:.2} seconds, {:.0} files per second", files.len() as f64 / seconds);
    Ok(accepted)
}
