//! A Python with moto: the one that the test's environment names, or one that is made once in the
//! user's cache.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Finds the Python, or makes it, which takes a minute. Two processes that do so at once make one.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(python) = std::env::var_os(VARIABLE).filter(|python| !python.is_empty()) {
        let python = PathBuf::from(python);
        if !python.is_file() {
            bail!("{VARIABLE} names {}, which is no file", python.display());
        }
        return Ok(python);
    }
    let version = read(Command::new("python3").arg("--version"))
        .context("moto needs a python3 of at least 3.10 in the search path: apt-get install python3 python3-venv")?;
    let mut hash = DefaultHasher::new();
    (REQUIREMENTS, version).hash(&mut hash);
    let folder = cache()?.join(format!("moto-{:016x}", hash.finish()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let lock = File::create(folder.with_extension("lock"))?;
    lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    let complete = folder.join("complete");
    if !complete.exists() {
        fs::remove_dir_all(&folder).context("cannot remove a Python environment that was left half built")?;
        make(&folder)?;
        File::create(complete)?;
    }
    Ok(folder.join("bin/python"))
}

fn make(folder: &Path) -> Result<()> {
    read(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .context("cannot make a Python environment for moto; on Debian it needs the package python3-venv")?;
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--require-hashes", "--disable-pip-version-check", "--requirement"]);
    read(pip.arg(&requirements)).context("cannot install moto")?;
    Ok(())
}

/// The output of a command; fails unless the command exits with 0.
fn read(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where the project keeps what it makes for a user.
pub(crate) fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("skyward"))
}

/// The variable that names a Python with moto; `cargo xtask test` sets it.
const VARIABLE: &str = "SKYWARD_MOTO_PYTHON";
const REQUIREMENTS: &str = include_str!("../../../tools/kit/requirements/moto.txt");
