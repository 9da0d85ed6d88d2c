//! The expiry times in the tags of all that a pool has made, for cleaning up after a client that is
//! gone.

use std::time::{Duration, Instant, SystemTime};

use aws_sdk_ec2::types::Tag;
use skyward_core::ids::PoolId;
use skyward_core::provider::clock;

use crate::client::Clients;
use crate::errors::called;
use crate::tags;
use crate::timing::{RENEWAL_AGAIN, RENEWAL_PERIOD};

/// The expiry of tags that are renewed now. The keeper on a machine ends it earlier, by the lease
/// itself.
pub(crate) fn expires(lease: Duration, now: SystemTime) -> SystemTime {
    now.checked_add(lease.max(RENEWAL_PERIOD)).unwrap_or(now)
}

/// When the next renewal of a pool's tags is due.
#[derive(Debug)]
pub(crate) struct Renewals(std::sync::Mutex<Instant>);

impl Renewals {
    /// Starts counting from now: everything has just been tagged.
    pub(crate) fn new() -> Self {
        Self(std::sync::Mutex::new(clock::now() + RENEWAL_PERIOD))
    }

    /// Whether a renewal is due. Returns true to one caller, which then renews. If that caller does
    /// not report [`done`](Self::done), another caller gets true after a minute.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut next = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let due = now >= *next;
        if due {
            *next = now + RENEWAL_AGAIN;
        }
        due
    }

    /// Reports that all tags were renewed.
    pub(crate) fn done(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = now + RENEWAL_PERIOD;
    }
}

/// Renews the tags of these resources, and returns whether all were renewed. A failure costs no
/// more than another try: the keepers on the machines have leases of their own.
pub(crate) async fn renew(clients: &Clients, pool: &PoolId, lease: Duration, resources: Vec<String>) -> bool {
    let tag = Tag::builder().key(tags::EXPIRES).value(tags::seconds(expires(lease, clients.clock.now()))).build();
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

/// The resources of one call, which fails for all of them when one is gone.
const MOST: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_tags_are_renewed_once_in_a_period() {
        let renewals = Renewals::new();
        let start = clock::now();
        assert!(!renewals.is_due(start + RENEWAL_PERIOD / 2));
        // The two clocks that are compared are read one after the other.
        let start = start + std::time::Duration::from_millis(10);
        assert!(renewals.is_due(start + RENEWAL_PERIOD));
        assert!(!renewals.is_due(start + RENEWAL_PERIOD + RENEWAL_AGAIN / 2), "one does it");
        assert!(renewals.is_due(start + RENEWAL_PERIOD + RENEWAL_AGAIN), "it has failed");
        renewals.done(start + RENEWAL_PERIOD + RENEWAL_AGAIN);
        assert!(!renewals.is_due(start + RENEWAL_PERIOD + RENEWAL_PERIOD / 2));
        assert!(renewals.is_due(start + 2 * RENEWAL_PERIOD + RENEWAL_AGAIN));
        let now = SystemTime::now();
        assert_eq!(expires(Duration::from_secs(60), now), now + RENEWAL_PERIOD);
        assert_eq!(expires(3 * RENEWAL_PERIOD, now), now + 3 * RENEWAL_PERIOD);
    }
}
