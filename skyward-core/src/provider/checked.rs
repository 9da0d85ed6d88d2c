//! What core puts around every provider.

mod choice;
mod looks;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use self::choice::meets;
use self::looks::Looks;
use super::{LaunchRequest, Machine, MachineStatus, Offer, Provider, Requirements};
use crate::error::{Error, ErrorKind, ErrorStatus, Result};
use crate::ids::{MachineId, PoolId};
use crate::remote::Remote;

/// A provider whose every call has a deadline, is tried again when it failed for now, and fails with an error that says what was tried.
///
/// A pool wraps its provider in it, so that a provider need not do any of this.
#[derive(Debug, Clone)]
pub struct Checked {
    inner: Arc<dyn Provider>,
    most: Option<Duration>,
    /// The setting that `most` is from.
    setting: Option<&'static str>,
    /// Makes its waits other than those of others.
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
            salt: rand::random(),
            looks: Arc::default(),
            report: Report(Arc::new(|_| ())),
        }
    }

    /// Lets no call take longer than this, tries and waits between them together. `connect` may take all of it, and ten minutes where nothing is said.
    #[must_use]
    pub fn deadline(mut self, most: Duration) -> Self {
        self.most = Some(most);
        self
    }

    /// Waits as another one of the same pool does: what a simulation plays is the same each time. Its deadline is the pool's [`Limits::start`](crate::spec::Limits::start).
    pub(crate) fn of_pool(mut self, pool: &PoolId) -> Self {
        self.salt = mixed(0, pool.as_str());
        self.setting = Some("Limits::start");
        self
    }

    /// The same provider, which reports each error after which it tries again.
    pub(crate) fn reporting(&self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self { report: Report(Arc::new(report)), ..self.clone() }
    }

    /// Waits until the provider reports the machine as ending or gone, and returns that as an error. It is asked after `first`, then again and again, at last each 15 seconds. Nothing is
    /// concluded from a provider that cannot be asked, or that does not know.
    ///
    /// # Cancel safety
    ///
    /// Only asks.
    pub(crate) async fn until_gone(&self, machine: &MachineId, first: Duration) -> Error {
        let mut pause = first;
        loop {
            sleep(pause).await;
            let state = match self.looks.state(&self.inner, machine).await {
                MachineStatus::Ending => "ending",
                MachineStatus::Gone => "gone",
                MachineStatus::Starting | MachineStatus::Running | MachineStatus::Unknown => {
                    pause = (pause * 2).clamp(SHORTEST_LOOK, LONGEST_LOOK);
                    continue;
                }
            };
            return Error::new(
                ErrorKind::Provider,
                format!("the provider {} reports the machine {machine} as {state}", self.name()),
            );
        }
    }

    async fn call<T, F: Future<Output = Result<T>>>(&self, call: &Call<'_>, attempt: impl Fn() -> F) -> Result<T> {
        let deadline = Instant::now() + call.limit.min(NEVER);
        let mut pause = FIRST_PAUSE;
        for tries in 1_u32.. {
            let error = match timeout_at(deadline, attempt()).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) => error,
                Err(_) => return Err(self.told(self.late(call), call, tries)),
            };
            if error.status() != ErrorStatus::Temporary || tries == call.tries {
                return Err(self.told(error, call, tries));
            }
            let next = Instant::now() + jittered(pause, mixed(self.salt.wrapping_add(tries.into()), call.on));
            if next >= deadline {
                let error = error.with_context("given up after", format!("{:?}", call.limit));
                return Err(self.told(self.of_limit(error, call), call, tries));
            }
            tracing::debug!(provider = self.name(), what = call.what, on = call.on, tries, %error, "trying again");
            (self.report.0)(&error);
            *lock(&call.last) = Some(error);
            sleep_until(next).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the loop ends by returning")
    }

    /// The error of a call that did not return. What the provider said before says why.
    fn late(&self, call: &Call<'_>) -> Error {
        let message = format!("{} did not {} within {:?}", self.name(), call.what, call.limit);
        let error = match lock(&call.last).take() {
            Some(last) => {
                Error::new(ErrorKind::Timeout, format!("{message}; before, it failed with: {}", last.message()))
                    .with_source(last)
            }
            None => Error::new(ErrorKind::Timeout, message),
        };
        self.of_limit(error.temporary(), call)
    }

    /// Names the setting that gives a call more time.
    fn of_limit(&self, error: Error, call: &Call<'_>) -> Error {
        let Some(setting) = self.setting.filter(|_| self.most == Some(call.limit)) else { return error };
        let more = format!("`{setting}` gives more time");
        let hint = error.hint().map_or(more.clone(), |hint| format!("{hint}; {more}"));
        error.with_hint(hint)
    }

    /// A call that may take so long, and no longer than any may.
    fn within<'a>(&self, limit: Duration, what: &'static str, kind: &'static str, on: &'a str) -> Call<'a> {
        let limit = self.most.map_or(limit, |most| limit.min(most));
        Call { what, kind, on, limit, tries: TRIES, last: Mutex::default() }
    }

    fn told(&self, error: Error, call: &Call<'_>, tries: u32) -> Error {
        let error = error.with_context("provider", self.name());
        let error = if call.on.is_empty() { error } else { error.with_context(call.kind, call.on) };
        if tries > 1 { error.with_context("tries", tries) } else { error }
    }

    fn broken(&self, what: &str) -> Error {
        Error::new(ErrorKind::Provider, format!("the provider {} broke its contract: {what}", self.name()))
            .with_hint("this is a defect of the provider, not of the pool that asks it")
    }
}

#[async_trait]
impl Provider for Checked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn identity(&self) -> Result<Option<String>> {
        let call = self.within(MINUTE, "tell its identity", "", "");
        self.call(&call, || self.inner.identity()).await
    }

    fn outlives_client(&self) -> bool {
        self.inner.outlives_client()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let call = self.within(MINUTE, "tell its offers", "", "");
        let mut offers = self.call(&call, || self.inner.offers(requirements)).await?;
        offers.retain(|offer| meets(offer, requirements));
        Ok(offers)
    }

    async fn prepare(&self, pool: &PoolId) -> Result<()> {
        let call = self.within(5 * MINUTE, "prepare", "pool", pool.as_str());
        self.call(&call, || self.inner.prepare(pool)).await
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Machine> {
        let call = self.within(10 * MINUTE, "launch a machine", "launch", request.launch.as_str());
        let machine = self.call(&call, || self.inner.launch(request)).await?;
        if machine.launch != request.launch || machine.pool != request.pool || machine.node != request.node {
            return Err(self.broken("`launch` gave a machine of another launch"));
        }
        if machine.folder.len() > LONGEST_FOLDER {
            return Err(self
                .broken("the machine's folder is too long for Unix sockets")
                .with_context("folder", machine.folder));
        }
        Ok(machine)
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineStatus>> {
        let call = self.within(MINUTE, "tell the state of its machines", "", "");
        let states = self.call(&call, || self.inner.inspect(machines)).await?;
        if states.len() != machines.len() {
            return Err(self.broken("`inspect` did not answer for each machine"));
        }
        Ok(states)
    }

    async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>> {
        let mut call = self.within(Duration::MAX, "reach the machine", "machine", machine.id.as_str());
        call.limit = self.most.unwrap_or(10 * MINUTE);
        // A machine that starts is not reached for as long as that takes.
        call.tries = u32::MAX;
        tokio::select! {
            biased;
            reached = self.call(&call, || self.inner.connect(machine)) => reached,
            gone = self.until_gone(&machine.id, SHORTEST_LOOK) => {
                let gone = gone.with_hint("it ended before it could be reached: look for its end in the provider's own records");
                Err(match lock(&call.last).take() {
                    Some(last) => gone.with_context("last tried", last.message()).with_source(last),
                    None => gone,
                })
            }
        }
    }

    async fn terminate(&self, machine: &MachineId) -> Result<()> {
        let call = self.within(2 * MINUTE, "terminate the machine", "machine", machine.as_str());
        self.call(&call, || self.inner.terminate(machine)).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let call = self.within(5 * MINUTE, "tear down", "pool", pool.as_str());
        self.call(&call, || self.inner.teardown(pool)).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let call = self.within(MINUTE, "list its machines", "pool", pool.as_str());
        let mut machines = self.call(&call, || self.inner.list(pool)).await?;
        machines.retain(|machine| machine.pool == *pool);
        Ok(machines)
    }
}

/// What is asked of the provider, for messages, and how long it may take.
struct Call<'a> {
    what: &'static str,
    kind: &'static str,
    on: &'a str,
    limit: Duration,
    tries: u32,
    /// The last error after which it was tried again.
    last: Mutex<Option<Error>>,
}

/// Hears each error after which a call is tried again.
#[derive(Clone)]
struct Report(Arc<dyn Fn(&Error) + Send + Sync>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between half and all of it, so that many who wait do not come back together.
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
/// The first look whether a machine that is being reached is still there, and the longest pause between two of them.
const SHORTEST_LOOK: Duration = Duration::from_secs(1);
const LONGEST_LOOK: Duration = Duration::from_secs(15);
/// As long as the runtime's clock can count.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
const LONGEST_FOLDER: usize = 60;

#[cfg(test)]
mod tests;
