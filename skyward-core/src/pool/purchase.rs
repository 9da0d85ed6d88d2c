//! Buys machines: walks the offers, each try on record first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::cleanup::Cleanup;
use super::market::{Market, Next};
use super::node::Launch;
use super::shared::Shared;
use crate::error::{Error, ErrorKind, ErrorStatus, Result};
use crate::event::PoolEvent;
use crate::ids::{Attempt, LaunchId, MachineNumber, NodeIndex, OfferId};
use crate::provider::{Checked, Labels, LaunchBatch, LaunchRequest, Machine, Offer, Provider};

/// How the machines of a pool are bought.
#[derive(Debug)]
pub(crate) struct Purchases {
    market: Mutex<Market>,
    labels: Labels,
    /// The last launch for each number: none is ever used twice.
    attempts: Mutex<BTreeMap<MachineNumber, Attempt>>,
    /// Held while the first machine is bought, where that leaves offers out.
    first: tokio::sync::Mutex<()>,
}

/// What a purchase that finds no offer now does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It fails.
    Fail,
    /// It waits until an offer that was refused may be accepted again.
    Wait,
}

/// How a launch comes to its machine.
#[derive(Debug, Clone)]
pub(crate) enum Purchase {
    /// It was bought already.
    Made(Bought),
    /// It is bought now.
    With(Patience),
}

/// A machine that was bought, and when it ends by itself because the budget does.
#[derive(Debug, Clone)]
pub(crate) struct Bought {
    pub(crate) machine: Machine,
    pub(crate) ends: Option<Instant>,
}

impl Purchases {
    pub(crate) fn new(market: Market, labels: Labels) -> Self {
        Self { market: Mutex::new(market), labels, attempts: Mutex::default(), first: tokio::sync::Mutex::default() }
    }

    /// The next launch for a number.
    pub(crate) fn launch(&self, node: NodeIndex, machine: MachineNumber) -> Launch {
        let mut attempts = lock(&self.attempts);
        let attempt = attempts.entry(machine).or_insert(Attempt(0));
        attempt.0 += 1;
        Launch { node, machine, attempt: *attempt }
    }

    /// Buys a machine for a launch that is on record. An offer that is refused is followed by the next one, as a launch of its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Budget`]; what no other offer would change; or that no offer is left, with the reason of each.
    ///
    /// # Cancel safety
    ///
    /// What was bought is on record.
    pub(crate) async fn buy(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        provider: &Checked,
        mut launch: Launch,
        (patience, on_wait): (Patience, &(dyn Fn(&Error) + Sync)),
    ) -> Result<Bought> {
        loop {
            let is_open = lock(&self.market).is_open();
            let _first = if is_open { Some(self.first.lock().await) } else { None };
            let offer = self.next_offer(shared, patience, on_wait).await?;
            let tried = self.try_offer(shared, cleanup, provider, launch, &offer).await;
            if let Some(bought) = self.conclude(shared, launch.node, &offer, tried)? {
                return Ok(bought);
            }
            launch = self.launch(launch.node, launch.machine);
            cleanup.intend(std::iter::once((launch.id(shared), launch.machine))).await?;
        }
    }

    /// Buys the machines of a world, whose launches are on record: all by one offer, or none. What a part of them has got by an offer that is refused to the others is given back.
    ///
    /// # Errors
    ///
    /// As [`buy`](Self::buy); or what kept machines from being given back.
    ///
    /// # Cancel safety
    ///
    /// What was bought is on record.
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
            cleanup.intend(launches.iter().map(|launch| (launch.id(shared), launch.machine))).await?;
        }
    }

    /// What one try at an offer means for the next one: what was bought, or none where another offer may be accepted.
    ///
    /// # Errors
    ///
    /// What no other offer would change.
    fn conclude<T>(&self, shared: &Shared, node: NodeIndex, offer: &Offer, tried: Result<T>) -> Result<Option<T>> {
        let error = match tried {
            Ok(bought) => {
                lock(&self.market).on_bought(offer);
                return Ok(Some(bought));
            }
            Err(error) => error,
        };
        if !lock(&self.market).on_refused(&offer.id, &error, Instant::now().into_std()) {
            return Err(error);
        }
        tracing::info!(pool = %shared.pool, node = node.0, offer = %offer.id, %error, "an offer was refused");
        shared.emit(PoolEvent::OfferRefused { node, offer: offer.id.clone(), error });
        Ok(None)
    }

    /// One try at one offer for all machines of a world. Those that were bought are on record also when others were not.
    async fn try_batch(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        provider: &Checked,
        launches: &[Launch],
        offer: &Offer,
    ) -> Result<Vec<Bought>> {
        let now = Instant::now();
        let mut requests = Vec::new();
        for launch in launches {
            let ends_in = shared.account().admit(&launch.id(shared), launch.machine, offer, now.into_std());
            match ends_in {
                Ok(ends_in) => requests.push(self.request(shared, *launch, ends_in)),
                Err(error) => {
                    launches.iter().for_each(|launch| shared.account().on_refused(&launch.id(shared)));
                    return Err(error);
                }
            }
        }
        shared.spending.notify_one();
        let ends: Vec<_> =
            requests.iter().map(|request| request.ends_in.and_then(|ends_in| now.checked_add(ends_in))).collect();
        let mut batch = LaunchBatch::new(offer.clone(), requests);
        batch.all_or_none = provider.capabilities().gangs;
        let launched = provider.launch(&batch).await;
        let mut bought = Vec::new();
        let mut failed: Option<Error> = None;
        for ((launched, launch), ends) in launched.into_iter().zip(launches).zip(ends) {
            match self.settle(shared, cleanup, provider, *launch, launched).await {
                Ok(machine) => bought.push(Bought { machine, ends }),
                // A refusal says what to do next.
                Err(error) if failed.is_none() || error.refusal().is_some() => failed = Some(error),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(bought), Err)
    }

    /// A machine of this offer is taken back, or was.
    pub(crate) fn on_preempted(&self, offer: &OfferId) {
        lock(&self.market).on_preempted(offer, Instant::now().into_std());
    }

    /// Whether the machines of a world are bought together: where some of them could be had by one offer, and others not.
    pub(crate) fn are_together(&self, provider: &Checked) -> bool {
        provider.capabilities().gangs || lock(&self.market).has_choice()
    }

    /// The offer to try now. `on_wait` hears why none can be tried yet.
    async fn next_offer(
        &self,
        shared: &Shared,
        patience: Patience,
        on_wait: &(dyn Fn(&Error) + Sync),
    ) -> Result<Offer> {
        loop {
            let now = Instant::now().into_std();
            let (next, objection) = {
                // In this order, as nowhere else both are held.
                let mut market = lock(&self.market);
                let account = shared.account();
                let objection = Mutex::new(None);
                let next = market.next(now, |offer| match account.allows(offer, now) {
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
                // What the budget forbids now it may allow later, and a refusal passes: the latter is what a wait can help.
                (Next::Wait(until), _) if patience == Patience::Wait => {
                    on_wait(&lock(&self.market).exhausted());
                    tokio::time::sleep_until(Instant::from_std(until)).await;
                }
                (_, Some(objection)) => return Err(objection),
                (Next::Wait(_) | Next::Nothing, None) => return Err(lock(&self.market).exhausted()),
            }
        }
    }

    /// One try at one offer.
    async fn try_offer(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        provider: &Checked,
        launch: Launch,
        offer: &Offer,
    ) -> Result<Bought> {
        let (id, now) = (launch.id(shared), Instant::now());
        let ends_in = shared.account().admit(&id, launch.machine, offer, now.into_std())?;
        shared.spending.notify_one();
        let batch = LaunchBatch::one(offer.clone(), self.request(shared, launch, ends_in));
        let none = || Err(Error::new(ErrorKind::Provider, "`launch` gave no machine"));
        let launched = provider.launch(&batch).await.pop().unwrap_or_else(none);
        let machine = self.settle(shared, cleanup, provider, launch, launched).await?;
        Ok(Bought { machine, ends: ends_in.and_then(|ends_in| now.checked_add(ends_in)) })
    }

    /// What came of a launch: a machine, which is on record then, or nothing.
    async fn settle(
        &self,
        shared: &Shared,
        cleanup: &Cleanup,
        provider: &Checked,
        launch: Launch,
        launched: Result<Machine>,
    ) -> Result<Machine> {
        let id = launch.id(shared);
        let machine = match launched {
            Ok(machine) => machine,
            Err(error) => match self.found(shared, provider, &id, &error).await {
                Some(machine) => machine,
                None => {
                    if error.refusal().is_some() {
                        shared.account().on_refused(&id);
                    }
                    return Err(error);
                }
            },
        };
        cleanup.add(machine.clone()).await?;
        Ok(machine)
    }

    /// The machine of a launch that failed, where it may have been launched all the same: the call was made more than once, or its answer did not come.
    async fn found(&self, shared: &Shared, provider: &Checked, launch: &LaunchId, error: &Error) -> Option<Machine> {
        let again = error.context().iter().any(|(key, _)| *key == "tries");
        let unsure = error.refusal().is_none()
            && (error.status() == ErrorStatus::Temporary || error.kind() == ErrorKind::Timeout);
        if !again && !unsure {
            return None;
        }
        let listed = provider.list(&shared.pool).await.unwrap_or_default();
        listed.into_iter().find(|machine| machine.launch == *launch)
    }

    fn request(&self, shared: &Shared, launch: Launch, ends_in: Option<Duration>) -> LaunchRequest {
        let limits = &shared.limits;
        let mut request = LaunchRequest::new(launch.id(shared), shared.pool.clone(), launch.machine, limits.lease);
        request.boot = limits.start;
        request.ends_in = ends_in;
        request.labels = self.labels.clone();
        request
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
