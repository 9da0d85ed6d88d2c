//! Lints, types and tests of the Python code.

use std::env;
use std::path::PathBuf;

use anyhow::Result;

use crate::context::Context;
use crate::environment::Environment;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step { name: "python-lint", about: "ruff and mypy --strict report no problem", run: lint },
        Step { name: "python-test", about: "pytest of the worker and of the plugins' hooks", run: test },
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
    for folder in ["examples/payloads", "docs/payloads", "benches", "xtask/bench", "xtask/count"]
        .map(|folder| context.root.join(folder))
    {
        if folder.exists() {
            let mypy = tools.run("mypy", context).args(["--strict", "--ignore-missing-imports"]);
            checks.run(&mypy.args([folder]).dir(&context.root))?;
        }
    }
    checks.outcome("")
}

fn test(context: &Context) -> Result<Outcome> {
    let frameworks = Environment::frameworks(context)?;
    let mut checks = Checks::default();
    let python_path = env::join_paths(projects(context))?;
    for project in projects(context).into_iter().filter(|project| project.join("tests").exists()) {
        let pytest = frameworks.run("python", context).args(["-m", "pytest", "-p", "no:cacheprovider", "-r", "fEs"]);
        let pytest = pytest.args(["--timeout=300"]).env("PYTHONPATH", &python_path);
        checks.run_leaving_nothing(pytest.dir(project))?;
    }
    checks.tested()
}

/// The `python` folders of the workspace's packages.
fn projects(context: &Context) -> Vec<PathBuf> {
    let folders = context.workspace.packages.iter().map(|package| package.folder().join("python"));
    folders.filter(|folder| folder.is_dir()).collect()
}
