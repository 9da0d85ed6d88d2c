//! Ends what a pool started, and confirms that it is gone. A cleanup may run more than once, and at
//! any stage of a start.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::{Ledger, PoolLedger};
use super::timing::{END_PAUSE, LEAST_END, LONGEST_END_PAUSE, SHARED_FREE, SHARED_FREE_SOON};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineId, MachineNumber, PoolId};
use crate::pool::fleet::account::Account;
use crate::provider::{Checked, Machine, MachineState, Provider, clock};

/// What a pool has to end. Clones share one list of machines.
#[derive(Debug, Clone)]
pub(crate) struct Cleanup {
    provider: Checked,
    pool: PoolId,
    machines: Arc<Mutex<Vec<Machine>>>,
    account: Arc<Mutex<Account>>,
    /// Launches that the provider was asked for, and whose outcome is not known.
    unanswered: Arc<Mutex<BTreeSet<LaunchId>>>,
    /// The machines that are known to be released or gone.
    over: Arc<Mutex<BTreeSet<MachineId>>>,
    prepared: Arc<Mutex<bool>>,
    /// `None` if nothing outlives the client, so that no other client ever has to end it.
    ledger: Option<PoolLedger>,
    /// The setting that gives more time, as an error names it.
    setting: Option<&'static str>,
}

/// What a round of ending machines has left.
#[derive(Debug, Default)]
struct Left {
    /// The machines that may still be paid for.
    machines: Vec<MachineId>,
    /// The machines that were confirmed gone.
    gone: Vec<MachineId>,
    /// Whether there may be more machines, because the provider did not list the pool's machines.
    unlisted: bool,
    /// How many launches were not answered, while the provider's list may not show their machines
    /// yet.
    unsettled: usize,
    /// What the provider is being asked to do.
    doing: &'static str,
    /// The last error.
    cause: Option<Error>,
    /// The error with which the call that is under way failed before it was tried again.
    heard: Arc<Mutex<Option<Error>>>,
}

impl Left {
    fn is_nothing(&self) -> bool {
        self.machines.is_empty() && !self.unlisted && self.unsettled == 0
    }

    /// The error for a call that the provider did not finish in time. Its source is the error of an
    /// earlier try.
    fn unanswered(&self, doing: &str) -> Error {
        let message = format!("the provider did not {doing} in time");
        // A look that is late must not hide why a machine could not be ended.
        let cause = lock(&self.heard).take().or_else(|| self.cause.clone());
        Error::new(ErrorKind::Timeout, message).caused_by(cause)
    }
}

impl Cleanup {
    pub(crate) fn new(provider: Checked, pool: PoolId) -> Self {
        let ledger = provider.capabilities().outlives_client.then(PoolLedger::default);
        let setting = Some("`Limits::shutdown`, or the deadline that `shutdown` is called with,");
        Self {
            provider,
            pool,
            machines: Arc::default(),
            account: Arc::default(),
            unanswered: Arc::default(),
            over: Arc::default(),
            prepared: Arc::default(),
            ledger,
            setting,
        }
    }

    /// The same cleanup, which records in `account` when machines are not paid for any more.
    pub(crate) fn charging(self, account: Arc<Mutex<Account>>) -> Self {
        Self { account, ..self }
    }

    /// The cleanup of machines that another client left. It does not write the ledger of that
    /// client.
    pub(crate) fn of_orphan(provider: Checked, pool: PoolId, machines: Vec<Machine>) -> Self {
        Self { machines: Arc::new(Mutex::new(machines)), ledger: None, setting: None, ..Self::new(provider, pool) }
    }

    /// Puts the pool on record, because from now on it may have something at the provider: another
    /// client can then end it if this client cannot.
    pub(crate) async fn arm(&self) -> Result<()> {
        let Some(pool_ledger) = &self.ledger else {
            *lock(&self.prepared) = true;
            return Ok(());
        };
        let ledger = Ledger::of_user()?;
        *lock(&self.prepared) = true;
        let opened = pool_ledger.open(ledger, &self.pool, &self.provider).await;
        if opened.is_err() {
            *lock(&self.prepared) = false;
        }
        opened
    }

    /// Puts launches that are about to be made on record.
    pub(crate) async fn intend(&self, launches: impl Iterator<Item = (LaunchId, MachineNumber)>) -> Result<()> {
        match &self.ledger {
            Some(ledger) => ledger.intend(launches.collect()).await,
            None => Ok(()),
        }
    }

    /// The provider is about to be asked for a launch.
    pub(crate) fn on_asked(&self, launch: LaunchId) {
        lock(&self.unanswered).insert(launch);
    }

    /// The outcome of a launch is known.
    pub(crate) fn on_answered(&self, launch: &LaunchId) {
        lock(&self.unanswered).remove(launch);
    }

    /// Whether there is nothing left to end.
    pub(crate) fn is_done(&self) -> bool {
        !*lock(&self.prepared)
    }

    /// The machines that were launched and are not confirmed gone.
    pub(crate) fn unconfirmed(&self) -> Vec<MachineId> {
        lock(&self.machines).iter().map(|machine| machine.id.clone()).collect()
    }

    /// Puts a machine that was launched on record.
    pub(crate) async fn add(&self, machine: Machine) -> Result<()> {
        self.on_answered(&machine.launch);
        lock(&self.machines).push(machine.clone());
        match &self.ledger {
            Some(ledger) => ledger.fact(machine).await,
            None => Ok(()),
        }
    }

    /// Ends the machines until none of them is paid for any more, removes what they shared, and takes
    /// the pool off the record. A released machine may hold what it shared for some minutes: then the
    /// pool stays on record, for [`remove_rest`](Self::remove_rest).
    pub(crate) async fn end_all(&self, end: Instant, over: impl Fn(&Machine)) -> Result<()> {
        self.end_machines(end, over).await?;
        let is_held = !lock(&self.machines).is_empty();
        let until = if is_held { end.min(Instant::now() + SHARED_FREE_SOON) } else { end };
        match self.try_to_remove_shared(until).await {
            Ok(()) => Ok(()),
            Err(error) if is_held && error.is_temporary() => {
                tracing::debug!(pool = %self.pool, error = error.summary(), "released machines hold what they shared");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes what released machines held at the end of the pool, if they held something.
    pub(crate) async fn remove_rest(&self) {
        if !self.is_done()
            && let Err(error) = self.remove_shared().await
        {
            tracing::error!(pool = %self.pool, error = error.summary(), "something of the pool is left");
        }
    }

    /// Removes what the machines shared as soon as no released machine holds it, and takes the pool
    /// off the record.
    pub(crate) async fn remove_shared(&self) -> Result<()> {
        self.try_to_remove_shared(Instant::now() + SHARED_FREE).await
    }

    async fn try_to_remove_shared(&self, end: Instant) -> Result<()> {
        let limit = end.saturating_duration_since(Instant::now());
        let mut left = Left::default();
        let heard = Arc::clone(&left.heard);
        let provider = self.provider.reporting(move |error| *lock(&heard) = Some(error.clone()));
        let mut pause = END_PAUSE;
        loop {
            let until = end.max(Instant::now() + LEAST_END);
            let error = match tokio::time::timeout_at(until, provider.teardown(&self.pool)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => error,
                Err(_) => left.unanswered("remove what the pool's machines shared").temporary(),
            };
            let is_temporary = error.is_temporary();
            left.cause = Some(error);
            if !is_temporary || Instant::now() + pause >= end {
                let error = self.not_gone(&left, limit);
                return Err(if is_temporary { error.temporary() } else { error });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_END_PAUSE);
        }
        if let Some(ledger) = &self.ledger {
            ledger.forget().await;
        }
        *lock(&self.prepared) = false;
        Ok(())
    }

    /// Ends the pool's machines, and waits until the provider confirms that none of them is paid for
    /// any more.
    pub(crate) async fn end_machines(&self, end: Instant, over: impl Fn(&Machine)) -> Result<()> {
        self.end_some(end, None, over, &mut Left::default()).await
    }

    /// Ends the machines of one number, and takes those that are confirmed gone off the record.
    /// Machines that are only released stay on record until the pool ends.
    pub(crate) async fn retire(&self, number: MachineNumber, end: Instant, gone: impl Fn(&Machine)) -> Result<()> {
        let mut left = Left::default();
        let retired = self.end_some(end, Some(number), gone, &mut left).await;
        if retired.is_ok() {
            lock(&self.account).on_retired(number, clock::now());
        }
        if let Some(ledger) = &self.ledger
            && let Err(error) = ledger.gone(left.gone).await
        {
            // A machine that is gone and still on record is ended once more later, which does no
            // harm.
            tracing::warn!(pool = %self.pool, error = error.summary(), "a machine that is gone stays in the ledger");
        }
        retired
    }

    async fn end_some(
        &self,
        end: Instant,
        only: Option<MachineNumber>,
        over: impl Fn(&Machine),
        left: &mut Left,
    ) -> Result<()> {
        let began = Instant::now();
        let limit = end.saturating_duration_since(began);
        let mut pause = END_PAUSE;
        let heard = Arc::clone(&left.heard);
        let provider = self.provider.reporting(move |error| *lock(&heard) = Some(error.clone()));
        loop {
            let round = self.round(&provider, began, end, only, &over, left);
            match tokio::time::timeout_at(end.max(Instant::now() + LEAST_END), round).await {
                Ok(Ok(())) if left.is_nothing() => return Ok(()),
                Ok(Ok(())) => {}
                Ok(Err(error)) => left.cause = Some(error),
                Err(_) => left.cause = Some(left.unanswered(left.doing)),
            }
            if Instant::now() + pause >= end {
                return Err(self.not_gone(left, limit));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_END_PAUSE);
        }
    }

    /// One round: ends the known machines, and finds out which of them may still be paid for.
    async fn round(
        &self,
        provider: &Checked,
        began: Instant,
        end: Instant,
        only: Option<MachineNumber>,
        over: impl Fn(&Machine),
        left: &mut Left,
    ) -> Result<()> {
        let is_meant = |machine: &Machine| only.is_none_or(|number| machine.number == number);
        let mut machines: Vec<Machine> = lock(&self.machines).iter().filter(|one| is_meant(one)).cloned().collect();
        left.machines = machines.iter().map(|machine| machine.id.clone()).collect();
        left.doing = "list or end the pool's machines";
        // The machines are listed and ended at the same time: neither a machine that cannot be
        // reached nor a list that fails keeps other machines from being confirmed gone.
        let now = Instant::now();
        let half = now + end.saturating_duration_since(now) / 2 + LEAST_END / 2;
        let list = async {
            match only {
                Some(number) => provider.list_of(&self.pool, number).await,
                None => provider.list(&self.pool).await,
            }
        };
        let list = tokio::time::timeout_at(half, list);
        let (listed, failed) = futures_util::future::join(list, terminate(provider, &machines, half, left)).await;
        let mut cause = failed;
        match listed {
            Ok(Ok(listed)) => {
                left.unlisted = false;
                let known: BTreeSet<_> = machines.iter().map(|machine| machine.id.clone()).collect();
                // Machines of launches whose answers never arrived.
                let beside = listed.into_iter().filter(|machine| !known.contains(&machine.id));
                let beside: Vec<Machine> = beside.collect();
                beside.iter().for_each(|machine| self.on_answered(&machine.launch));
                left.machines.extend(beside.iter().map(|machine| machine.id.clone()));
                // Known from now on, so that the pool is not forgotten before they are gone.
                lock(&self.machines).extend(beside.iter().cloned());
                cause = cause.or(terminate(provider, &beside, half, left).await);
                machines.extend(beside);
            }
            Ok(Err(error)) => {
                left.unlisted = true;
                cause = cause.or(Some(error));
            }
            Err(_) => {
                left.unlisted = true;
                cause = cause.or_else(|| Some(left.unanswered("list the pool's machines")));
            }
        }
        left.cause = cause.or(left.cause.take());
        left.doing = "report the state of the pool's machines";
        let reports = provider.inspect(&left.machines).await?;
        let (mut there, mut gone_now) = (Vec::new(), BTreeSet::new());
        for (machine, report) in machines.iter().zip(reports) {
            if let Some(lived) = report.lived.filter(|_| report.state.is_over()) {
                lock(&self.account).on_ended(&machine.launch, lived);
            }
            if report.state.is_released() {
                if lock(&self.over).insert(machine.id.clone()) {
                    over(machine);
                }
                lock(&self.account).on_released(&machine.launch, clock::now());
            }
            if report.state == MachineState::Gone {
                left.gone.push(machine.id.clone());
                gone_now.insert(machine.id.clone());
            } else if !report.state.is_released() {
                there.push(machine.id.clone());
            }
        }
        if !gone_now.is_empty() {
            lock(&self.machines).retain(|machine| !gone_now.contains(&machine.id));
        }
        left.machines = there;
        // At the end of the pool no launch is under way, so the list settles.
        let settles = only.is_none() && began.elapsed() < provider.capabilities().settles_in;
        left.unsettled = if settles { lock(&self.unanswered).len() } else { 0 };
        Ok(())
    }

    /// Whether the pool is in the ledger, so that another client can end it.
    pub(crate) fn is_recorded(&self) -> bool {
        self.ledger.is_some()
    }

    /// The error of machines that are not confirmed gone: which machines, for how long it was
    /// tried, and why it failed.
    fn not_gone(&self, left: &Left, limit: Duration) -> Error {
        let name = self.provider.name();
        let names: Vec<&str> = left.machines.iter().take(MOST_NAMES).map(MachineId::as_str).collect();
        let more = left.machines.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = match names.len() {
            0 if left.unsettled > 0 => format!(
                "the provider has not answered all launches ({} left), and its list may not show their machines yet",
                left.unsettled
            ),
            0 if left.unlisted => "the provider could not list the pool's machines, so some may still run".to_owned(),
            0 => "the pool's machines are released, but resources that they shared may remain".to_owned(),
            _ => {
                let count = left.machines.len();
                format!("{count} of the pool's machines are not confirmed gone: {}{more}", names.join(", "))
            }
        };
        let mut hint = match names.len() {
            0 if !left.unlisted && left.unsettled == 0 => "check the provider's own list for what remains".to_owned(),
            _ => "the lease of the machines ends them; check the provider's own list until then".to_owned(),
        };
        if self.is_recorded() {
            hint += &format!("; {REAP}");
        }
        if let Some(setting) = self.setting {
            hint += &format!("; {setting} gives more time");
        }
        Error::new(ErrorKind::Provider, message)
            .with_context("provider", name)
            .with_context("given up after", format!("{limit:.0?}"))
            .with_hint(hint)
            .caused_by(left.cause.clone())
    }
}

/// Ends machines; returns the error of a machine that could not be ended.
async fn terminate(provider: &Checked, machines: &[Machine], until: Instant, left: &Left) -> Option<Error> {
    let ids: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    match tokio::time::timeout_at(until, provider.terminate(&ids)).await {
        Ok(ended) => ended.into_iter().find_map(Result::err),
        Err(_) => Some(left.unanswered("end the machines")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hint where the pool is on record.
pub(crate) const REAP: &str = "when this process has ended, `skyward::reap()` ends what is on record";
/// The most machines that an error names.
const MOST_NAMES: usize = 16;

#[cfg(test)]
mod tests;
