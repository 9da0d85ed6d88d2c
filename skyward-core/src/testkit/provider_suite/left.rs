//! The clause on what the pools of a whole suite leave.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::service::Service;
use super::timing::LONGEST_LOOK_PAUSE;
use super::trial::{ask, nothing_left, require};
use crate::ids::PoolId;
use crate::provider::Provider;
use crate::testkit::Violation;

/// Pools that were torn down, when all of their machines were gone, have not come back: `list` and
/// `pools` have nothing of them, and the service has no [leftovers](Service::leftovers). [`all`]
/// checks this at its end, for the pools of all clauses, so it also sees what comes long after a
/// clause.
///
/// [`all`]: super::all
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The function starts nothing.
pub async fn nothing_is_left(
    provider: &(impl Provider + Clone),
    service: &dyn Service,
    pools: &[PoolId],
) -> Result<(), Violation> {
    let end = Instant::now() + provider.capabilities().settles_in;
    loop {
        let asked = Instant::now();
        let looked = look(provider, service, pools).await;
        // What was torn down a moment ago may still be listed.
        if looked.is_ok() || asked >= end {
            return looked;
        }
        sleep(LONGEST_LOOK_PAUSE.min(end.saturating_duration_since(Instant::now()))).await;
    }
}

async fn look(provider: &dyn Provider, service: &dyn Service, pools: &[PoolId]) -> Result<(), Violation> {
    let clause = "nothing_is_left";
    let done = "all machines of a pool were ended and gone";
    let known = ask(clause, "pools", provider.pools()).await?;
    for pool in pools {
        let listed = ask(clause, "list", provider.list(pool)).await?;
        require(clause, listed.is_empty(), || {
            format!("{done}, the pool {pool} was torn down, and no machine of it may come back: listed are {listed:?}")
        })?;
        let record = known.iter().find(|record| record.pool == *pool);
        require(clause, record.is_none(), || {
            format!("{done}, the pool {pool} was torn down, and `pools` may not list it again: it has {record:?}")
        })?;
        nothing_left(clause, service, pool, Duration::ZERO, done).await?;
    }
    Ok(())
}
