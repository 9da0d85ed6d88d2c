//! Every example runs, and asserts by its exit code what it claims.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::context::Context;
use crate::digits;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step { name: "examples", about: "every example runs and asserts what it claims", run: examples }]
}

fn examples(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    checks.run(&context.cargo(["build", "--examples"]))?;
    // What the user's own clients left is not for a test to end, or to fail by.
    let state = context.scratch().join("examples-state");
    if state.exists() {
        fs::remove_dir_all(&state)?;
    }
    let mut names = Vec::new();
    for example in context.workspace.facade()?.targets("example") {
        let run = context.cargo(["run", "--quiet", "--example", &example.name]);
        let run = match example.required_features.as_slice() {
            [] => run,
            features => run.args(["--features", &features.join(",")]),
        };
        let arguments = ARGUMENTS.iter().find(|(name, _)| *name == example.name);
        let run = arguments.map_or(&[][..], |(_, arguments)| arguments).iter().fold(run, |run, word| run.args([word]));
        let run = run.deadline(DEADLINE);
        checks.run_leaving_nothing(run.quiet_env("SKYWARD_STATE_DIR", &state))?;
        names.push(example.name.as_str());
    }
    if names.is_empty() {
        return Ok(Outcome::skipped("there is no example"));
    }
    if names.contains(&digits::EXAMPLE) {
        digits::check(context, &mut checks, DEADLINE)?;
    }
    checks.outcome(names.join(", "))
}

/// What examples are given that would not end by themselves.
const ARGUMENTS: &[(&str, &[&str])] = &[("embed_in_service", &["--", "--once"])];
/// With an empty cache an example first downloads the packages of its environment.
const DEADLINE: Duration = Duration::from_secs(15 * 60);
