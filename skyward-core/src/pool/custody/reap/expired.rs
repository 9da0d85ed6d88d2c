//! `reap_expired`: ends pools whose leases have expired, by the provider's own records alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;

use super::{AT_ONCE, Elsewhere, Ended, Holders, Reaped, Unconfirmed};
use crate::error::Result;
use crate::ids::PoolId;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::custody::ledger::{Found, Ledger, Orphan, blocking};
use crate::pool::custody::timing::{CLOCK_MARGIN, POOL_GONE};
use crate::provider::{Checked, PoolRecord, Provider};

/// Ends the pools of a provider that have expired, no matter who started them and where. Use it for
/// what remains when a client is gone together with its ledger, such as the network of a client
/// whose host was lost.
///
/// [`reap`](crate::pool::reap) immediately ends the pools that the ledger of this user and host
/// lists as left behind. `reap_expired` uses the provider's own [records](Provider::pools) instead,
/// and ends a pool only when its last machine has expired, a minute ago and in addition as long ago
/// as the provider [takes to settle](crate::provider::Capabilities::settles_in). A pool is left
/// alone, and reported in [`Reaped::elsewhere`], in two cases:
///
/// - One of its machines lives or may live, so the pool has not expired.
/// - A live client of this user's ledger holds it.
///
/// A client that is cut off from all its machines for longer than their lease has lost them, and
/// its pool has expired. When that client comes back and launches machines again, the provider
/// creates again what the machines share.
///
/// ```no_run
/// # use skyward_core as skyward;
/// use std::sync::Arc;
///
/// use skyward::provider::Provider;
///
/// # async fn example(provider: Arc<dyn Provider>) -> skyward::Result<()> {
/// let reaped = skyward::reap_expired(provider).await?;
/// println!("{reaped}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ErrorKind::Provider`] if the provider cannot list its pools, and [`ErrorKind::Ledger`] if the
/// ledger cannot be read: then nothing is ended. A pool that could not be ended is no error: it is
/// in [`Reaped::unconfirmed`]. Each pool takes two minutes at most, and 15
/// minutes more while its released machines hold what they shared.
///
/// # Cancel safety
///
/// Machines that are already ending go on ending.
///
/// [`ErrorKind::Ledger`]: crate::error::ErrorKind::Ledger
/// [`ErrorKind::Provider`]: crate::error::ErrorKind::Provider
pub async fn reap_expired(provider: Arc<dyn Provider>) -> Result<Reaped> {
    reap_expired_in(Ledger::of_user()?, provider).await
}

pub(super) async fn reap_expired_in(ledger: Ledger, provider: Arc<dyn Provider>) -> Result<Reaped> {
    let provider = Checked::new(provider);
    // The provider is queried before the ledger is read, because a pool that is listed was in its
    // client's ledger before.
    let listed = provider.pools().await?;
    let found = ledger.read().await?;
    let mut found: BTreeMap<PoolId, Found> = found.into_iter().map(|found| (found.pool().clone(), found)).collect();
    let mut reaped = Reaped::default();
    let mut expired = Vec::new();
    for record in listed {
        match found.remove(&record.pool) {
            Some(Found::Held { page, .. }) => {
                let process = page.head.map(|head| head.owner).filter(|owner| owner.is_alive()).map(|owner| owner.pid);
                reaped.elsewhere.push(Elsewhere { process, ..elsewhere(record) });
            }
            Some(Found::Closed { pool, error }) => reaped.unconfirmed.push(Unconfirmed { pool, error }),
            _ if !has_expired(&record, &provider, SystemTime::now()) => reaped.elsewhere.push(elsewhere(record)),
            Some(Found::Orphan(orphan)) => expired.push((record, Some(orphan))),
            None => expired.push((record, None)),
        }
    }
    // Release the locks of pools that are not ended here.
    drop(found);
    let ends = expired.into_iter().map(|(record, orphan)| end(&provider, record, orphan));
    let mut ends = stream::iter(ends).buffer_unordered(AT_ONCE);
    while let Some(end) = ends.next().await {
        match end {
            Reaping::Done(ended) => reaped.ended.push(ended),
            Reaping::Lives(elsewhere) => reaped.elsewhere.push(elsewhere),
            Reaping::Failed(left) => reaped.unconfirmed.push(left),
        }
    }
    reaped.ended.sort_by(|a, b| a.pool.cmp(&b.pool));
    reaped.elsewhere.sort_by(|a, b| a.pool.cmp(&b.pool));
    reaped.unconfirmed.sort_by(|a, b| a.pool.cmp(&b.pool));
    Ok(reaped)
}

/// The result of ending a pool that had expired.
enum Reaping {
    Done(Ended),
    /// The pool has a live machine meanwhile.
    Lives(Elsewhere),
    Failed(Unconfirmed),
}

async fn end(provider: &Checked, record: PoolRecord, orphan: Option<Orphan>) -> Reaping {
    let pool = record.pool.clone();
    match end_expired(provider, record, orphan).await {
        Ok(end) => end,
        Err(error) => Reaping::Failed(Unconfirmed { pool, error }),
    }
}

async fn end_expired(provider: &Checked, record: PoolRecord, orphan: Option<Orphan>) -> Result<Reaping> {
    // Ending other pools before this one takes time, so check again.
    if let Some(now) = provider.pools().await?.into_iter().find(|now| now.pool == record.pool)
        && !has_expired(&now, provider, SystemTime::now())
    {
        return Ok(Reaping::Lives(elsewhere(now)));
    }
    // If the record on file is also about another provider, that provider must end the rest, so the
    // record is kept.
    let mut known = Vec::new();
    let mut kept = None;
    if let Some(orphan) = orphan
        && let Some(head) = &orphan.page.head
    {
        let holders = Holders::among(head, &orphan.page.machines, &[Arc::new(provider.clone())]).await;
        known = holders.found.into_iter().flat_map(|(_, machines)| machines).collect();
        kept = holders.missing.is_none().then_some(orphan);
    }
    let orphan = kept;
    let cleanup = Cleanup::of_orphan(provider.clone(), record.pool.clone(), known);
    let gone = Mutex::new(Vec::new());
    let note = |machine: &crate::provider::Machine| {
        gone.lock().unwrap_or_else(PoisonError::into_inner).push(machine.id.clone());
    };
    cleanup.end_machines(Instant::now() + POOL_GONE, note).await?;
    cleanup.remove_shared().await?;
    if let Some(orphan) = orphan {
        blocking(move || orphan.forget()).await?;
    }
    let machines = gone.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Reaping::Done(Ended { pool: record.pool, provider: provider.name().to_owned(), machines }))
}

/// Whether no machine of a pool can live any more.
fn has_expired(record: &PoolRecord, provider: &Checked, now: SystemTime) -> bool {
    let margin = CLOCK_MARGIN + provider.capabilities().settles_in;
    now.duration_since(record.expires).is_ok_and(|since| since > margin)
}

fn elsewhere(record: PoolRecord) -> Elsewhere {
    Elsewhere { pool: record.pool, process: None, owner: record.owner, expires: Some(record.expires) }
}
