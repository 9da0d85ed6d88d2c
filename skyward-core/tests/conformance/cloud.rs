//! A small provider that meets its contract, but for one fault.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use skyward_core::error::{Error, ErrorKind, Refusal, Result};
use skyward_core::ids::{MachineId, PoolId};
use skyward_core::provider::{
    Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Part, Place, PoolRecord,
    PoolRequest, Provider, Reason, Requirements, terminate_each,
};
use skyward_core::remote::{ByteStream, Command, CommandOutput, OnLine, Process, Remote};
use tokio::time::{Instant, sleep};

use super::center::{Center, Rented};

/// How a provider is broken. The first two are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Lists have a machine 50 ms after its launch, as `settles_in` allows.
    LateList,
    // What a dropped launch leaves comes after `settles_in`: always, only when the launch was
    // nearly done, for the second machine of a batch, and seconds after.
    LateDrop,
    LateDropNearTheEnd,
    LateDropOfTheSecond,
    LateDropBySeconds,
    /// A machine is bought, and its record is written 300 ms later.
    RecordedLater,
    FlipsAfterMoments,
    FlipsAfterSeconds,
    FlipsAfterConnect,
    SwallowsErrors,
    // Further ones.
    ListBeyondSettling,
    DropIsForgotten,
    ReusesIds,
    BatchOfOneKind,
    BatchIsRefusedWhole,
    GoneSpoilsTheBatch,
    AdoptsWithoutKeys,
    AdoptEndsMachines,
    RefusesToAdoptForNow,
    PartOfGang,
    GangEndsTogether,
    HidesQueued,
    QueuedIsGone,
    QueuedStartsAgain,
    NoNotice,
    SilentWatch,
    EndsEarly,
    EndsNever,
    EmptyListOnFailure,
    NoPoolsOnFailure,
    GoneOnFailure,
    TornDownOnFailure,
    SameIdentity,
    OtherIdentity,
    PlaceOfMemory,
}

/// A provider of the machines of a [`Center`]. Clones are the same value.
#[derive(Debug, Clone)]
pub(crate) struct Cloud {
    center: Arc<Center>,
    fault: Fault,
    /// Which value it is, of those of one center.
    value: u8,
}

impl Cloud {
    pub(crate) fn new(center: &Arc<Center>, fault: Fault, value: u8) -> Self {
        Self { center: Arc::clone(center), fault, value }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Launches one machine of a batch: a call of the service, and its answer.
    async fn launch_one(&self, batch: &LaunchBatch, request: &LaunchRequest) -> Result<Machine> {
        let known = |rented: &Rented| rented.is_known && rented.machine.launch == request.launch;
        if let Some(rented) = self.center.all().into_iter().find(known) {
            return Ok(rented.machine);
        }
        let mut id = request.launch.to_string();
        if self.is(Fault::ReusesIds) {
            id = format!("{}-{}", request.pool, request.number);
        }
        if self.center.folder(&MachineId::new(&id)).exists() && !self.is(Fault::ReusesIds) {
            id = format!("{id}-again");
        }
        let machine = Machine::of(batch, request, MachineId::new(id));
        self.center.prepare(&request.pool, &request.owner);
        let mut dropped = OnDrop(self.late(batch, &machine));
        sleep(HALF_LAUNCH).await;
        self.center.answer()?;
        if self.is(Fault::LateDropNearTheEnd) {
            sleep(HALF_LAUNCH / 2).await;
            let (center, machine) = (Arc::clone(&self.center), machine.clone());
            dropped.0 = Some(Box::new(move || later(center, machine, LISTS_SETTLE + HALF_LAUNCH * 3)));
            sleep(HALF_LAUNCH).await;
            dropped.0 = None;
        }
        let late = match self.fault {
            Fault::LateList => Some(HALF_LAUNCH / 2),
            Fault::ListBeyondSettling => Some(LISTS_SETTLE + HALF_LAUNCH * 3),
            Fault::RecordedLater => None,
            _ => Some(Duration::ZERO),
        };
        let ends_in = request.ends_in.filter(|_| !self.is(Fault::EndsNever));
        self.center.buy(machine.clone(), late.map(|late| Instant::now() + late), ends_in);
        self.center.change(&machine.id, |rented| rented.is_gang = batch.all_or_none);
        if self.is(Fault::DropIsForgotten) {
            let (center, id) = (Arc::clone(&self.center), machine.id.clone());
            dropped.0 = Some(Box::new(move || center.change(&id, |rented| rented.is_known = false)));
        }
        sleep(if self.is(Fault::RecordedLater) { HALF_LAUNCH * 3 } else { HALF_LAUNCH }).await;
        self.center.change(&machine.id, |rented| {
            rented.listed.get_or_insert_with(Instant::now);
        });
        dropped.0 = None;
        Ok(machine)
    }

    /// What goes on after a launch was dropped.
    fn late(&self, batch: &LaunchBatch, machine: &Machine) -> Option<Box<dyn FnOnce() + Send>> {
        let second = batch.requests.get(1).is_some_and(|second| second.launch == machine.launch);
        let after = match self.fault {
            Fault::LateDrop => LISTS_SETTLE + HALF_LAUNCH * 3,
            Fault::LateDropOfTheSecond if second => LISTS_SETTLE + HALF_LAUNCH * 3,
            Fault::LateDropBySeconds => LISTS_SETTLE + HALF_LAUNCH * 25,
            _ => return None,
        };
        let (center, machine) = (Arc::clone(&self.center), machine.clone());
        Some(Box::new(move || later(center, machine, after)))
    }

    fn report(&self, id: &MachineId) -> MachineReport {
        let Some(rented) = self.center.get(id) else { return MachineReport::new(MachineState::Gone) };
        if rented.is_queued {
            return match self.fault {
                Fault::QueuedIsGone => MachineReport::new(MachineState::Gone),
                // The machine was ended in the queue, and is there nevertheless.
                Fault::QueuedStartsAgain if !rented.is_known => MachineReport::new(MachineState::Gone),
                _ => MachineReport::new(MachineState::Queued).saying("PENDING (Resources)"),
            };
        }
        let has = |time: Duration| rented.bought.elapsed() >= time;
        let flips = match self.fault {
            Fault::FlipsAfterMoments => has(Duration::from_millis(200)),
            Fault::FlipsAfterSeconds => has(Duration::from_secs(2)),
            Fault::FlipsAfterConnect => rented.connected.is_some(),
            Fault::PlaceOfMemory => self.value > 0,
            _ => false,
        };
        let address = if flips { "127.0.0.2" } else { "127.0.0.1" };
        let place = Place::new(address, self.center.folder(id).to_str().unwrap()).watch([WATCH]);
        let report = MachineReport::new(MachineState::Running).at(place);
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        match (rented.preempted, rented.ends) {
            (Some(end), _) if !self.is(Fault::NoNotice) && !self.is(Fault::SilentWatch) => {
                report.ends_in(left(end)).because(Reason::Preempted)
            }
            (_, Some(end)) if self.is(Fault::EndsEarly) => report.ends_in(left(end) + HALF_LAUNCH * 40),
            (_, Some(end)) => report.ends_in(left(end)),
            _ if self.is(Fault::EndsNever) => report.ends_in(Duration::from_secs(1)),
            _ => report,
        }
    }

    fn end(&self, id: &MachineId) -> Result<()> {
        match self.center.answer() {
            Err(_) if self.is(Fault::SwallowsErrors) => return Ok(()),
            answer => answer?,
        }
        let rented = self.center.get(id);
        if self.is(Fault::QueuedStartsAgain) && rented.as_ref().is_some_and(|rented| rented.is_queued) {
            self.center.change(id, |rented| rented.is_known = false);
            return Ok(());
        }
        if self.is(Fault::GangEndsTogether) && rented.is_some_and(|rented| rented.is_gang) {
            let gang = self.center.all().into_iter().filter(|rented| rented.is_gang);
            gang.for_each(|rented| self.center.end(&rented.machine.id));
        }
        self.center.end(id);
        Ok(())
    }
}

#[async_trait]
impl Provider for Cloud {
    fn name(&self) -> &str {
        "cloud"
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new().outlives_client().batches().gangs().settles_in(LISTS_SETTLE);
        capabilities.adopts = !self.is(Fault::RefusesToAdoptForNow);
        // The watch command tells of preemptions, without `inspect`.
        if self.is(Fault::SilentWatch) { capabilities } else { capabilities.preemptible() }
    }

    async fn identity(&self) -> Result<String> {
        match self.fault {
            Fault::SameIdentity => Ok("the cloud".to_owned()),
            Fault::OtherIdentity => Ok(format!("the value {}", self.value)),
            _ => Ok(format!("{:p}", Arc::as_ptr(&self.center))),
        }
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let offer = Offer::new("small", "here", 2, 4).usd_per_hour(0.0);
        Ok(requirements.are_met_by(&offer).then_some(offer).into_iter().collect())
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.center.answer()?;
        self.center.prepare(&pool.pool, &pool.owner);
        Ok(())
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        match self.fault {
            Fault::AdoptEndsMachines => {
                let of_pool = self.center.all().into_iter().filter(|rented| rented.machine.pool == pool.pool);
                of_pool.for_each(|rented| self.center.end(&rented.machine.id));
            }
            Fault::RefusesToAdoptForNow => {
                return Err(Error::new(ErrorKind::Provider, "the keys are elsewhere").temporary());
            }
            _ => {}
        }
        self.prepare(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let none = || Err(Error::refused(Refusal::Capacity, "there are no machines left"));
        let has = self.center.has();
        let is_whole = batch.all_or_none && !self.is(Fault::PartOfGang) || self.is(Fault::BatchIsRefusedWhole);
        if is_whole && (has as usize) < batch.requests.len() {
            return batch.requests.iter().map(|_| none()).collect();
        }
        let differ = batch.requests.windows(2).any(|two| two[0].labels != two[1].labels);
        if self.is(Fault::BatchOfOneKind) && differ {
            return batch.requests.iter().map(|_| none()).collect();
        }
        let each = batch.requests.iter().zip(0..).map(async |(request, index)| match index < has {
            true => self.launch_one(batch, request).await,
            false => none(),
        });
        futures_util::future::join_all(each).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        match self.center.answer() {
            Err(_) if self.is(Fault::GoneOnFailure) => {
                return Ok(machines.iter().map(|_| MachineReport::new(MachineState::Gone)).collect());
            }
            answer => answer?,
        }
        Ok(machines.iter().map(|machine| self.report(machine)).collect())
    }

    async fn connect(&self, machine: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        self.center.answer()?;
        if self.is(Fault::AdoptsWithoutKeys) && self.value > 0 {
            return Err(Error::new(ErrorKind::Login, "another process has the keys of the machine"));
        }
        if self.center.get(&machine.id).is_none() {
            return Err(Error::new(ErrorKind::Provider, "the machine is gone"));
        }
        self.center.change(&machine.id, |rented| rented.connected = Some(Instant::now()));
        let process = Process::new().folder(self.center.folder(&machine.id));
        Ok(Box::new(OnMachine { process, cloud: self.clone(), machine: machine.id.clone() }))
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        if self.is(Fault::GoneSpoilsTheBatch) && machines.iter().any(|machine| self.center.get(machine).is_none()) {
            let unknown = || Err(Error::new(ErrorKind::Provider, "one of the machines is not known"));
            return machines.iter().map(|_| unknown()).collect();
        }
        terminate_each(machines, async |machine| self.end(machine)).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        match self.center.answer() {
            Err(_) if self.is(Fault::TornDownOnFailure) => return Ok(()),
            answer => answer?,
        }
        self.center.teardown(pool);
        Ok(())
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        match self.center.answer() {
            Err(_) if self.is(Fault::EmptyListOnFailure) => return Ok(Vec::new()),
            answer => answer?,
        }
        let now = Instant::now();
        let is_listed = |rented: &Rented| {
            rented.machine.pool == *pool
                && rented.listed.is_some_and(|listed| listed <= now)
                && !(self.is(Fault::HidesQueued) && rented.is_queued)
                && !(self.is(Fault::QueuedStartsAgain) && rented.is_queued && !rented.is_known)
        };
        Ok(self.center.all().into_iter().filter(is_listed).map(|rented| rented.machine).collect())
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        match self.center.answer() {
            Err(_) if self.is(Fault::NoPoolsOnFailure) => return Ok(Vec::new()),
            answer => answer?,
        }
        let expires = SystemTime::now() + Duration::from_secs(600);
        let record = |(pool, owner): (PoolId, String)| PoolRecord::new(pool, expires).owner(owner);
        Ok(self.center.pools().into_iter().map(record).collect())
    }
}

/// A machine of the cloud. Its watch command is a part of the cloud.
#[derive(Debug)]
struct OnMachine {
    process: Process,
    cloud: Cloud,
    machine: MachineId,
}

#[async_trait]
impl Remote for OnMachine {
    fn describe(&self) -> String {
        format!("the machine {}", self.machine)
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        if command.argv != [WATCH] {
            return self.process.run(command, on_line).await;
        }
        loop {
            let rented = self.cloud.center.get(&self.machine);
            if rented.is_some_and(|rented| rented.preempted.is_some()) && !self.cloud.is(Fault::SilentWatch) {
                on_line("preempted 120 the center takes the machine back");
            }
            sleep(HALF_LAUNCH * 10).await;
        }
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.process.put(path, bytes, mode).await
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        self.process.open(socket).await
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

/// Buys a machine after a time, whatever became of its launch.
fn later(center: Arc<Center>, machine: Machine, after: Duration) {
    tokio::spawn(async move {
        sleep(after).await;
        center.buy(machine, Some(Instant::now()), None);
    });
}

/// Something to do when a future is dropped, unless it is taken out before.
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(todo) = self.0.take() {
            todo();
        }
    }
}

/// How long a half of a launch takes.
const HALF_LAUNCH: Duration = Duration::from_millis(100);
/// How long it can take until lists have a machine.
const LISTS_SETTLE: Duration = Duration::from_millis(400);
const WATCH: &str = "notices";
