//! Which crates the packages may depend on.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::context::Context;
use crate::metadata::is_cloud_sdk;
use crate::sdk;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "dependencies",
        about: "the default features pull no cloud SDK, which all packages build with the same features, and the \
                packages depend on each other one way",
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
    let tree = context.cargo(["tree", "--package=skyward", "--edges=normal,build", "--prefix=none", "--format={p}"]);
    let tree = tree.read()?;
    let crates: BTreeSet<(&str, &str)> = tree.lines().filter_map(crate_of).collect();
    for (name, _) in crates.iter().filter(|(name, _)| is_cloud_sdk(name)) {
        checks.fail(format!("the default features pull the cloud SDK crate {name}"));
    }
    sdk::compare_features(context, &mut checks)?;
    checks.outcome(format!("a service compiles {} crates with the default features", crates.len()))
}

/// The name and the version in a line of cargo's tree, which has further words for macros, for
/// packages of this repository, and for crates that it lists again.
fn crate_of(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?))
}

/// Our packages, each with those of ours that it may depend on.
const DIRECTION: &[(&str, &[&str])] = &[
    ("skyward-python", &[]),
    ("skyward-macros", &["skyward-python"]),
    ("skyward-core", &[]),
    ("skyward-plugins", &["skyward-core"]),
    ("skyward-aws", &["skyward-core"]),
    ("skyward-aws-testkit", &["skyward-macros"]),
    ("skyward", &["skyward-macros", "skyward-core", "skyward-plugins", "skyward-aws"]),
    ("skyward-python-check", &["skyward-python"]),
    ("skyward-tools", &[]),
    ("skyward-bench", &["skyward-tools"]),
    ("skyward-chaos", &["skyward-tools", "skyward"]),
    ("xtask", &["skyward-tools"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_for_each_version() {
        let tree = "syn v2.0.119\nsyn v3.0.9\nskyward-macros v0.1.0 (proc-macro) (/home)\nsyn v2.0.119 (*)\n";
        let crates: BTreeSet<_> = tree.lines().filter_map(crate_of).collect();
        let expected = [("skyward-macros", "v0.1.0"), ("syn", "v2.0.119"), ("syn", "v3.0.9")];
        assert_eq!(crates, BTreeSet::from(expected));
    }
}
