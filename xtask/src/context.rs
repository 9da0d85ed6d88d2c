//! What every step uses: the folders of the project and its caches, and cargo's description of the
//! workspace.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::metadata::Workspace;
use crate::process::Run;

pub(crate) struct Context {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// Where tools are installed and kept between runs.
    pub(crate) cache: PathBuf,
    pub(crate) workspace: Workspace,
}

impl Context {
    pub(crate) fn discover() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("the manifest of xtask lies in the root of the repository")?.to_path_buf();
        let cache = match env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => {
                PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
            }
        }
        .join("skyward/dev");
        let workspace = Workspace::read(&root)?;
        Ok(Self { root, cache, workspace })
    }

    /// Where steps put what they make and no one keeps.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.workspace.target_directory.join("xtask")
    }

    /// A cargo command in the root of the repository.
    pub(crate) fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(cargo()).args(arguments).dir(&self.root)
    }
}

/// The cargo that runs this program, or else the one in the search path.
pub(crate) fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}
