//! A provider whose machines are in this process, and that does what a script says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use super::fake_worker::{FakeNode, Fate, Faultless, Witness};
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::ids::{MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Place, PoolRecord,
    PoolRequest, Provider, Reason, Requirements, launch_each, terminate_each,
};
use crate::remote::{ByteStream, Command, CommandOutput, OnLine, Remote};

/// How a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turn {
    /// It is done after this time.
    Works(Duration),
    /// It fails; the same call may work later.
    FailsForNow,
    /// It fails for good.
    Fails,
    /// It never answers. A launch has its effect all the same.
    Never,
}

/// How a machine comes to its end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Death {
    /// It is gone.
    Machine,
    /// It is gone, because the provider took it back.
    Preemption,
    /// Its agent and workers are gone; it runs on.
    Agent,
    /// Nothing on it answers any more, and no connection ends.
    Freezes,
}

/// That a machine will end, as its provider reports beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forewarning {
    /// From its launch until its reports say so.
    pub after: Duration,
    /// From then until its end.
    pub ends_in: Duration,
    /// Why: [`Reason::Preempted`], or [`Reason::Expired`] for a walltime.
    pub reason: Reason,
}

impl Forewarning {
    /// The provider takes the machine back.
    pub fn preemption(after: Duration, ends_in: Duration) -> Self {
        Self { after, ends_in, reason: Reason::Preempted }
    }

    /// The machine was bought for this time.
    pub fn walltime(ends_in: Duration) -> Self {
        Self { after: Duration::ZERO, ends_in, reason: Reason::Expired }
    }
}

/// How long a machine takes from its launch until it is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// First it is queued for this time.
    pub queued: Duration,
    /// Then it starts for this time.
    pub starting: Duration,
}

impl Arrival {
    /// After these times.
    pub fn after(queued: Duration, starting: Duration) -> Self {
        Self { queued, starting }
    }
}

/// What happens to the machines of a [`FakeProvider`], and to what runs on them. By itself everything works at once.
pub trait Script: Fate {
    /// How the `call`-th launch (from 0) of a node goes.
    fn launch(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// How the `call`-th try to connect to a node's machine goes.
    fn connect(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// How the `call`-th command on a node goes.
    fn command(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// How the `call`-th `terminate` of a node's machine goes; when it works, the machine is ending at once, and gone after the time.
    fn terminate(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// For how long the `machine`-th machine (from 0) of a node is released, and not gone, when it is terminated.
    fn lingers(&self, node: u32, machine: u32) -> Duration {
        let _ = (node, machine);
        Duration::ZERO
    }

    /// When the `machine`-th machine (from 0) of a node is there.
    fn arrival(&self, node: u32, machine: u32) -> Arrival {
        let _ = (node, machine);
        Arrival::default()
    }

    /// Whether the provider does not know the state of a node's machine when it is asked for the `call`-th time.
    fn is_unknown(&self, node: u32, call: u32) -> bool {
        let _ = (node, call);
        false
    }

    /// What it offers, the best first.
    fn offers(&self) -> Vec<Offer> {
        vec![Offer::new("fake", "nowhere", 64, 256)]
    }

    /// Why the `call`-th launch (from 0) by this offer is refused, if it is.
    fn refusal(&self, offer: &Offer, call: u32) -> Option<Refusal> {
        let _ = (offer, call);
        None
    }

    /// What is reported beforehand of the end of the `machine`-th machine (from 0) of a node.
    fn forewarning(&self, node: u32, machine: u32) -> Option<Forewarning> {
        let _ = (node, machine);
        None
    }

    /// How the `machine`-th machine (from 0) of a node ends before its time, and when, counted from its launch.
    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        let _ = (node, machine);
        None
    }
}

impl Script for Faultless {}

/// A provider whose machines are in this process. Clones share them.
#[derive(Debug, Clone)]
pub struct FakeProvider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    script: Arc<dyn Script>,
    witness: Arc<Witness>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Those that were prepared and not torn down.
    pools: BTreeMap<PoolId, PoolRequest>,
    machines: BTreeMap<MachineId, Fake>,
    /// The machines of each node, in the order of their launches.
    of_node: BTreeMap<MachineNumber, Vec<MachineId>>,
    calls: BTreeMap<(&'static str, u32), u32>,
    /// The offers that were tried, in order.
    tried: Vec<OfferId>,
    refused: usize,
}

#[derive(Debug)]
struct Fake {
    machine: Machine,
    place: Place,
    node: FakeNode,
    usd_per_hour: f64,
    launched: Instant,
    arrival: Arrival,
    forewarning: Option<Forewarning>,
    /// When it ends by itself, because that was asked for.
    expires: Option<Instant>,
    lingers: Duration,
    /// Released from then on, and gone when it has lingered.
    gone: Option<Instant>,
    /// Why it is gone or ending.
    reason: Option<Reason>,
}

impl FakeProvider {
    /// A provider that follows a script.
    pub fn new(script: Arc<dyn Script>) -> Self {
        Self(Arc::new(Inner { script, witness: Arc::default(), state: Mutex::default() }))
    }

    /// The machines that are not released.
    pub fn machines(&self) -> Vec<Machine> {
        let now = Instant::now();
        let state = lock(&self.0.state);
        state.machines.values().filter(|fake| !fake.is_gone(now)).map(|fake| fake.machine.clone()).collect()
    }

    /// How many machines were started.
    pub fn launched(&self) -> usize {
        lock(&self.0.state).machines.len()
    }

    /// How many of them took the place of another one.
    pub fn replaced(&self) -> usize {
        let state = lock(&self.0.state);
        let nodes: BTreeSet<_> = state.machines.values().map(|fake| fake.machine.number).collect();
        state.machines.len() - nodes.len()
    }

    /// The offers by which machines were asked for, in order; each as often as it was tried.
    pub fn tried(&self) -> Vec<OfferId> {
        lock(&self.0.state).tried.clone()
    }

    /// What the machines have cost until now, in US dollars, each from its launch until it was gone.
    pub fn spent(&self) -> f64 {
        let now = Instant::now();
        lock(&self.0.state).machines.values().map(|fake| fake.cost(now)).sum()
    }

    /// For how long there were machines, from the launch of the first until the last was gone, or until now.
    pub fn lived(&self) -> Duration {
        let now = Instant::now();
        let state = lock(&self.0.state);
        let first = state.machines.values().map(|fake| fake.launched).min();
        let last = state.machines.values().map(|fake| fake.gone.map_or(now, |gone| gone.min(now))).max();
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first))
    }

    /// How many launches were refused.
    pub fn refused(&self) -> usize {
        lock(&self.0.state).refused
    }

    /// Of how many machines notice was given before they ended.
    pub fn forewarned(&self) -> usize {
        let now = Instant::now();
        let state = lock(&self.0.state);
        let warned = |fake: &&Fake| {
            fake.forewarning.is_some_and(|warned| fake.launched + warned.after <= fake.gone.unwrap_or(now))
        };
        state.machines.values().filter(warned).count()
    }

    /// What the machines cost per hour that are not gone.
    pub fn usd_per_hour(&self) -> f64 {
        let now = Instant::now();
        let state = lock(&self.0.state);
        state.machines.values().filter(|fake| !fake.is_gone(now)).map(|fake| fake.usd_per_hour).sum()
    }

    /// The nodes on which an agent or a worker runs.
    pub fn running(&self) -> Vec<MachineId> {
        let state = lock(&self.0.state);
        state.machines.iter().filter(|(_, fake)| fake.node.is_running()).map(|(id, _)| id.clone()).collect()
    }

    /// What the nodes have seen.
    pub fn witness(&self) -> &Witness {
        &self.0.witness
    }

    fn call(&self, what: &'static str, node: u32) -> u32 {
        let mut state = lock(&self.0.state);
        let calls = state.calls.entry((what, node)).or_default();
        *calls += 1;
        *calls - 1
    }

    /// A machine for a launch: the one that there is, or a new one.
    fn start(&self, batch: &LaunchBatch, request: &LaunchRequest) -> Machine {
        let id = MachineId::new(request.launch.as_str());
        let mut state = lock(&self.0.state);
        if let Some(fake) = state.machines.get(&id) {
            return fake.machine.clone();
        }
        let index = request.number.0;
        let before = state.of_node.entry(request.number).or_default();
        before.push(id.clone());
        let before = before[..before.len() - 1].to_vec();
        let number = before.len() as u32;
        before.iter().filter_map(|id| state.machines.get(id)).for_each(|fake| fake.node.succeed());
        let fate: Arc<dyn Fate> = Arc::<dyn Script>::clone(&self.0.script);
        let node = FakeNode::new(index, fate, Arc::clone(&self.0.witness));
        let machine = Machine::of(batch, request, id.clone());
        let fake = Fake {
            machine: machine.clone(),
            place: Place::new(format!("10.0.{number}.{}", index + 1), "/fake"),
            node: node.clone(),
            usd_per_hour: batch.offer.usd_per_hour.unwrap_or_default(),
            launched: Instant::now(),
            arrival: self.0.script.arrival(index, number),
            forewarning: self.0.script.forewarning(index, number),
            expires: request.ends_in.and_then(|ends_in| Instant::now().checked_add(ends_in)),
            lingers: self.0.script.lingers(index, number),
            gone: None,
            reason: None,
        };
        let ends = fake.ends();
        state.machines.insert(id.clone(), fake);
        for (at, reason) in ends {
            self.end_at(id.clone(), at, reason);
        }
        if let Some((after, death)) = self.0.script.death(index, number) {
            let inner = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                sleep(after).await;
                let Some(inner) = inner.upgrade() else { return };
                match death {
                    Death::Freezes => node.freeze(),
                    Death::Agent => node.end(),
                    Death::Machine | Death::Preemption => {
                        node.end();
                        if let Some(fake) = lock(&inner.state).machines.get_mut(&id) {
                            let preempted = death == Death::Preemption;
                            fake.end(Instant::now(), if preempted { Reason::Preempted } else { Reason::Failed });
                        }
                    }
                }
            });
        }
        machine
    }

    /// Ends a machine at this time, if it is there still.
    fn end_at(&self, id: MachineId, at: Instant, reason: Reason) {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            let Some(inner) = inner.upgrade() else { return };
            if let Some(fake) = lock(&inner.state).machines.get_mut(&id) {
                fake.node.end();
                fake.end(Instant::now(), reason);
            }
        });
    }

    fn node_of(&self, machine: &MachineId) -> Option<u32> {
        lock(&self.0.state).machines.get(machine).map(|fake| fake.machine.number.0)
    }
}

impl Fake {
    /// It is gone from then on, unless it is already on its way out.
    fn end(&mut self, gone: Instant, reason: Reason) {
        if self.gone.is_none() {
            (self.gone, self.reason) = (Some(gone), Some(reason));
        }
    }

    /// When it comes to its end by itself, and why.
    fn ends(&self) -> Vec<(Instant, Reason)> {
        let forewarned = self.forewarning.map(|warned| (self.launched + warned.after + warned.ends_in, warned.reason));
        forewarned.into_iter().chain(self.expires.map(|at| (at, Reason::Expired))).collect()
    }

    fn cost(&self, now: Instant) -> f64 {
        let end = self.gone.map_or(now, |gone| gone.min(now));
        end.saturating_duration_since(self.launched).as_secs_f64() / 3600.0 * self.usd_per_hour
    }

    fn report(&self, now: Instant) -> MachineReport {
        let Arrival { queued, starting } = self.arrival;
        let there = self.launched + queued;
        let state = match self.gone {
            Some(gone) if gone + self.lingers <= now => MachineState::Gone,
            Some(gone) if gone <= now => MachineState::Released,
            Some(_) => MachineState::Ending,
            None if now < there => MachineState::Queued,
            None if now < there + starting => MachineState::Starting,
            None => MachineState::Running,
        };
        let report = MachineReport::new(state);
        match (state, self.reason) {
            (MachineState::Running, _) => {
                let report = report.at(self.place.clone());
                match self.forewarning.filter(|warned| self.launched + warned.after <= now) {
                    Some(warned) => {
                        let end = self.launched + warned.after + warned.ends_in;
                        report.because(warned.reason).ends_in(end.saturating_duration_since(now))
                    }
                    None => report,
                }
            }
            (MachineState::Queued, _) => report.saying("PENDING (Resources)"),
            (_, Some(reason)) => report.because(reason),
            _ => report,
        }
    }

    fn is_gone(&self, now: Instant) -> bool {
        self.gone.is_some_and(|gone| gone <= now)
    }
}

#[async_trait]
impl Provider for FakeProvider {
    fn name(&self) -> &str {
        "fake"
    }

    async fn identity(&self) -> Result<String> {
        Ok("this process".to_owned())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().preemptible()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        Ok(self.0.script.offers().into_iter().filter(|offer| requirements.are_met_by(offer)).collect())
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        lock(&self.0.state).pools.insert(pool.pool.clone(), pool.clone());
        Ok(())
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let one = async |request: &LaunchRequest| {
            let node = request.number.0;
            let call = {
                let mut state = lock(&self.0.state);
                state.tried.push(batch.offer.id.clone());
                state.tried.iter().filter(|tried| **tried == batch.offer.id).count() as u32 - 1
            };
            if let Some(refusal) = self.0.script.refusal(&batch.offer, call) {
                lock(&self.0.state).refused += 1;
                return Err(Error::refused(refusal, format!("{} cannot be had", batch.offer.id)));
            }
            let turn = self.0.script.launch(node, self.call("launch", node));
            if turn == Turn::Never {
                self.start(batch, request);
            }
            take(turn, "launch").await?;
            Ok(self.start(batch, request))
        };
        launch_each(batch, one).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let report = |machine: &MachineId| {
            let unknown =
                self.node_of(machine).is_some_and(|node| self.0.script.is_unknown(node, self.call("inspect", node)));
            match lock(&self.0.state).machines.get(machine) {
                _ if unknown => MachineReport::new(MachineState::Unknown),
                Some(fake) => fake.report(Instant::now()),
                None => MachineReport::new(MachineState::Gone),
            }
        };
        Ok(machines.iter().map(report).collect())
    }

    async fn connect(&self, machine: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        let node = machine.number.0;
        take(self.0.script.connect(node, self.call("connect", node)), "connect").await?;
        let there = lock(&self.0.state)
            .machines
            .get(&machine.id)
            .filter(|fake| fake.gone.is_none())
            .map(|fake| fake.node.clone());
        match there {
            Some(there) => Ok(Box::new(FakeRemote { provider: self.clone(), machine: machine.clone(), node: there })),
            None => Err(Error::new(ErrorKind::Provider, format!("the machine {} is gone", machine.id))),
        }
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        let one = async |machine: &MachineId| {
            let Some(node) = self.node_of(machine) else { return Ok(()) };
            let turn = self.0.script.terminate(node, self.call("terminate", node));
            let time = match turn {
                Turn::Works(time) => time,
                turn => return take(turn, "terminate").await,
            };
            if let Some(fake) = lock(&self.0.state).machines.get_mut(machine) {
                fake.node.end();
                fake.end(Instant::now() + time, Reason::Asked);
            }
            Ok(())
        };
        terminate_each(machines, one).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        lock(&self.0.state).pools.remove(pool);
        Ok(())
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let now = Instant::now();
        let state = lock(&self.0.state);
        let there = state.machines.values().filter(|fake| fake.gone.is_none_or(|gone| gone + fake.lingers > now));
        Ok(there.map(|fake| fake.machine.clone()).filter(|machine| machine.pool == *pool).collect())
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let machines = self.machines();
        let now = SystemTime::now();
        let record = |pool: &PoolRequest| {
            let lives = machines.iter().any(|machine| machine.pool == pool.pool);
            let expires = if lives { now + pool.lease } else { now };
            PoolRecord::new(pool.pool.clone(), expires).owner(&pool.owner)
        };
        Ok(lock(&self.0.state).pools.values().map(record).collect())
    }
}

/// Answers the commands that make a machine ready; the last of them starts the agent.
#[derive(Debug)]
struct FakeRemote {
    provider: FakeProvider,
    machine: Machine,
    node: FakeNode,
}

#[async_trait]
impl Remote for FakeRemote {
    fn describe(&self) -> String {
        format!("the fake machine {}", self.machine.id)
    }

    async fn run(&self, command: &Command, _: OnLine<'_>) -> Result<CommandOutput> {
        let node = self.machine.number.0;
        let call = self.provider.call("command", node);
        let turn = self.provider.0.script.command(node, call);
        match tokio::time::timeout(command.deadline, take(turn, "run a command")).await {
            Ok(done) => done?,
            Err(_) => return Err(Error::new(ErrorKind::Timeout, "the command did not end in time")),
        }
        let gone = lock(&self.provider.0.state).machines.get(&self.machine.id).is_none_or(|fake| fake.gone.is_some());
        if gone {
            return Err(Error::new(ErrorKind::Bootstrap, "the machine is gone"));
        }
        let script = command.argv.last().map(String::as_str).unwrap_or_default();
        let Some((_, lease)) =
            script.rsplit_once(" -m skyward.agent ").and_then(|(_, line)| line.split_once("--lease "))
        else {
            return Ok(CommandOutput::new(0, "", ""));
        };
        // The first look finds that nothing is there yet, as on a machine that was never used.
        if call == 0 {
            return Ok(CommandOutput::new(75, "skyward-need environment worker\n", ""));
        }
        let lease = lease.split_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
        self.node.start_agent(Duration::from_secs_f64(lease));
        let ready =
            "skyward-python /fake/python\nskyward-path /fake/path\n{\"pid\":1,\"protocol\":1,\"python\":\"3.12.1\"}\n";
        Ok(CommandOutput::new(0, ready, ""))
    }

    async fn put(&self, _: &str, _: &[u8], _: u32) -> Result<()> {
        Ok(())
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let stream = self.node.open(socket);
        stream.ok_or_else(|| Error::new(ErrorKind::Io, format!("nothing listens at {socket}")).temporary())
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

async fn take(turn: Turn, what: &str) -> Result<()> {
    match turn {
        Turn::Works(time) => {
            sleep(time).await;
            Ok(())
        }
        Turn::FailsForNow => Err(Error::new(ErrorKind::Provider, format!("could not {what} now")).temporary()),
        Turn::Fails => Err(Error::new(ErrorKind::Provider, format!("could not {what}"))),
        Turn::Never => std::future::pending().await,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
