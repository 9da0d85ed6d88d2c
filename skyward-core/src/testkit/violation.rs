//! The findings of a suite.

use std::fmt;

/// A clause of a contract that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The name of the function that checks the clause.
    pub clause: &'static str,
    /// What the suite saw, and what it should have seen.
    pub found: String,
}

impl Violation {
    pub(crate) fn new(clause: &'static str, found: impl Into<String>) -> Self {
        Self { clause, found: found.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` does not hold: {}", self.clause, self.found)
    }
}

impl std::error::Error for Violation {}

/// Prints whether a clause holds, and adds a violation to `broken`.
pub(crate) fn report(subject: &str, clause: &'static str, checked: Result<(), Violation>, broken: &mut Vec<Violation>) {
    match checked {
        Ok(()) => println!("{subject}: {clause} … holds"),
        Err(violation) => {
            println!("{subject}: {clause} … BROKEN: {}", violation.found);
            broken.push(violation);
        }
    }
}
