//! The owner objects of a name: who holds it now, and until when.
//!
//! They keep two pools from using one name by accident. What keeps a pool that has lost the name from
//! committing are the claims among the commits.

use std::time::Duration;

use super::claim::{Claim, Owner};
use super::error::{crowded, in_use, superseded};
use super::manifest::Manifest;
use super::store::Store;
use super::timing::OWNER_AGE;
use crate::error::{Error, Result};
use crate::storage::Created;

/// The owner object of a claim.
#[derive(Debug)]
pub(super) struct Hold {
    number: u64,
    /// After this, no renewal succeeds.
    superseded: Option<Error>,
}

impl Hold {
    pub(super) async fn take(store: &Store, owner: &Owner, claim: &str, take_over: bool) -> Result<Self> {
        let bytes = Manifest::new(claim, owner, None).encode()?;
        for _ in 0..MOST_ROUNDS {
            let newest = store.owners().await?.pop();
            if let Some(newest) = &newest
                && let Some((_, other)) = store.owner(newest.number).await?
                && other.pool != owner.pool
                && !take_over
            {
                let age = age(store, claim, newest.modified).await?;
                if let Some(left) = OWNER_AGE.checked_sub(age).filter(|left| !left.is_zero()) {
                    return Err(in_use(store.layout.name(), &other, left));
                }
            }
            let number = newest.map_or(0, |newest| newest.number) + 1;
            let path = store.layout.owner(number);
            let is_own = match store.create(&path, &bytes).await? {
                Created::New => true,
                Created::Exists => store.owner(number).await?.is_some_and(|(found, _)| found == claim),
            };
            let owners = store.owners().await?;
            if is_own && owners.last().is_some_and(|newest| newest.number == number) {
                let older = owners.iter().filter(|it| it.number < number).map(|it| store.layout.owner(it.number));
                store.remove_all(older.collect::<Vec<_>>()).await?;
                return Ok(Self { number, superseded: None });
            }
            if is_own {
                // The owner has renewed its hold since the list was read.
                store.remove(&path).await?;
            }
        }
        Err(crowded(store.layout.name()))
    }
}

/// How old something of the store is, by the store's own clock.
async fn age(store: &Store, claim: &str, modified: std::time::SystemTime) -> Result<Duration> {
    let probe = store.layout.probes().with(claim);
    // One of the round before would be too old.
    store.remove(&probe).await?;
    store.create(&probe, &bytes::Bytes::from_static(b"{}")).await?;
    let probes = store.list(&store.layout.probes()).await?;
    let now = probes.iter().find(|it| it.path == probe).map(|it| it.modified);
    store.remove(&probe).await?;
    Ok(now.and_then(|now| now.duration_since(modified).ok()).unwrap_or_default())
}

impl Claim {
    /// Renews the hold, so that no other pool gets the name. Call it each 20 s.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Superseded`](crate::ErrorKind::Superseded) if another pool has taken the name, now
    /// and always after that; otherwise those of the storage.
    ///
    /// # Cancel safety
    ///
    /// The hold is renewed or not.
    pub(crate) async fn renew(&self) -> Result<()> {
        let mut hold = self.hold.lock().await;
        if let Some(error) = &hold.superseded {
            return Err(error.clone());
        }
        let store = &self.store;
        let bytes = Manifest::new(&self.id, &self.owner, None).encode()?;
        let owners = store.owners().await?;
        let newer: Vec<u64> = owners.iter().map(|it| it.number).filter(|number| *number > hold.number).collect();
        for number in newer {
            self.adopt(&mut hold, number).await?;
        }
        let next = owners.last().map_or(0, |newest| newest.number).max(hold.number) + 1;
        match store.create(&store.layout.owner(next), &bytes).await? {
            Created::New => hold.number = next,
            Created::Exists => self.adopt(&mut hold, next).await?,
        }
        let older = owners.iter().filter(|it| it.number < hold.number).map(|it| store.layout.owner(it.number));
        store.remove_all(older.collect::<Vec<_>>()).await
    }

    /// Makes an owner object that this claim has created its hold: the answer to the creation was lost.
    async fn adopt(&self, hold: &mut Hold, number: u64) -> Result<()> {
        match self.store.owner(number).await? {
            Some((found, _)) if found == self.id => hold.number = number,
            Some((_, by)) => {
                let error = superseded(self.name(), &by);
                hold.superseded = Some(error.clone());
                return Err(error);
            }
            // Another pool has tried to take the name, and has given up.
            None => {}
        }
        Ok(())
    }

    /// Gives the name back, so that the next pool gets it at once.
    ///
    /// # Errors
    ///
    /// Those of the storage. The hold then ends after a minute.
    ///
    /// # Cancel safety
    ///
    /// The name may still be held, for a minute at most.
    pub(crate) async fn release(&self) -> Result<()> {
        for it in self.store.owners().await? {
            if self.store.owner(it.number).await?.is_some_and(|(found, _)| found == self.id) {
                self.store.remove(&self.store.layout.owner(it.number)).await?;
            }
        }
        Ok(())
    }
}

/// How often a name is tried to be taken while others take it, or commit.
pub(super) const MOST_ROUNDS: usize = 20;
