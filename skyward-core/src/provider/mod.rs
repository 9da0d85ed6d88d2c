//! Obtain and release machines.

mod checked;
pub(crate) mod client;
#[cfg(feature = "docker")]
mod docker;
mod forward;
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
/// - `inspect` reports `Unknown`, or fails, where it cannot be asked now, and never guesses: a pool gives a machine up when it is reported as ending or gone.
/// - `connect` fails with a temporary error while the machine may still be starting; it is called again until [`Limits::start`](crate::spec::Limits::start) has passed, or until
///   `inspect` reports the machine as ending or gone.
///
/// # Wrappers
///
/// No method has a default, so the compiler names each method that a wrapper of another provider does not forward. An [`Arc`](std::sync::Arc) and a [`Box`] of a provider, also of
/// a `dyn Provider`, are providers themselves.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// Its name in messages and in the ledger: `local`, `docker`, `aws`.
    fn name(&self) -> &str;

    /// What tells it from other providers of its name, such as an account and a region, or the id of an engine: in the ledger, so that [`reap`](crate::pool::reap) asks the right
    /// one. A machine that another one does not list must have another identity. No secret.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when it has to be asked and cannot be.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    async fn identity(&self) -> Result<Option<String>>;

    /// Whether its machines can be there after the client's process is gone, as they can nearly everywhere. If they cannot, because they are only pretended within that
    /// process, nothing of them is put into the ledger.
    fn outlives_client(&self) -> bool;

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

    /// The state of many machines at once, in the order asked; [`MachineStatus::Unknown`] for those that cannot be asked about now, while others can.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the provider cannot be asked at all.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineStatus>>;

    /// Reaches a machine.
    ///
    /// # Errors
    ///
    /// Temporary while the machine may still be starting: then it is called again. Any other error is final, such as [`ErrorKind::Login`](crate::error::ErrorKind::Login) and
    /// [`ErrorKind::HostKey`](crate::error::ErrorKind::HostKey).
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
