//! Lints, types and tests of the Python code.

use std::env;
use std::path::PathBuf;

use anyhow::Result;

use crate::context::Context;
use crate::environment::Environment;
use crate::process::Run;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step { name: "python-lint", about: "ruff and mypy --strict report no problem", run: lint },
        Step { name: "python-unit", about: "pytest of the worker, without frameworks", run: unit },
        Step {
            name: "python-test",
            about: "pytest of the worker and of the plugins' hooks, with frameworks",
            run: test,
        },
    ]
}

fn lint(context: &Context) -> Result<Outcome> {
    let tools = Environment::tools(context)?;
    let mut checks = Checks::default();
    checks.run(&tools.run("ruff", context).args(["check", "."]).dir(&context.root))?;
    checks.run(&tools.run("ruff", context).args(["format", "--check", "."]).dir(&context.root))?;
    for project in projects(context) {
        checks.run(&tools.run("mypy", context).args(["--strict", "."]).dir(project))?;
    }
    for folder in [
        "examples/payloads",
        "docs/payloads",
        "tools/bench/benches",
        "tools/bench/peers",
        "tools/chaos/src/client",
        "xtask/count",
        "xtask/modules",
    ]
    .map(|folder| context.root.join(folder))
    {
        let mypy = tools.run("mypy", context).args(["--strict", "--ignore-missing-imports"]);
        checks.run(&mypy.args([folder]).dir(&context.root))?;
    }
    checks.outcome("")
}

/// The tests that need pytest and NumPy alone. Each starts processes of its own, and waits for most
/// of its time, so several run at once.
fn unit(context: &Context) -> Result<Outcome> {
    let tools = Environment::tools(context)?;
    let mut checks = Checks::default();
    let project = context.root.join(WORKER);
    let pytest = pytest(&tools, context)?.args(["-m", "not frameworks", "--numprocesses", PROCESSES]);
    checks.run_leaving_nothing(pytest.dir(project))?;
    checks.tested()
}

/// The tests that need frameworks: those of the worker that are marked so, and those of the plugins.
fn test(context: &Context) -> Result<Outcome> {
    let frameworks = Environment::frameworks(context)?;
    let mut checks = Checks::default();
    for project in projects(context).into_iter().filter(|project| project.join("tests").exists()) {
        let pytest = pytest(&frameworks, context)?.args(["--numprocesses", PROCESSES]);
        let pytest = if project.ends_with(WORKER) { pytest.args(["-m", "frameworks"]) } else { pytest };
        checks.run_leaving_nothing(pytest.dir(project))?;
    }
    checks.tested()
}

fn pytest(environment: &Environment, context: &Context) -> Result<Run> {
    let python_path = env::join_paths(projects(context))?;
    let pytest = environment.run("python", context).args(["-m", "pytest", "-p", "no:cacheprovider", "-r", "fEs"]);
    Ok(pytest.args(["--timeout=300", SLOWEST]).env("PYTHONPATH", &python_path))
}

/// The `python` folders of the workspace's packages.
fn projects(context: &Context) -> Vec<PathBuf> {
    let folders = context.workspace.packages.iter().map(|package| package.folder().join("python"));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// The worker's own folder.
const WORKER: &str = "skyward-core/python";
/// Processes of pytest at the same time.
const PROCESSES: &str = "3";
/// Lists the slowest tests.
const SLOWEST: &str = "--durations=10";
