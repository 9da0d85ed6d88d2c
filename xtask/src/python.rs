//! Lints, types and tests of the Python code, in an environment of their own.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use crate::process::Run;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step { name: "python-lint", about: "ruff and mypy --strict have nothing to say", run: lint },
        Step { name: "python-test", about: "pytest of the worker and of the plugins' hooks", run: test },
    ]
}

/// The environment with the pinned tools of `python-requirements.txt`.
pub(crate) struct Tools {
    bin: PathBuf,
}

impl Tools {
    /// Builds the environment unless it is there; two processes at once build one.
    pub(crate) fn install(context: &Context) -> Result<Self> {
        let requirements = context.root.join("xtask/python-requirements.txt");
        let text =
            fs::read_to_string(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
        let python = Interpreter::find()?;
        let mut hash = DefaultHasher::new();
        (&text, &python.identity).hash(&mut hash);
        let folder = context.cache.join(format!("{:016x}", hash.finish()));
        fs::create_dir_all(&context.cache)
            .with_context(|| format!("cannot make the folder {}", context.cache.display()))?;
        let lock = File::create(folder.with_extension("lock"))?;
        lock.lock().context("cannot lock the folder of the Python tools")?;
        let complete = folder.join("complete");
        if !complete.exists() {
            if folder.exists() {
                fs::remove_dir_all(&folder).context("cannot remove a Python environment that was left half built")?;
            }
            println!("installing the Python tools into {}", folder.display());
            build(&python, &folder, &requirements)?;
            File::create(complete)?;
        }
        Ok(Self { bin: folder.join("bin") })
    }

    /// One of the environment's programs, which keeps its caches out of the source tree.
    pub(crate) fn run(&self, program: &str, context: &Context) -> Run {
        let caches = context.scratch();
        Run::new(self.bin.join(program))
            .quiet_env("PYTHONDONTWRITEBYTECODE", "1")
            .quiet_env("RUFF_CACHE_DIR", caches.join("ruff"))
            .quiet_env("MYPY_CACHE_DIR", caches.join("mypy"))
            .quiet_env("MYPYPATH", context.root.join("skyward-core/python"))
    }
}

/// A Python that is new enough.
struct Interpreter {
    path: PathBuf,
    /// Changes when the environments made with it have to be made anew.
    identity: String,
}

impl Interpreter {
    fn find() -> Result<Self> {
        for name in ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"] {
            let script = "import sys; assert sys.version_info >= (3, 10); print(sys.executable); print(sys.version)";
            if let Ok(answer) = Run::new(name).args(["-c", script]).read()
                && let Some(path) = answer.lines().next()
            {
                return Ok(Self { path: path.into(), identity: answer });
            }
        }
        bail!(
            "no Python of at least 3.10 in the search path (tried python3 and python3.10 to 3.14); install one: apt-get install python3 python3-venv"
        )
    }
}

/// With uv where there is one: it is several times faster.
fn build(python: &Interpreter, folder: &Path, requirements: &Path) -> Result<()> {
    let install = ["--quiet", "--require-hashes", "--requirement"];
    if Run::new("uv").args(["--version"]).read().is_ok() {
        Run::new("uv").args(["venv", "--quiet", "--python"]).args([&python.path, folder]).check()?;
        let run = Run::new("uv").args(["pip", "install", "--python"]).args([folder.join("bin/python")]);
        run.args(install).args([requirements]).check()?;
    } else {
        Run::new(&python.path)
            .args(["-m", "venv"])
            .args([folder])
            .check()
            .context("cannot make a Python environment; on Debian it needs the package python3-venv")?;
        let run = Run::new(folder.join("bin/python")).args(["-m", "pip", "install"]);
        run.args(install).args([requirements]).quiet_env("PIP_DISABLE_PIP_VERSION_CHECK", "1").check()?;
    }
    Ok(())
}

fn lint(context: &Context) -> Result<Outcome> {
    let tools = Tools::install(context)?;
    let mut checks = Checks::default();
    checks.run(&tools.run("ruff", context).args(["check", "."]).dir(&context.root))?;
    checks.run(&tools.run("ruff", context).args(["format", "--check", "."]).dir(&context.root))?;
    for project in projects(context) {
        checks.run(&tools.run("mypy", context).args(["--strict", "."]).dir(project))?;
    }
    for payloads in ["examples/payloads", "docs/payloads"].map(|folder| context.root.join(folder)) {
        if payloads.exists() {
            let mypy = tools.run("mypy", context).args(["--strict", "--ignore-missing-imports"]);
            checks.run(&mypy.args([payloads]).dir(&context.root))?;
        }
    }
    checks.outcome("")
}

fn test(context: &Context) -> Result<Outcome> {
    let tools = Tools::install(context)?;
    let mut checks = Checks::default();
    let python_path = env::join_paths(projects(context))?;
    for project in projects(context).into_iter().filter(|project| project.join("tests").exists()) {
        let pytest = tools.run("python", context).args(["-m", "pytest", "-p", "no:cacheprovider", "--timeout=120"]);
        checks.run(&pytest.env("PYTHONPATH", &python_path).dir(project))?;
    }
    checks.tested()
}

/// The `python` folders of the workspace's packages.
fn projects(context: &Context) -> Vec<PathBuf> {
    let folders = context.workspace.packages.iter().map(|package| package.folder().join("python"));
    folders.filter(|folder| folder.is_dir()).collect()
}
