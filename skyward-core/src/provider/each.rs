//! Calls for many machines, for providers that handle one machine at a time.

use std::future::Future;

use futures_util::future::join_all;

use super::{LaunchBatch, LaunchRequest, Machine};
use crate::error::Result;
use crate::ids::MachineId;

/// Launches each machine of a batch separately, all at the same time: for the
/// [`launch`](super::Provider::launch) of a provider whose API takes one machine at a time.
///
/// # Cancel safety
///
/// Dropping the future drops the launches of all machines.
pub async fn launch_each<'a, F>(batch: &'a LaunchBatch, launch: impl Fn(&'a LaunchRequest) -> F) -> Vec<Result<Machine>>
where
    F: Future<Output = Result<Machine>>,
{
    join_all(batch.requests.iter().map(launch)).await
}

/// Ends each machine separately, all at the same time: for the
/// [`terminate`](super::Provider::terminate) of a provider whose API takes one machine at a time.
///
/// # Cancel safety
///
/// Dropping the future drops the calls of all machines.
pub async fn terminate_each<'a, F>(machines: &'a [MachineId], terminate: impl Fn(&'a MachineId) -> F) -> Vec<Result<()>>
where
    F: Future<Output = Result<()>>,
{
    join_all(machines.iter().map(terminate)).await
}
