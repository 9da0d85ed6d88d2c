//! What is installed on the nodes of a pool: it must be the same on all of them, because a call is
//! pickled on one node and unpickled on another.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::NodeIndex;

/// What is installed on a node, as its agent has reported it: a MessagePack map of versions by
/// names, of which one is Python. Clones share the bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Environment(Bytes);

impl Environment {
    /// What an agent has reported.
    pub(crate) fn of(report: &[u8]) -> Self {
        // A copy: the report is a part of a larger buffer.
        Self(Bytes::copy_from_slice(report))
    }

    /// Refuses a node whose environment is not that of another node of its pool.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Environment`], which names the differences.
    pub(crate) fn check(&self, node: NodeIndex, theirs: &Self, other: NodeIndex) -> Result<()> {
        if self == theirs {
            return Ok(());
        }
        let what = format!(
            "node {node} has another environment than node {other}: {}",
            differences(&self.versions(), &theirs.versions())
        );
        Err(Error::new(ErrorKind::Environment, what).with_hint(
            "make the environments equal: name the version of Python and exact versions of packages in the image, or \
             lock them, and remove environments that were built of other versions from the hosts' caches; for a pool \
             without calls between workers, `.mixed_environments(true)` allows the difference",
        ))
    }

    fn versions(&self) -> BTreeMap<String, String> {
        // What cannot be read differs from all else, but has no names to tell.
        rmp_serde::from_slice(&self.0).unwrap_or_default()
    }
}

/// Checks that all nodes have the environment of the first one.
///
/// # Errors
///
/// As [`Environment::check`].
pub(crate) fn check_all<'a>(mut environments: impl Iterator<Item = (NodeIndex, &'a Environment)>) -> Result<()> {
    let Some((first, theirs)) = environments.next() else { return Ok(()) };
    environments.try_for_each(|(node, environment)| environment.check(node, theirs, first))
}

/// What differs, in words; a few packages of many.
fn differences(here: &BTreeMap<String, String>, there: &BTreeMap<String, String>) -> String {
    let added = here.iter().map(|(name, mine)| match there.get(name) {
        Some(theirs) => (name, format!("{name} {mine} instead of {theirs}")),
        None => (name, format!("{} in addition", full(name, mine))),
    });
    let missing = there.iter().filter(|(name, _)| !here.contains_key(*name));
    let missing = missing.map(|(name, theirs)| (name, format!("no {}", full(name, theirs))));
    let differs = |(name, _): &(&String, String)| here.get(*name) != there.get(*name);
    let mut found: Vec<(&String, String)> = added.filter(differs).chain(missing).collect();
    if found.is_empty() {
        return "one of the two lists of packages cannot be read".to_owned();
    }
    // Python first, since it explains the others.
    found.sort_by_key(|(name, _)| (*name != "python", *name));
    let more = found.len().saturating_sub(SHOWN);
    let mut words: Vec<String> = found.into_iter().take(SHOWN).map(|(_, words)| words).collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

/// A package with its version, if that is known: a package under development may have none.
fn full(name: &str, version: &str) -> String {
    format!("{name} {version}").trim_end().to_owned()
}

/// The most packages that an error names.
const SHOWN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(versions: &[(&str, &str)]) -> Environment {
        let versions: BTreeMap<_, _> = versions.iter().copied().collect();
        Environment::of(&rmp_serde::to_vec(&versions).unwrap())
    }

    fn refused(mine: &[(&str, &str)], theirs: &[(&str, &str)]) -> String {
        let error = environment(mine).check(NodeIndex(2), &environment(theirs), NodeIndex(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Environment);
        let prefix = "node 2 has another environment than node 0: ";
        error.message().strip_prefix(prefix).unwrap_or_else(|| panic!("{error}")).to_owned()
    }

    #[test]
    fn equal_environments_are_not_refused() {
        let one = [("numpy", "2.1.0"), ("python", "3.12")];
        environment(&one).check(NodeIndex(1), &environment(&one), NodeIndex(0)).unwrap();
        Environment::default().check(NodeIndex(1), &Environment::default(), NodeIndex(0)).unwrap();
    }

    #[test]
    fn each_difference_is_named_and_python_comes_first() {
        let cases: [(&[_], &[_], &str); 5] = [
            (&[("mine", "")], &[("theirs", "")], "mine in addition, no theirs"),
            (&[("python", "3.11")], &[("python", "3.12")], "python 3.11 instead of 3.12"),
            (
                &[("a", "1"), ("b", "1"), ("python", "3.13t")],
                &[("b", "2"), ("c", "3"), ("python", "3.13")],
                "python 3.13t instead of 3.13, a 1 in addition, b 1 instead of 2, no c 3",
            ),
            (&[("pypy", "3.10")], &[("python", "3.10")], "no python 3.10, pypy 3.10 in addition"),
            (&[("numpy", "1.26.4")], &[("numpy", "2.1.0")], "numpy 1.26.4 instead of 2.1.0"),
        ];
        for (mine, theirs, words) in cases {
            assert_eq!(refused(mine, theirs), words);
        }
    }

    #[test]
    fn of_many_differences_a_few_are_named() {
        let names: Vec<String> = (0..100).map(|number| format!("package-{number:02}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1.0")).collect();
        let words = refused(&many, &[]);
        assert!(words.starts_with("package-00 1.0 in addition, package-01 "), "{words}");
        assert!(words.ends_with("package-11 1.0 in addition, and 88 more"), "{words}");
    }

    #[test]
    fn a_report_that_cannot_be_read_is_another_environment() {
        let error = Environment::of(b"\xc1").check(NodeIndex(1), &environment(&[]), NodeIndex(0)).unwrap_err();
        assert!(error.message().ends_with(": one of the two lists of packages cannot be read"), "{error}");
    }
}
