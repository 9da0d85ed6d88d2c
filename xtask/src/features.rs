//! Features only add: each builds alone.

use anyhow::Result;

use crate::context::Context;
use crate::dependencies::is_cloud_sdk;
use crate::metadata::Package;
use crate::step::{Checks, Outcome, Step};

pub(crate) fn steps() -> Vec<Step> {
    vec![Step {
        name: "features",
        about: "each package builds without features and with each one alone, except for the SDK of a cloud",
        run: features,
    }]
}

fn features(context: &Context) -> Result<Outcome> {
    let mut checks = Checks::default();
    let mut count = 0;
    // The SDK of a cloud takes minutes and gigabytes for each set of features. Packages that need
    // it have no features of their own, and the lints check them with all features.
    let is_light = |package: &&Package| package.has_library() && !is_cloud_sdk(&package.name);
    for package in context.workspace.packages.iter().filter(is_light) {
        let check = || {
            let check =
                context.cargo(["check", "--quiet", "--lib", "--no-default-features", "--package", &package.name]);
            // A folder of its own, kept between runs: it builds while other steps do, and no other
            // step builds with its features.
            check.quiet_env("CARGO_TARGET_DIR", context.workspace.target_directory.join("features"))
        };
        let alone = package.public_features().filter(|feature| *feature != CLOUD);
        let alone = alone.map(|feature| check().args(["--features", feature]));
        for run in std::iter::once(check()).chain(alone) {
            checks.run_without_warnings(&run)?;
            count += 1;
        }
    }
    checks.outcome(format!("{count} builds"))
}

/// The feature that needs the SDK of a cloud.
pub(crate) const CLOUD: &str = "aws";
