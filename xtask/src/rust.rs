//! Format, lints and tests of the Rust code.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::book::html;
use crate::context::Context;
use crate::environment::Environment;
use crate::metadata::Package;
use crate::openssh;
use crate::process::Run;
use crate::programs;
use crate::sdk;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn lint_steps() -> Vec<Step> {
    vec![
        Step { name: "format", about: "rustfmt changes nothing", run: format },
        Step { name: "clippy", about: "no warning, with the default features and with all of them", run: clippy },
    ]
}

pub(crate) fn test_steps() -> Vec<Step> {
    vec![
        Step { name: "test", about: "unit, property and integration tests of every package", run: test },
        Step { name: "doctest", about: "the code in the documentation, the README and the guide", run: doctest },
        Step { name: "rustdoc", about: "the documentation builds without a warning", run: rustdoc },
        Step { name: "ui", about: "what `#[skyward::compute]` accepts and refuses, with its messages", run: ui },
        Step { name: "e2e", about: "pools with real Python: environments, workers, JAX, Keras, torch", run: e2e },
    ]
}

fn format(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    checks.run(&context.cargo(["fmt", "--all", "--check"]))?;
    checks.outcome("")
}

fn clippy(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let clippy = || context.cargo(["clippy", "--workspace", "--all-targets"]);
    // These packages have no features, and with the features of the others the SDK of a cloud would
    // be compiled once more.
    let heavy = context.workspace.packages.iter().filter(|package| sdk::is_needed_by(package));
    let heavy = heavy.flat_map(|package| ["--exclude", package.name.as_str()]);
    checks.run(&clippy().args(heavy).args(["--", "-D", "warnings"]))?;
    checks.run(&clippy().args(["--all-features", "--", "-D", "warnings"]))?;
    checks.outcome("")
}

/// The members' own tests. Those of the root package start pools, and have a step of their own.
fn test(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let members = context.workspace.packages.iter().filter(|package| package.name != FACADE);
    let names: Vec<&str> = members.flat_map(integration_tests).filter(|name| !is_ui(name)).collect();
    checks.run_leaving_nothing(cargo_test(context).args(["--lib", "--bins"]))?;
    run_programs(context, &names, |folder| folder != context.root, &mut checks)?;
    checks.tested()
}

fn doctest(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    checks.run_leaving_nothing(cargo_test(context).args(["--doc"]))?;
    checks.tested()
}

fn rustdoc(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let doc = context.cargo(["doc", "--workspace", "--all-features", "--no-deps"]);
    checks.run(&doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    // The links of the guide's pages, of which the compiler knows only some. Those to lines of
    // sources are rustdoc's own.
    let found = html::check(&context.workspace.target_directory.join("doc/skyward/guide"))?;
    let dead = found.dead.iter().filter(|dead| !dead.contains("/src/"));
    dead.for_each(|dead| checks.fail(format!("in the documentation of the guide, {dead}")));
    checks.outcome(format!("{} links of the guide", found.links))
}

/// The expected messages hold the compiler's own words, so they fit one version of it.
fn ui(context: &Context) -> Result<Outcome> {
    let recorded = context.workspace.facade()?.rust_version.as_deref().context("the facade has no rust-version")?;
    let version = Run::new("rustc").args(["--version"]).dir(&context.root).read()?;
    if !version.starts_with(&format!("rustc {recorded}.")) {
        return Ok(Outcome::skipped(format!(
            "the messages are recorded with Rust {recorded}, and this is {}",
            version.trim()
        )));
    }
    let names: Vec<&str> =
        context.workspace.packages.iter().flat_map(integration_tests).filter(|name| is_ui(name)).collect();
    if names.is_empty() {
        return Ok(Outcome::skipped("the workspace has no such test"));
    }
    let mut checks = Checks::default();
    openssh::ensure();
    // The test compiles the facade with the features that it has itself: without the SDK of a
    // cloud.
    let features = context
        .workspace
        .packages
        .iter()
        .flat_map(|package| package.light_features().map(|feature| format!("{}/{feature}", package.name)));
    let features = features.collect::<Vec<_>>().join(",");
    let test = context.cargo(["test", "--no-fail-fast", "--workspace", "--features", &features]);
    checks.run_leaving_nothing(test.args(test_targets(&names)))?;
    checks.tested()
}

fn e2e(context: &Context) -> Result<Outcome> {
    let names: Vec<&str> = integration_tests(context.workspace.facade()?).filter(|name| !is_ui(name)).collect();
    let mut checks = Checks::default();
    run_programs(context, &names, |folder| folder == context.root, &mut checks)?;
    checks.tested()
}

/// Runs the tests of these names whose package lies in a folder that is wanted: they wait for most
/// of their time, so several run at once.
fn run_programs(
    context: &Context,
    names: &[&str],
    is_wanted: impl Fn(&Path) -> bool,
    checks: &mut Checks,
) -> Result<()> {
    openssh::ensure();
    let mut built = programs::build(context, EVERYTHING.into_iter().chain(test_targets(names)))?;
    built.retain(|program| is_wanted(&program.folder));
    programs::run(built, &variables(context)?, AT_ONCE, checks)
}

/// The environment variables that describe this machine to tests.
fn variables(context: &Context) -> Result<Vec<(&'static str, PathBuf)>> {
    Ok(vec![("SKYWARD_MOTO_PYTHON", Environment::moto(context)?.program("python"))])
}

fn test_targets<'a>(names: &[&'a str]) -> impl Iterator<Item = &'a str> {
    names.iter().flat_map(|name| ["--test", *name])
}

/// Tests, without a stop at the first failure. What they need of the system is there then.
fn cargo_test(context: &Context) -> Run {
    openssh::ensure();
    context.cargo(["test", "--no-fail-fast"]).args(EVERYTHING)
}

fn integration_tests(package: &Package) -> impl Iterator<Item = &str> {
    package.targets("test").map(|target| target.name.as_str())
}

fn is_ui(name: &str) -> bool {
    name == "ui" || name.starts_with("ui_")
}

const FACADE: &str = "skyward";
/// The same packages and features in every test step, so that nothing is built twice.
const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];
/// Test programs that run at the same time.
const AT_ONCE: usize = 2;
