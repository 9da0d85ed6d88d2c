//! The findings of a suite.

use std::fmt;

use super::provider_suite::contract;

/// A clause of a contract that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The name of the function that checks the clause.
    pub clause: &'static str,
    /// What the suite did, what it saw, and what it should have seen.
    pub found: String,
    /// The line of the documentation of [`Provider`](crate::provider::Provider) that the clause
    /// checks; empty for a clause of another suite.
    pub contract: &'static str,
}

impl Violation {
    pub(crate) fn new(clause: &'static str, found: impl Into<String>) -> Self {
        Self { clause, found: found.into(), contract: contract::of(clause) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` does not hold: {}", self.clause, self.found)?;
        match self.contract {
            "" => Ok(()),
            line => write!(f, " (the contract of `Provider`: \"{line}\")"),
        }
    }
}

impl std::error::Error for Violation {}

/// Prints whether a clause holds, and adds a violation to `broken`.
pub(crate) fn report(subject: &str, clause: &'static str, checked: Result<(), Violation>, broken: &mut Vec<Violation>) {
    match checked {
        Ok(()) => println!("{subject}: {clause} … holds"),
        Err(violation) => {
            println!("{subject}: {clause} … BROKEN: {violation}");
            broken.push(violation);
        }
    }
}
