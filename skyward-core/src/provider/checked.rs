//! The wrapper that the library puts around every provider.

mod choice;
mod looks;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use self::looks::Looks;
use super::{
    Capabilities, LaunchBatch, Machine, MachineReport, MachineState, Offer, Place, PoolRecord, PoolRequest, Provider,
    Reason, Requirements,
};
use crate::error::{Error, ErrorKind, ErrorStatus, Refusal, Result, WorkerExit};
use crate::ids::{MachineId, PoolId};
use crate::remote::Remote;

/// A provider wrapper that gives each call a deadline, retries temporary errors, and adds what was
/// tried to the error.
///
/// A pool wraps its provider in it, so a provider implements none of this.
#[derive(Debug, Clone)]
pub struct Checked {
    inner: Arc<dyn Provider>,
    most: Option<Duration>,
    /// The setting that `most` comes from.
    setting: Option<&'static str>,
    /// The price per hour that is assumed for an offer without a known price.
    assumed: Option<f64>,
    /// Makes the pauses of this wrapper differ from those of others.
    salt: u64,
    looks: Arc<Looks>,
    report: Report,
}

impl Checked {
    /// Wraps a provider.
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self {
            inner,
            most: None,
            setting: None,
            assumed: None,
            salt: rand::random(),
            looks: Arc::default(),
            report: Report(Arc::new(|_| ())),
        }
    }

    /// Limits each call to this time, including retries and the pauses between them. `connect` may
    /// use all of it; without a deadline, `connect` has ten minutes.
    #[must_use]
    pub fn deadline(mut self, most: Duration) -> Self {
        self.most = Some(most);
        self
    }

    /// Assumes this price, in US dollars per hour, for offers whose price is not known.
    #[must_use]
    pub(crate) fn assuming(mut self, usd_per_hour: Option<f64>) -> Self {
        self.assumed = usd_per_hour;
        self
    }

    /// Takes the jitter of its pauses from the pool's id, so that a simulation repeats exactly.
    /// Names [`Limits::start`](crate::spec::Limits::start) as the setting that the deadline comes
    /// from.
    pub(crate) fn of_pool(mut self, pool: &PoolId) -> Self {
        self.salt = mixed(0, pool.as_str());
        self.setting = Some("Limits::start");
        self
    }

    /// The same provider, which also reports each error after which it retries a call.
    pub(crate) fn reporting(&self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self { report: Report(Arc::new(report)), ..self.clone() }
    }

    /// Waits until the provider reports the machine as ending, released or gone, and returns that
    /// as an error. Inspects the machine after `first`, then repeatedly, at last every 15 seconds.
    /// A failed call and the state `Unknown` conclude nothing.
    ///
    /// # Cancel safety
    ///
    /// Only inspects.
    pub(crate) async fn until_gone(&self, machine: &MachineId, first: Duration) -> Error {
        let mut pause = first;
        loop {
            sleep(pause).await;
            match self.looks.report(&self.inner, machine).await {
                Ok(report) if report.state.is_over() => return self.over(machine, &report),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(provider = self.name(), %machine, %error, "the state of a machine is not known");
                }
            }
            pause = longer(pause);
        }
    }

    /// Waits until the machine runs, and returns its place, and the time after which it ends if
    /// that is known. Each report goes to `on_report`. The wait is limited to the time that a call
    /// of `connect` has, plus `wait.queue` while the machine is queued. The state `Unknown` does
    /// not change which of the two limits counts.
    ///
    /// # Errors
    ///
    /// The machine is ending, released or gone; it did not run in time (the error has the last
    /// report); or the provider cannot be asked at all.
    ///
    /// # Cancel safety
    ///
    /// Only inspects.
    pub(crate) async fn until_there(
        &self,
        machine: &MachineId,
        wait: Arriving,
        on_report: impl Fn(&MachineReport),
    ) -> Result<(Place, Option<Duration>)> {
        let limit = self.most.unwrap_or(10 * MINUTE);
        let (mut queued, mut started, mut is_queued) = (Duration::ZERO, Duration::ZERO, false);
        let mut pause = Duration::ZERO;
        loop {
            let asked = Instant::now();
            // The first inspection is for a machine that runs already, and does not wait for others
            // to join it.
            let look = async {
                match pause.is_zero() {
                    true => Looks::now(&self.inner, machine).await,
                    false => self.looks.report(&self.inner, machine).await,
                }
            };
            let report = match look.await {
                Ok(report) => report,
                Err(error) if error.status() == ErrorStatus::Temporary => {
                    MachineReport::new(MachineState::Unknown).saying(error.summary())
                }
                Err(error) => return Err(self.placed(error, "machine", machine.as_str(), 1)),
            };
            on_report(&report);
            match &report.place {
                Some(place) if report.state == MachineState::Running => {
                    let place = self.checked_place(place).map_err(|error| error.with_context("machine", machine))?;
                    return Ok((place, report.ends_in));
                }
                _ if report.state.is_over() => return Err(self.over(machine, &report).with_hint(UNREACHED)),
                _ => {}
            }
            // `Unknown` concludes nothing: a queued machine still counts as queued.
            is_queued = report.state == MachineState::Queued || is_queued && report.state == MachineState::Unknown;
            let (spent, most, setting) = match is_queued {
                true => (&mut queued, wait.queue, "Limits::machine_wait"),
                false => (&mut started, limit, "Limits::start"),
            };
            *spent += asked.elapsed();
            if *spent >= most {
                let what =
                    format!("the provider {} reports the machine {machine} as {report} after {most:?}", self.name());
                return Err(Error::new(ErrorKind::Timeout, what).with_hint(format!("`{setting}` gives more time")));
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, wait.pause.clamp(FIRST_PAUSE, LONGEST_LOOK));
            let paused = pause.min(most - *spent);
            sleep(paused).await;
            *spent += paused;
        }
    }

    fn checked_place(&self, place: &Place) -> Result<Place> {
        let Place { folder, address, .. } = place;
        if folder.len() > LONGEST_FOLDER || !folder.starts_with('/') {
            let what = "the machine's folder is not an absolute path of at most 60 bytes, which Unix sockets need";
            return Err(self.broken(what).with_context("folder", folder));
        }
        if address.is_empty() {
            return Err(self.broken("a running machine has no address"));
        }
        Ok(place.clone())
    }

    /// The error of a machine that is ending, released or gone.
    pub(crate) fn over(&self, machine: &MachineId, report: &MachineReport) -> Error {
        let message = format!("the provider {} reports the machine {machine} as {report}", self.name());
        let error = Error::new(ErrorKind::Provider, message);
        match report.reason {
            Some(Reason::Preempted) => error.with_exit(WorkerExit::Preempted),
            Some(Reason::Expired) => error.with_exit(WorkerExit::Expired),
            Some(Reason::Failed) => error.with_exit(WorkerExit::MachineFailed),
            Some(Reason::Asked) | None => error,
        }
    }

    async fn call<T, F: Future<Output = Result<T>>>(
        &self,
        call: &Call,
        on: &str,
        attempt: impl Fn() -> F,
    ) -> Result<T> {
        let attempt = &attempt;
        let mut done = self.call_each(call, &[on], |_| async move { vec![attempt().await] }).await;
        done.pop().unwrap_or_else(|| Err(self.broken("a call returned no result")))
    }

    /// One call for many items: `on` names each, and `attempt` gets the indices of those to try.
    /// Items with a temporary error are tried again.
    async fn call_each<T, F: Future<Output = Vec<Result<T>>>>(
        &self,
        call: &Call,
        on: &[&str],
        attempt: impl Fn(Vec<usize>) -> F,
    ) -> Vec<Result<T>> {
        let deadline = Instant::now() + call.limit.min(NEVER);
        let mut pause = FIRST_PAUSE;
        let mut done: Vec<Option<Result<T>>> = on.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..on.len()).collect();
        for tries in 1_u32.. {
            let Some(first) = left.first().map(|one| on[*one]) else { break };
            let answers: Vec<Result<T>> = match timeout_at(deadline, attempt(left.clone())).await {
                Ok(answers) if answers.len() == left.len() => answers,
                Ok(answers) => {
                    let (results, asked) = (answers.len(), left.len());
                    let error = self
                        .broken(&format!("a call to {}, for {asked} machines, returned {results} results", call.what));
                    left.iter().map(|_| Err(error.clone())).collect()
                }
                Err(_) => {
                    let late = self.late(call);
                    for one in left {
                        done[one] = Some(Err(self.placed(late.clone(), call.kind, on[one], tries)));
                    }
                    break;
                }
            };
            let is_last = tries >= call.tries;
            let asked = answers.iter().filter_map(|answer| throttle(answer.as_ref().err()?)).max();
            let jittered = jittered(pause, mixed(self.salt.wrapping_add(tries.into()), first));
            let next = Instant::now() + asked.map_or(jittered, |pause| pause.min(NEVER) + jittered);
            let mut trouble = None;
            for (one, answer) in std::mem::take(&mut left).into_iter().zip(answers) {
                let placed = |error: Error| self.placed(error, call.kind, on[one], tries);
                done[one] = Some(match answer {
                    Err(error) if is_for_now(&error) && (!is_last || throttle(&error).is_some()) && next < deadline => {
                        trouble.get_or_insert_with(|| error.clone());
                        left.push(one);
                        Err(error)
                    }
                    Err(error) if is_for_now(&error) && !is_last => {
                        let error = error.with_context("given up after", format!("{:?}", call.limit));
                        Err(placed(self.of_limit(error, call)))
                    }
                    answer => answer.map_err(placed),
                });
            }
            let Some(error) = trouble else { break };
            tracing::debug!(provider = self.name(), what = call.what, on = first, tries, %error, "trying again");
            (self.report.0)(&error);
            *lock(&call.last) = Some(error);
            sleep_until(next).await;
            pause = (pause * 2).min(call.longest_pause);
        }
        done.into_iter().map(|done| done.unwrap_or_else(|| Err(self.broken("a call returned no result")))).collect()
    }

    /// The error of a call that did not return in time. Its source is the last error before the
    /// timeout, which gives the reason.
    fn late(&self, call: &Call) -> Error {
        let message = format!("{} did not {} within {:?}", self.name(), call.what, call.limit);
        let error = Error::new(ErrorKind::Timeout, message).caused_by(lock(&call.last).take());
        self.of_limit(error.temporary(), call)
    }

    /// Adds the setting that gives the call more time.
    fn of_limit(&self, error: Error, call: &Call) -> Error {
        let Some(setting) = self.setting.filter(|_| self.most == Some(call.limit)) else { return error };
        error.with_further_hint(&format!("`{setting}` gives more time"))
    }

    /// A call with this limit, or with the deadline of all calls where that is shorter.
    fn within(&self, limit: Duration, what: &'static str, kind: &'static str) -> Call {
        let limit = self.most.map_or(limit, |most| limit.min(most));
        Call { what, kind, limit, tries: TRIES, longest_pause: LONGEST_PAUSE, last: Mutex::default() }
    }

    fn placed(&self, error: Error, kind: &'static str, on: &str, tries: u32) -> Error {
        let error = error.with_context("provider", self.name());
        let error = if on.is_empty() { error } else { error.with_context(kind, on) };
        if tries > 1 { error.with_context("tries", tries) } else { error }
    }

    fn broken(&self, what: &str) -> Error {
        Error::new(ErrorKind::Provider, format!("the provider {} broke its contract: {what}", self.name()))
            .with_hint("this is a defect in the provider, not in the pool")
    }
}

#[async_trait]
impl Provider for Checked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn identity(&self) -> Result<String> {
        let call = self.within(MINUTE, "report its identity", "");
        self.call(&call, "", || self.inner.identity()).await
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let call = self.within(MINUTE, "list its offers", "");
        let mut offers = self.call(&call, "", || self.inner.offers(requirements)).await?;
        offers.iter_mut().for_each(|offer| offer.usd_per_hour = offer.usd_per_hour.or(self.assumed));
        offers.retain(|offer| requirements.are_met_by(offer));
        Ok(offers)
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        let call = self.within(5 * MINUTE, "prepare", "pool");
        self.call(&call, pool.pool.as_str(), || self.inner.prepare(pool)).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let call = self.within(10 * MINUTE, "launch a machine", "launch");
        let on: Vec<&str> = batch.requests.iter().map(|request| request.launch.as_str()).collect();
        let launched = self.call_each(&call, &on, |left| {
            let requests = left.into_iter().map(|one| batch.requests[one].clone()).collect();
            let part = LaunchBatch { requests, ..batch.clone() };
            async move { self.inner.launch(&part).await }
        });
        let checked = batch.requests.iter().zip(launched.await).map(|(request, launched)| {
            let machine = launched?;
            let Machine { launch, pool, number, offer, .. } = &machine;
            match (launch, pool, *number, offer) == (&request.launch, &request.pool, request.number, &batch.offer.id) {
                true => Ok(machine),
                false => Err(self
                    .broken("`launch` returned a machine of another launch")
                    .with_context("requested", &request.launch)
                    .with_context("returned", launch)),
            }
        });
        checked.collect()
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let call = self.within(MINUTE, "report the state of its machines", "");
        let reports = self.call(&call, "", || self.inner.inspect(machines)).await?;
        if reports.len() != machines.len() {
            let (asked, returned) = (machines.len(), reports.len());
            return Err(self.broken(&format!("`inspect` of {asked} machines returned {returned} reports")));
        }
        Ok(reports)
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        let mut call = self.within(Duration::MAX, "reach the machine", "machine");
        call.limit = self.most.unwrap_or(10 * MINUTE);
        // A booting machine cannot be reached until it has booted, and trying costs the provider
        // nothing.
        call.tries = u32::MAX;
        call.longest_pause = BOOTING;
        tokio::select! {
            biased;
            reached = self.call(&call, machine.id.as_str(), || self.inner.connect(machine, at)) => reached,
            gone = self.until_gone(&machine.id, SHORTEST_LOOK) => {
                Err(gone.with_hint(UNREACHED).caused_by(lock(&call.last).take()))
            }
        }
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        let call = self.within(2 * MINUTE, "terminate the machine", "machine");
        let on: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
        let ended = self.call_each(&call, &on, |left| {
            let left: Vec<MachineId> = left.into_iter().map(|one| machines[one].clone()).collect();
            async move { self.inner.terminate(&left).await }
        });
        ended.await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let call = self.within(5 * MINUTE, "tear down", "pool");
        self.call(&call, pool.as_str(), || self.inner.teardown(pool)).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let call = self.within(MINUTE, "list its machines", "pool");
        let mut machines = self.call(&call, pool.as_str(), || self.inner.list(pool)).await?;
        machines.retain(|machine| machine.pool == *pool);
        Ok(machines)
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let call = self.within(MINUTE, "list its pools", "");
        self.call(&call, "", || self.inner.pools()).await
    }
}

/// A call of the provider: its name in messages, and its limits.
struct Call {
    what: &'static str,
    /// The kind of thing that the call is about, as the error's context names it.
    kind: &'static str,
    limit: Duration,
    tries: u32,
    longest_pause: Duration,
    /// The last error after which the call was retried.
    last: Mutex<Option<Error>>,
}

/// Limits of the wait for a machine that was bought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arriving {
    /// How long the machine may be queued.
    pub(crate) queue: Duration,
    /// The longest pause between two inspections. Nobody renews the lease until the place is known,
    /// so this pause must be shorter than the lease.
    pub(crate) pause: Duration,
}

/// Gets each error after which a call is retried.
#[derive(Clone)]
struct Report(Arc<dyn Fn(&Error) + Send + Sync>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// Whether the same call may succeed later. A refusal is final, unless it is throttling.
fn is_for_now(error: &Error) -> bool {
    let refused = error.refusal().is_some_and(|refusal| !matches!(refusal, Refusal::Throttled(_)));
    error.status() == ErrorStatus::Temporary && !refused
}

/// The pause that the provider asked for; none where the error is no throttling.
fn throttle(error: &Error) -> Option<Duration> {
    match error.refusal() {
        Some(Refusal::Throttled(pause)) => Some(pause.unwrap_or(THROTTLED)),
        _ => None,
    }
}

/// The next pause between two inspections of a machine.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(SHORTEST_LOOK, LONGEST_LOOK)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between half and all of the pause, so that many callers do not return at the same moment.
fn jittered(pause: Duration, salt: u64) -> Duration {
    let share = (salt >> 11) as f64 / (1_u64 << 53) as f64;
    pause.mul_f64(0.5 + share / 2.0)
}

/// A number that depends on all bits of both.
fn mixed(salt: u64, text: &str) -> u64 {
    text.bytes().map(u64::from).chain([0]).fold(salt, |state, byte| {
        let state = (state ^ byte).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    })
}

const MINUTE: Duration = Duration::from_secs(60);
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two tries to connect to a booting machine.
const BOOTING: Duration = Duration::from_millis(500);
/// The pause after a throttled call for which the provider named none.
const THROTTLED: Duration = Duration::from_secs(1);
/// The first pause before an inspection while a machine is being connected to.
const SHORTEST_LOOK: Duration = Duration::from_secs(1);
/// The longest pause between two inspections.
const LONGEST_LOOK: Duration = Duration::from_secs(15);
/// The hint for a machine that ended before the pool connected to it.
const UNREACHED: &str =
    "the machine ended before the pool connected to it: look up the reason in the provider's own records";
/// The longest time that the runtime's clock can count.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
const LONGEST_FOLDER: usize = 60;

#[cfg(test)]
mod tests;
