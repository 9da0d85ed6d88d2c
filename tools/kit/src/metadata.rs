//! Cargo's description of the workspace, so that nothing keeps a list of packages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::context::cargo;
use crate::process::Run;

/// The packages of the workspace.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    /// All packages.
    pub packages: Vec<Package>,
    /// The folder that cargo builds in.
    pub target_directory: PathBuf,
}

/// A package of the workspace, as its manifest describes it.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// The name of the package.
    pub name: String,
    /// The oldest Rust that compiles the package.
    pub rust_version: Option<String>,
    /// The address of the repository.
    pub repository: Option<String>,
    /// The description in the registry.
    pub description: Option<String>,
    /// The page in the registry.
    pub readme: Option<String>,
    /// The keywords in the registry.
    pub keywords: Vec<String>,
    /// The categories in the registry.
    pub categories: Vec<String>,
    /// The registries that it may be published to; nothing: all of them.
    publish: Option<Vec<String>>,
    manifest_path: PathBuf,
    /// The features, each with what it turns on.
    pub features: BTreeMap<String, Vec<String>>,
    /// The dependencies of all kinds.
    pub dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

/// A dependency of a package.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The name of the crate.
    pub name: String,
    /// `dev`, `build`, or nothing for an ordinary one.
    kind: Option<String>,
    optional: bool,
}

/// What cargo builds of a package: a library, a program, a test.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// The name of the target.
    pub name: String,
    /// The file with the root of its crate.
    pub src_path: PathBuf,
    kind: Vec<String>,
}

impl Workspace {
    /// Reads the workspace in a folder.
    ///
    /// # Errors
    ///
    /// Cargo cannot read the workspace.
    pub fn read(root: &Path) -> Result<Self> {
        let text = Run::new(cargo())
            .args(["metadata", "--format-version=1", "--no-deps"])
            .dir(root)
            .read()
            .context("cannot read the workspace")?;
        serde_json::from_str(&text).context("cannot read cargo's description of the workspace")
    }

    /// The package in the root of the repository.
    ///
    /// # Errors
    ///
    /// The workspace has no package of this name.
    pub fn facade(&self) -> Result<&Package> {
        self.packages.iter().find(|package| package.name == "skyward").context("there is no package `skyward`")
    }
}

impl Package {
    /// Whether it may be published.
    pub fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// The package's folder.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// Its targets of this kind: `lib`, `test`, `example`.
    pub fn targets(&self, kind: &str) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(move |target| target.kind.iter().any(|one| one == kind))
    }

    /// Whether others can depend on the package.
    pub fn has_library(&self) -> bool {
        self.targets("lib").chain(self.targets("proc-macro")).next().is_some()
    }

    /// Whether it can be compiled without the SDK of a cloud.
    pub fn is_light(&self) -> bool {
        !self.dependencies.iter().any(|dependency| !dependency.optional && is_cloud_sdk(&dependency.name))
    }

    /// The features that a user may name.
    pub fn public_features(&self) -> impl Iterator<Item = &str> {
        self.features.keys().map(String::as_str).filter(|name| *name != "default")
    }

    /// Those without the SDK of a cloud.
    pub fn light_features(&self) -> impl Iterator<Item = &str> {
        self.public_features().filter(|feature| *feature != CLOUD_FEATURE)
    }
}

/// Whether a crate is of the SDK of a cloud, or needs it.
pub fn is_cloud_sdk(name: &str) -> bool {
    CLOUD.iter().any(|prefix| name.starts_with(prefix))
}

impl Dependency {
    /// Whether only tests, examples and benches use the crate.
    pub fn is_for_tests(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

/// What begins with it belongs to the SDK of a cloud.
const CLOUD: &[&str] = &["aws-", "aws_", "rusoto", "azure", "google-cloud", "gcloud", "gcp", "skyward-aws"];
/// The feature that needs the SDK of a cloud.
const CLOUD_FEATURE: &str = "aws";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_crates_are_distinguished_from_others() {
        assert!(is_cloud_sdk("aws-sdk-ec2") && is_cloud_sdk("azure_core"));
        assert!(!is_cloud_sdk("await-tree") && !is_cloud_sdk("skyward-core"));
    }
}
