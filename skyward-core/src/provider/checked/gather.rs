//! Calls about single machines, combined into one call of the provider.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::runtime::{self, Handle};
use tokio::time::sleep;

use super::pace::Pace;
use super::{broken, lock};
use crate::error::Result;
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::timing::GATHER;
use crate::provider::{LaunchRequest, Machine, MachineReport, Provider};

/// The calls of a provider that are about to be made.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    pub(super) launch: Gather<(PoolId, OfferId), (MachineNumber, LaunchId), LaunchRequest, Machine>,
    pub(super) inspect: Gather<(), MachineId, MachineId, MachineReport>,
    pub(super) list: Gather<PoolId, MachineNumber, MachineNumber, Vec<Machine>>,
    pub(super) terminate: Gather<(), MachineId, MachineId, ()>,
}

/// Combines calls of one method at nearly the same moment, or while they wait for their turn, into
/// one call of the provider: many machines start together, and many connections end together.
///
/// `G` is what calls must have in common to be combined, `K` names a machine or a launch, `I` is
/// what the provider gets of it, and `T` what it returns.
#[derive(Debug)]
pub(super) struct Gather<G, K, I, T>(Mutex<HashMap<Group<G>, Open<K, I, T>>>);

/// Only callers on one runtime are combined: what a future waits for comes from the runtime that
/// polled it first, and that runtime may not run any more while another one does.
type Group<G> = (G, Option<runtime::Id>);

/// A call that is about to be made.
#[derive(Debug)]
struct Open<K, I, T> {
    items: Arc<Items<K, I>>,
    /// The answer for all callers. It is dropped when nobody waits: a future that is not polled may
    /// hold a lock that others wait for.
    answer: Option<WeakShared<Answer<K, T>>>,
}

/// What the provider is asked about, and how many callers ask about each; none once the call was
/// made.
type Items<K, I> = Mutex<Option<BTreeMap<K, (I, u32)>>>;
type Joined<K, I, T> = (Arc<Items<K, I>>, Shared<Answer<K, T>>);
type Answer<K, T> = BoxFuture<'static, Arc<BTreeMap<K, Result<T>>>>;

/// Whom a call asks, and the line in which it waits for its turn.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) pace: Pace,
    /// What the call does, in messages: the name of the line.
    pub(super) what: &'static str,
}

impl<G, K, I, T> Default for Gather<G, K, I, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<G, K, I, T> Gather<G, K, I, T>
where
    G: Eq + Hash,
    K: Ord + Clone + Send + Sync + 'static,
    I: Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// The results of a call about these items and those of other callers, in the order of `items`.
    /// `had_turn` tells, after a drop, whether the provider was asked.
    ///
    /// # Cancel safety
    ///
    /// Others that call at the same moment still get their results. Items that nobody else asks
    /// about leave a call that was not made yet, and a call without callers is dropped.
    pub(super) async fn call<F>(
        &self,
        alike: G,
        items: Vec<(K, I)>,
        asked: Asked,
        had_turn: &AtomicBool,
        call: impl FnOnce(Arc<dyn Provider>, Vec<I>) -> F + Send + 'static,
    ) -> Vec<Result<T>>
    where
        F: Future<Output = Vec<Result<T>>> + Send,
    {
        if items.is_empty() {
            return Vec::new();
        }
        let provider = Arc::clone(&asked.provider);
        let keys: Vec<K> = items.iter().map(|(key, _)| key.clone()).collect();
        let (items, answer) = self.join(alike, items, asked, call);
        let caller = Caller { keys, items, had_turn };
        let results = answer.await;
        let result = |key| results.get(key).cloned().unwrap_or_else(|| Err(broken(&*provider, NO_RESULT)));
        caller.keys.iter().map(result).collect()
    }

    fn join<F>(
        &self,
        alike: G,
        mut items: Vec<(K, I)>,
        asked: Asked,
        call: impl FnOnce(Arc<dyn Provider>, Vec<I>) -> F + Send + 'static,
    ) -> Joined<K, I, T>
    where
        F: Future<Output = Vec<Result<T>>> + Send,
    {
        let group = (alike, Handle::try_current().ok().map(|runtime| runtime.id()));
        // The last hold on an answer that is not joined, dropped when the lock is free again.
        let _made;
        let mut all = lock(&self.0);
        all.retain(|_, open| open.is_open());
        if let Some(open) = all.get(&group)
            && let Some(answer) = open.answer.as_ref().and_then(WeakShared::upgrade)
        {
            match open.add(items) {
                Ok(()) => return (Arc::clone(&open.items), answer),
                Err(back) => (items, _made) = (back, answer),
            }
        }
        let (open, answer) = Open::begin(items, asked, call);
        let items = Arc::clone(&open.items);
        all.insert(group, open);
        (items, answer)
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, I: Send + 'static, T: Clone + Send + Sync + 'static> Open<K, I, T> {
    fn begin<F>(
        items: Vec<(K, I)>,
        asked: Asked,
        call: impl FnOnce(Arc<dyn Provider>, Vec<I>) -> F + Send + 'static,
    ) -> (Self, Shared<Answer<K, T>>)
    where
        F: Future<Output = Vec<Result<T>>> + Send,
    {
        let open = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let gathered = Arc::clone(&open);
        let answer = async move {
            sleep(GATHER).await;
            let turn = asked.pace.turn(&*asked.provider, asked.what).await;
            let taken = lock(&gathered).take().unwrap_or_default();
            let (keys, items): (Vec<K>, Vec<I>) = taken.into_iter().map(|(key, (item, _))| (key, item)).unzip();
            let mut results = match turn {
                Ok(()) => call(Arc::clone(&asked.provider), items).await,
                Err(error) => vec![Err(error); keys.len()],
            };
            if results.len() != keys.len() {
                results = vec![Err(miscounted(&*asked.provider, asked.what, keys.len(), results.len())); keys.len()];
            }
            Arc::new(keys.into_iter().zip(results).collect())
        };
        let answer: Shared<Answer<K, T>> = answer.boxed().shared();
        let this = Self { items: open, answer: answer.downgrade() };
        let _ = this.add(items);
        (this, answer)
    }

    /// Whether the call was not made yet, and somebody waits for it: the future of the answer has
    /// the items too.
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.items) > 1 && lock(&self.items).is_some()
    }

    /// Adds items; returns them if the call was made.
    fn add(&self, more: Vec<(K, I)>) -> std::result::Result<(), Vec<(K, I)>> {
        let mut items = lock(&self.items);
        let Some(items) = items.as_mut() else { return Err(more) };
        for (key, item) in more {
            items.entry(key).or_insert((item, 0)).1 += 1;
        }
        Ok(())
    }
}

/// A caller that waits for an answer.
struct Caller<'a, K: Ord, I> {
    keys: Vec<K>,
    items: Arc<Items<K, I>>,
    had_turn: &'a AtomicBool,
}

impl<K: Ord, I> Drop for Caller<'_, K, I> {
    fn drop(&mut self) {
        let mut items = lock(&self.items);
        self.had_turn.store(items.is_none(), Ordering::Relaxed);
        let Some(items) = items.as_mut() else { return };
        for key in &self.keys {
            if let Some((_, callers)) = items.get_mut(key) {
                *callers -= 1;
                if *callers == 0 {
                    items.remove(key);
                }
            }
        }
    }
}

/// The error of a call that returned too few or too many results.
pub(super) fn miscounted(provider: &dyn Provider, what: &str, asked: usize, results: usize) -> crate::error::Error {
    broken(provider, &format!("a call to {what}, for {asked} machines, returned {results} results"))
}

pub(super) const NO_RESULT: &str = "a call returned no result";
