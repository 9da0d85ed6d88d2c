//! Obtain and release machines.

mod capabilities;
mod checked;
pub(crate) mod client;
#[cfg(feature = "docker")]
mod docker;
mod each;
#[cfg(any(feature = "ssh", feature = "docker"))]
mod ends;
mod forward;
#[cfg(feature = "ssh")]
mod hosts;
pub(crate) mod keeper;
mod launch;
mod local;
mod machine;
mod models;
mod offer;
mod pool_record;
mod report;
mod requirements;

use std::fmt;

use async_trait::async_trait;

pub use capabilities::Capabilities;
pub(crate) use checked::Arriving;
pub use checked::Checked;
#[cfg(feature = "docker")]
pub use docker::Docker;
pub use each::{launch_each, terminate_each};
#[cfg(feature = "ssh")]
pub use hosts::{Host, Hosts};
pub use keeper::{Keeper, KeeperEnd};
pub use launch::{LaunchBatch, LaunchRequest, PoolRequest};
pub use local::Local;
pub use machine::{Facts, Machine, Place};
pub use offer::Offer;
pub use pool_record::PoolRecord;
pub use report::{MachineReport, MachineState, Reason};
pub use requirements::{Architecture, Labels, Market, Requirements};

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
/// - `identity` is not empty, and stays the same for as long as the machines are the same.
/// - Every offer meets the requirements; what nobody has is not offered.
/// - `launch` answers for each request of its batch, in order, with the launch, pool, number and offer it was asked for. Two numbers are two machines.
/// - `launch` with the same [`LaunchId`](crate::ids::LaunchId) gives the same machine, however often it is called.
/// - Dropping the future of `launch` leaves at most machines that `list` finds.
/// - `terminate` answers for each machine, in order. That of an unknown or ended machine is `Ok(())`; it may be called before `launch` has returned.
/// - When `terminate` has returned, `inspect` reports the machine as ending, released or gone, and soon as gone.
/// - When a machine is gone, so is all that ran on it and all that it kept, and it cannot be reached any more.
/// - `prepare` may be called more than once.
/// - `teardown` may be called more than once, and without `prepare` or `launch` having finished. It leaves other pools alone.
/// - `list` finds every live machine of a pool from the provider's own records, not from this process's memory, as `launch` gave it; and none of another pool.
/// - `inspect` answers for each machine, in the order asked.
/// - `inspect` gives each machine that runs a [place](Place), with an absolute folder of at most 60 bytes and an address, and never another one later.
/// - `inspect` never reports `Gone` for a machine that may still be starting.
/// - `inspect` reports `Unknown`, or fails, where it cannot be asked now, and never guesses: a pool gives a machine up when it is reported as ending, released or gone.
/// - `connect` fails with a temporary error while the machine may still be starting; it is called again until [`Limits::start`](crate::spec::Limits::start) has passed, or until
///   `inspect` reports the machine as ending, released or gone.
/// - What a command starts in the background on a machine outlives the command.
/// - Where [`Capabilities::keeper`] says so, a machine whose lease is not renewed ends by itself.
///
/// # Wrappers
///
/// No method has a default, so the compiler names each method that a wrapper of another provider does not forward. An [`Arc`](std::sync::Arc) and a [`Box`] of a provider, also of
/// a `dyn Provider`, are providers themselves.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// Its name in messages and in the ledger: `local`, `docker`, `aws`.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

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
    async fn identity(&self) -> Result<String>;

    /// What could be launched for these requirements, the best first. Empty: nothing fits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the provider cannot be asked; refused as [`NotOffered`](crate::error::Refusal::NotOffered) when nothing fits and the provider
    /// can say what there is instead.
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
    async fn prepare(&self, pool: &PoolRequest) -> Result<()>;

    /// Launches machines of one offer. A machine that it gives is bought, and need not be there yet: [`inspect`](Self::inspect) says when it is, and where. A provider that launches
    /// one machine at a time calls [`launch_each`].
    ///
    /// # Errors
    ///
    /// For each machine, [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), temporary where trying again may help. A machine with an error may have been launched all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves at most machines that `list` finds.
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>>;

    /// What it knows of many machines at once, in the order asked; [`MachineState::Unknown`] for those that cannot be asked about now, while others can.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the provider cannot be asked at all.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>>;

    /// Reaches a machine at the place that `inspect` has reported.
    ///
    /// # Errors
    ///
    /// Temporary while the machine may still be starting: then it is called again. Any other error is final, such as [`ErrorKind::Login`](crate::error::ErrorKind::Login) and
    /// [`ErrorKind::HostKey`](crate::error::ErrorKind::HostKey).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection.
    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>>;

    /// Ends machines and everything on them; answers for each, in order. A provider that ends one machine at a time calls [`terminate_each`].
    ///
    /// # Errors
    ///
    /// For each machine, [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when it cannot be said that the machine is ending.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>>;

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

    /// Every pool of which something is left, whoever's client started it, from the provider's own records: what [`prepare`](Self::prepare) made counts as machines do. So
    /// [`reap_expired`](crate::pool::reap_expired) ends from any host what a client that is gone has left.
    ///
    /// A pool with a live machine expires a lease from now. One without expires a lease after the last of it was made: its client may live all the same, and ask for a machine again. A provider whose
    /// `launch` fails then for want of what `prepare` made makes it again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), also where only a part of it can be asked: a pool whose machines are not all seen must not be given as expired.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    async fn pools(&self) -> Result<Vec<PoolRecord>>;
}
