//! What lies outside of the book is shown in the repository.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::context::Context;

pub(super) struct Repository {
    root: PathBuf,
    address: String,
}

impl Repository {
    pub(super) fn of(context: &Context) -> Result<Self> {
        let address = context.workspace.facade()?.repository.clone().context("the facade names no repository")?;
        Ok(Self { root: context.root.clone(), address })
    }

    /// Where a link leads that stands in a page of this folder.
    pub(super) fn address(&self, folder: impl AsRef<Path>, target: &str) -> String {
        let path = normal(&folder.as_ref().join(target.split('#').next().unwrap_or_default()));
        let heading = target.split_once('#').map_or(String::new(), |(_, heading)| format!("#{heading}"));
        let kind = if self.root.join(&path).is_dir() { "tree" } else { "blob" };
        format!("{}/{kind}/main/{}{heading}", self.address, path.display())
    }
}

/// The path without `..`.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_have_their_addresses() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
        let repository = Repository { root, address: "https://example.com/x".into() };
        assert_eq!(
            repository.address("docs", "../README.md#licence"),
            "https://example.com/x/blob/main/README.md#licence"
        );
        assert_eq!(repository.address("docs", "../examples"), "https://example.com/x/tree/main/examples");
    }
}
