//! Whether the packages could be published: their archives, their descriptions, and their public
//! interface compared with the last release.

use std::time::Duration;

use anyhow::Result;

use crate::context::Context;
use crate::metadata::Package;
use crate::process::Run;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step {
            name: "package",
            about: "each package that is published has an archive and a description",
            run: package,
        },
        Step { name: "semver", about: "the version matches the changes of the public interface", run: semver },
    ]
}

/// Makes the archives without compiling what is in them: that would compile all dependencies once
/// more.
fn package(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let mut names = Vec::new();
    let mut archive = context.cargo(["package", "--no-verify", "--allow-dirty"]);
    for package in context.workspace.packages.iter().filter(|package| package.is_published()) {
        for missing in missing_of(package) {
            checks.fail(format!("{} has no {missing}, which its page in the registry shows", package.name));
        }
        for licence in LICENCES.iter().filter(|licence| !package.folder().join(licence).exists()) {
            checks.fail(format!("{} has no {licence}, so its archive has none", package.name));
        }
        archive = archive.args(["--package", package.name.as_str()]);
        names.push(package.name.as_str());
    }
    checks.run(&archive)?;
    checks.outcome(names.join(", "))
}

fn missing_of(package: &Package) -> impl Iterator<Item = &'static str> {
    [
        ("description", package.description.is_some()),
        ("readme", package.readme.is_some()),
        ("keywords", !package.keywords.is_empty()),
        ("categories", !package.categories.is_empty()),
        ("repository", package.repository.is_some()),
    ]
    .into_iter()
    .filter_map(|(what, has)| (!has).then_some(what))
}

/// The files that each archive has.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// The packages whose public interface users name.
const COMPARED: [&str; 4] = ["skyward-core", "skyward-plugins", "skyward-python", "skyward"];

/// With all features but that of a cloud, which would compile its SDK twice.
fn semver(context: &Context) -> Result<Outcome> {
    if context.cargo(["semver-checks", "--version"]).finish().is_ok_and(|finished| !finished.status.success()) {
        return Ok(Outcome::skipped("cargo-semver-checks is missing: `cargo install cargo-semver-checks --locked`"));
    }
    let tag = Run::new("git").args(["describe", "--tags", "--abbrev=0", "--match=v*"]).dir(&context.root);
    let Ok(tag) = tag.read() else {
        return Ok(Outcome::skipped("there is no release to compare with: no tag `v…` is below this commit"));
    };
    let mut checks = Checks::default();
    let is_compared = |package: &&Package| COMPARED.contains(&package.name.as_str());
    for package in context.workspace.packages.iter().filter(is_compared) {
        let features = package.light_features();
        let run = context
            .cargo(["semver-checks", "--baseline-rev", tag.trim(), "--package", &package.name])
            .args(["--only-explicit-features"])
            .args(features.map(|feature| format!("--features={feature}")));
        checks.run(&run.deadline(Duration::from_secs(1800)))?;
    }
    checks.outcome(format!("compared with {}", tag.trim()))
}
