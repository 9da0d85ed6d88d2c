//! Format, lints and tests of the Rust code.

use anyhow::{Context as _, Result};

use crate::book::html;
use crate::context::Context;
use crate::ignored::Which;
use crate::metadata::{Package, Target};
use crate::process::Run;
use crate::programs::{self, Program};
use crate::selection::Selection;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn fast_steps() -> Vec<Step> {
    vec![
        Step { name: "format", about: "rustfmt changes nothing", run: format },
        Step {
            name: "clippy",
            about: "no warning in libraries, programs and tests that need no SDK of a cloud",
            run: clippy,
        },
        Step {
            name: "unit",
            about: "tests of the libraries that need nothing but Rust and Python, and no SDK of a cloud",
            run: unit,
        },
    ]
}

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step {
            name: "clippy-cloud",
            about: "no warning in all packages and targets, with all features",
            run: clippy_cloud,
        },
        Step {
            name: "test",
            about: "the other tests of every package: with the SDK of a cloud, and on machines",
            run: test,
        },
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
    lint(context, Selection::Light, &["--lib", "--tests"])
}

fn clippy_cloud(context: &Context) -> Result<Outcome> {
    lint(context, Selection::Everything, &["--all-targets"])
}

fn lint(context: &Context, selection: Selection, targets: &[&str]) -> Result<Outcome> {
    let mut checks = Checks::default();
    let clippy = context.cargo(["clippy"]).args(selection.arguments(context)).args(targets);
    checks.run(&clippy.args(["--", "-D", "warnings"]))?;
    checks.outcome("")
}

/// Tests of the libraries that need no SDK of a cloud.
fn unit(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let programs = libraries(context)?;
    programs::run(programs, Which::Plain, context, &mut checks)?;
    checks.tested()
}

/// What `unit` leaves out: tests that need something of this machine, further features or the SDK of
/// a cloud, and those of programs.
fn test(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let libraries = libraries(context)?;
    let names = test_names(context, |_, _| true);
    let mut others = members(context, Selection::Everything, &["--lib", "--bins"], &names)?;
    others.retain(|program| !libraries.iter().any(|library| library.is_of_the_target(program)));
    programs::run(others, Which::All, context, &mut checks)?;
    programs::run(libraries, Which::Ignored, context, &mut checks)?;
    checks.tested()
}

fn doctest(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let test = context.cargo(["test", "--no-fail-fast", "--doc"]).args(Selection::Everything.arguments(context));
    checks.run_leaving_nothing(test)?;
    checks.tested()
}

fn rustdoc(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let doc = context.cargo(["doc", "--no-deps"]).args(Selection::Everything.arguments(context));
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
    for program in programs::build(context, Selection::Light, test_targets(&names))? {
        let test = Run::new(&program.path).dir(&program.folder);
        checks.run_leaving_nothing(test.env("CARGO_ENCODED_RUSTFLAGS", TRYBUILD))?;
    }
    checks.tested()
}

/// The root's tests, which start pools.
fn e2e(context: &Context) -> Result<Outcome> {
    let names: Vec<&str> = integration_tests(context.workspace.facade()?).filter(|name| !is_ui(name)).collect();
    let mut checks = Checks::default();
    let mut programs = programs::build(context, Selection::Light, test_targets(&names))?;
    programs.retain(|program| program.folder == context.root);
    programs::run(programs, Which::All, context, &mut checks)?;
    checks.tested()
}

/// The programs of the step `unit`. Tests that need further features reach machines, and most of them
/// are ignored.
fn libraries(context: &Context) -> Result<Vec<Program>> {
    let is_plain = |package: &Package, target: &Target| package.is_light() && target.required_features.is_empty();
    members(context, Selection::Light, &["--lib"], &test_names(context, is_plain))
}

/// Builds the members' own test programs, of these targets and with these integration tests. Those of
/// the root start pools, and have a step of their own, as have those that compare messages of the
/// compiler.
fn members(context: &Context, selection: Selection, targets: &[&str], names: &[&str]) -> Result<Vec<Program>> {
    let targets = targets.iter().copied().chain(test_targets(names));
    let mut programs = programs::build(context, selection, targets)?;
    // The root has tests of the same names.
    programs.retain(|program| program.folder != context.root || !program.is_integration);
    Ok(programs)
}

/// The names of the members' integration tests that are wanted.
fn test_names(context: &Context, is_wanted: impl Fn(&Package, &Target) -> bool) -> Vec<&str> {
    let members = context.workspace.packages.iter().filter(|package| package.name != FACADE);
    let tests = members.flat_map(|package| package.targets("test").map(move |target| (package, target)));
    let wanted = tests.filter(|(package, target)| is_wanted(package, target) && !is_ui(&target.name));
    wanted.map(|(_, target)| target.name.as_str()).collect()
}

fn test_targets<'a>(names: &[&'a str]) -> impl Iterator<Item = &'a str> {
    names.iter().flat_map(|name| ["--test", *name])
}

fn integration_tests(package: &Package) -> impl Iterator<Item = &str> {
    package.targets("test").map(|target| target.name.as_str())
}

fn is_ui(name: &str) -> bool {
    name == "ui" || name.starts_with("ui_")
}

/// The flags with which trybuild compiles a case. By itself, it compiles dependencies with other flags,
/// and then once more with these.
const TRYBUILD: &str = "--cfg\x1ftrybuild\x1f--verbose\x1f-A\x1fdead_code\x1f--diagnostic-width=140";
const FACADE: &str = "skyward";
