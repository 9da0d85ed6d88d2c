//! Obtain and release machines.

mod checked;
#[cfg(feature = "docker")]
mod docker;
#[cfg(feature = "ssh")]
mod hosts;
#[cfg_attr(
    not(any(feature = "ssh", feature = "docker")),
    allow(dead_code, reason = "on this host the client's end is seen")
)]
pub(crate) mod keeper;
mod local;
mod models;
mod types;

use std::fmt;

use async_trait::async_trait;

pub use checked::Checked;
#[cfg(feature = "docker")]
pub use docker::Docker;
#[cfg(feature = "ssh")]
pub use hosts::{Host, Hosts};
pub use local::Local;
pub use types::{LaunchRequest, Machine, MachineStatus, Offer, Requirements};

use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::remote::Remote;

/// Obtains and releases machines.
///
/// # Contract
///
/// The feature `testkit` has one function for each clause, `skyward_core::testkit::provider_suite`; a provider's own tests call them.
///
/// - `name` is one word in lower case, and never changes.
/// - Every offer meets the requirements; what nobody has is not offered.
/// - `launch` answers with the launch, pool and node it was asked for, and with an absolute folder of at most 60 bytes. Two nodes are two machines.
/// - `launch` with the same [`LaunchId`](crate::ids::LaunchId) gives the same machine, however often it is called.
/// - Dropping the future of `launch` leaves at most machines that `list` finds.
/// - `terminate` of an unknown or ended machine is `Ok(())`; it may be called before `launch` has returned.
/// - When `terminate` has returned, `inspect` reports the machine as ending or gone, and soon as gone.
/// - When a machine is gone, so is all that ran on it, and it cannot be reached any more.
/// - `prepare` may be called more than once.
/// - `teardown` may be called more than once, and without `prepare` or `launch` having finished. It leaves other pools alone.
/// - `list` finds every live machine of a pool from the provider's own records, not from this process's memory, as `launch` gave it; and none of another pool.
/// - `inspect` answers for each machine, in the order asked.
/// - `inspect` never reports `Gone` for a machine that may still be starting.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// Its name in messages and in the ledger: `local`, `docker`, `aws`.
    fn name(&self) -> &str;

    /// What tells it from other providers of its name, such as an account and a region: in the ledger, so that [`reap`](crate::pool::reap) asks the right one. No secret.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Whether its machines can be there after the client's process is gone, as they can nearly everywhere. If they cannot, because they are only pretended within that
    /// process, nothing of them is put into the ledger.
    fn outlives_client(&self) -> bool {
        true
    }

    /// What could be launched for these requirements, the best first. Empty: nothing fits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the provider cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>>;

    /// Makes what machines of a pool share: networks, keys, folders.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider).
    ///
    /// # Cancel safety
    ///
    /// What was made is removed by `teardown`.
    async fn prepare(&self, pool: &PoolId) -> Result<()>;

    /// Starts one machine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), temporary where trying again may help.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves at most a machine that `list` finds.
    async fn launch(&self, request: &LaunchRequest) -> Result<Machine>;

    /// The state of many machines at once, in the order asked.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the provider cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineStatus>>;

    /// Reaches a machine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), temporary while the machine may still be starting.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection.
    async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>>;

    /// Ends a machine and everything on it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when it cannot be said that the machine is ending.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    async fn terminate(&self, machine: &MachineId) -> Result<()>;

    /// Removes what `prepare` made.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider).
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    async fn teardown(&self, pool: &PoolId) -> Result<()>;

    /// The live machines of a pool, from the provider's own records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>>;
}
