//! Puts calls that come at nearly the same moment into one: a pool makes a call for each of its
//! machines.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::sleep;

/// The calls that are about to be made: `K` is what items must have in common to be in one call,
/// `I` an item, `A` the answer.
#[derive(Debug)]
pub(crate) struct Gather<K, I, A>(Mutex<HashMap<K, Open<I, A>>>);

#[derive(Debug)]
struct Open<I, A> {
    /// None once the call has been made.
    items: Arc<Mutex<Option<Vec<I>>>>,
    answer: WeakShared<BoxFuture<'static, Arc<A>>>,
}

impl<K, I, A> Default for Gather<K, I, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, I: Send + 'static, A: Send + Sync + 'static> Gather<K, I, A> {
    /// The answer to a call about this item and those of other callers.
    ///
    /// # Cancel safety
    ///
    /// Other callers get their answer all the same. A call that no caller waits for is dropped.
    pub(crate) async fn call<F>(&self, alike: K, item: I, call: impl FnOnce(Vec<I>) -> F + Send + 'static) -> Arc<A>
    where
        F: Future<Output = A> + Send + 'static,
    {
        self.join(alike, item, call).await
    }

    fn join<F>(
        &self,
        alike: K,
        item: I,
        call: impl FnOnce(Vec<I>) -> F + Send + 'static,
    ) -> Shared<BoxFuture<'static, Arc<A>>>
    where
        F: Future<Output = A> + Send + 'static,
    {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, open| open.answer.upgrade().is_some());
        let item = match all.get(&alike) {
            Some(open) => match open.add(item) {
                Ok(answer) => return answer,
                Err(item) => item,
            },
            None => item,
        };
        let items = Arc::new(Mutex::new(Some(vec![item])));
        let gathered = Arc::clone(&items);
        let answer = async move {
            sleep(MOMENT).await;
            let items = gathered.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
            Arc::new(call(items).await)
        };
        let answer = answer.boxed().shared();
        if let Some(weak) = answer.downgrade() {
            all.insert(alike, Open { items, answer: weak });
        }
        answer
    }
}

impl<I, A> Open<I, A> {
    /// Adds an item if the call has not been made yet and a caller waits for it; otherwise returns
    /// the item.
    fn add(&self, item: I) -> Result<Shared<BoxFuture<'static, Arc<A>>>, I> {
        let Some(answer) = self.answer.upgrade() else { return Err(item) };
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        match items.as_mut().filter(|items| items.len() < MOST) {
            Some(items) => {
                items.push(item);
                Ok(answer)
            }
            None => Err(item),
        }
    }
}

/// How long a call waits for further items.
const MOMENT: Duration = Duration::from_millis(20);
/// The items of one call.
pub(crate) const MOST: usize = 100;

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_moment_are_one_for_all_that_are_alike() {
        let gather = Gather::default();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let call = |alike: &'static str, item: usize| {
            let calls = Arc::clone(&calls);
            gather.call(alike, item, move |items: Vec<usize>| async move {
                calls.lock().unwrap().push((alike, items.len()));
                items
            })
        };
        let (many, other) = tokio::join!(join_all((0..150).map(|item| call("a", item))), call("b", 7));
        assert!(many.iter().enumerate().all(|(item, answer)| answer.contains(&item)));
        assert_eq!(*other, [7]);
        let mut seen = calls.lock().unwrap().clone();
        seen.sort_unstable();
        assert_eq!(seen, [("a", 50), ("a", 100), ("b", 1)]);
        // What was made takes no more.
        call("b", 8).await;
        assert_eq!(calls.lock().unwrap().len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_for_those_who_still_wait() {
        let gather = Gather::default();
        let call = |item: u32| gather.call((), item, |items: Vec<u32>| async move { items });
        let mut first = Box::pin(call(1));
        assert!(futures_util::poll!(&mut first).is_pending());
        let second = call(2);
        tokio::pin!(second);
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(*second.await, [1, 2]);
    }
}
