//! Buys the replacements of a world's lost machines as the world was bought: all of them by one
//! launch, or none.
//!
//! The machines of one loss are missed one after another, and the old ones end one after another.
//! So a replacement announces itself when it begins, and the purchase waits until each announced
//! replacement has come to it, and until no other node may be lost.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::purchase::{Bought, Patience, Purchases};
use super::timing::LOOK_AT_LOSSES;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::NodeIndex;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::fleet::launch::Launch;
use crate::pool::tasks::shared::Shared as Pool;
use crate::provider::Checked;

/// The replacements of a world that are under way.
#[derive(Debug)]
pub(crate) struct Together {
    purchases: Arc<Purchases>,
    state: Mutex<State>,
    /// Notified when a replacement begins, comes to the purchase, or is given up.
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The nodes whose replacements have begun and have no machine yet, and how many of each: one that
    /// was given up may end after its successor has begun.
    begun: BTreeMap<NodeIndex, u32>,
    open: Option<Open>,
}

/// A purchase that was not made yet.
#[derive(Debug)]
struct Open {
    launches: Launches,
    /// The outcome for all replacements. It is dropped when nobody waits.
    outcome: WeakShared<Outcome>,
}

/// What is going to be bought; none once the provider is asked.
type Launches = Arc<Mutex<Option<BTreeMap<NodeIndex, Wanted>>>>;
/// The machines that were bought; none where an offer was refused, and another one may be tried.
type Outcome = BoxFuture<'static, Result<Option<Arc<BTreeMap<NodeIndex, Bought>>>>>;

/// A launch that is on record.
struct Wanted {
    launch: Launch,
    /// Receives the reason why no offer can be tried yet.
    on_wait: Box<dyn Fn(&Error) + Send + Sync>,
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.launch.fmt(f)
    }
}

/// A replacement that has begun, and that the others wait for until it has a machine or is given
/// up.
#[derive(Debug)]
pub(crate) struct Replacing {
    together: Arc<Together>,
    node: NodeIndex,
}

impl Replacing {
    /// Announces the replacement of a node.
    pub(crate) fn begin(together: &Arc<Together>, node: NodeIndex) -> Self {
        *lock(&together.state).begun.entry(node).or_default() += 1;
        together.moved.notify_waiters();
        Self { together: Arc::clone(together), node }
    }

    /// Buys the machine of a launch that is on record, together with those of the other
    /// replacements. If an offer is refused, all of them try the next one, or wait for it.
    ///
    /// # Errors
    ///
    /// Those of [`Purchases::buy_all`].
    ///
    /// # Cancel safety
    ///
    /// The other replacements are bought all the same. A machine that was bought is on record.
    pub(crate) async fn buy<W: Fn(&Error) + Send + Sync + 'static>(
        self,
        pool: &Arc<Pool>,
        cleanup: &Cleanup,
        provider: &Checked,
        mut launch: Launch,
        on_wait: impl Fn() -> W,
    ) -> Result<Bought> {
        loop {
            let wanted = Wanted { launch, on_wait: Box::new(on_wait()) };
            let (launches, outcome) = self.join(wanted, pool, cleanup, provider);
            let _waiting = Waiting { together: &self.together, launches, launch };
            if let Some(bought) = outcome.await? {
                let none = || Error::new(ErrorKind::Provider, "a launch of several machines left one of them out");
                return bought.get(&self.node).cloned().ok_or_else(none);
            }
            let end = Instant::now() + pool.limits.shutdown;
            cleanup.retire(launch.machine, end, |_| ()).await?;
            launch = self.together.purchases.launch(launch.node, launch.machine);
            cleanup.intend(std::iter::once((launch.id(&pool.pool), launch.machine))).await?;
        }
    }

    fn join(
        &self,
        wanted: Wanted,
        pool: &Arc<Pool>,
        cleanup: &Cleanup,
        provider: &Checked,
    ) -> (Launches, Shared<Outcome>) {
        let together = &self.together;
        let mut state = lock(&together.state);
        let open = state.open.as_ref().and_then(|open| Some((Arc::clone(&open.launches), open.outcome.upgrade()?)));
        let mut wanted = Some(wanted);
        if let Some((launches, outcome)) = open {
            let is_open =
                lock(&launches).as_mut().map(|launches| launches.extend(wanted.take().map(|one| (self.node, one))));
            if is_open.is_some() {
                together.moved.notify_waiters();
                return (launches, outcome);
            }
        }
        let wanted = wanted.map(|wanted| (self.node, wanted)).into_iter().collect();
        let launches: Launches = Arc::new(Mutex::new(Some(wanted)));
        let (gang, pool, cleanup) = (Arc::clone(together), Arc::clone(pool), cleanup.clone());
        let (provider, asked) = (provider.clone(), Arc::clone(&launches));
        let buy = async move { gang.buy(&pool, &cleanup, &provider, &asked).await };
        let outcome: Shared<Outcome> = buy.boxed().shared();
        state.open = outcome.downgrade().map(|outcome| Open { launches: Arc::clone(&launches), outcome });
        (launches, outcome)
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        if let Entry::Occupied(mut begun) = lock(&self.together.state).begun.entry(self.node) {
            *begun.get_mut() -= 1;
            if *begun.get() == 0 {
                begun.remove();
            }
        }
        self.together.moved.notify_waiters();
    }
}

/// A replacement that waits for the purchase.
struct Waiting<'a> {
    together: &'a Together,
    launches: Launches,
    launch: Launch,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(launches) = lock(&self.launches).as_mut() {
            // Not that of a later replacement of the node.
            launches.retain(|node, wanted| *node != self.launch.node || wanted.launch.attempt != self.launch.attempt);
        }
        self.together.moved.notify_waiters();
    }
}

impl Together {
    pub(crate) fn new(purchases: Arc<Purchases>) -> Self {
        Self { purchases, state: Mutex::default(), moved: Notify::new() }
    }

    /// Tries one offer for all replacements that have come, once all have come that have begun.
    async fn buy(
        &self,
        pool: &Arc<Pool>,
        cleanup: &Cleanup,
        provider: &Checked,
        launches: &Launches,
    ) -> Result<Option<Arc<BTreeMap<NodeIndex, Bought>>>> {
        let on_wait = |error: &Error| {
            lock(launches).iter().flat_map(BTreeMap::values).for_each(|wanted| (wanted.on_wait)(error));
        };
        let (offer, wanted) = loop {
            self.until_all_have_come(pool, launches).await;
            let offer = self.purchases.next_offer(pool, Patience::Wait, &on_wait).await?;
            // Others may have been lost during the wait for an offer.
            if self.have_all_come(pool, launches) {
                break (offer, lock(launches).take().unwrap_or_default());
            }
        };
        let wanted: Vec<Launch> = wanted.into_values().map(|wanted| wanted.launch).collect();
        let Some(first) = wanted.first() else { return Ok(None) };
        let tried = self.purchases.try_batch(pool, cleanup, provider, &wanted, &offer).await;
        let bought = self.purchases.conclude(pool, first.node, &offer, tried)?;
        let by_node = |bought: Vec<Bought>| wanted.iter().map(|launch| launch.node).zip(bought).collect();
        Ok(bought.map(|bought| Arc::new(by_node(bought))))
    }

    async fn until_all_have_come(&self, pool: &Pool, launches: &Launches) {
        loop {
            // Made before the check, so that no change between the two is missed.
            let moved = self.moved.notified();
            if self.have_all_come(pool, launches) {
                return;
            }
            let _ = timeout(LOOK_AT_LOSSES, moved).await;
        }
    }

    fn have_all_come(&self, pool: &Pool, launches: &Launches) -> bool {
        let come: BTreeSet<NodeIndex> = lock(launches).iter().flat_map(BTreeMap::keys).copied().collect();
        let all = lock(&self.state).begun.keys().eq(&come);
        all && !pool.lock().fleet.is_one_away()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
