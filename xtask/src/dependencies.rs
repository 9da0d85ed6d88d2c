//! Which crates the packages may depend on.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::context::Context;
use crate::metadata::is_cloud_sdk;
use crate::selection::Selection;
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
    let tree = context.cargo(["tree", "--package=skyward", "--edges=normal,build", "--prefix=none", "--format={p}"]);
    let tree = tree.read()?;
    let crates: BTreeSet<(&str, &str)> = tree.lines().filter_map(crate_of).collect();
    for (name, _) in crates.iter().filter(|(name, _)| is_cloud_sdk(name)) {
        checks.fail(format!("the default features pull the cloud SDK crate {name}"));
    }
    compare_builds(context, &mut checks)?;
    checks.outcome(format!("a service compiles {} crates with the default features", crates.len()))
}

/// Compares the features of crates in builds without the SDK of a cloud with those in builds of
/// everything: a crate whose features differ is compiled twice, with all that depend on it.
fn compare_builds(context: &Context, checks: &mut Checks) -> Result<()> {
    let tree = |selection: Selection| {
        let tree = context.cargo(["tree", "--edges=normal,build,dev", "--prefix=none", "--format={p} {f}"]);
        tree.args(selection.arguments(context)).read()
    };
    for line in differing(&tree(Selection::Light)?, &tree(Selection::Everything)?) {
        checks.fail(format!(
            "builds without the SDK of a cloud compile {line} with features that no build of everything has; \
             name the missing ones in xtask/Cargo.toml"
        ));
    }
    Ok(())
}

/// The crates of a registry in a tree, with their features, that another tree does not have so.
fn differing<'a>(tree: &'a str, other: &str) -> BTreeSet<&'a str> {
    // Behind a crate that is listed again is a mark.
    fn crates(tree: &str) -> impl Iterator<Item = &str> {
        tree.lines().map(|line| line.trim_end_matches(" (*)").trim_end())
    }
    let other: BTreeSet<&str> = crates(other).collect();
    // Those of this repository have a path, and depend on more with the features of a cloud.
    crates(tree).filter(|line| !line.is_empty() && !line.contains(" (/") && !other.contains(line)).collect()
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
    ("skyward-aws-testkit", &[]),
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

    #[test]
    fn crates_whose_features_differ_are_found() {
        let light = "a v1.0.0 std\nb v1.0.0 \nours v0.1.0 (/x) f\nc v1.0.0 default,std (*)\n\n";
        let full = "a v1.0.0 std (*)\nb v1.0.0 std\nours v0.1.0 (/x) f,aws\nc v1.0.0 default,std\n";
        assert_eq!(differing(light, full), BTreeSet::from(["b v1.0.0"]));
    }
}
