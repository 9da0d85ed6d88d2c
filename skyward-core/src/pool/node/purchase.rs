//! Buys machines: tries one offer after another, and puts each launch on record first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Attempt, LaunchId, MachineNumber, NodeIndex, OfferId};
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::fleet::launch::Launch;
use crate::pool::fleet::shortlist::{Next, Shortlist};
use crate::pool::tasks::shared::Shared;
use crate::provider::{Checked, Labels, LaunchBatch, LaunchRequest, Machine, Offer, Provider, clock};

/// How the machines of a pool are bought.
#[derive(Debug)]
pub(crate) struct Purchases {
    shortlist: Mutex<Shortlist>,
    /// The owner and the labels of each machine.
    owner: String,
    labels: Labels,
    /// The last attempt for each machine number: no launch is ever used twice.
    attempts: Mutex<BTreeMap<MachineNumber, Attempt>>,
    /// Held while the first machine is bought, if that machine excludes other offers.
    first: tokio::sync::Mutex<()>,
}

/// What a purchase does if no offer is available now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The purchase fails.
    Fail,
    /// The purchase waits until an offer that was refused may be accepted again.
    Wait,
}

/// A machine that was bought, and when it ends by itself because of the budget.
#[derive(Debug, Clone)]
pub(crate) struct Bought {
    pub(crate) machine: Machine,
    pub(crate) ends: Option<Instant>,
}

impl Purchases {
    pub(crate) fn new(shortlist: Shortlist, owner: String, labels: Labels) -> Self {
        let (shortlist, attempts, first) = (Mutex::new(shortlist), Mutex::default(), tokio::sync::Mutex::default());
        Self { shortlist, owner, labels, attempts, first }
    }

    /// The next launch for a machine number.
    pub(crate) fn launch(&self, node: NodeIndex, machine: MachineNumber) -> Launch {
        let mut attempts = lock(&self.attempts);
        let attempt = attempts.entry(machine).or_insert(Attempt(0));
        attempt.0 += 1;
        Launch { node, machine, attempt: *attempt }
    }

    /// Buys a machine for a launch that is on record. If an offer is refused, the next offer is
    /// tried, as a launch of its own.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Budget`]: the budget allows no offer.
    /// - An error that no other offer would change.
    /// - No offer is left; the error has the reason for each of them.
    ///
    /// # Cancel safety
    ///
    /// A machine that was bought is on record.
    pub(crate) async fn buy(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        provider: &Checked,
        mut launch: Launch,
        patience: Patience,
        on_wait: &(dyn Fn(&Error) + Sync),
    ) -> Result<Bought> {
        loop {
            let is_open = lock(&self.shortlist).is_open();
            let _first = if is_open { Some(self.first.lock().await) } else { None };
            let offer = self.next_offer(shared, patience, on_wait).await?;
            let tried = self.try_offer(shared, cleanup, provider, launch, &offer).await;
            if let Some(bought) = self.conclude(shared, launch.node, &offer, tried)? {
                return Ok(bought);
            }
            launch = self.launch(launch.node, launch.machine);
            cleanup.intend(std::iter::once((launch.id(&shared.pool), launch.machine))).await?;
        }
    }

    /// Buys the machines of a world, whose launches are on record: all of them by one offer, or
    /// none. If an offer is refused to some of the machines, the machines that were bought by it
    /// are released.
    ///
    /// # Errors
    ///
    /// Those of [`buy`](Self::buy), and the reason why machines could not be released.
    ///
    /// # Cancel safety
    ///
    /// A machine that was bought is on record.
    pub(crate) async fn buy_all(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        provider: &Checked,
        mut launches: Vec<Launch>,
    ) -> Result<Vec<Bought>> {
        loop {
            let offer = self.next_offer(shared, Patience::Fail, &|_| ()).await?;
            let tried = self.try_batch(shared, cleanup, provider, &launches, &offer).await;
            let node = launches.first().map_or(NodeIndex(0), |launch| launch.node);
            if let Some(bought) = self.conclude(shared, node, &offer, tried)? {
                return Ok(bought);
            }
            let end = Instant::now() + shared.limits.shutdown;
            try_join_all(launches.iter().map(|launch| cleanup.retire(launch.machine, end, |_| ()))).await?;
            launches = launches.iter().map(|launch| self.launch(launch.node, launch.machine)).collect();
            cleanup.intend(launches.iter().map(|launch| (launch.id(&shared.pool), launch.machine))).await?;
        }
    }

    /// Evaluates a try at an offer: returns what was bought, or `None` if another offer may be
    /// accepted.
    ///
    /// # Errors
    ///
    /// An error that no other offer would change.
    pub(super) fn conclude<T>(
        &self,
        shared: &Shared,
        node: NodeIndex,
        offer: &Offer,
        tried: Result<T>,
    ) -> Result<Option<T>> {
        let error = match tried {
            Ok(bought) => {
                lock(&self.shortlist).on_bought(offer);
                return Ok(Some(bought));
            }
            Err(error) => error,
        };
        if !lock(&self.shortlist).on_refused(&offer.id, &error, Instant::now().into_std()) {
            return Err(error);
        }
        tracing::info!(pool = %shared.pool, node = node.0, offer = %offer.id, error = error.summary(), "an offer was refused");
        shared.emit(PoolEvent::OfferRefused { node, offer: offer.id.clone(), error });
        Ok(None)
    }

    /// Tries one offer for all machines of a world. Machines that were bought are on record even if
    /// others could not be bought.
    pub(super) async fn try_batch(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        provider: &Checked,
        launches: &[Launch],
        offer: &Offer,
    ) -> Result<Vec<Bought>> {
        let (now, nodes) = (Instant::now(), wanted(shared));
        let mut requests = Vec::new();
        for launch in launches {
            let id = launch.id(&shared.pool);
            let ends_in = shared.account().admit(&id, launch.machine, offer, nodes, clock::now());
            match ends_in {
                Ok(ends_in) => requests.push(self.request(shared, *launch, offer, ends_in)),
                Err(error) => {
                    launches.iter().for_each(|launch| shared.account().on_refused(&launch.id(&shared.pool)));
                    return Err(error);
                }
            }
        }
        shared.spending.notify_one();
        let ends: Vec<_> =
            requests.iter().map(|request| request.ends_in.and_then(|ends_in| now.checked_add(ends_in))).collect();
        let mut batch = LaunchBatch::new(offer.clone(), requests);
        batch.all_or_none = provider.capabilities().gangs;
        launches.iter().for_each(|launch| cleanup.on_asked(launch.id(&shared.pool)));
        let launched = provider.launch(&batch).await;
        let mut bought = Vec::new();
        let mut failed: Option<Error> = None;
        for ((launched, launch), ends) in launched.into_iter().zip(launches).zip(ends) {
            match self.settle(shared, cleanup, provider, *launch, launched).await {
                Ok(machine) => bought.push(Bought { machine, ends }),
                // A refusal takes precedence, because it decides what to do next.
                Err(error) if failed.is_none() || error.refusal().is_some() => failed = Some(error),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(bought), Err)
    }

    /// A machine of this offer is being taken back, or was.
    pub(crate) fn on_preempted(&self, offer: &OfferId) {
        lock(&self.shortlist).on_preempted(offer, Instant::now().into_std());
    }

    /// Whether the machines of a world must be bought together, because an offer might be accepted
    /// for some of them and refused for others.
    pub(crate) fn are_together(&self, provider: &Checked) -> bool {
        provider.capabilities().gangs || lock(&self.shortlist).has_choice()
    }

    /// The offer to try now. `on_wait` receives the reason why no offer can be tried yet.
    pub(super) async fn next_offer(
        &self,
        shared: &Shared,
        patience: Patience,
        on_wait: &(dyn Fn(&Error) + Sync),
    ) -> Result<Offer> {
        loop {
            let (now, paid, nodes) = (Instant::now().into_std(), clock::now(), wanted(shared));
            let (next, objection) = {
                // The order of the two locks; nowhere else are both held.
                let mut shortlist = lock(&self.shortlist);
                let account = shared.account();
                let objection = Mutex::new(None);
                let next = shortlist.next(now, |offer| match account.allows(offer, nodes, paid) {
                    Ok(_) => true,
                    Err(error) => {
                        lock(&objection).get_or_insert(error);
                        false
                    }
                });
                (next, objection.into_inner().unwrap_or_else(PoisonError::into_inner))
            };
            match (next, objection) {
                (Next::Try(offer), _) => return Ok(*offer),
                // A wait helps against a refusal, which is temporary; the budget may also allow an
                // offer later that it does not allow now.
                (Next::Wait(until), _) if patience == Patience::Wait => {
                    on_wait(&lock(&self.shortlist).exhausted());
                    tokio::time::sleep_until(Instant::from_std(until)).await;
                }
                (_, Some(objection)) => return Err(objection),
                (Next::Wait(_) | Next::Nothing, None) => return Err(lock(&self.shortlist).exhausted()),
            }
        }
    }

    /// Tries one offer.
    async fn try_offer(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        provider: &Checked,
        launch: Launch,
        offer: &Offer,
    ) -> Result<Bought> {
        let (id, nodes, now) = (launch.id(&shared.pool), wanted(shared), Instant::now());
        let ends_in = shared.account().admit(&id, launch.machine, offer, nodes, clock::now())?;
        shared.spending.notify_one();
        let batch = LaunchBatch::one(offer.clone(), self.request(shared, launch, offer, ends_in));
        cleanup.on_asked(id);
        let none = || Err(Error::new(ErrorKind::Provider, "`Provider::launch` returned no machine"));
        let launched = provider.launch(&batch).await.pop().unwrap_or_else(none);
        let machine = self.settle(shared, cleanup, provider, launch, launched).await?;
        Ok(Bought { machine, ends: ends_in.and_then(|ends_in| now.checked_add(ends_in)) })
    }

    /// Evaluates the result of a launch: puts the machine on record, or returns the error.
    async fn settle(
        &self,
        shared: &Shared,
        cleanup: &Cleanup,
        provider: &Checked,
        launch: Launch,
        launched: Result<Machine>,
    ) -> Result<Machine> {
        let id = launch.id(&shared.pool);
        let launched = match launched {
            Err(error) if may_be_made(&error) => found(shared, provider, &id).await.ok_or(error),
            Err(error) => {
                cleanup.on_answered(&id);
                Err(error)
            }
            launched => launched,
        };
        let machine = launched.inspect_err(|error| {
            if error.refusal().is_some() {
                shared.account().on_refused(&id);
            }
        })?;
        cleanup.add(machine.clone()).await?;
        Ok(machine)
    }

    fn request(&self, shared: &Shared, launch: Launch, offer: &Offer, ends_in: Option<Duration>) -> LaunchRequest {
        let limits = &shared.limits;
        let mut request =
            LaunchRequest::new(launch.id(&shared.pool), shared.pool.clone(), launch.machine, limits.lease)
                .owner(&self.owner)
                .boot(limits.start)
                .most_usd_per_hour(shared.account().counts(offer))
                .labels(self.labels.clone());
        request.ends_in = ends_in;
        request
    }
}

/// Whether the machine of a launch that failed may have been made nevertheless: the call was made more
/// than once, or its answer did not arrive.
fn may_be_made(error: &Error) -> bool {
    let again = error.context().iter().any(|(key, _)| *key == "tries");
    let unsure = error.refusal().is_none() && (error.is_temporary() || error.kind() == ErrorKind::Timeout);
    again || unsure
}

/// The number of nodes that are there and coming.
fn wanted(shared: &Shared) -> u32 {
    shared.lock().fleet.target()
}

/// The machine of a launch, if the provider lists it.
async fn found(shared: &Shared, provider: &Checked, launch: &LaunchId) -> Option<Machine> {
    let listed = provider.list(&shared.pool).await.unwrap_or_default();
    listed.into_iter().find(|machine| machine.launch == *launch)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
