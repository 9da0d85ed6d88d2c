//! For people who write providers and plugins: suites that check a contract clause by clause.
//!
//! Each clause is one public function, so that a test names the clause it is about; `all` runs them one after another and prints a line for each.

pub mod plugin_suite;
pub mod provider_suite;
pub mod remote_suite;
mod violation;

pub use violation::Violation;
