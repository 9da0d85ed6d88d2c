//! `cargo xtask chaos`, and the steps that play a few rounds of it. The package `skyward-chaos`
//! plays them.

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::context::Context;
use crate::ec2::Build;
use crate::process::Run;
use crate::step::{Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step {
            name: "chaos",
            about: "a few rounds in which workers, agents and clients are killed and stopped",
            run: |context| step(context, "local", 6),
        },
        Step {
            name: "chaos-docker",
            about: "a few rounds of chaos over containers",
            run: |context| step(context, "docker", 4),
        },
        Step {
            name: "chaos-ssh",
            about: "a few rounds of chaos over SSH hosts",
            run: |context| step(context, "ssh", 4),
        },
        Step {
            name: "chaos-aws",
            about: "a few rounds of chaos over instances of an EC2 on loopback",
            run: |context| step(context, AWS, 2),
        },
    ]
}

fn step(context: &Context, place: &str, rounds: u32) -> Result<Outcome> {
    let program = Build::Tests.program(context, PROGRAM)?;
    let finished = Run::new(program).args([place, "--rounds", &rounds.to_string()]).finish()?;
    ensure!(!finished.left_behind, "{PROGRAM} ended, and a process that it started still held its output");
    outcome(finished.status.code(), &finished.output)
}

/// Builds the program and becomes it, with these words on its command line. Returns only an error.
pub(crate) fn run(words: &[OsString], context: &Context) -> Result<bool> {
    // Only clients on EC2 need the SDK of AWS, which takes minutes to compile.
    let program = if words.first().is_some_and(|place| place == AWS) {
        Build::Release.program(context, PROGRAM)?
    } else {
        context.cargo(["build", "--release", "--package=skyward-chaos"]).check()?;
        context.workspace.target_directory.join("release").join(PROGRAM)
    };
    Err(Run::new(program).args(words).replace())
}

/// How a step ends whose program ended with this code and wrote this.
fn outcome(code: Option<i32>, output: &str) -> Result<Outcome> {
    #[derive(Deserialize)]
    struct Counts {
        faults: u64,
        returned: u64,
    }
    if code == Some(UNAVAILABLE) {
        return Ok(Outcome::skipped(output.lines().last().unwrap_or_default()));
    }
    let line = output.lines().rev().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("{PROGRAM} printed no counts, and ended with the code {code:?}"))?;
    let counts: Counts = serde_json::from_str(line).with_context(|| format!("the counts are not JSON: {line}"))?;
    // Rounds without faults would find nothing.
    if code == Some(0) && counts.faults > 0 && counts.returned > 0 {
        return Ok(Outcome::passed(line));
    }
    bail!("{line}");
}

const PROGRAM: &str = "chaos";
/// The place whose clients need the SDK of AWS.
const AWS: &str = "aws";
/// The program's exit code where this host cannot play rounds.
const UNAVAILABLE: i32 = 69;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_tested_something_and_lost_nothing_pass() {
        let line =
            |faults, returned| format!("20 s: {{}}\n{{\"rounds\":6,\"returned\":{returned},\"faults\":{faults}}}\n");
        assert!(
            matches!(outcome(Some(0), &line(3, 9)).unwrap(), Outcome::Passed(note) if note.starts_with("{\"rounds\""))
        );
        assert!(outcome(Some(0), &line(0, 9)).is_err());
        assert!(outcome(Some(0), &line(3, 0)).is_err());
        assert!(outcome(Some(1), &line(3, 9)).err().unwrap().to_string().contains("\"faults\":3"));
        assert!(outcome(None, "killed").err().unwrap().to_string().contains("no counts"));
    }

    #[test]
    fn a_host_that_cannot_play_skips_with_the_reason() {
        let skipped = outcome(Some(69), "$ docker version\nno rounds can be played: there is no engine\n").unwrap();
        assert!(matches!(skipped, Outcome::Skipped(reason) if reason.ends_with("there is no engine")));
    }
}
