//! How a pool handles machines that are slow or end, and providers that cannot be asked: on fake
//! machines and a paused clock.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use skyward_core::error::{Error, ErrorKind, Result, WorkerExit};
use skyward_core::event::{EventItem, Events, PoolEvent};
use skyward_core::ids::{MachineId, PoolId};
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::provider::{
    Capabilities, LaunchBatch, Machine, MachineReport, MachineState, Offer, Part, Place, PoolRecord, PoolRequest,
    Provider, Requirements,
};
use skyward_core::remote::{ByteStream, Command, CommandOutput, OnLine, Remote};
use skyward_core::spec::{Limits, Nodes};
use skyward_core::testkit::fake_provider::{Arrival, Death, FakeProvider, Faults, Turn};
use skyward_core::testkit::fake_worker::Fate;
use tokio::time::Instant;

/// The events of one test.
#[derive(Debug, Clone, Copy)]
enum Story {
    /// The first machine of node 0 is gone after this time.
    MachineGone(Duration),
    /// The first machine of node 0 is taken back by the provider after this time.
    Preempted(Duration),
    /// Machines are queued for this time.
    Queued(Duration),
    /// The first connection to the agent of node 0 is cut.
    ConnectionCut,
    /// The first tries to connect to a machine fail, this many.
    SlowStart(u32),
    /// The machine of node 1 takes this long to launch, and is never reached.
    NeverReached(Duration),
    /// `terminate` of machines fails.
    EndFails,
}

impl Fate for Story {
    fn cut(&self, _: u32, connection: u64, frame: u64) -> bool {
        // A frame after the start of the workers: one of the pings that renew the lease.
        matches!(self, Self::ConnectionCut) && connection == 1 && frame == 8
    }
}

impl Faults for Story {
    fn launch(&self, node: u32, _: u32) -> Turn {
        match self {
            Self::NeverReached(launch) if node == 1 => Turn::Works(*launch),
            _ => Turn::Works(Duration::ZERO),
        }
    }

    fn connect(&self, node: u32, call: u32) -> Turn {
        match self {
            Self::SlowStart(tries) if call < *tries => Turn::FailsForNow,
            Self::NeverReached(_) if node == 1 => Turn::FailsForNow,
            // A machine that is no longer queued has the full time for its start.
            Self::Queued(_) => Turn::Works(Duration::from_secs(20)),
            _ => Turn::Works(Duration::ZERO),
        }
    }

    fn terminate(&self, _: u32, _: u32) -> Turn {
        match self {
            Self::EndFails => Turn::FailsForNow,
            _ => Turn::Works(Duration::ZERO),
        }
    }

    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        match self {
            Self::MachineGone(after) if node == 0 && machine == 0 => Some((*after, Death::Machine)),
            Self::Preempted(after) if node == 0 && machine == 0 => Some((*after, Death::Preemption)),
            _ => None,
        }
    }

    fn arrival(&self, _: u32, _: u32) -> Arrival {
        match self {
            Self::Queued(queued) => Arrival::after(*queued, Duration::from_secs(2)),
            _ => Arrival::default(),
        }
    }
}

fn pool(provider: &FakeProvider, nodes: u32) -> PoolBuilder {
    Pool::builder().provider(provider.clone()).nodes(nodes)
}

/// The next event for which `wanted` returns a value.
async fn next<T>(events: &mut Events, mut wanted: impl FnMut(&PoolEvent) -> Option<T>) -> T {
    loop {
        match events.next().await.expect("the pool has ended") {
            EventItem::Event(event) => {
                if let Some(value) = wanted(&event) {
                    return value;
                }
            }
            missed => panic!("{missed:?}"),
        }
    }
}

/// The error of the next lost node.
async fn lost(events: &mut Events) -> Error {
    next(events, |event| match event {
        PoolEvent::NodeLost { error, .. } => Some(error.clone()),
        _ => None,
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_machine_reported_as_gone_is_replaced_without_reconnecting_to_it() {
    let after = Duration::from_secs(100);
    let provider = FakeProvider::new(Arc::new(Story::MachineGone(after)));
    let started = Instant::now();
    let pool = pool(&provider, 2).start().await.unwrap();
    let mut events = pool.events();
    let error = lost(&mut events).await;
    // Reconnecting to a machine that may still exist takes half of the lease, 30 seconds.
    let noticed = started.elapsed() - after;
    assert!(noticed < Duration::from_secs(1), "{noticed:?}: {error}");
    assert!(format!("{error:#}").contains("reports the machine"), "{error}");
    next(&mut events, |event| matches!(event, PoolEvent::NodeReplaced { .. }).then_some(())).await;
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_the_provider_takes_back_is_reported_as_preempted() {
    let provider = FakeProvider::new(Arc::new(Story::Preempted(Duration::from_secs(100))));
    let pool = pool(&provider, 2).start().await.unwrap();
    let mut events = pool.events();
    let error = lost(&mut events).await;
    assert_eq!(error.exit(), Some(&WorkerExit::Preempted), "{error}");
    assert!(format!("{error:#}").contains("as gone, because it was preempted"), "{error}");
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_may_be_queued_for_longer_than_a_start_may_take() {
    let mut limits = Limits::default();
    (limits.start, limits.environment) = (Duration::from_secs(60), Duration::from_secs(1));
    let queued = Duration::from_secs(1800);
    let provider = FakeProvider::new(Arc::new(Story::Queued(queued)));
    let started = Instant::now();
    let pool = pool(&provider, 2).limits(limits).start().await.unwrap();
    assert!(started.elapsed() >= queued, "{:?}", started.elapsed());
    // The time in the queue does not count for a machine that joins later either.
    pool.resize(Nodes::fixed(3)).await.unwrap();
    assert!(started.elapsed() >= queued * 2, "{:?}", started.elapsed());
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_error_for_a_machine_queued_too_long_quotes_its_provider() {
    let mut limits = Limits::default();
    limits.machine_wait = Duration::from_secs(600);
    let provider = FakeProvider::new(Arc::new(Story::Queued(Duration::from_secs(1800))));
    let started = Instant::now();
    let error = pool(&provider, 2).limits(limits).start().await.unwrap_err();
    let waited = started.elapsed();
    assert!(waited >= limits.machine_wait && waited < limits.machine_wait * 11 / 10, "{waited:?}");
    assert!(error.message().contains("queued: PENDING (Resources)"), "{error}");
    assert!(error.hint().unwrap().contains("`Limits::machine_wait`"), "{error}");
    assert!(provider.machines().is_empty());
}

/// How a provider answers about machines that cannot be reached.
#[derive(Debug, Clone, Copy)]
enum Blindness {
    Unknown,
    Fails,
    Hangs,
}

/// Fake machines. Some tries to open a second connection to them fail, and in the meantime the
/// provider gives no useful answer about them.
#[derive(Debug, Clone)]
struct Blind {
    inner: FakeProvider,
    how: Blindness,
    opened: Arc<AtomicU32>,
    asked: Arc<AtomicU32>,
}

#[async_trait]
impl Provider for Blind {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn identity(&self) -> Result<String> {
        self.inner.identity().await
    }
    fn parts(&self) -> Vec<Part> {
        self.inner.parts()
    }
    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        self.inner.offers(requirements).await
    }
    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.inner.prepare(pool).await
    }
    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        self.inner.adopt(pool).await
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        self.inner.launch(batch).await
    }
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let is_cut = (1..=BLIND).contains(&self.opened.load(Ordering::Relaxed).saturating_sub(OPENED));
        if !is_cut {
            return self.inner.inspect(machines).await;
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.how {
            Blindness::Unknown => Ok(vec![MachineReport::new(MachineState::Unknown); machines.len()]),
            Blindness::Fails => Err(Error::new(ErrorKind::Provider, "the API cannot be reached").temporary()),
            Blindness::Hangs => std::future::pending().await,
        }
    }
    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        let inner = self.inner.connect(machine, at).await?;
        Ok(Box::new(BlindRemote { inner, opened: Arc::clone(&self.opened) }))
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        self.inner.terminate(machines).await
    }
    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        self.inner.teardown(pool).await
    }
    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        self.inner.list(pool).await
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        self.inner.pools().await
    }
}

#[derive(Debug)]
struct BlindRemote {
    inner: Box<dyn Remote>,
    opened: Arc<AtomicU32>,
}

#[async_trait]
impl Remote for BlindRemote {
    fn describe(&self) -> String {
        self.inner.describe()
    }
    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.inner.run(command, on_line).await
    }
    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.inner.put(path, bytes, mode).await
    }
    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let before = self.opened.fetch_add(1, Ordering::Relaxed);
        match (OPENED..OPENED + BLIND).contains(&before) {
            true => Err(Error::new(ErrorKind::Io, "there is no route to the host").temporary()),
            false => self.inner.open(socket).await,
        }
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        self.inner.builder().await
    }
}

/// The streams of a started node: one to its agent and one to its worker.
const OPENED: u32 = 2;
/// How many tries to reconnect fail. They take some seconds, so that the provider is asked more
/// than once.
const BLIND: u32 = 9;

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_asked_causes_no_loss() {
    for how in [Blindness::Unknown, Blindness::Fails, Blindness::Hangs] {
        let inner = FakeProvider::new(Arc::new(Story::ConnectionCut));
        let provider = Blind { inner, how, opened: Arc::default(), asked: Arc::default() };
        let pool = Pool::builder().provider(provider.clone()).nodes(1).start().await.unwrap();
        let mut events = pool.events();
        next(&mut events, |event| matches!(event, PoolEvent::NodeDisconnected { .. }).then_some(())).await;
        let lost = next(&mut events, |event| match event {
            PoolEvent::NodeLost { error, .. } => Some(Some(error.clone())),
            PoolEvent::NodeReconnected { .. } => Some(None),
            _ => None,
        })
        .await;
        assert!(lost.is_none(), "{how:?}: {lost:?}");
        assert!(provider.asked.load(Ordering::Relaxed) > 0, "{how:?}: the pool did not ask the provider");
        pool.shutdown(Duration::from_secs(30)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_starts_on_machines_that_cannot_be_reached_for_minutes() {
    let provider = FakeProvider::new(Arc::new(Story::SlowStart(500)));
    let started = Instant::now();
    let pool = pool(&provider, 2).start().await.unwrap();
    assert!(started.elapsed() > Duration::from_secs(120), "{:?}", started.elapsed());
    pool.shutdown(Duration::from_secs(30)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_reports_what_it_waited_for_and_why() {
    let mut limits = Limits::default();
    (limits.start, limits.environment) = (Duration::from_secs(60), Duration::from_secs(1));
    // The start fails by the deadline of the machine alone, or by that of all machines.
    for (launch, message) in [(0, "could not connect now"), (50, "1 of 2 nodes were ready after 61s")] {
        let provider = FakeProvider::new(Arc::new(Story::NeverReached(Duration::from_secs(launch))));
        let error = pool(&provider, 2).limits(limits).start().await.unwrap_err();
        assert_eq!(error.message(), message);
        assert!(format!("{error:#}").contains("could not connect now"), "{error}");
        assert!(error.hint().unwrap().contains("`Limits::start`"), "{error}");
        assert!(provider.machines().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_fails_names_the_machines_the_cause_and_the_limit() {
    let provider = FakeProvider::new(Arc::new(Story::EndFails));
    let pool = pool(&provider, 2).start().await.unwrap();
    let ids: Vec<_> = provider.machines().into_iter().map(|machine| machine.id).collect();
    let error = pool.shutdown(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().all(|id| error.message().contains(id.as_str())), "{error}");
    assert!(error.summary().contains("could not terminate now"), "{error}");
    assert!(error.hint().unwrap().contains("`Limits::shutdown`"), "{error}");
}
