//! What core puts around every provider.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until, timeout_at};

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
    most: Duration,
    /// Makes its waits other than those of others.
    salt: u64,
}

impl Checked {
    /// Wraps a provider.
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner, most: Duration::MAX, salt: rand::random() }
    }

    /// Lets no call take longer than this, tries and waits between them together.
    #[must_use]
    pub fn deadline(mut self, most: Duration) -> Self {
        self.most = most;
        self
    }

    /// Waits as another one of the same pool does: what a simulation plays is the same each time.
    pub(crate) fn of_pool(mut self, pool: &PoolId) -> Self {
        self.salt = mixed(0, pool.as_str());
        self
    }

    /// The best offer that meets the requirements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] with what there is instead, when nothing fits.
    ///
    /// # Cancel safety
    ///
    /// Starts nothing.
    pub async fn choose(&self, requirements: &Requirements) -> Result<Offer> {
        if let Some(offer) = self.offers(requirements).await?.into_iter().next() {
            return Ok(offer);
        }
        let all = self.offers(&Requirements::default()).await?;
        let error = Error::new(
            ErrorKind::Provider,
            format!("the provider {} has nothing with {}", self.name(), wanted(requirements)),
        );
        Err(match &all[..] {
            [] => error.with_hint("it offers nothing at all now: ask another provider, or later"),
            all => {
                let shown: Vec<_> = all.iter().take(SHOWN).map(shown).collect();
                let more = if all.len() > SHOWN { format!(" and {} more", all.len() - SHOWN) } else { String::new() };
                error.with_hint(format!("it has: {}{more}", shown.join("; ")))
            }
        })
    }

    async fn call<T, F: Future<Output = Result<T>>>(&self, call: Call<'_>, attempt: impl Fn() -> F) -> Result<T> {
        let limit = call.limit.min(self.most);
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_PAUSE;
        for tries in 1_u32.. {
            let error = match timeout_at(deadline, attempt()).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) => error,
                Err(_) => {
                    let message = format!("{} did not {} within {limit:?}", self.name(), call.what);
                    return Err(self.told(Error::new(ErrorKind::Timeout, message).temporary(), &call, tries));
                }
            };
            let next = Instant::now() + jittered(pause, mixed(self.salt.wrapping_add(tries.into()), call.on));
            if error.status() != ErrorStatus::Temporary || tries == TRIES || next >= deadline {
                return Err(self.told(error, &call, tries));
            }
            tracing::debug!(provider = self.name(), what = call.what, on = call.on, tries, %error, "trying again");
            sleep_until(next).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the loop ends by returning")
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

    fn identity(&self) -> Option<String> {
        self.inner.identity()
    }

    fn outlives_client(&self) -> bool {
        self.inner.outlives_client()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let call = Call { what: "tell its offers", kind: "", on: "", limit: MINUTE };
        let mut offers = self.call(call, || self.inner.offers(requirements)).await?;
        offers.retain(|offer| meets(offer, requirements));
        Ok(offers)
    }

    async fn prepare(&self, pool: &PoolId) -> Result<()> {
        let call = Call { what: "prepare", kind: "pool", on: pool.as_str(), limit: 5 * MINUTE };
        self.call(call, || self.inner.prepare(pool)).await
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Machine> {
        let call = Call { what: "launch a machine", kind: "launch", on: request.launch.as_str(), limit: 10 * MINUTE };
        let machine = self.call(call, || self.inner.launch(request)).await?;
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
        let call = Call { what: "tell the state of its machines", kind: "", on: "", limit: MINUTE };
        let states = self.call(call, || self.inner.inspect(machines)).await?;
        if states.len() != machines.len() {
            return Err(self.broken("`inspect` did not answer for each machine"));
        }
        Ok(states)
    }

    async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>> {
        let call = Call { what: "reach the machine", kind: "machine", on: machine.id.as_str(), limit: 5 * MINUTE };
        self.call(call, || self.inner.connect(machine)).await
    }

    async fn terminate(&self, machine: &MachineId) -> Result<()> {
        let call = Call { what: "terminate the machine", kind: "machine", on: machine.as_str(), limit: 2 * MINUTE };
        self.call(call, || self.inner.terminate(machine)).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let call = Call { what: "tear down", kind: "pool", on: pool.as_str(), limit: 5 * MINUTE };
        self.call(call, || self.inner.teardown(pool)).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let call = Call { what: "list its machines", kind: "pool", on: pool.as_str(), limit: MINUTE };
        let mut machines = self.call(call, || self.inner.list(pool)).await?;
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
}

fn meets(offer: &Offer, requirements: &Requirements) -> bool {
    let accelerator = requirements.accelerator.as_ref().is_none_or(|wanted| {
        offer.accelerator.as_ref().is_some_and(|has| {
            let memory = wanted.memory_gib.is_none_or(|memory| has.memory_gib.is_none_or(|has| has >= memory));
            has.kind.eq_ignore_ascii_case(&wanted.kind) && has.count >= wanted.count && memory
        })
    });
    accelerator
        && requirements.cpus.is_none_or(|cpus| offer.cpus >= cpus)
        && requirements.memory_gib.is_none_or(|memory| offer.memory_gib >= memory)
}

fn wanted(requirements: &Requirements) -> String {
    let mut parts = Vec::new();
    if let Some(accelerator) = &requirements.accelerator {
        let memory = accelerator.memory_gib.map(|memory| format!(" of {memory} GiB")).unwrap_or_default();
        parts.push(format!("{accelerator}{memory}"));
    }
    parts.extend(requirements.cpus.map(|cpus| format!("{cpus} cores")));
    parts.extend(requirements.memory_gib.map(|memory| format!("{memory} GiB of memory")));
    if parts.is_empty() { "any machine".into() } else { parts.join(" and ") }
}

fn shown(offer: &Offer) -> String {
    let accelerator = offer.accelerator.as_ref().map(|accelerator| format!(", {accelerator}")).unwrap_or_default();
    let price = if offer.usd_per_hour > 0.0 { format!(", ${:.2}/h", offer.usd_per_hour) } else { String::new() };
    format!(
        "{} in {} ({} cores, {} GiB{accelerator}{price})",
        offer.machine_type, offer.place, offer.cpus, offer.memory_gib
    )
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
const LONGEST_FOLDER: usize = 60;
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::ids::{Attempt, LaunchId, NodeIndex};
    use crate::spec::Accelerator;

    /// Answers `terminate` with what is scripted, the last for ever; `launch` with another launch's machine.
    #[derive(Debug, Default)]
    struct Scripted {
        answers: Mutex<Vec<Result<()>>>,
        calls: Mutex<u32>,
        hangs: bool,
        offers: Vec<Offer>,
    }

    #[async_trait]
    impl Provider for Scripted {
        fn name(&self) -> &str {
            "scripted"
        }
        async fn offers(&self, _: &Requirements) -> Result<Vec<Offer>> {
            Ok(self.offers.clone())
        }
        async fn prepare(&self, _: &PoolId) -> Result<()> {
            Ok(())
        }
        async fn launch(&self, request: &LaunchRequest) -> Result<Machine> {
            let mut other = request.clone();
            other.launch = LaunchId::new("other");
            Ok(Machine::new(&other, MachineId::new("m"), "127.0.0.1", "/f"))
        }
        async fn inspect(&self, _: &[MachineId]) -> Result<Vec<MachineStatus>> {
            Ok(Vec::new())
        }
        async fn connect(&self, _: &Machine) -> Result<Box<dyn Remote>> {
            Ok(Box::new(crate::remote::Process::new()))
        }
        async fn terminate(&self, _: &MachineId) -> Result<()> {
            *self.calls.lock().unwrap() += 1;
            if self.hangs {
                std::future::pending::<()>().await;
            }
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
        }
        async fn teardown(&self, _: &PoolId) -> Result<()> {
            Ok(())
        }
        async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
            Ok(Vec::new())
        }
    }

    fn busy() -> Error {
        Error::new(ErrorKind::Provider, "throttled").temporary()
    }

    async fn terminate(scripted: Scripted) -> (Result<()>, u32) {
        let scripted = Arc::new(scripted);
        let done = Checked::new(scripted.clone()).terminate(&MachineId::new("m-1")).await;
        let calls = *scripted.calls.lock().unwrap();
        (done, calls)
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_now_is_tried_again() {
        let answers = Mutex::new(vec![Err(busy()), Err(busy()), Ok(())]);
        let (done, calls) = terminate(Scripted { answers, ..Scripted::default() }).await;
        assert_eq!((done.is_ok(), calls), (true, 3));
    }

    #[test]
    fn waits_differ_and_are_within_their_bounds() {
        let pause = Duration::from_secs(8);
        let waits: Vec<_> = (0..100).map(|salt| jittered(pause, mixed(salt, "m"))).collect();
        assert!(waits.iter().all(|wait| (pause / 2..=pause).contains(wait)), "{waits:?}");
        let early = waits.iter().filter(|wait| **wait < pause * 3 / 4).count();
        assert!((25..75).contains(&early), "{early} of 100 are in the first half");
        assert_ne!(jittered(pause, mixed(1, "a")), jittered(pause, mixed(1, "b")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_for_good_is_not() {
        let answers = Mutex::new(vec![Err(Error::new(ErrorKind::Provider, "forbidden")), Ok(())]);
        let (done, calls) = terminate(Scripted { answers, ..Scripted::default() }).await;
        assert_eq!(calls, 1);
        assert_eq!(done.unwrap_err().to_string(), "forbidden (provider: scripted, machine: m-1)");
    }

    #[tokio::test(start_paused = true)]
    async fn tries_end() {
        let (done, calls) = terminate(Scripted { answers: Mutex::new(vec![Err(busy())]), ..Scripted::default() }).await;
        assert_eq!(calls, TRIES);
        assert_eq!(done.unwrap_err().to_string(), "throttled (provider: scripted, machine: m-1, tries: 8)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_ends_at_its_deadline() {
        let started = Instant::now();
        let (done, _) = terminate(Scripted { hangs: true, ..Scripted::default() }).await;
        let error = done.unwrap_err();
        assert_eq!(started.elapsed(), 2 * MINUTE);
        assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, ErrorStatus::Temporary));
        assert_eq!(error.message(), "scripted did not terminate the machine within 120s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_holds_for_all_tries_together() {
        let scripted = Scripted { answers: Mutex::new(vec![Err(busy())]), ..Scripted::default() };
        let started = Instant::now();
        let checked = Checked::new(Arc::new(scripted)).deadline(Duration::from_secs(1));
        checked.terminate(&MachineId::new("m")).await.unwrap_err();
        assert!(started.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test]
    async fn a_broken_contract_is_named() {
        let checked = Checked::new(Arc::new(Scripted::default()));
        let (pool, node) = (PoolId::random(), NodeIndex(0));
        let launch = LaunchId::of(&pool, node, Attempt(1));
        let request = LaunchRequest::new(launch, pool, node, Offer::new("t", "p", 1, 1), MINUTE);
        assert!(checked.launch(&request).await.unwrap_err().message().contains("another launch"));
        let error = checked.inspect(&[MachineId::new("m")]).await.unwrap_err();
        assert!(error.message().contains("each machine"), "{error}");
    }

    #[tokio::test]
    async fn when_nothing_fits_what_there_is_is_told() {
        let mut gpu = Offer::new("g5", "here", 8, 32);
        gpu.accelerator = Some(Accelerator::new("A10G", 1));
        gpu.usd_per_hour = 1.006;
        let offers = vec![Offer::new("m7", "here", 2, 8), gpu];
        let checked = Checked::new(Arc::new(Scripted { offers, ..Scripted::default() }));
        let wants = |kind: &str| Requirements {
            accelerator: Some(Accelerator::new(kind, 1)),
            cpus: Some(4),
            ..Requirements::default()
        };
        assert_eq!(checked.choose(&wants("a10g")).await.unwrap().machine_type, "g5");
        let error = checked.choose(&wants("H100")).await.unwrap_err();
        assert_eq!(error.message(), "the provider scripted has nothing with 1× H100 and 4 cores");
        assert_eq!(
            error.hint().unwrap(),
            "it has: m7 in here (2 cores, 8 GiB); g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h)"
        );
        let none = Checked::new(Arc::new(Scripted::default()));
        assert!(none.choose(&wants("H100")).await.unwrap_err().hint().unwrap().contains("nothing at all"));
    }
}
