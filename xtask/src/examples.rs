//! Every example runs, and asserts by its exit code what it claims.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::book::quotes;
use crate::context::Context;
use crate::digits;
use crate::ec2::Build;
use crate::nodes::Place;
use crate::process::Run;
use crate::selection::Selection;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step { name: "examples", about: "every example runs and asserts what it claims", run: examples }]
}

fn examples(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let built = Built::for_tests(context, Selection::Light, &[])?;
    // A ledger of its own: a test must neither end what the user's clients have left, nor fail
    // because of it.
    let state = context.scratch().join("examples-state");
    if state.exists() {
        fs::remove_dir_all(&state)?;
    }
    let mut names = Vec::new();
    for example in context.workspace.facade()?.targets("example") {
        let run = built.run(&example.name);
        let arguments = ARGUMENTS.iter().find(|(name, _)| *name == example.name);
        let run = arguments.map_or(&[][..], |(_, arguments)| arguments).iter().fold(run, |run, word| run.args([word]));
        let run = run.deadline(DEADLINE);
        let output = checks.run_leaving_nothing(run.quiet_env("SKYWARD_STATE_DIR", &state))?;
        if let Err(error) = quotes::check_printed(&context.root, &example.name, &output) {
            checks.fail(format!("{error:#}"));
        }
        names.push(example.name.as_str());
    }
    if names.is_empty() {
        return Ok(Outcome::skipped("there is no example"));
    }
    for name in PLANNED.iter().filter(|name| names.contains(name)) {
        let plan = built.run(name).args(["--plan"]).deadline(DEADLINE).quiet_env("SKYWARD_STATE_DIR", &state);
        if checks.run_leaving_nothing(plan)?.lines().last() != Some("nothing was started") {
            checks.fail(format!("{name} --plan does not print a plan"));
        }
    }
    if names.contains(&digits::EXAMPLE) {
        digits::check(&built, &mut checks, DEADLINE)?;
    }
    checks.outcome(names.join(", "))
}

/// Examples that are built, as programs to run.
pub(crate) struct Built {
    folder: PathBuf,
    root: PathBuf,
}

impl Built {
    /// These examples, or all without names, with the features that the tests are built with, so
    /// that nothing is compiled anew.
    pub(crate) fn for_tests(context: &Context, selection: Selection, names: &[&str]) -> Result<Self> {
        let build = context.cargo(["build"]).args(selection.arguments(context));
        let build = if names.is_empty() { build.args(["--examples"]) } else { build.args(chosen(names)) };
        build.check()?;
        Ok(Self::in_profile(context, "debug"))
    }

    /// As a reader of the README builds them: the SDK of AWS is compiled where there is no doing
    /// without it.
    pub(crate) fn for_users(context: &Context, names: &[&str], place: Place) -> Result<Self> {
        let arguments = match place {
            Place::Ssh | Place::Docker => &["--release"],
            Place::Aws => Build::Release.arguments(),
        };
        let build = context.cargo(["build"]).args(arguments);
        build.args(chosen(names)).check()?;
        Ok(Self::in_profile(context, "release"))
    }

    /// One of them, started in the root of the repository.
    pub(crate) fn run(&self, name: &str) -> Run {
        Run::new(self.folder.join(name)).dir(&self.root)
    }

    fn in_profile(context: &Context, profile: &str) -> Self {
        let folder = context.workspace.target_directory.join(profile).join("examples");
        Self { folder, root: context.root.clone() }
    }
}

/// The arguments of cargo that choose these examples.
fn chosen(names: &[&str]) -> impl Iterator<Item = String> {
    names.iter().map(|name| format!("--example={name}"))
}

/// Arguments for examples that would not end by themselves.
const ARGUMENTS: &[(&str, &[&str])] = &[
    // Without optimisation, digests are computed slowly.
    ("artifact", &["--mib", "48"]),
    ("dataset", &["--files", "1000"]),
    ("embed_in_service", &["--once"]),
];
/// Examples with the option `--plan`.
const PLANNED: &[&str] = &[
    "custom_plugin",
    "custom_provider",
    "grid_search",
    "hello",
    "joblib_parallel",
    "keras_digits",
    "keras_mnist",
    "model_parallel",
    "shard_and_broadcast",
    "torch_ddp",
    "trainer_two_nodes",
];
/// With an empty cache an example first downloads the packages of its environment.
const DEADLINE: Duration = Duration::from_secs(15 * 60);
