//! Cargo's description of the workspace, so that nothing keeps a list of packages.

use std::collections::{BTreeMap, BTreeSet};
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
    uses_default_features: bool,
    features: Vec<String>,
}

/// What cargo builds of a package: a library, a program, a test.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// The name of the target.
    pub name: String,
    /// The file with the root of its crate.
    pub src_path: PathBuf,
    kind: Vec<String>,
    /// The features without which cargo does not build it.
    #[serde(default, rename = "required-features")]
    pub required_features: Vec<String>,
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
        !self.dependencies.iter().any(|dependency| {
            !dependency.optional
                && (is_cloud_sdk(&dependency.name)
                    || dependency.features.iter().any(|feature| feature == CLOUD_FEATURE))
        })
    }

    /// The features that a user may name.
    pub fn public_features(&self) -> impl Iterator<Item = &str> {
        self.features.keys().map(String::as_str).filter(|name| *name != DEFAULT)
    }

    /// Those without the SDK of a cloud.
    pub fn light_features(&self) -> impl Iterator<Item = &str> {
        self.public_features().filter(|feature| *feature != CLOUD_FEATURE)
    }

    /// All of its features that are on when these are.
    pub fn enabled<'a>(&'a self, features: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
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
    pub fn features_of_tests(&self) -> impl Iterator<Item = &str> {
        let own =
            self.dependencies.iter().filter(|dependency| dependency.is_for_tests() && dependency.name == self.name);
        own.flat_map(|own| {
            let default = own.uses_default_features.then_some(DEFAULT);
            default.into_iter().chain(own.features.iter().map(String::as_str))
        })
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
/// The feature that names those that are on by default.
pub const DEFAULT: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_crates_are_distinguished_from_others() {
        assert!(is_cloud_sdk("aws-sdk-ec2") && is_cloud_sdk("azure_core"));
        assert!(!is_cloud_sdk("await-tree") && !is_cloud_sdk("skyward-core"));
    }

    #[test]
    fn a_package_needs_the_sdk_of_a_cloud_unless_its_dependency_is_optional() {
        let is_light =
            |name, optional, features| package("{}", &dependency(name, "null", optional, true, features)).is_light();
        assert!(!is_light("aws-sdk-ec2", false, "[]") && !is_light("p", false, r#"["aws"]"#));
        assert!(is_light("aws-sdk-ec2", true, "[]") && is_light("p", true, r#"["aws"]"#) && is_light("p", false, "[]"));
    }

    fn package(features: &str, dependencies: &str) -> Package {
        let text = format!(
            r#"{{"name": "p", "rust_version": null, "repository": null, "description": null, "readme": null,
                "keywords": [], "categories": [], "publish": null, "manifest_path": "/p/Cargo.toml",
                "features": {features}, "dependencies": [{dependencies}], "targets": []}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn dependency(name: &str, kind: &str, optional: bool, default: bool, features: &str) -> String {
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
