//! The folders of the project and its caches, and cargo's description of the workspace.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::metadata::Workspace;
use crate::process::Run;

/// Where the project and its caches are, and which packages the project has.
#[derive(Debug)]
pub struct Context {
    /// The root of the repository.
    pub root: PathBuf,
    /// Where tools are installed and kept between runs.
    pub cache: PathBuf,
    /// The project's packages.
    pub workspace: Workspace,
}

impl Context {
    /// Finds the repository that this program was built from.
    ///
    /// # Errors
    ///
    /// There is no folder for caches, or cargo cannot read the workspace.
    pub fn discover() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.ancestors().nth(2).context("the kit lies in tools/kit of the repository")?.to_path_buf();
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
    pub fn scratch(&self) -> PathBuf {
        self.workspace.target_directory.join("xtask")
    }

    /// A cargo command in the root of the repository.
    pub fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        Run::new(cargo()).args(arguments).dir(&self.root)
    }
}

/// The cargo that runs this program, or else the one in the search path.
pub fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}
