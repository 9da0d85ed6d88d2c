//! For people who write providers and plugins: suites that check a contract clause by clause,
//! fakes, and a simulation of the whole pool.
//!
//! Each clause is one public function, so a test can name the clause that it checks. `all` runs
//! them one after another and prints a line for each.

pub mod cuttable;
mod fake_calls;
mod fake_files;
mod fake_pool;
pub mod fake_provider;
mod fake_storage;
pub mod fake_worker;
mod lineage;
pub mod plugin_suite;
pub mod provider_suite;
pub mod remote_suite;
pub mod script;
pub mod sim;
mod spot;
pub mod storage_suite;
mod timing;
mod violation;

pub use crate::pool::tasks::lock::holds;
pub use fake_files::FakeArtifacts;
pub use fake_pool::FakePool;
pub use fake_storage::FakeStorage;
pub use spot::Spot;
pub use violation::Violation;
