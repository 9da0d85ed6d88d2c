//! When what a pool has made expires, as its tags say: for whoever cleans up after a client that is gone.

use std::time::{Duration, SystemTime};

use aws_sdk_ec2::types::Tag;
use skyward_core::ids::PoolId;
use tokio::time::Instant;

use crate::client::Clients;
use crate::errors::called;
use crate::tags;

/// How often the tags are renewed: one call for a whole pool.
pub(crate) const PERIOD: Duration = Duration::from_secs(10 * 60);

/// How long a pool may start: until then nothing renews its tags.
pub(crate) const START: Duration = Duration::from_secs(60 * 60);

/// When what has this lease expires that is renewed now: the machine itself ends earlier, by its keeper.
pub(crate) fn expires(lease: Duration, now: SystemTime) -> SystemTime {
    now.checked_add(lease.max(PERIOD)).unwrap_or(now)
}

/// When the tags of a pool are renewed the next time.
#[derive(Debug)]
pub(crate) struct Renewals(std::sync::Mutex<Instant>);

impl Renewals {
    /// Everything has its tags from now on.
    pub(crate) fn new() -> Self {
        Self(std::sync::Mutex::new(Instant::now() + PERIOD))
    }

    /// Whether it is time to renew. It answers yes to one caller, who renews; unless that caller reports [`done`](Self::done), it answers yes to the next one after a minute.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut next = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let due = now >= *next;
        if due {
            *next = now + AGAIN;
        }
        due
    }

    /// Everything was renewed.
    pub(crate) fn done(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = now + PERIOD;
    }
}

/// Renews the tags of these resources, and says whether all were. That it fails costs nothing but the next try: the keepers on the machines go by their own leases.
pub(crate) async fn renew(clients: &Clients, pool: &PoolId, lease: Duration, resources: Vec<String>) -> bool {
    let tag = Tag::builder().key(tags::EXPIRES).value(tags::seconds(expires(lease, SystemTime::now()))).build();
    let mut all = true;
    for some in resources.chunks(MOST) {
        let renewed = clients.ec2.create_tags().set_resources(Some(some.to_vec())).tags(tag.clone()).send().await;
        if let Err(error) = called("CreateTags", renewed) {
            tracing::warn!(%pool, %error, "the tags that say when the pool expires could not be renewed");
            all = false;
        }
    }
    all
}

/// After a renewal that failed.
const AGAIN: Duration = Duration::from_secs(60);
/// The resources of one call, which fails for all of them when one is gone.
const MOST: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_tags_are_renewed_once_in_a_period() {
        let renewals = Renewals::new();
        let start = Instant::now();
        assert!(!renewals.is_due(start + PERIOD / 2));
        assert!(renewals.is_due(start + PERIOD));
        assert!(!renewals.is_due(start + PERIOD + AGAIN / 2), "one does it");
        assert!(renewals.is_due(start + PERIOD + AGAIN), "it has failed");
        renewals.done(start + PERIOD + AGAIN);
        assert!(!renewals.is_due(start + PERIOD + PERIOD / 2));
        assert!(renewals.is_due(start + 2 * PERIOD + AGAIN));
        let now = SystemTime::now();
        assert_eq!(expires(Duration::from_secs(60), now), now + PERIOD);
        assert_eq!(expires(3 * PERIOD, now), now + 3 * PERIOD);
    }
}
