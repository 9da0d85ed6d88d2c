//! `reap`: ends what clients of this user left behind.

mod expired;
mod holders;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;

pub use self::expired::reap_expired;
use self::holders::Holders;
use super::cleanup::Cleanup;
use super::ledger::{Found, Ledger, Orphan, blocking};
use super::timing::{LONGEST_LISTING_PAUSE, POOL_GONE};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineId, PoolId};
use crate::provider::{Checked, Local, Machine, Provider};

/// The result of [`reap`], about the pools in the ledger, or of [`reap_expired`], about the pools
/// at a provider.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Reaped {
    /// Pools that were ended because their client was gone or their lease had expired.
    pub ended: Vec<Ended>,
    /// Pools that were left alone because someone else is responsible for them.
    pub elsewhere: Vec<Elsewhere>,
    /// Pools that could not be ended although their client is gone or their lease has expired.
    /// Their records in the ledger are kept.
    pub unconfirmed: Vec<Unconfirmed>,
}

/// A pool that was ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ended {
    /// The pool.
    pub pool: PoolId,
    /// Its provider's name.
    pub provider: String,
    /// The machines of the pool that are confirmed gone, including machines that their lease had
    /// ended before.
    pub machines: Vec<MachineId>,
}

/// A pool that was left alone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Elsewhere {
    /// The pool.
    pub pool: PoolId,
    /// The living process of this host that owns the pool, by this user's ledger. `None` if another
    /// process is ending what the owner left, or if the pool is not in this ledger.
    pub process: Option<u32>,
    /// The client that started the pool, by the provider's [record](crate::provider::PoolRecord).
    /// Empty if it is not known, and always empty in the result of [`reap`].
    pub owner: String,
    /// When the pool expires unless its lease is renewed. Only set in the result of
    /// [`reap_expired`].
    pub expires: Option<SystemTime>,
}

/// A pool that could not be ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unconfirmed {
    /// The pool.
    pub pool: PoolId,
    /// Why the pool could not be ended.
    pub error: Error,
}

/// Ends what clients of this user left behind when they were killed: the pools in the ledger whose
/// client is gone, with the machines that are in the ledger and those in the provider's own list. A
/// pool whose client lives is left alone.
///
/// Each pool is ended through the provider that has the same name and the same
/// [identity](Provider::identity), among those given and [`Local`]. A provider with the same name
/// and another identity (another engine at the same path, another machine with the same state
/// folder) is not used: the pool is then in [`Reaped::unconfirmed`] with [`ErrorKind::Identity`].
/// Each [part](Provider::parts) of a provider is looked for by itself: the hosts of a pool may be in
/// another list, by other names and beside other hosts. Machines on hosts that are not in any given
/// list keep their record, and the error names these hosts. A pool is forgotten only when the
/// provider has confirmed that its machines are gone and has removed what they shared. It is safe to
/// call this function at any time, also in several processes at once.
///
/// The ledger is in `$SKYWARD_STATE_DIR/ledger`. Without that variable it is in `skyward/ledger` in
/// `$XDG_STATE_HOME` or `~/.local/state`.
///
/// ```no_run
/// # use skyward_core as skyward;
/// # async fn example() -> skyward::Result<()> {
/// let reaped = skyward::reap([]).await?;
/// println!("{reaped}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ErrorKind::Ledger`] if the ledger cannot be read. A pool that could not be ended is no error:
/// it is in [`Reaped::unconfirmed`]. Each pool takes two minutes at most, and
/// 15 minutes more while its released machines hold what they shared.
///
/// # Cancel safety
///
/// Machines that are already ending go on ending. Their pools stay in the ledger.
///
/// [`ErrorKind::Identity`]: crate::error::ErrorKind::Identity
/// [`ErrorKind::Ledger`]: crate::error::ErrorKind::Ledger
pub async fn reap(providers: impl IntoIterator<Item = Arc<dyn Provider>>) -> Result<Reaped> {
    reap_in(Ledger::of_user()?, providers.into_iter().collect()).await
}

async fn reap_in(ledger: Ledger, providers: Vec<Arc<dyn Provider>>) -> Result<Reaped> {
    let found = ledger.read().await?;
    let mut reaped = Reaped::default();
    let mut orphans = Vec::new();
    for found in found {
        match found {
            Found::Held { pool, page } => {
                let process = page.head.map(|head| head.owner).filter(|owner| owner.is_alive()).map(|owner| owner.pid);
                reaped.elsewhere.push(Elsewhere { pool, process, owner: String::new(), expires: None });
            }
            Found::Orphan(orphan) => orphans.push(orphan),
            Found::Closed { pool, error } => reaped.unconfirmed.push(Unconfirmed { pool, error }),
        }
    }
    let ends = orphans.into_iter().map(|orphan| end(orphan, &providers));
    let mut ends = stream::iter(ends).buffer_unordered(AT_ONCE);
    while let Some(ended) = ends.next().await {
        match ended {
            Ok(ended) => reaped.ended.push(ended),
            Err(left) => reaped.unconfirmed.push(left),
        }
    }
    reaped.ended.sort_by(|a, b| a.pool.cmp(&b.pool));
    reaped.unconfirmed.sort_by(|a, b| a.pool.cmp(&b.pool));
    Ok(reaped)
}

/// Ends, beside the start of a pool at this provider, what clients of this user that are gone have
/// left there. What cannot be ended now stays on record.
pub(crate) async fn take_up(provider: Checked) {
    if !provider.capabilities().outlives_client {
        return;
    }
    let ledger = match Ledger::of_user() {
        Ok(ledger) => ledger,
        // The start of the pool fails with the same error.
        Err(_) => return,
    };
    take_up_in(ledger, provider).await;
}

async fn take_up_in(ledger: Ledger, provider: Checked) {
    let name = provider.name().to_owned();
    let found = match ledger.read().await {
        Ok(found) => found,
        Err(error) => return tracing::warn!(error = error.summary(), "the ledger cannot be read"),
    };
    let is_here = |found| match found {
        Found::Orphan(orphan) if orphan.page.head.as_ref().is_some_and(|head| head.provider == name) => Some(orphan),
        _ => None,
    };
    let orphans: Vec<Orphan> = found.into_iter().filter_map(is_here).collect();
    let given: [Arc<dyn Provider>; 1] = [Arc::new(provider)];
    let ends = orphans.into_iter().map(|orphan| end(orphan, &given));
    let mut ends = stream::iter(ends).buffer_unordered(AT_ONCE);
    while let Some(ended) = ends.next().await {
        match ended {
            Ok(Ended { pool, machines, .. }) => {
                tracing::info!(%pool, ?machines, "a client that is gone had left this pool, which has been ended");
            }
            // The pool belongs to another account or engine.
            Err(Unconfirmed { error, .. }) if error.kind() == ErrorKind::Identity => {}
            Err(Unconfirmed { pool, error }) => {
                tracing::warn!(%pool, error = error.summary(), "a client that is gone has left this pool, which stays on record");
            }
        }
    }
}

async fn end(orphan: Orphan, given: &[Arc<dyn Provider>]) -> Result<Ended, Unconfirmed> {
    let pool = orphan.pool.clone();
    let left = |error| Unconfirmed { pool: pool.clone(), error };
    if let Some(error) = orphan.lives_elsewhere() {
        return Err(left(error));
    }
    let (name, holders) = match &orphan.page.head {
        Some(head) => (head.provider.clone(), Holders::find(head, &orphan.page.machines, given).await),
        // Without its first record, the pool may be at any of the providers, and only machines in
        // their own lists are ended.
        None => {
            let all = given.iter().cloned().chain([Arc::new(Local::new()) as _]);
            (String::new(), Holders { found: all.map(|provider| (provider, Vec::new())).collect(), missing: None })
        }
    };
    // A provider that does not answer does not keep the others from ending their machines.
    let ends = holders.found.into_iter().map(|(provider, known)| end_at(&orphan, provider, known));
    let mut machines = Vec::new();
    let mut failed = holders.missing;
    for ended in join_all(ends).await {
        match ended {
            Ok(ended) => machines.extend(ended),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        let ended: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
        return Err(left(if ended.is_empty() { error } else { error.with_context("ended", ended.join(", ")) }));
    }
    blocking(move || orphan.forget()).await.map_err(left)?;
    Ok(Ended { pool, provider: name, machines })
}

/// Ends the pool's machines at one provider.
async fn end_at(orphan: &Orphan, provider: Arc<dyn Provider>, known: Vec<Machine>) -> Result<Vec<MachineId>> {
    let provider = Checked::new(provider);
    let settles_in = provider.capabilities().settles_in;
    let started = Instant::now();
    let deadline = started + POOL_GONE;
    // Query the provider once before the patience of a cleanup begins, so that a permanent failure
    // is reported at once.
    provider.list(&orphan.pool).await?;
    let cleanup = Cleanup::of_orphan(provider, orphan.pool.clone(), known);
    let gone: Mutex<BTreeMap<MachineId, LaunchId>> = Mutex::default();
    let note = |machine: &Machine| {
        let mut gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.insert(machine.id.clone(), machine.launch.clone());
    };
    loop {
        cleanup.end_machines(deadline, note).await?;
        let wait = {
            let gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
            orphan.unsettled(|launch| gone.values().any(|other| other == launch), started.elapsed(), settles_in)
        };
        if wait.is_zero() {
            cleanup.remove_shared().await?;
            return Ok(gone.into_inner().unwrap_or_else(PoisonError::into_inner).into_keys().collect());
        }
        tokio::time::sleep(wait.min(LONGEST_LISTING_PAUSE)).await;
    }
}

/// One line per pool.
impl fmt::Display for Reaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ended.is_empty() && self.elsewhere.is_empty() && self.unconfirmed.is_empty() {
            return f.write_str("nothing was left behind");
        }
        let mut lines = Vec::new();
        for Ended { pool, provider, machines } in &self.ended {
            let ids: Vec<_> = machines.iter().map(MachineId::as_str).collect();
            let ids = if ids.is_empty() { "it had no machine".to_owned() } else { ids.join(", ") };
            lines.push(format!("ended {pool} ({provider}): {ids}"));
        }
        for Elsewhere { pool, process, owner, expires } in &self.elsewhere {
            let by = if owner.is_empty() { "an unknown client" } else { owner };
            lines.push(match (process, expires) {
                (Some(pid), _) => format!("alive {pool}: process {pid} owns it"),
                (None, None) => format!("ending {pool}: another process is ending it"),
                (None, Some(expires)) => match expires.duration_since(SystemTime::now()) {
                    Ok(left) => format!("alive {pool}: {by} started it, and its lease lasts for {} s", left.as_secs()),
                    Err(_) => {
                        format!("expired {pool}: {by} started it; `reap_expired` ends it a minute after its expiry")
                    }
                },
            });
        }
        for Unconfirmed { pool, error } in &self.unconfirmed {
            lines.push(format!("unconfirmed {pool}: {error:#}"));
        }
        f.write_str(&lines.join("\n"))
    }
}

/// How many pools are ended at the same time.
const AT_ONCE: usize = 8;

#[cfg(test)]
pub(crate) mod tests;
