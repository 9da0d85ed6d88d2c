//! Features only add: each builds alone, and the crate's page lists all of them.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::metadata::Package;
use crate::sdk;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "features",
        about: "each package builds without features and with each one alone; the page of the crate lists them",
        run: features,
    }]
}

fn features(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    check_table(context, &mut checks)?;
    let mut count = 0;
    // The SDK of a cloud takes minutes and gigabytes for each set of features. Packages that need
    // it have no features of their own, and the lints check them with all features.
    let is_light = |package: &&Package| package.has_library() && !sdk::is_needed_by(package);
    for package in context.workspace.packages.iter().filter(is_light) {
        let check = || {
            let check =
                context.cargo(["check", "--quiet", "--lib", "--no-default-features", "--package", &package.name]);
            // A folder of its own, kept between runs: it builds while other steps do, and no other
            // step builds with its features.
            check.quiet_env("CARGO_TARGET_DIR", context.workspace.target_directory.join("features"))
        };
        let alone = package.light_features().map(|feature| check().args(["--features", feature]));
        for run in std::iter::once(check()).chain(alone) {
            checks.run_without_warnings(&run)?;
            count += 1;
        }
    }
    checks.outcome(format!("{count} builds"))
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
    fn rows_of_the_table_are_read() {
        let page = "//! | `x` | no |\n//! | feature | by default | what it adds |\n//! |---|---|---|\n\
                    //! | `macros` | yes | a |\n//! | `ssh` | no | b |\n\n//! | `y` | yes | c |\n";
        assert_eq!(rows(page).collect::<Vec<_>>(), [("macros", true), ("ssh", false)]);
    }
}
