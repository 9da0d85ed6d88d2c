//! The SDK of a cloud: what belongs to it, which packages need it, and that it is compiled once. It
//! takes minutes and gigabytes for each set of features.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::context::Context;
use crate::metadata::{CLOUD, Package};
use crate::step::Checks;

/// Whether a crate is of the SDK of a cloud, or needs it.
pub(crate) fn is_of_cloud(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether each build of the package compiles the SDK of a cloud.
pub(crate) fn is_needed_by(package: &Package) -> bool {
    package.dependencies.iter().any(|dependency| {
        !dependency.optional
            && (is_of_cloud(&dependency.name) || dependency.features.iter().any(|feature| feature == CLOUD))
    })
}

/// Compares the features below the client for EC2: a test build of a package alone must have those
/// that a test build of the whole workspace has.
pub(crate) fn compare_features(context: &Context, checks: &mut Checks) -> Result<()> {
    let whole = tree(context, &["--workspace", "--all-features"])?;
    let whole = below_client(&whole);
    ensure!(!whole.is_empty(), "no package of the workspace needs {CLIENT}");
    for package in context.workspace.packages.iter().filter(|package| is_needed_by(package)) {
        let alone = tree(context, &["--package", &package.name])?;
        for (name, features) in below_client(&alone).difference(&whole) {
            let others: Vec<String> =
                whole.iter().filter(|(other, _)| other == name).map(|(_, features)| format!("[{features}]")).collect();
            checks.fail(format!(
                "a test build of {} alone has {name} with the features [{features}], one of the whole workspace with \
                 {}: it would compile {CLIENT} once more, which takes minutes and 7 GB. Switch the missing features on \
                 in the manifest of {ALIGNED}",
                package.name,
                others.join(" and ")
            ));
        }
    }
    Ok(())
}

/// Cargo's tree of what these packages and their tests are built of.
fn tree(context: &Context, packages: &[&str]) -> Result<String> {
    let tree = context.cargo(["tree", "--quiet", "--edges=normal,build,dev", "--prefix=depth", "--format={p}|{f}"]);
    tree.args(packages).read()
}

/// A crate with its version, and its features.
type Built<'a> = (&'a str, &'a str);

/// What the client is built of, in a tree of lines `2bytes v1.12.1|default,std`. Cargo lists what is
/// below a crate only once, and marks the other places with `(*)`.
fn below_client(tree: &str) -> BTreeSet<Built<'_>> {
    let mut below: BTreeMap<Built<'_>, BTreeSet<Built<'_>>> = BTreeMap::new();
    let mut path = Vec::new();
    for line in tree.lines() {
        let (depth, text) = line.split_at(line.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(line.len()));
        let Ok(depth) = depth.parse() else { continue };
        let Some(built) = text.trim_end_matches(" (*)").split_once('|') else { continue };
        path.truncate(depth);
        if let Some(above) = path.last() {
            below.entry(*above).or_default().insert(built);
        }
        path.push(built);
    }
    let is_client = |built: &Built<'_>| built.0.split(' ').next() == Some(CLIENT);
    let mut waiting: Vec<Built<'_>> = below.keys().copied().filter(is_client).collect();
    let mut found = BTreeSet::new();
    while let Some(built) = waiting.pop() {
        if found.insert(built) {
            waiting.extend(below.get(&built).into_iter().flatten());
        }
    }
    found
}

/// What begins with it belongs to the SDK of a cloud.
const PREFIXES: &[&str] = &["aws-", "aws_", "rusoto", "azure", "google-cloud", "gcloud", "gcp", "skyward-aws"];
/// The crate of the SDK of AWS that takes longest to compile.
const CLIENT: &str = "aws-sdk-ec2";
/// The package whose manifest switches features on for all others that need the client.
const ALIGNED: &str = "skyward-aws-testkit";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::{dependency, package};

    #[test]
    fn cloud_crates_are_distinguished_from_others() {
        assert!(is_of_cloud("aws-sdk-ec2") && is_of_cloud("azure_core"));
        assert!(!is_of_cloud("await-tree") && !is_of_cloud("skyward-core"));
    }

    #[test]
    fn a_package_needs_the_sdk_of_a_cloud_unless_its_dependency_is_optional() {
        let needs = |name, optional, features| {
            is_needed_by(&package("{}", &dependency(name, "null", optional, true, features)))
        };
        assert!(needs("aws-sdk-ec2", false, "[]") && needs("p", false, r#"["aws"]"#));
        assert!(!needs("aws-sdk-ec2", true, "[]") && !needs("p", true, r#"["aws"]"#) && !needs("p", false, "[]"));
    }

    #[test]
    fn the_crates_below_the_client_are_found_where_they_are_listed() {
        let tree =
            "0a v1|\n1b v1|std\n2c v1|\n1aws-sdk-ec2 v1|rt\n2b v1|std (*)\n2d v2 (proc-macro)|x,y\n1e v1|\n\n0f v1|\n";
        let expected = [("aws-sdk-ec2 v1", "rt"), ("b v1", "std"), ("c v1", ""), ("d v2 (proc-macro)", "x,y")];
        assert_eq!(below_client(tree), BTreeSet::from(expected));
    }
}
