//! Format, lints and tests of the Rust code.

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::metadata::Package;
use crate::openssh;
use crate::process::Run;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn lint_steps() -> Vec<Step> {
    vec![
        Step { name: "format", about: "rustfmt has nothing to change", run: format },
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
    checks.run(&clippy().args(["--", "-D", "warnings"]))?;
    checks.run(&clippy().args(["--all-features", "--", "-D", "warnings"]))?;
    checks.outcome("")
}

/// The members' own tests. Those of the root package start pools, and have a step of their own.
fn test(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let members = context.workspace.packages.iter().filter(|package| package.name != FACADE);
    let names: Vec<&str> = members.flat_map(integration_tests).filter(|name| !is_ui(name)).collect();
    checks.run_leaving_nothing(test_targets(context, &names).args(["--lib", "--bins"]))?;
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
    checks.outcome("")
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
    run_tests(context, &names)
}

fn e2e(context: &Context) -> Result<Outcome> {
    let names: Vec<&str> = integration_tests(context.workspace.facade()?).filter(|name| !is_ui(name)).collect();
    run_tests(context, &names)
}

fn run_tests(context: &Context, names: &[&str]) -> Result<Outcome> {
    if names.is_empty() {
        return Ok(Outcome::skipped("the workspace has no such test"));
    }
    let mut checks = Checks::default();
    checks.run_leaving_nothing(test_targets(context, names))?;
    checks.tested()
}

fn test_targets(context: &Context, names: &[&str]) -> Run {
    cargo_test(context).args(names.iter().flat_map(|name| ["--test", name]))
}

/// The same packages and features in every test step, so that nothing is built twice; and no stop at the first failure. What they need of the system is there then.
fn cargo_test(context: &Context) -> Run {
    openssh::ensure();
    context.cargo(["test", "--workspace", "--all-features", "--no-fail-fast"])
}

fn integration_tests(package: &Package) -> impl Iterator<Item = &str> {
    package.targets("test").map(|target| target.name.as_str())
}

fn is_ui(name: &str) -> bool {
    name == "ui" || name.starts_with("ui_")
}

const FACADE: &str = "skyward";
