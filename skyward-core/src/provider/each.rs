//! Calls for many machines, for providers that do one at a time.

use std::future::Future;

use futures_util::future::join_all;

use super::{LaunchBatch, LaunchRequest, Machine};
use crate::error::Result;
use crate::ids::MachineId;

/// Launches each machine of a batch by itself, all at the same time: what [`launch`](super::Provider::launch) does at a provider without batches.
///
/// # Cancel safety
///
/// Dropping the future drops those of all machines.
pub async fn launch_each<'a, F>(batch: &'a LaunchBatch, launch: impl Fn(&'a LaunchRequest) -> F) -> Vec<Result<Machine>>
where
    F: Future<Output = Result<Machine>>,
{
    join_all(batch.requests.iter().map(launch)).await
}

/// Ends each machine by itself, all at the same time: what [`terminate`](super::Provider::terminate) does at a provider without batches.
///
/// # Cancel safety
///
/// Dropping the future drops those of all machines.
pub async fn terminate_each<'a, F>(machines: &'a [MachineId], terminate: impl Fn(&'a MachineId) -> F) -> Vec<Result<()>>
where
    F: Future<Output = Result<()>>,
{
    join_all(machines.iter().map(terminate)).await
}
