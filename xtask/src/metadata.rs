//! Cargo's description of the workspace, so that no step keeps a list of packages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::context::cargo;
use crate::process::Run;

/// The packages of the workspace.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) rust_version: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) readme: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// The registries that it may be published to; nothing: all of them.
    publish: Option<Vec<String>>,
    manifest_path: PathBuf,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev`, `build`, or nothing for an ordinary one.
    kind: Option<String>,
    pub(crate) optional: bool,
    pub(crate) features: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    kind: Vec<String>,
}

impl Workspace {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = Run::new(cargo())
            .args(["metadata", "--format-version=1", "--no-deps"])
            .dir(root)
            .read()
            .context("cannot read the workspace")?;
        serde_json::from_str(&text).context("cannot read cargo's description of the workspace")
    }

    /// The package in the root of the repository.
    pub(crate) fn facade(&self) -> Result<&Package> {
        self.packages.iter().find(|package| package.name == "skyward").context("there is no package `skyward`")
    }
}

impl Package {
    /// Whether it may be published.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// The package's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// Its targets of this kind: `lib`, `test`, `example`.
    pub(crate) fn targets(&self, kind: &str) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(move |target| target.kind.iter().any(|one| one == kind))
    }

    pub(crate) fn has_library(&self) -> bool {
        self.targets("lib").chain(self.targets("proc-macro")).next().is_some()
    }

    /// The features that a user may name.
    pub(crate) fn public_features(&self) -> impl Iterator<Item = &str> {
        self.features.keys().map(String::as_str).filter(|name| *name != "default")
    }

    /// Those without the SDK of a cloud.
    pub(crate) fn light_features(&self) -> impl Iterator<Item = &str> {
        self.public_features().filter(|feature| *feature != CLOUD)
    }
}

impl Dependency {
    pub(crate) fn is_for_tests(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

/// The feature that needs the SDK of a cloud.
pub(crate) const CLOUD: &str = "aws";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn package(features: &str, dependencies: &str) -> Package {
        let text = format!(
            r#"{{"name": "p", "rust_version": null, "repository": null, "description": null, "readme": null,
                "keywords": [], "categories": [], "publish": null, "manifest_path": "/p/Cargo.toml",
                "features": {features}, "dependencies": [{dependencies}], "targets": []}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn dependency(name: &str, kind: &str, optional: bool, default: bool, features: &str) -> String {
        format!(
            r#"{{"name": "{name}", "kind": {kind}, "optional": {optional}, "uses_default_features": {default},
                "features": {features}}}"#
        )
    }
}
