//! Which packages and features a build has: there are two selections, in which a crate has the same
//! features, so that cargo compiles the crate once for both.

use crate::context::Context;
use crate::ec2::Build;
use crate::metadata::Package;

/// Packages and features that cargo builds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All packages and features that need no SDK of a cloud, which takes minutes and gigabytes to
    /// compile.
    Light,
    /// All packages with all features.
    Everything,
}

impl Selection {
    /// The arguments of cargo, beside the targets.
    pub fn arguments(self, context: &Context) -> Vec<String> {
        if self == Self::Everything {
            return Build::Tests.arguments().iter().map(|word| (*word).to_owned()).collect();
        }
        let (light, heavy): (Vec<_>, Vec<_>) = context.workspace.packages.iter().partition(|package| self.has(package));
        let features = light
            .iter()
            .flat_map(|package| package.light_features().map(|feature| format!("{}/{feature}", package.name)));
        let features = features.collect::<Vec<_>>().join(",");
        let exclude = heavy.iter().flat_map(|package| ["--exclude".to_owned(), package.name.clone()]);
        [vec!["--workspace".to_owned()], exclude.collect(), vec!["--features".to_owned(), features]].concat()
    }

    /// Whether it has a package.
    pub fn has(self, package: &Package) -> bool {
        self == Self::Everything || package.is_light()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_light_packages_and_features_are_all_without_a_cloud() {
        let arguments = Selection::Light.arguments(&Context::discover().unwrap());
        let (features, words) = arguments.split_last().unwrap();
        let expected = ["--workspace", "--exclude", "skyward-aws", "--exclude", "skyward-aws-testkit", "--features"];
        assert_eq!(words, expected);
        let features: Vec<&str> = features.split(',').collect();
        assert!(features.contains(&"skyward/docker") && features.contains(&"skyward-core/testkit"), "{features:?}");
        assert!(!features.iter().any(|feature| feature.ends_with("/aws")), "{features:?}");
    }
}
