//! The SDK of a cloud: what belongs to it, which packages need it, and that it is compiled once. It
//! takes minutes and gigabytes for each set of features.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::context::Context;
use crate::selection::Selection;
use crate::step::Checks;

/// Compares the features of crates with those in a test build of the whole workspace: a crate whose
/// features differ is compiled twice, with all that depend on it.
pub(crate) fn compare_features(context: &Context, checks: &mut Checks) -> Result<()> {
    let everything = tree(context, &Selection::Everything.arguments(context))?;
    compare_light(&tree(context, &Selection::Light.arguments(context))?, &everything, checks);
    compare_alone(context, &below_client(&everything), checks)
}

/// Compares those of builds without the SDK.
fn compare_light(light: &str, everything: &str, checks: &mut Checks) {
    let (light, everything) = (features(light), features(everything));
    for (name, features) in light.iter().filter(|(name, features)| everything.get(*name) != Some(*features)) {
        let features = features.iter().copied().collect::<Vec<_>>().join(",");
        checks.fail(format!(
            "a build without the SDK of a cloud has {name} with the features [{features}], and one of the whole \
             workspace with others: it would be compiled twice. Switch the missing features on in the manifest of xtask"
        ));
    }
}

/// Compares those below the client for EC2 in a test build of a package alone.
fn compare_alone(context: &Context, whole: &BTreeSet<Built<'_>>, checks: &mut Checks) -> Result<()> {
    ensure!(!whole.is_empty(), "no package of the workspace needs {CLIENT}");
    for package in context.workspace.packages.iter().filter(|package| !package.is_light()) {
        let alone = tree(context, &["--package".to_owned(), package.name.clone()])?;
        for (name, features) in below_client(&alone).difference(whole) {
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
fn tree(context: &Context, packages: &[String]) -> Result<String> {
    let tree = context.cargo(["tree", "--quiet", "--edges=normal,build,dev", "--prefix=depth", "--format={p}|{f}"]);
    tree.args(packages).read()
}

/// A crate with its version, and its features.
type Built<'a> = (&'a str, &'a str);

/// The features of each crate in a tree, on the host of a build and elsewhere: cargo does not list
/// these apart. Packages of this repository, which have a path, depend on more with the features of a
/// cloud.
fn features(tree: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, features) in tree.lines().filter_map(built).filter(|(name, _)| !name.contains(" (/")) {
        found.entry(name).or_default().extend(features.split(','));
    }
    found
}

/// The crate in a line of a tree.
fn built(line: &str) -> Option<Built<'_>> {
    line.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches(" (*)").split_once('|')
}

/// What the client is built of, in a tree of lines `2bytes v1.12.1|default,std`. Cargo lists what is
/// below a crate only once, and marks the other places with `(*)`.
fn below_client(tree: &str) -> BTreeSet<Built<'_>> {
    let mut below: BTreeMap<Built<'_>, BTreeSet<Built<'_>>> = BTreeMap::new();
    let mut path = Vec::new();
    for line in tree.lines() {
        let depth = &line[..line.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(line.len())];
        let (Ok(depth), Some(built)) = (depth.parse(), built(line)) else { continue };
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

/// The crate of the SDK of AWS that takes longest to compile.
const CLIENT: &str = "aws-sdk-ec2";
/// The package whose manifest switches features on for all others that need the client.
const ALIGNED: &str = "skyward-aws-testkit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_whose_features_differ_are_found() {
        let light = "0a v1|std\n1b v1|\n0ours v0 (/x)|f\n1c v1|default,std (*)\n\n";
        let everything = "0a v1|std (*)\n0b v1|std\n0ours v0 (/x)|aws,f\n0c v1|default,std\n";
        let mut checks = Checks::default();
        compare_light(light, everything, &mut checks);
        let error = checks.outcome("").err().unwrap().to_string();
        assert!(error.starts_with("a build without the SDK of a cloud has b v1 with the features []"), "{error}");
    }

    #[test]
    fn the_crates_below_the_client_are_found_where_they_are_listed() {
        let tree =
            "0a v1|\n1b v1|std\n2c v1|\n1aws-sdk-ec2 v1|rt\n2b v1|std (*)\n2d v2 (proc-macro)|x,y\n1e v1|\n\n0f v1|\n";
        let expected = [("aws-sdk-ec2 v1", "rt"), ("b v1", "std"), ("c v1", ""), ("d v2 (proc-macro)", "x,y")];
        assert_eq!(below_client(tree), BTreeSet::from(expected));
    }
}
