//! What the tests of a provider know of the service behind it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::ids::{MachineId, PoolId};
use crate::provider::Provider;

/// The service behind a provider, which the author's tests see and control without the provider: a
/// folder of a host, an engine, an emulator of a cloud.
///
/// Each method has a default for a service that cannot do it. The clauses that need it then have
/// nothing to check.
///
/// ```
/// # use skyward_core as skyward;
/// use std::path::PathBuf;
///
/// use async_trait::async_trait;
/// use skyward::ids::PoolId;
/// use skyward::testkit::provider_suite::Service;
///
/// /// The machines are folders with the pool's id in their names.
/// #[derive(Debug)]
/// struct Root(PathBuf);
///
/// #[async_trait]
/// impl Service for Root {
///     async fn leftovers(&self, pool: &PoolId) -> Option<Vec<String>> {
///         let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
///         let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
///         Some(names.filter(|name| name.contains(pool.as_str())).collect())
///     }
/// }
/// ```
#[async_trait]
pub trait Service: fmt::Debug + Send + Sync {
    /// Everything that exists of a pool: machines, folders, networks, whether the provider lists
    /// them or not. `None` when that cannot be counted.
    async fn leftovers(&self, pool: &PoolId) -> Option<Vec<String>> {
        let _ = pool;
        None
    }

    /// Makes each call of the service fail, or work again, for each value of the provider. Returns
    /// whether it can.
    async fn fail(&self, fails: bool) -> bool {
        let _ = fails;
        false
    }

    /// Sets how many further machines the service has; `None` for as many as before. Returns
    /// whether it can.
    async fn limit(&self, machines: Option<u32>) -> bool {
        let _ = machines;
        false
    }

    /// Holds all machines that are launched from now on in the service's queue, or lets them start.
    /// Returns whether it can.
    async fn hold(&self, holds: bool) -> bool {
        let _ = holds;
        false
    }

    /// Decides to take a machine back after this time, as a preemption with notice. Returns whether
    /// it can.
    async fn preempt(&self, machine: &MachineId, ends_in: Duration) -> bool {
        let _ = (machine, ends_in);
        false
    }

    /// A value of the provider with machines elsewhere: of another account, engine or folder.
    fn elsewhere(&self) -> Option<Arc<dyn Provider>> {
        None
    }
}

/// A service that the tests of its provider can neither see nor control.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unseen;

#[async_trait]
impl Service for Unseen {}
