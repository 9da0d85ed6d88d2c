//! The whole pool on a paused clock, with faults drawn from a seed.
//!
//! [`run`] plays one seed: a pool on a [`FakeProvider`] gets tasks, cancels some, and ends, while offers are refused, machines fail to start, are queued, end after a notice or at their walltime, come late, never answer, freeze, die or are preempted, their provider does not know their state, connections are cut with the frames in
//! them, and frames come late or twice. Machines that are lost are replaced, pools grow and shrink by themselves or because it is asked for, and machines that come late join. No socket, no process, no thread: hours pass in milliseconds.
//!
//! ```
//! skyward_core::testkit::sim::run(7).unwrap();
//! ```

mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use self::calls::Reports;
use super::fake_provider::{Arrival, Death, FakeProvider, Forewarning, Script, Turn};
use super::fake_worker::{Calls, Fate, Work};
use crate::error::{Error, ErrorKind, Refusal};
use crate::event::{EventItem, Events, PoolEvent};
use crate::ids::{Attempt, NodeIndex, PoolId, Rank, TaskId};
use crate::payload::{Args, Outcome, RetryPolicy, Source, Target, Task, TaskHandle, TaskOptions};
use crate::plugin::plugin;
use crate::pool::{ComputePool, Pool, PoolPhase, PoolStatus};
use crate::provider::{Architecture, Offer};
use crate::spec::{Budget, Limits, Nodes};

/// What a seed stands for; every draw depends on the seed and on what it is for, never on the order of draws.
#[derive(Debug, Clone, Copy)]
struct Seed(u64);

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The seed that showed it.
    pub seed: u64,
    /// What did not hold.
    pub what: String,
}

/// What was seen while a seed was played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Whether the pool became ready.
    pub ready: bool,
    /// Tasks that were taken.
    pub tasks: usize,
    /// Tasks that returned.
    pub returned: usize,
    /// Tasks that were tried more than once, or failed.
    pub failed: usize,
    /// Machines that were started.
    pub machines: usize,
    /// Those of them that took the place of another one.
    pub replaced: usize,
    /// Whether the pool had more nodes at some time than when it was ready.
    pub grown: bool,
    /// Launches that the provider refused.
    pub refused: usize,
    /// Machines of whose end the provider gave notice.
    pub forewarned: usize,
    /// Calls that tasks made.
    pub calls: Calls,
    /// Reports of the calls below a task.
    pub call_reports: usize,
    /// Reports of gangs that made no progress.
    pub stalled: usize,
    /// Whether the pool ended because of its budget.
    pub overspent: bool,
    /// Sizes that were asked for while it served, and reached.
    pub resized: usize,
    /// Stands for all that the nodes were told, and when: the same each time the seed is played.
    pub trace: u64,
    /// How long it took on the paused clock.
    pub took: Duration,
}

/// Plays one seed.
///
/// After each step it holds that no task has two outcomes and none of another task's, that a task never comes to a worker that has it, or before its source, that no generation is started beside an
/// older one, that no task comes to a machine whose place another one has, that a call has one outcome
/// for each try of its caller, and that a worker helps in a wait only with calls below the try that
/// waits. At the end it holds
/// that each task had an outcome, that each try at a gang was started with all of its members, that
/// only gangs were reported as stalled, and none too early, that no machine, agent or worker is
/// left, that nothing of the pool goes on, and that all of it ended within a bound. With the last
/// task the last call has ended, no call has run for long after the try of its caller was over, and
/// what the pool reports of calls is counted without a step back.
///
/// Two plays of a seed are the same, to the order of what is due at the same moment.
///
/// # Errors
///
/// The first invariant that did not hold.
pub fn run(seed: u64) -> Result<Seen, Broken> {
    let broken = |what: String| Broken { seed, what };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| broken(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        let seed = Seed(seed);
        let provider = FakeProvider::new(Arc::new(seed));
        let started = Instant::now();
        let mut seen = Seen::default();
        let played = async {
            tokio::select! {
                played = play(seed, &provider, &mut seen) => played,
                overspent = watch_money(seed, provider.clone()) => Err(overspent),
            }
        };
        match timeout(BOUND, played).await {
            Ok(played) => played.map_err(broken)?,
            Err(_) => return Err(broken(format!("something still waited after {BOUND:?}: {seen:?}"))),
        }
        paid(seed, &provider).map_err(broken)?;
        seen.refused = provider.refused();
        seen.forewarned = provider.forewarned();
        seen.took = started.elapsed();
        seen.machines = provider.launched();
        seen.replaced = provider.replaced();
        settled(&provider).await.map_err(broken)?;
        seen.trace = provider.witness().trace();
        seen.calls = provider.witness().calls();
        calls::outlived(seed, seen.calls.outlived).map_err(broken)?;
        Ok(seen)
    })
}

/// Plays seeds one after another, `count` of them from `first` on. What does not hold is printed with the command that plays it again.
///
/// # Errors
///
/// The first seed that broke an invariant.
pub fn run_many(first: u64, count: u64) -> Result<Vec<Seen>, Broken> {
    let mut all = Vec::new();
    for seed in first..first.saturating_add(count) {
        match run(seed) {
            Ok(seen) => all.push(seen),
            Err(broken) => {
                println!("{broken}");
                return Err(broken);
            }
        }
    }
    Ok(all)
}

/// Waits until nothing of the pool and of its nodes goes on.
async fn settled(provider: &FakeProvider) -> Result<(), String> {
    let left = provider.machines();
    if !left.is_empty() {
        return Err(format!("machines are left: {left:?}"));
    }
    let running = provider.running();
    if !running.is_empty() {
        return Err(format!("agents or workers run on: {running:?}"));
    }
    let wrongs = provider.witness().wrongs();
    if !wrongs.is_empty() {
        return Err(wrongs.join("; "));
    }
    // What dies by the script may still wait for its time.
    sleep(LATEST_END).await;
    let pool = PoolId::new("p-simulated");
    let listed = crate::provider::Provider::list(provider, &pool).await.map_err(|error| error.to_string())?;
    if !listed.is_empty() {
        return Err(format!("machines were released, and are not gone: {listed:?}"));
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    match metrics.num_alive_tasks() {
        0 => Ok(()),
        count => Err(format!("{count} tasks of the runtime go on after the pool has ended")),
    }
}

async fn play(seed: Seed, provider: &FakeProvider, seen: &mut Seen) -> Result<(), String> {
    let joined = seed.chance("joined", 0, 0, 3);
    let nodes = 1 + seed.below("nodes", 0, 0, MOST_NODES.into()) as u32;
    let least = if joined { nodes } else { 1 + seed.below("least", 0, 0, u64::from(nodes)) as u32 };
    // A third of the pools grows and shrinks by itself, unless its workers are one world.
    let size = match !joined && seed.chance("elastic", 0, 0, 3) {
        true => Nodes::elastic(least, nodes),
        false => Nodes::partial(least, nodes),
    };
    let idle = Duration::from_secs(2) + seed.time("idle", 0, 0, 20_000);
    let mut builder = Pool::builder()
        .provider(provider.clone())
        .id(PoolId::new("p-simulated"))
        .nodes(size)
        .workers_per_node(1 + seed.below("workers", 0, 0, 3) as u32)
        .budget(seed.budget())
        .limits(Limits {
            stall: seed.chance("stall", 0, 0, 3).then_some(STALL),
            stall_report: seed.stall_report(),
            idle,
            ..limits()
        });
    if joined {
        builder = builder.plugin(plugin("world").joins_world());
    }
    if seed.chance("impatient", 0, 0, 12) {
        // Its caller does not wait until it is ready.
        let time = seed.time("impatient", 0, 1, 3_000);
        if let Ok(Ok(pool)) = timeout(time, builder.start()).await {
            drop(pool);
        }
        return gone(provider).await;
    }
    let pool = match builder.start().await {
        Ok(pool) => pool,
        Err(error) => {
            seen.overspent = error.kind() == ErrorKind::Budget;
            return told(seed, &error).and_then(|()| left(provider));
        }
    };
    seen.ready = true;
    let heard = tokio::spawn(listen(pool.events()));
    let mut gangs = Vec::new();
    let began = pool.status().nodes.len();
    let count = seed.below("tasks", 0, 0, 40);
    let mut waiting = Vec::new();
    let mut resizes = Vec::new();
    let mut bounds = (1, nodes);
    // Most pools live for a minute, so that their machines die while they serve.
    let pause = if seed.chance("pause", u64::MAX, 0, 3) { 200 } else { 3_000 };
    for number in 0..count {
        sleep(seed.time("pause", number, 0, pause)).await;
        let args = Args::new().with("n", &number).encode().map_err(|error| error.to_string())?;
        let options =
            TaskOptions::default().timeout(TASK).retry(RetryPolicy::times(seed.below("retry", number, 0, 3) as u32));
        let source = Source::file(
            "a.py",
            if seed.chance("source", number, 0, 3) { "def f(n): ..." } else { "def f(n): pass" },
            "f",
        );
        let task = Task::new(Arc::new(source), args.clone()).with_options(options);
        let handles = if seed.chance("broadcast", number, 0, 6) {
            pool.submit_all(task).await
        } else {
            pool.submit(task, target(seed, number, &pool.status())).await.map(|handle| vec![handle])
        };
        match handles {
            Ok(handles) => {
                seen.tasks += handles.len();
                let members = handles.len() as u64;
                if joined && members > 1 {
                    gangs.push(handles.iter().map(TaskHandle::id).collect());
                }
                // In a third of the seeds callers of single members of a gang do not wait.
                let leaves = seed.chance("leaves", u64::MAX, 0, 3) && seed.chance("leaves", number, 0, 3);
                let leaver = leaves.then(|| seed.below("leaves", number, 1, members));
                waiting.extend(handles.into_iter().zip(0..).map(|(handle, member)| {
                    let leaves = leaver.filter(|leaver| members > 1 && *leaver == member);
                    let leaves = leaves.map(|_| seed.time("leaves", number, 2, 2_000));
                    tokio::spawn(wait(seed, provider.clone(), number, args.clone(), handle, leaves))
                }));
            }
            Err(error) => {
                seen.overspent |= error.kind() == ErrorKind::Budget;
                told(seed, &error)?;
            }
        }
        if seed.fault("resize", number, 0, 12) {
            let wanted = 1 + seed.below("resize", number, 1, MOST_NODES.into()) as u32;
            bounds.1 = bounds.1.max(wanted);
            let size = match !joined && seed.chance("resize", number, 2, 4) {
                true => Nodes::elastic(1, wanted),
                false => Nodes::fixed(wanted),
            };
            resizes.push(tokio::spawn(resize(seed, pool.clone(), size)));
        }
        sized(&pool.status(), bounds)?;
        seen.grown |= pool.status().nodes.len() > began;
        let wrongs = provider.witness().wrongs();
        if !wrongs.is_empty() {
            return Err(wrongs.join("; "));
        }
    }
    let early = seed.chance("early", 0, 0, 4);
    let ended = if early { Some(end(seed, pool.clone()).await) } else { None };
    for task in waiting {
        match task.await.map_err(|error| error.to_string())?? {
            Some(true) => seen.returned += 1,
            Some(false) => seen.failed += 1,
            None => {}
        }
    }
    for resize in resizes {
        seen.resized += usize::from(resize.await.map_err(|error| error.to_string())??);
    }
    let ended = match ended {
        Some(ended) => ended,
        None => {
            calls::all_ended(&pool).await?;
            end(seed, pool.clone()).await
        }
    };
    drop(pool);
    match ended {
        End::Dropped => gone(provider).await?,
        End::Ended => left(provider)?,
        End::Failed(error) => return Err(format!("the pool did not end: {error}")),
    }
    let mut heard = heard.await.map_err(|error| error.to_string())?;
    heard.calls.check()?;
    seen.stalled = heard.stalls.len();
    seen.call_reports = heard.calls.count;
    whole(&gangs, &heard.starts)?;
    heard.stalls.iter().try_for_each(|(task, silent)| match joined && heard.starts.contains_key(task) {
        true if *silent >= seed.stall_report() => Ok(()),
        _ => Err(format!("task {task} was reported as a gang's without progress for {silent:?}")),
    })
}

/// Where a task goes: some name a node or a worker that takes what comes.
fn target(seed: Seed, number: u64, status: &PoolStatus) -> Target {
    let nodes = status.nodes.iter().filter(|node| !node.leaving).count();
    let workers = status.workers.len() / status.nodes.len().max(1) * nodes;
    if !seed.chance("named", number, 0, 6) || workers == 0 {
        return Target::Any;
    }
    match seed.chance("named", number, 1, 2) {
        true => Target::Node(NodeIndex(seed.below("named", number, 2, nodes as u64) as u32)),
        false => Target::Rank(Rank(seed.below("named", number, 2, workers as u64) as u32)),
    }
}

/// What the pool's events told.
#[derive(Default)]
struct TaskEvents {
    /// Which tries at each task were started.
    starts: BTreeMap<TaskId, BTreeSet<Attempt>>,
    /// Reports of gangs without progress: a task of each, and for how long.
    stalls: Vec<(TaskId, Duration)>,
    calls: Reports,
}

async fn listen(mut events: Events) -> TaskEvents {
    let mut told = TaskEvents::default();
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else {
            told.calls.forget();
            continue;
        };
        told.calls.take(&event);
        match &*event {
            PoolEvent::TaskStarted { task, attempt, .. } => {
                told.starts.entry(*task).or_default().insert(*attempt);
            }
            PoolEvent::GangStalled { task, silent, .. } => told.stalls.push((*task, *silent)),
            _ => {}
        }
    }
    told
}

/// Each try at a gang was started with all of its members.
fn whole(gangs: &[Vec<TaskId>], starts: &BTreeMap<TaskId, BTreeSet<Attempt>>) -> Result<(), String> {
    for gang in gangs {
        let tries: Vec<_> = gang.iter().map(|id| starts.get(id)).collect();
        if tries.iter().any(|other| *other != tries[0]) {
            return Err(format!("a gang was started without a member: {gang:?} were started at {tries:?}"));
        }
    }
    Ok(())
}

/// Asks for another size; whether the pool has come to it.
async fn resize(seed: Seed, pool: Pool, size: Nodes) -> Result<bool, String> {
    match pool.resize(size).await {
        Ok(()) => Ok(true),
        Err(error) => told(seed, &error).map(|()| false),
    }
}

/// What holds of a pool's size at any time.
fn sized(status: &PoolStatus, (least, most): (u32, u32)) -> Result<(), String> {
    if status.phase != PoolPhase::Ready {
        return Ok(());
    }
    let there = status.nodes.iter().filter(|node| !node.leaving).count() as u32;
    let last = status.nodes.iter().position(|node| node.leaving).unwrap_or(status.nodes.len());
    if there < least || there > most || last as u32 != there {
        return Err(format!("the pool has {there} nodes, and is to have {least} to {most}: {:?}", status.nodes));
    }
    let per_node = status.workers.len() / status.nodes.len().max(1);
    if status.workers.len() != per_node * status.nodes.len() {
        return Err(format!("{} nodes have {} workers", status.nodes.len(), status.workers.len()));
    }
    let idle = status.waiting_for.is_empty() && status.workers.iter().any(|worker| !worker.ready);
    if idle {
        return Err(format!("workers take no tasks, and the pool waits for nothing: {status:?}"));
    }
    Ok(())
}

/// How a pool came to its end.
enum End {
    Ended,
    Failed(Error),
    /// Nobody said so; its last handle is dropped.
    Dropped,
}

async fn end(seed: Seed, pool: Pool) -> End {
    if seed.chance("dropped", 0, 0, 5) {
        return End::Dropped;
    }
    match pool.shutdown(SHUTDOWN).await {
        Ok(()) => End::Ended,
        Err(error) => End::Failed(error),
    }
}

/// Waits for a task's outcome, or does not want it any more; whether it returned.
async fn wait(
    seed: Seed,
    provider: FakeProvider,
    number: u64,
    args: bytes::Bytes,
    handle: TaskHandle,
    leaves: Option<Duration>,
) -> Result<Option<bool>, String> {
    let leaves = leaves.or_else(|| seed.chance("cancel", number, 0, 8).then(|| seed.time("cancel", number, 1, 5_000)));
    let outcome: Outcome = if let Some(after) = leaves {
        match timeout(after, handle.outcome()).await {
            Ok(outcome) => outcome,
            Err(_) => return Ok(None),
        }
    } else {
        handle.outcome().await
    };
    match outcome {
        Ok(value) if value.bytes == args => Ok(Some(true)),
        Ok(value) => Err(format!("task {number} got the result {:?} of another", value.bytes)),
        Err(error) => {
            // A task is sent to a worker that is idle. A node that is lost, or another worker that never enters its hooks, may keep it from beginning there; nothing else.
            let hooks = seed.chance("hooks", u64::MAX, 0, 3);
            let lasts =
                |node, machine| seed.death(node, machine).is_none() && seed.forewarning(node, machine).is_none();
            let immortal = |node| (0..provider.launched() as u32).all(|machine| lasts(node, machine));
            let healthy = hooks && (0..MOST_MACHINES).all(immortal);
            if healthy && error.kind() == ErrorKind::Timeout && provider.witness().begun(&args) == 0 {
                return Err(format!("task {number} was sent, and no worker began it: {error}"));
            }
            told(seed, &error).map(|()| Some(false))
        }
    }
}

/// Errors that a fault may lead to; anything else is a defect of the pool.
fn told(seed: Seed, error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::Protocol | ErrorKind::Decode | ErrorKind::Argument | ErrorKind::NotFound | ErrorKind::Plugins => {
            Err(format!("an error that no fault explains: {error}"))
        }
        ErrorKind::Budget if seed.budget() == Budget::default() => {
            Err(format!("an error of a budget that there is not: {error}"))
        }
        _ => Ok(()),
    }
}

/// What holds of the money at any time.
fn paid(seed: Seed, provider: &FakeProvider) -> Result<(), String> {
    let Budget { usd_per_hour, usd, hours, .. } = seed.budget();
    let (rate, spent, life) = (provider.usd_per_hour(), provider.spent(), provider.lived());
    // What a machine costs in a minute may be spent more for each.
    let minute = provider.launched() as f64 * DEAREST / 60.0;
    if usd_per_hour.is_some_and(|most| rate > most + 1e-6) {
        return Err(format!("the machines cost ${rate}/h, and the budget is {:?}", seed.budget()));
    }
    if usd.is_some_and(|most| spent > most + minute) {
        return Err(format!("the machines have cost ${spent}, and the budget is {:?}", seed.budget()));
    }
    if hours.is_some_and(|most| life.as_secs_f64() > most * 3600.0 + 60.0) {
        return Err(format!("machines were there for {life:?}, and the budget is {:?}", seed.budget()));
    }
    Ok(())
}

/// Looks at the money for as long as the pool lives.
async fn watch_money(seed: Seed, provider: FakeProvider) -> String {
    loop {
        if let Err(broken) = paid(seed, &provider) {
            return broken;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

fn left(provider: &FakeProvider) -> Result<(), String> {
    match provider.machines() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("the pool has ended, and there are machines: {left:?}")),
    }
}

/// Waits until a pool that nobody waits for has ended its machines.
async fn gone(provider: &FakeProvider) -> Result<(), String> {
    let end = Instant::now() + BACKGROUND;
    while !provider.machines().is_empty() || Instant::now() < end - BACKGROUND / 2 {
        if Instant::now() >= end {
            return left(provider);
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn limits() -> Limits {
    Limits {
        start: Duration::from_secs(120),
        machine_wait: MACHINE_WAIT,
        environment: Duration::from_secs(60),
        hooks: Duration::from_secs(30),
        grace: Duration::from_secs(2),
        lease: Duration::from_secs(20),
        shutdown: SHUTDOWN,
        ..Limits::default()
    }
}

impl Seed {
    /// A number that depends on the seed and on what it is for.
    fn draw(self, what: &str, a: u64, b: u64) -> u64 {
        let mut state = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for part in what.bytes().map(u64::from).chain([a, b]) {
            state = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state ^= state >> 31;
        }
        state
    }

    fn below(self, what: &str, a: u64, b: u64, bound: u64) -> u64 {
        self.draw(what, a, b) % bound.max(1)
    }

    /// Once in `times`.
    fn chance(self, what: &str, a: u64, b: u64, times: u64) -> bool {
        self.below(what, a, b, times) == 0
    }

    fn time(self, what: &str, a: u64, b: u64, millis: u64) -> Duration {
        Duration::from_millis(self.below(what, a, b.wrapping_add(1 << 32), millis))
    }

    /// A third of the seeds has no faults of this sort at all, so that each sort is also seen alone.
    fn fault(self, sort: &str, a: u64, b: u64, times: u64) -> bool {
        !self.has_none(sort) && self.chance(sort, a, b, times)
    }

    fn has_none(self, sort: &str) -> bool {
        self.chance(sort, u64::MAX, 0, 3)
    }

    /// How long a gang may be without progress until that is reported; a quarter of the seeds reports none.
    fn stall_report(self) -> Duration {
        if self.chance("stall report", 0, 0, 4) { Duration::MAX } else { STALL_REPORT }
    }

    /// What its pool may cost: most pools have no bound.
    fn budget(self) -> Budget {
        let mut budget = Budget::default();
        if !self.chance("budget", 0, 0, 4) {
            return budget;
        }
        let draw = |what| 20.0 + self.below(what, 0, 2, 400) as f64;
        if self.chance("hours", 0, 1, 2) {
            budget = budget.hours(draw("hours") / 3600.0);
        }
        if self.chance("usd", 0, 1, 2) {
            budget = budget.usd(draw("usd") * DEAREST / 3600.0);
        }
        budget.usd_per_hour = self.chance("rate", 0, 1, 2).then(|| draw("rate"));
        budget
    }

    fn turn(self, what: &str, node: u32, call: u32) -> Turn {
        let (node, call) = (node.into(), call.into());
        match self.fault(what, node, call, 10) {
            false => Turn::Works(self.time(what, node, call, 500)),
            true => match self.below(what, node, call.wrapping_add(1 << 40), 8) {
                0 => Turn::Fails,
                1 => Turn::Never,
                _ => Turn::FailsForNow,
            },
        }
    }
}

impl Fate for Seed {
    fn work(&self, args: &[u8], run: u32) -> Work {
        let task = calls::hash(args);
        let time = self.time("work", task, run.into(), 1_000);
        if !self.fault("task", task, run.into(), 6) {
            return self.calls(args, task).unwrap_or(Work::Return(time));
        }
        match self.below("task", task, u64::from(run) + 1000, 8) {
            0..=2 => Work::Raise(time),
            3..=5 => Work::Crash(time, 9),
            6 => Work::UntilInterrupted,
            _ => Work::UntilKilled,
        }
    }

    fn call_timeout(&self, args: &[u8]) -> Option<Duration> {
        Self::call_timeout(*self, args)
    }

    fn hooks(&self, node: u32, worker: u32, generation: u64) -> Option<Duration> {
        let place = (u64::from(node) << 16) + u64::from(worker);
        let never = self.fault("hooks", place, generation, 80);
        (!never).then(|| self.time("hooks", place, generation, 2_000))
    }

    fn delay(&self, node: u32, frame: u64) -> Duration {
        match self.fault("delay", node.into(), frame, 8) {
            true => self.time("delay", node.into(), frame, 700),
            false => Duration::ZERO,
        }
    }

    fn cut(&self, node: u32, connection: u64, frame: u64) -> bool {
        self.fault("cut", (u64::from(node) << 32) + connection, frame, 60)
    }

    fn repeats(&self, node: u32) -> bool {
        self.chance("repeats", node.into(), 0, 2)
    }

    fn ends_greeting(&self, node: u32, worker: u32, start: u32) -> bool {
        self.fault("greeting", (u64::from(node) << 16) + u64::from(worker), start.into(), 60)
    }
}

impl Script for Seed {
    fn offers(&self) -> Vec<Offer> {
        let offer = |(name, usd_per_hour, architecture): (&str, f64, Architecture)| {
            let mut offer = Offer::new(name, "nowhere", 64, 256);
            offer.usd_per_hour = Some(usd_per_hour);
            offer.architecture = Some(architecture);
            offer.quota = Some(name[..1].to_owned());
            offer
        };
        [
            ("a1", 60.0, Architecture::X86_64),
            ("a2", 90.0, Architecture::Aarch64),
            ("b1", 30.0, Architecture::X86_64),
            ("b2", DEAREST, Architecture::X86_64),
        ]
        .map(offer)
        .into()
    }

    fn refusal(&self, offer: &Offer, call: u32) -> Option<Refusal> {
        let name = offer.id.as_str().bytes().fold(0, |sum, byte| sum * 256 + u64::from(byte));
        if !self.fault("refusal", name, call.into(), 4) {
            return None;
        }
        Some(match self.below("refusal", name, u64::from(call) + (1 << 32), 16) {
            0..6 => Refusal::Capacity,
            6..9 => Refusal::Quota(offer.quota.clone().unwrap_or_default()),
            9..11 => Refusal::NotOffered,
            11..14 => Refusal::Throttled(Some(self.time("throttle", name, call.into(), 10_000))),
            14 => Refusal::Throttled(None),
            _ => Refusal::Denied,
        })
    }

    fn forewarning(&self, node: u32, machine: u32) -> Option<Forewarning> {
        let (node, machine) = (u64::from(node), u64::from(machine) << 8);
        if !self.fault("forewarning", node, machine, 3) {
            return None;
        }
        let ends_in = Duration::from_secs(1) + self.time("ends in", node, machine, 60_000);
        Some(match self.chance("walltime", node, machine, 2) {
            true => Forewarning::walltime(ends_in + self.time("ends in", node, machine + 1, 120_000)),
            false => Forewarning::preemption(self.time("warned", node, machine, 60_000), ends_in),
        })
    }

    fn launch(&self, node: u32, call: u32) -> Turn {
        // A machine that is to take the place of another one often cannot be had.
        match call > 0 && self.fault("relaunch", node.into(), call.into(), 5) {
            true => Turn::Fails,
            false => self.turn("launch", node, call),
        }
    }

    fn connect(&self, node: u32, call: u32) -> Turn {
        self.turn("connect", node, call)
    }

    fn arrival(&self, node: u32, machine: u32) -> Arrival {
        let (node, machine) = (node.into(), machine.into());
        if !self.fault("arrival", node, machine, 4) {
            return Arrival::default();
        }
        // Some machines are queued for longer than they may.
        let queued = match self.below("arrival", node, machine + (1 << 32), 3) {
            0 => self.time("queued", node, machine, 2 * MACHINE_WAIT.as_millis() as u64),
            1 => self.time("queued", node, machine, 5_000),
            _ => Duration::ZERO,
        };
        Arrival::after(queued, self.time("starting", node, machine, 20_000))
    }

    fn lingers(&self, node: u32, machine: u32) -> Duration {
        match self.fault("lingers", node.into(), machine.into(), 3) {
            true => self.time("lingers", node.into(), machine.into(), 90_000),
            false => Duration::ZERO,
        }
    }

    fn is_unknown(&self, node: u32, call: u32) -> bool {
        self.fault("unknown", node.into(), call.into(), 5)
    }

    fn command(&self, node: u32, call: u32) -> Turn {
        match self.fault("command", node.into(), call.into(), 40) {
            true => self.turn("command", node, call),
            false => Turn::Works(self.time("command", node.into(), call.into(), 300)),
        }
    }

    fn terminate(&self, node: u32, call: u32) -> Turn {
        match self.fault("terminate", node.into(), call.into(), 4) {
            // A provider that refuses for good to end a machine leaves it, whatever the pool does.
            true => Turn::FailsForNow,
            false => Turn::Works(self.time("terminate", node.into(), call.into(), 3_000)),
        }
    }

    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        let (node, machine) = (u64::from(node), u64::from(machine) << 8);
        if !self.fault("death", node, machine, 2) {
            return None;
        }
        let death = match self.below("death", node, machine + 1, 3) {
            0 if self.chance("preempted", node, machine, 2) => Death::Preemption,
            0 => Death::Machine,
            1 => Death::Agent,
            _ => Death::Freezes,
        };
        // Some machines hardly come up, others die in the middle of their work.
        let latest = if self.chance("death", node, machine + 2, 8) { 3_000 } else { LATEST_DEATH.as_millis() as u64 };
        Some((self.time("death", node, machine + 3, latest), death))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, what } = self;
        write!(
            f,
            "seed {seed}: {what}\nplay it again: SKYWARD_SIM_SEED={seed} cargo test -p skyward-core --features testkit --test simulation -- --nocapture"
        )
    }
}

impl std::error::Error for Broken {}

/// Of the dearest offer.
const DEAREST: f64 = 120.0;
const MOST_NODES: u32 = 4;
/// The numbers that the provider knows nodes by are below this.
const MOST_MACHINES: u32 = 16;
/// How long a machine may be queued.
const MACHINE_WAIT: Duration = Duration::from_secs(150);
/// How long a task may run.
const TASK: Duration = Duration::from_secs(30);
/// How long a gang may be without progress, which is less than its tasks may run.
const STALL: Duration = Duration::from_secs(10);
const STALL_REPORT: Duration = Duration::from_secs(3);
const SHUTDOWN: Duration = Duration::from_secs(60);
/// What a pool gets that ends in the background.
const BACKGROUND: Duration = Duration::from_secs(600);
/// Longer than all deadlines of a pool with its tasks one after another.
const BOUND: Duration = Duration::from_secs(4 * 3600);
const LATEST_DEATH: Duration = Duration::from_secs(40);
/// When the last machine comes to its end that ends by itself.
const LATEST_END: Duration = Duration::from_secs(2 * 3600);
