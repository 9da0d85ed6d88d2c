//! Clauses on `pools`.

use std::time::SystemTime;

use tokio::time::{Instant, sleep};

use super::timing::LONGEST_LOOK_PAUSE;
use super::trial::{OWNER, Trial, trial};
use crate::provider::{PoolRecord, Provider};
use crate::testkit::Violation;
use crate::testkit::timing::LOOK_PAUSE;

/// `pools` lists a pool with its owner while anything of the pool exists, also to another process:
/// to `again`, another value of the same provider. A pool with a live machine has not expired.
/// After `teardown`, `pools` no longer lists the pool.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn pools_lists_what_is_there(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    trial("pools_lists_what_is_there", provider, async |trial| {
        let never = trial.record(again).await?;
        trial.require(never.is_none(), || format!("a pool that never existed is listed as {never:?}"))?;
        let machine = trial.launch(0).await?;
        for (by, told) in [("", recorded(trial, provider).await?), (" by another value", recorded(trial, again).await?)]
        {
            let record = told.ok_or_else(|| {
                trial.violation(format!("the machine {} exists, and `pools`{by} does not list its pool", machine.id))
            })?;
            let PoolRecord { owner, expires, .. } = &record;
            trial.require(owner == OWNER, || format!("`{OWNER}` started the pool, and `pools`{by} says `{owner}`"))?;
            trial.require(*expires > SystemTime::now(), || {
                format!("the machine {} lives, and `pools`{by} says that its pool has expired", machine.id)
            })?;
        }
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        trial.ask("teardown", provider.teardown(&trial.pool)).await?;
        let end = Instant::now() + provider.capabilities().settles_in;
        loop {
            let left = trial.record(again).await?;
            if left.is_none() {
                return Ok(());
            }
            trial.require(Instant::now() < end, || format!("the pool is torn down, and listed as {left:?}"))?;
            sleep(LONGEST_LOOK_PAUSE).await;
        }
    })
    .await
}

/// `launch` creates again what `prepare` created: a machine that another process launches, here
/// `again`, after the pool was torn down, runs and is listed with the pool's owner.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn launch_needs_no_memory(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    trial("launch_needs_no_memory", provider, async |trial| {
        let batch = trial.batch(&[0]).await?;
        trial.ask("teardown", provider.teardown(&trial.pool)).await?;
        let machine = trial.launch_by("launch, by another value, after teardown", again, &batch).await?.remove(0);
        trial.there(&machine).await?;
        let owner = recorded(trial, again).await?.map(|record| record.owner);
        trial.require(owner.as_deref() == Some(OWNER), || {
            format!(
                "what `prepare` created is gone, and another value launched {} for `{OWNER}`: `pools` must have the \
                 pool with this owner, and has {owner:?}",
                machine.id
            )
        })
    })
    .await
}

/// The record of the pool, which must be there when the time is over in which lists settle.
async fn recorded(trial: &Trial<'_>, provider: &dyn Provider) -> Result<Option<PoolRecord>, Violation> {
    let end = Instant::now() + trial.settles_in();
    let mut pause = LOOK_PAUSE;
    loop {
        let asked = Instant::now();
        let record = trial.record(provider).await?;
        if record.is_some() || asked >= end {
            return Ok(record);
        }
        sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(LONGEST_LOOK_PAUSE);
    }
}
