//! Which crates the packages may depend on.

use anyhow::{Result, bail};

use crate::context::Context;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "dependencies",
        about: "the default features pull no cloud SDK, and the packages depend on each other one way",
        run: dependencies,
    }]
}

fn dependencies(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    for package in &context.workspace.packages {
        let Some((_, allowed)) = DIRECTION.iter().find(|(name, _)| *name == package.name) else {
            bail!("DIRECTION has no entry for the package {}: add the packages that it may depend on", package.name);
        };
        let ours = package.dependencies.iter().filter(|dependency| !dependency.is_for_tests());
        for dependency in ours.map(|dependency| dependency.name.as_str()) {
            if DIRECTION.iter().any(|(name, _)| *name == dependency) && !allowed.contains(&dependency) {
                checks.fail(format!("{} depends on {dependency}, which comes after it", package.name));
            }
        }
    }
    let tree =
        context.cargo(["tree", "--package=skyward", "--edges=normal,build,dev", "--prefix=none", "--format={p}"]);
    let mut names: Vec<String> =
        tree.read()?.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect();
    names.sort();
    names.dedup();
    for name in names.iter().filter(|name| is_cloud_sdk(name)) {
        checks.fail(format!("the default features pull the cloud SDK crate {name}"));
    }
    checks.outcome(format!("{} crates with the default features", names.len()))
}

/// Whether a crate is of the SDK of a cloud, or needs it.
pub(crate) fn is_cloud_sdk(name: &str) -> bool {
    CLOUD.iter().any(|prefix| name.starts_with(prefix))
}

/// What begins with it belongs to the SDK of a cloud.
const CLOUD: &[&str] = &["aws-", "aws_", "rusoto", "azure", "google-cloud", "gcloud", "gcp", "skyward-aws"];

/// Our packages, each with those of ours that it may depend on.
const DIRECTION: &[(&str, &[&str])] = &[
    ("skyward-macros", &[]),
    ("skyward-core", &[]),
    ("skyward-plugins", &["skyward-core"]),
    ("skyward-aws", &["skyward-core"]),
    ("skyward-aws-testkit", &[]),
    ("skyward", &["skyward-macros", "skyward-core", "skyward-plugins", "skyward-aws"]),
    ("xtask", &[]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_crates_are_told_from_others() {
        assert!(is_cloud_sdk("aws-sdk-ec2") && is_cloud_sdk("azure_core"));
        assert!(!is_cloud_sdk("await-tree") && !is_cloud_sdk("skyward-core"));
    }
}
