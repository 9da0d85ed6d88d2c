//! Lists of a pool's machines, combined into one call for all machines that leave at the same time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::error::Result;
use crate::ids::{MachineNumber, PoolId};
use crate::provider::timing::GATHER;
use crate::provider::{Checked, Machine, Provider};

/// Combines lists at nearly the same moment into one call of the provider: a list contains all
/// machines of the pool, and many of them leave together.
#[derive(Debug, Default)]
pub(super) struct Listing(Mutex<Option<List>>);

/// A call that is about to be made.
#[derive(Debug)]
struct List {
    /// Whether the call was made: what happens from then on may be missing in its answer.
    asked: Arc<AtomicBool>,
    /// The answer for all waiters. It is dropped when nobody waits.
    answer: WeakShared<Answer>,
}

type Answer = BoxFuture<'static, Result<Arc<Listed>>>;
type Listed = BTreeMap<MachineNumber, Vec<Machine>>;

impl Listing {
    /// The machines of one number, in a list that is made after this call.
    ///
    /// # Errors
    ///
    /// As [`Provider::list`].
    ///
    /// # Cancel safety
    ///
    /// Others that list at the same moment still get their answer.
    pub(super) async fn of(&self, provider: &Checked, pool: &PoolId, number: MachineNumber) -> Result<Vec<Machine>> {
        let answer = {
            let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match open.as_ref().and_then(List::join) {
                Some(answer) => answer,
                None => {
                    let (list, answer) = List::begin(provider.clone(), pool.clone());
                    *open = list;
                    answer
                }
            }
        };
        Ok(answer.await?.get(&number).cloned().unwrap_or_default())
    }
}

impl List {
    fn begin(provider: Checked, pool: PoolId) -> (Option<Self>, Shared<Answer>) {
        let asked = Arc::new(AtomicBool::new(false));
        let is_asked = Arc::clone(&asked);
        let answer = async move {
            tokio::time::sleep(GATHER).await;
            is_asked.store(true, Ordering::Relaxed);
            let mut listed = Listed::new();
            for machine in provider.list(&pool).await? {
                listed.entry(machine.number).or_default().push(machine);
            }
            Ok(Arc::new(listed))
        };
        let answer = answer.boxed().shared();
        (answer.downgrade().map(|answer| Self { asked, answer }), answer)
    }

    /// The answer, if somebody waits for it and the call was not made yet.
    fn join(&self) -> Option<Shared<Answer>> {
        // Upgraded first: then the waiters of this answer cannot end meanwhile.
        self.answer.upgrade().filter(|_| !self.asked.load(Ordering::Relaxed))
    }
}
