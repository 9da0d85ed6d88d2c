//! Ends pools whose leases are over, by a provider's own records alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;

use super::{AT_ONCE, Elsewhere, Ended, Left, PATIENCE, Reaped};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::PoolId;
use crate::pool::cleanup::Cleanup;
use crate::pool::ledger::{Found, Ledger, Orphan};
use crate::provider::{Checked, PoolRecord, Provider};

/// Ends the pools of a provider that have expired, whoever started them and wherever: what remains when a client is gone with its ledger, such as the network of a client whose host was lost.
///
/// [`reap`](crate::pool::reap) ends at once what the ledger of this user and host says was left. This one goes by the provider's own [records](Provider::pools), and ends a pool only when the last of
/// it has expired: a minute ago and as long as the provider [takes to settle](crate::provider::Capabilities::settles_in). While one machine of a pool lives, or may live, the pool has not
/// expired. A pool that a live client of this user's ledger holds is never ended. Both are in [`Reaped::elsewhere`].
///
/// A client that is cut off from all its machines for longer than their lease has lost them, and its pool has expired; when it comes back and launches machines again, the
/// provider makes again what they share.
///
/// ```no_run
/// # async fn example(provider: std::sync::Arc<dyn skyward_core::provider::Provider>) -> skyward_core::Result<()> {
/// let reaped = skyward_core::reap_expired(provider).await?;
/// println!("{reaped}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ErrorKind::Provider`] when the provider cannot list its pools, and [`ErrorKind::Ledger`] when the ledger cannot be read: then nothing is ended. What could not be ended is no error, but
/// in [`Reaped::left`]; for each pool that takes two minutes at most.
///
/// # Cancel safety
///
/// Machines go on ending as far as they were told to.
pub async fn reap_expired(provider: Arc<dyn Provider>) -> Result<Reaped> {
    reap_expired_in(Ledger::of_user()?, provider).await
}

pub(super) async fn reap_expired_in(ledger: Ledger, provider: Arc<dyn Provider>) -> Result<Reaped> {
    let provider = Checked::new(provider);
    let identity = provider.identity().await?;
    // Before the ledger is read: what is listed was in its client's ledger before.
    let listed = provider.pools().await?;
    let found = tokio::task::spawn_blocking(move || ledger.pools()).await;
    let found =
        found.map_err(|error| Error::new(ErrorKind::Ledger, "the ledger was interrupted").with_source(error))??;
    let mut found: BTreeMap<PoolId, Found> = found.into_iter().map(|found| (found.pool().clone(), found)).collect();
    let mut reaped = Reaped::default();
    let mut expired = Vec::new();
    for record in listed {
        match found.remove(&record.pool) {
            Some(Found::Held { page, .. }) => {
                let process = page.head.map(|head| head.owner).filter(|owner| owner.is_alive()).map(|owner| owner.pid);
                reaped.elsewhere.push(Elsewhere { process, ..elsewhere(record) });
            }
            Some(Found::Closed { pool, error }) => reaped.left.push(Left { pool, error }),
            _ if !has_expired(&record, &provider, SystemTime::now()) => reaped.elsewhere.push(elsewhere(record)),
            Some(Found::Orphan(orphan)) => expired.push((record, Some(orphan))),
            None => expired.push((record, None)),
        }
    }
    // What is not ended here is for others to lock.
    drop(found);
    let ends = expired.into_iter().map(|(record, orphan)| end(&provider, &identity, record, orphan));
    let mut ends = stream::iter(ends).buffer_unordered(AT_ONCE);
    while let Some(end) = ends.next().await {
        match end {
            End::Done(ended) => reaped.ended.push(ended),
            End::Lives(elsewhere) => reaped.elsewhere.push(elsewhere),
            End::Failed(left) => reaped.left.push(left),
        }
    }
    reaped.ended.sort_by(|a, b| a.pool.cmp(&b.pool));
    reaped.elsewhere.sort_by(|a, b| a.pool.cmp(&b.pool));
    reaped.left.sort_by(|a, b| a.pool.cmp(&b.pool));
    Ok(reaped)
}

/// What became of a pool that had expired.
enum End {
    Done(Ended),
    /// It has a live machine meanwhile.
    Lives(Elsewhere),
    Failed(Left),
}

async fn end(provider: &Checked, identity: &str, record: PoolRecord, orphan: Option<Orphan>) -> End {
    let pool = record.pool.clone();
    match end_expired(provider, identity, record, orphan).await {
        Ok(end) => end,
        Err(error) => End::Failed(Left { pool, error }),
    }
}

async fn end_expired(provider: &Checked, identity: &str, record: PoolRecord, orphan: Option<Orphan>) -> Result<End> {
    // Others were ended before it, which takes time.
    if let Some(now) = provider.pools().await?.into_iter().find(|now| now.pool == record.pool)
        && !has_expired(&now, provider, SystemTime::now())
    {
        return Ok(End::Lives(elsewhere(now)));
    }
    // A pool of that id at another provider is another one's to end, and to forget.
    let is_here = |orphan: &Orphan| {
        let head = orphan.page.head.as_ref();
        head.is_some_and(|head| head.provider == provider.name() && head.identity.as_deref() == Some(identity))
    };
    let orphan = orphan.filter(is_here);
    let known = orphan.as_ref().map(|orphan| orphan.page.machines.clone()).unwrap_or_default();
    let cleanup = Cleanup::of_orphan(provider.clone(), record.pool.clone(), known);
    let gone = Mutex::new(Vec::new());
    let note = |machine: &crate::provider::Machine| {
        gone.lock().unwrap_or_else(PoisonError::into_inner).push(machine.id.clone());
    };
    cleanup.end_machines(Instant::now() + PATIENCE, note).await?;
    if let Some(orphan) = orphan {
        let forgotten = tokio::task::spawn_blocking(move || orphan.forget()).await;
        forgotten.map_err(|error| Error::new(ErrorKind::Ledger, "the ledger was interrupted").with_source(error))??;
    }
    let machines = gone.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(End::Done(Ended { pool: record.pool, provider: provider.name().to_owned(), machines }))
}

/// Whether nothing of a pool can live any more.
fn has_expired(record: &PoolRecord, provider: &Checked, now: SystemTime) -> bool {
    let margin = MARGIN + provider.capabilities().settles_in;
    now.duration_since(record.expires).is_ok_and(|since| since > margin)
}

fn elsewhere(record: PoolRecord) -> Elsewhere {
    Elsewhere { pool: record.pool, process: None, owner: record.owner, expires: Some(record.expires) }
}

/// For clocks that differ, and for a keeper that looks a little later.
const MARGIN: Duration = Duration::from_secs(60);
