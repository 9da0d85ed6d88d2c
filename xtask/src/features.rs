//! Features only add: each builds alone, and the crate's page lists all of them.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::metadata::{DEFAULT, Package};
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "features",
        about: "each package builds without features, with each one alone and with the default ones, its tests with \
                none and the default ones; the page of the crate lists them",
        run: features,
    }]
}

fn features(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    check_table(context, &mut checks)?;
    let mut count = 0;
    // Packages that need the SDK of a cloud have no features of their own, and the lints check them.
    for package in context.workspace.packages.iter().filter(|package| package.is_light()) {
        for arguments in builds(package) {
            // In the common folder, where the lints have left most crates with the same features.
            let check = context.cargo(["check", "--quiet", "--package", &package.name]).args(arguments);
            checks.run_without_warnings(&check)?;
            count += 1;
        }
    }
    checks.outcome(format!("{count} builds"))
}

/// The arguments of cargo for each build of a package: as others compile the package, and then with
/// its tests, for which further features and dependencies are on. What another build has checked with
/// the same features is left out.
fn builds(package: &Package) -> Vec<Vec<&str>> {
    let product = if package.has_library() { "--lib" } else { "--bins" };
    let of_tests: Vec<&str> = package.features_of_tests().collect();
    let mut builds = Vec::new();
    for (target, always) in [(product, &[][..]), ("--tests", &of_tests)] {
        let mut checked = BTreeSet::new();
        // Tests take several times as long as the product, and a plain `cargo test` has the defaults.
        let alone = package.light_features().filter(|_| target == product);
        for choice in std::iter::once(None).chain(alone.map(Some)).chain([Some(DEFAULT)]) {
            let mut enabled = package.enabled(always.iter().copied().chain(choice));
            enabled.remove(DEFAULT);
            if checked.insert(enabled) {
                let features = choice.into_iter().flat_map(|feature| ["--features", feature]);
                builds.push([target, "--no-default-features"].into_iter().chain(features).collect());
            }
        }
    }
    builds
}

/// Compares the table of features on the facade's page with the features that the facade has, and
/// with those that are on by default.
fn check_table(context: &Context, checks: &mut Checks) -> Result<()> {
    let facade = context.workspace.facade()?;
    let page = facade.folder().join("src/lib.rs");
    let text = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let default = facade.features.get("default").map(Vec::as_slice).unwrap_or_default();
    let features: BTreeSet<_> =
        facade.public_features().map(|name| (name, default.iter().any(|default| default == name))).collect();
    let rows: BTreeSet<_> = rows(&text).collect();
    for (name, is_default) in features.symmetric_difference(&rows) {
        let by_default = if *is_default { "by default" } else { "not by default" };
        checks.fail(format!("{} and the manifest differ in the feature `{name}`, {by_default}", page.display()));
    }
    Ok(())
}

/// The features in the rows of the table, with whether each is on by default.
fn rows(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let table = text.lines().skip_while(|line| *line != "//! | feature | by default | what it adds |").skip(2);
    table.map_while(|line| {
        let (name, rest) = line.strip_prefix("//! | `")?.split_once('`')?;
        Some((name, rest.starts_with(" | yes |")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_with_the_same_features_are_left_out() {
        // The default features are those of `a`, and `b` is on in all tests.
        let text = r#"{"name": "p", "rust_version": null, "repository": null, "description": null, "readme": null,
            "keywords": [], "categories": [], "publish": null, "manifest_path": "/p/Cargo.toml", "targets": [],
            "features": {"default": ["a"], "a": [], "b": []},
            "dependencies": [{"name": "p", "kind": "dev", "optional": false, "uses_default_features": false,
                "features": ["b"]}]}"#;
        let package: Package = serde_json::from_str(text).unwrap();
        let builds: Vec<String> = builds(&package).iter().map(|arguments| arguments.join(" ")).collect();
        let expected = [
            "--bins --no-default-features",
            "--bins --no-default-features --features a",
            "--bins --no-default-features --features b",
            "--tests --no-default-features",
            "--tests --no-default-features --features default",
        ];
        assert_eq!(builds, expected);
    }

    #[test]
    fn rows_of_the_table_are_read() {
        let page = "//! | `x` | no |\n//! | feature | by default | what it adds |\n//! |---|---|---|\n\
                    //! | `macros` | yes | a |\n//! | `ssh` | no | b |\n\n//! | `y` | yes | c |\n";
        assert_eq!(rows(page).collect::<Vec<_>>(), [("macros", true), ("ssh", false)]);
    }
}
