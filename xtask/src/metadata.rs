//! Cargo's description of the workspace, so that no step keeps a list of packages.

use std::collections::{BTreeMap, BTreeSet};
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
    uses_default_features: bool,
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
        self.features.keys().map(String::as_str).filter(|name| *name != DEFAULT)
    }

    /// Those without the SDK of a cloud.
    pub(crate) fn light_features(&self) -> impl Iterator<Item = &str> {
        self.public_features().filter(|feature| *feature != CLOUD)
    }

    /// All of its features that are on when these are.
    pub(crate) fn enabled<'a>(&'a self, features: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
        let mut enabled = BTreeSet::new();
        let mut waiting: Vec<&str> = features.into_iter().collect();
        while let Some(feature) = waiting.pop() {
            // Other names in the list of a feature are dependencies and their features.
            if let Some(further) = self.features.get(feature)
                && enabled.insert(feature)
            {
                waiting.extend(further.iter().map(String::as_str));
            }
        }
        enabled
    }

    /// Those that are on in every build of its tests: a package that depends on itself for its tests
    /// chooses features there.
    pub(crate) fn features_of_tests(&self) -> impl Iterator<Item = &str> {
        let own =
            self.dependencies.iter().filter(|dependency| dependency.is_for_tests() && dependency.name == self.name);
        own.flat_map(|own| {
            let default = own.uses_default_features.then_some(DEFAULT);
            default.into_iter().chain(own.features.iter().map(String::as_str))
        })
    }
}

impl Dependency {
    pub(crate) fn is_for_tests(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

/// The feature that needs the SDK of a cloud.
pub(crate) const CLOUD: &str = "aws";
/// The feature that names those that are on by default.
pub(crate) const DEFAULT: &str = "default";

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

    #[test]
    fn a_feature_enables_those_in_its_list_and_their_lists() {
        let package = package(r#"{"a": ["b", "dep:x", "y/b2"], "b": ["c"], "c": [], "d": ["a"]}"#, "");
        assert_eq!(package.enabled(["a"]), BTreeSet::from(["a", "b", "c"]));
        assert_eq!(package.enabled([]), BTreeSet::new());
    }

    #[test]
    fn a_dependency_on_itself_chooses_features_for_tests() {
        let features = r#"{"default": ["a"], "a": [], "b": []}"#;
        let chosen = |own: &str| package(features, own).features_of_tests().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(chosen(&dependency("p", r#""dev""#, false, true, r#"["b"]"#)), ["default", "b"]);
        assert_eq!(chosen(&dependency("p", r#""dev""#, false, false, r#"["b"]"#)), ["b"]);
        assert!(chosen(&dependency("q", r#""dev""#, false, true, r#"["b"]"#)).is_empty());
    }
}
