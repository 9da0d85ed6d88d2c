//! Obtain and release machines.

mod capabilities;
mod checked;
pub(crate) mod client;
pub mod clock;
#[cfg(feature = "docker")]
mod docker;
mod each;
#[cfg(any(feature = "ssh", feature = "docker"))]
mod ends;
mod forward;
#[cfg(feature = "ssh")]
mod hosts;
pub(crate) mod keeper;
#[cfg(test)]
mod kin;
mod launch;
mod local;
mod machine;
mod models;
mod offer;
#[cfg(test)]
mod other_user;
mod part;
mod pool_record;
mod report;
mod requirements;
pub(crate) mod timing;
mod uptime;

use std::fmt;

use async_trait::async_trait;

pub use capabilities::Capabilities;
pub(crate) use checked::Arriving;
#[doc(hidden)]
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
pub use part::Part;
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
/// With the feature `testkit`, `skyward::testkit::provider_suite` has one function for each clause.
/// A provider's own tests call them.
///
/// - `name` is one word in lower case, and never changes.
/// - `identity` is not empty, and stays the same for as long as the machines are the same.
/// - Two values with one identity are one provider: each lists, inspects and ends the machines of
///   the other. Providers with machines elsewhere have other identities.
/// - `parts` is empty, or each machine is in one of the parts, its id ends with `@` and the identity
///   of that part, and the `list` of that part has it.
/// - Every offer meets the requirements. What nobody has is not offered.
/// - `launch` returns one result for each request of its batch, in order, with the launch id, pool,
///   number and offer of the request. Two numbers are two machines.
/// - `launch` with the same [`LaunchId`](crate::ids::LaunchId) returns the same machine, however
///   often it is called.
/// - `launch` creates again what `prepare` created, where that is gone. The request has what that
///   takes: the pool, its owner, its lease and its labels.
/// - A machine's id is never the id of another machine of its pool, also not later.
/// - With [`Capabilities::batches`], the requests of a batch may differ in all but pool and offer,
///   and may be partly launched already; a machine that is refused or unknown changes no other
///   result of its call.
/// - Dropping the future of `launch` leaves at most machines that `list` finds within
///   [`Capabilities::settles_in`].
/// - With [`Capabilities::gangs`], a batch that is [all or none](LaunchBatch::all_or_none) starts all
///   of its machines or none, and each of them ends alone.
/// - `terminate` returns one result for each machine, in order. The result for an unknown or ended
///   machine is `Ok(())`. It may be called before `launch` has returned.
/// - When `terminate` has returned, `inspect` reports the machine as ending, released or gone, and
///   soon as gone.
/// - When a machine is gone, so are all processes and files on it, and it can no longer be reached.
/// - `prepare` may be called more than once.
/// - With [`Capabilities::adopts`], `adopt` makes the value as able to launch, list, inspect,
///   reach, end and tear down the machines of a pool as the one that prepared the pool, also in
///   another process. It starts and ends nothing, may be called more than once, and creates again
///   what `prepare` created, where that is gone. Without the capability, it fails, and the error is
///   final.
/// - `teardown` may be called more than once, and without `prepare` or `launch` having finished. It
///   does not touch other pools. After it, nothing of the pool is left but machines that are
///   released. While such a machine holds something, the error is temporary.
/// - `list` finds every live machine of a pool within [`Capabilities::settles_in`], from the
///   provider's own records, not from this process's memory, with the values that `launch` returned.
///   It returns no machine of another pool.
/// - `pools` has every pool of which something is left, with its owner, to every process. A pool
///   with a live machine has not expired.
/// - `inspect` returns one report for each machine, in the given order.
/// - `inspect` gives each running machine a [place](Place), with an absolute folder of at most 60
///   bytes and an address, and never another place later.
/// - `inspect` never reports `Gone` for a machine that may still be starting.
/// - `inspect` reports a machine that is held back as `Queued`. Such a machine is listed, and can be
///   ended.
/// - `inspect` reports `Unknown`, or fails, where the provider cannot be asked now, and never
///   guesses: a pool gives up a machine that is reported as ending, released or gone.
/// - Where the provider cannot be asked, no call guesses: `list`, `pools` and `teardown` fail, and
///   `terminate` fails for each machine of which it is not certain that it is ending.
/// - A machine ends when the time that a report gives as `ends_in` is over, and not before.
/// - The time that a report gives as `lived` is the time from the launch of a machine until its end.
/// - With [`Capabilities::preemptible`], `inspect` reports that a machine is taken back before it is.
///   So does a [`watch`](Place::watch) command of the machine's place.
/// - `connect` fails with a temporary error while the machine may still be starting. The pool calls
///   it again until [`Limits::start`](crate::spec::Limits::start) has passed, or until `inspect`
///   reports the machine as ending, released or gone.
/// - Processes that a command starts in the background on a machine outlive the command.
/// - With [`Capabilities::keeper`], a machine whose lease is not renewed ends by itself.
///
/// # How a pool calls its provider
///
/// The pool gives each call a deadline, which includes all tries. No deadline is longer than
/// [`Limits::start`](crate::spec::Limits::start). The pool tries a call with a
/// [temporary](crate::error::Error::temporary) error at most 8 times, with pauses that double from
/// 100 milliseconds to 10 seconds. Any other error is final. When the deadline passes, the pool
/// drops the future.
///
/// | method | when | deadline |
/// |---|---|---|
/// | `identity` | once for a start, before the pool's first record in the ledger; by `reap`; instead of the provider's that of each part, where it has parts | 1 min |
/// | `offers` | for a start or a plan; once more when nothing fits | 1 min |
/// | `prepare` | once for a start | 5 min |
/// | `adopt` | never by a pool of this version; see [`adopt`](Self::adopt) | 5 min |
/// | `launch` | for each machine, at the same time; a joined world may be one batch; see below | 10 min |
/// | `inspect` | see below | 20 s or 1 min |
/// | `connect` | when `inspect` has reported a place; without a limit of tries, with pauses up to 500 ms | `Limits::start` |
/// | `terminate`, `list` | in rounds, until the machines are released or gone; `list` also after a launch with an unknown result | 2 min, 1 min |
/// | `teardown` | when all machines of the pool are released or gone | 5 min |
/// | `pools` | by `reap_expired`: at first, and before it ends each pool | 1 min |
///
/// The pool inspects a machine
///
/// - until it runs: at once, then with pauses that double up to 15 seconds,
/// - while it connects, or after the connection to the node's agent was lost: with pauses that
///   double from 1 to 15 seconds,
/// - while it serves, with [`Capabilities::preemptible`]: every 30 seconds,
/// - when a report says that it is ending or released, without a reason: once more, a second later,
/// - while the machine or the pool ends: in each round.
///
/// With a [pace](Capabilities::pace), calls of one method are that far apart, whichever pool of the
/// process makes them; the wait for a turn is a part of the deadline.
///
/// With [`Capabilities::batches`] or a pace, the pool combines calls of `inspect`, of `terminate`,
/// and of `launch` by one offer without [`all_or_none`](LaunchBatch::all_or_none), which come
/// within 10 milliseconds or wait for one turn, into one call for all of their machines. Each
/// caller keeps its own deadline and its own retries: machines of which the provider returns a
/// temporary error are asked about again, together with new ones. How many machines one request of
/// the service can have is the provider's own affair: it divides a larger batch.
///
/// Futures may be dropped at any await point. Methods may be called from another Tokio runtime than
/// before: when the runtime of a pool ends first, a thread with a runtime of its own ends the
/// machines. The guide's page on writing a provider has the details.
///
/// # Wrappers
///
/// No method has a default, so the compiler names each method that a wrapper of another provider
/// does not forward. An [`Arc`](std::sync::Arc) and a [`Box`] of a provider, also of a
/// `dyn Provider`, are providers themselves.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no provider of machines",
    note = "`Local::default()` is this host; a provider that several pools share is `Arc<dyn Provider>`, by `.shared_provider(provider)`"
)]
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// The provider's name in messages and in the ledger: `local`, `docker`, `aws`.
    fn name(&self) -> &str;

    /// What the provider can do beyond its methods.
    fn capabilities(&self) -> Capabilities;

    /// What identifies this provider among those of the same name: an account and a region, or the
    /// id of an engine. The ledger keeps it, so that [`reap`](crate::pool::reap) asks the right
    /// provider. Two providers that do not list each other's machines must have different
    /// identities. Nothing that can change while the machines stay the same is a part of it: no name,
    /// address or path by which the provider is reached, and nothing of the client. It contains no
    /// secret. Called once when a pool starts, and by `reap`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the identity has to be
    /// requested and the request fails.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    async fn identity(&self) -> Result<String>;

    /// The parts of a provider whose machines are in several places, each with records of its own:
    /// the hosts of a list. The ledger keeps the identity of each part, and not of the set, so that
    /// `reap` ends a pool part by part when the set has changed. A provider with one list of all
    /// machines, such as an account, has no parts. Must return at once.
    fn parts(&self) -> Vec<Part>;

    /// What could be launched for these requirements, the best first. Empty when nothing fits.
    /// Called before anything starts, and for a plan.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the provider cannot be
    /// queried. [`NotOffered`](crate::error::Refusal::NotOffered) when nothing fits and the
    /// provider can list alternatives.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>>;

    /// Creates what the machines of a pool share: networks, keys, folders.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider).
    ///
    /// # Cancel safety
    ///
    /// `teardown` removes what was created.
    async fn prepare(&self, pool: &PoolRequest) -> Result<()>;

    /// Takes over a pool that another client has prepared: a process that has ended. Afterwards
    /// this value is to the pool what the value was that prepared it. What that client held, such
    /// as a lock that shows that it lives, this value holds from now on.
    ///
    /// A client that takes over calls `adopt` instead of [`prepare`](Self::prepare), once for a
    /// pool, before any other call for that pool but [`identity`](Self::identity) and
    /// [`list`](Self::list). It must have made sure that the earlier client does nothing more: the
    /// provider need not know of clients. A provider that does know refuses a pool whose client
    /// lives. Another value of the same process is the same client.
    ///
    /// The request is that of the earlier client, with the same pool.
    ///
    /// # Errors
    ///
    /// - [`Denied`](crate::error::Refusal::Denied), with the reason: the earlier client lives, or a
    ///   provider without [`Capabilities::adopts`] cannot take over any pool.
    /// - [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), temporary where the same call
    ///   may succeed later.
    ///
    /// # Cancel safety
    ///
    /// May be called again. `teardown` removes what was created.
    async fn adopt(&self, pool: &PoolRequest) -> Result<()>;

    /// Launches machines of one offer. A returned machine is bought, but need not run yet:
    /// [`inspect`](Self::inspect) reports when it runs, and where. A provider that launches one
    /// machine at a time calls [`launch_each`].
    ///
    /// The call may take 10 minutes, retries of the pool included, or
    /// [`Limits::start`](crate::spec::Limits::start) where that is shorter. After that time, the
    /// pool drops the future, and looks for the machine in [`list`](Self::list). Calls for several
    /// machines run at the same time.
    ///
    /// # Errors
    ///
    /// For each machine: [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), temporary
    /// where the same call may succeed later, or [refused](crate::Error::refused) with the reason.
    /// A machine with an error that is no refusal may have been launched all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves at most machines that `list` finds.
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>>;

    /// Reports the state of many machines at once, in the given order. [`MachineState::Unknown`] is
    /// the state of a machine that cannot be asked about now, while others can.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when the provider cannot be asked
    /// at all. The pool ends its wait for a machine when this error is final, and inspects it again
    /// when it is temporary.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>>;

    /// Connects to a machine at the place that `inspect` has reported.
    ///
    /// While the error is temporary, the pool repeats the call after at most 500 milliseconds, for
    /// [`Limits::start`](crate::spec::Limits::start) in total. Meanwhile the pool inspects the
    /// machine, and stops when the machine is reported as ending, released or gone.
    ///
    /// # Errors
    ///
    /// Temporary while the machine may still be starting. Any other error is final, such as
    /// [`ErrorKind::Login`](crate::error::ErrorKind::Login) and
    /// [`ErrorKind::HostKey`](crate::error::ErrorKind::HostKey).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection.
    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>>;

    /// Ends machines and everything on them, and returns one result for each, in order. A provider
    /// that ends one machine at a time calls [`terminate_each`].
    ///
    /// The pool repeats the call, together with `list` and `inspect`, until all machines are
    /// released or gone, or [`Limits::shutdown`](crate::spec::Limits::shutdown) has passed.
    ///
    /// # Errors
    ///
    /// For each machine, [`ErrorKind::Provider`](crate::error::ErrorKind::Provider) when it is not
    /// certain that the machine is ending.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>>;

    /// Removes what `prepare` created. The pool calls this when all of its machines are
    /// [released](MachineState::Released) or gone, and forgets the pool when the call succeeds. The
    /// removal waits for no machine: while a released machine still holds something, the error is
    /// temporary, and the pool calls again, for 15 minutes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), temporary where the same call
    /// succeeds later.
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

    /// Every pool of which something is left, from the provider's own records, whoever started the
    /// pool. What [`prepare`](Self::prepare) created counts as much as machines do.
    /// [`reap_expired`](crate::pool::reap_expired) uses this list to end, from any host, what a
    /// lost client has left.
    ///
    /// A pool with a live machine expires one lease from now. A pool without one expires one lease
    /// after the last part of it was created. Its client may still live and launch a machine again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`](crate::error::ErrorKind::Provider), also where only a part of the
    /// provider can be asked: a pool whose machines are not all visible must not be reported as
    /// expired.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    async fn pools(&self) -> Result<Vec<PoolRecord>>;
}
