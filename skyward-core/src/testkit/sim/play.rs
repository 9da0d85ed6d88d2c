//! One play of a simulation: a pool gets tasks and other sizes, and ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::checks::{explained, gone, left, listen, sized, whole};
use super::seed::Seed;
use super::timing::{MACHINE_WAIT, SHUTDOWN, STALL, TASK_RUN};
use super::{Seen, calls};
use crate::compute::{ComputePool, PoolStatus};
use crate::error::{Error, ErrorKind};
use crate::ids::{NodeIndex, PoolId, Rank, TaskId};
use crate::payload::{Args, Outcome, RetryPolicy, Source, Target, Task, TaskHandle, TaskOptions};
use crate::plugin::plugin;
use crate::pool::{Pool, PoolBuilder};
use crate::spec::{Limits, Nodes};
use crate::testkit::fake_provider::{FakeProvider, Faults};

/// A pool that runs, and what was asked of it so far.
struct Play<'p> {
    seed: Seed,
    provider: &'p FakeProvider,
    pool: Pool,
    /// Whether the workers of the pool are one world.
    joined: bool,
    /// The least and the most nodes that the pool may have.
    bounds: (u32, u32),
    /// The tasks of each gang.
    gangs: Vec<Vec<TaskId>>,
    /// The callers of all tasks.
    waiting: Vec<JoinHandle<Result<Option<bool>, String>>>,
    resizes: Vec<JoinHandle<Result<bool, String>>>,
}

/// Plays a seed on a provider: starts a pool, submits tasks and resizes, and ends the pool.
pub(super) async fn play(seed: Seed, provider: &FakeProvider, seen: &mut Seen) -> Result<(), String> {
    let joined = seed.chance("joined", 0, 0, 3);
    let nodes = 1 + seed.below("nodes", 0, 0, MOST_NODES.into()) as u32;
    let builder = builder(seed, provider, joined, nodes);
    if seed.chance("impatient", 0, 0, 12) {
        // The caller does not wait until the pool is ready.
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
            return explained(seed, &error).and_then(|()| left(provider));
        }
    };
    seen.ready = true;
    let heard = tokio::spawn(listen(pool.events()));
    let mut play = Play {
        seed,
        provider,
        pool,
        joined,
        bounds: (1, nodes),
        gangs: Vec::new(),
        waiting: Vec::new(),
        resizes: Vec::new(),
    };
    play.submit_tasks(seen).await?;
    let early = seed.chance("early", 0, 0, 4);
    let ended = if early { Some(end(seed, play.pool.clone()).await) } else { None };
    play.collect(seen).await?;
    let ended = match ended {
        Some(ended) => ended,
        None => {
            calls::all_ended(&play.pool).await?;
            end(seed, play.pool.clone()).await
        }
    };
    drop(play.pool);
    match ended {
        PoolEnd::Dropped => gone(provider).await?,
        PoolEnd::Ended => left(provider)?,
        PoolEnd::Failed(error) => return Err(format!("the pool did not end: {error:#}")),
    }
    let mut heard = heard.await.map_err(|error| format!("{error:#}"))?;
    heard.calls.check()?;
    seen.stalled = heard.stalls.len();
    seen.call_reports = heard.calls.count;
    whole(&play.gangs, &heard.starts)?;
    heard.stalls.iter().try_for_each(|(task, silent)| match heard.starts.contains_key(task) {
        true if *silent >= seed.stall_report() => Ok(()),
        _ => Err(format!("task {task} was reported to be without progress for {silent:?}")),
    })
}

/// The builder of the pool that a seed draws.
fn builder(seed: Seed, provider: &FakeProvider, joined: bool, nodes: u32) -> PoolBuilder {
    let least = if joined { nodes } else { 1 + seed.below("least", 0, 0, u64::from(nodes)) as u32 };
    // A third of the pools grow and shrink by themselves, unless their workers are one world.
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
    builder
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

impl Play<'_> {
    /// Submits the tasks one after another, resizes the pool in between, and checks the pool.
    async fn submit_tasks(&mut self, seen: &mut Seen) -> Result<(), String> {
        let seed = self.seed;
        let began = self.pool.status().nodes.len();
        let count = seed.below("tasks", 0, 0, 40);
        // Most pools live for a minute, so that machines die while the pools run tasks.
        let pause = if seed.chance("pause", u64::MAX, 0, 3) { 200 } else { 3_000 };
        for number in 0..count {
            sleep(seed.time("pause", number, 0, pause)).await;
            self.submit(number, seen).await?;
            self.resize(number);
            self.check(began, seen)?;
        }
        Ok(())
    }

    /// Submits one task, or one for each worker, and waits for the outcomes in the background.
    async fn submit(&mut self, number: u64, seen: &mut Seen) -> Result<(), String> {
        let (seed, pool) = (self.seed, &self.pool);
        let args = Args::new().with("n", &number).encode().map_err(|error| format!("{error:#}"))?;
        let options = TaskOptions::default()
            .timeout(TASK_RUN)
            .retry(RetryPolicy::times(seed.below("retry", number, 0, 3) as u32));
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
                self.wait_for(number, &args, handles);
            }
            Err(error) => {
                seen.overspent |= error.kind() == ErrorKind::Budget;
                explained(seed, &error)?;
            }
        }
        Ok(())
    }

    /// Waits in the background for the outcomes of the tasks of one submission.
    fn wait_for(&mut self, number: u64, args: &bytes::Bytes, handles: Vec<TaskHandle>) {
        let seed = self.seed;
        let members = handles.len() as u64;
        if self.joined && members > 1 {
            self.gangs.push(handles.iter().map(TaskHandle::id).collect());
        }
        // In a third of the seeds, callers of single members of a gang do not wait.
        let leaves = seed.chance("leaves", u64::MAX, 0, 3) && seed.chance("leaves", number, 0, 3);
        let leaver = leaves.then(|| seed.below("leaves", number, 1, members));
        let provider = self.provider;
        self.waiting.extend(handles.into_iter().zip(0..).map(|(handle, member)| {
            let leaves = leaver.filter(|leaver| members > 1 && *leaver == member);
            let leaves = leaves.map(|_| seed.time("leaves", number, 2, 2_000));
            tokio::spawn(wait(seed, provider.clone(), number, args.clone(), handle, leaves))
        }));
    }

    /// Sometimes asks for another size, in the background.
    fn resize(&mut self, number: u64) {
        let seed = self.seed;
        if seed.fault("resize", number, 0, 12) {
            let wanted = 1 + seed.below("resize", number, 1, MOST_NODES.into()) as u32;
            self.bounds.1 = self.bounds.1.max(wanted);
            let size = match !self.joined && seed.chance("resize", number, 2, 4) {
                true => Nodes::elastic(1, wanted),
                false => Nodes::fixed(wanted),
            };
            self.resizes.push(tokio::spawn(resize(seed, self.pool.clone(), size)));
        }
    }

    /// Checks the invariants that hold while the pool runs.
    fn check(&self, began: usize, seen: &mut Seen) -> Result<(), String> {
        sized(&self.pool.status(), self.bounds)?;
        seen.grown |= self.pool.status().nodes.len() > began;
        let wrongs = self.provider.witness().wrongs();
        if !wrongs.is_empty() {
            return Err(wrongs.join("; "));
        }
        Ok(())
    }

    /// Waits until all tasks and resizes have ended, and counts them.
    async fn collect(&mut self, seen: &mut Seen) -> Result<(), String> {
        for task in self.waiting.drain(..) {
            match task.await.map_err(|error| format!("{error:#}"))?? {
                Some(true) => seen.returned += 1,
                Some(false) => seen.failed += 1,
                None => {}
            }
        }
        for resize in self.resizes.drain(..) {
            seen.resized += usize::from(resize.await.map_err(|error| format!("{error:#}"))??);
        }
        Ok(())
    }
}

/// The target of a task: some tasks name an active node, or a worker of one.
fn target(seed: Seed, number: u64, status: &PoolStatus) -> Target {
    let nodes = status.nodes.iter().filter(|node| !node.draining).count();
    let workers = status.workers.len() / status.nodes.len().max(1) * nodes;
    if !seed.chance("named", number, 0, 6) || workers == 0 {
        return Target::Any;
    }
    match seed.chance("named", number, 1, 2) {
        true => Target::Node(NodeIndex(seed.below("named", number, 2, nodes as u64) as u32)),
        false => Target::Rank(Rank(seed.below("named", number, 2, workers as u64) as u32)),
    }
}

/// Asks for another size. Returns whether the pool has reached it.
async fn resize(seed: Seed, pool: Pool, size: Nodes) -> Result<bool, String> {
    match pool.resize(size).await {
        Ok(()) => Ok(true),
        Err(error) => explained(seed, &error).map(|()| false),
    }
}

/// Waits for a task's outcome, or cancels the task. Returns whether the task returned a value;
/// `None` if it was cancelled.
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
            // A task is sent to an idle worker. Only a lost node, or another worker that never
            // enters its hooks, may keep the task from beginning.
            let hooks = seed.chance("hooks", u64::MAX, 0, 3);
            let lasts =
                |node, machine| seed.death(node, machine).is_none() && seed.forewarning(node, machine).is_none();
            let immortal = |node| (0..provider.launched() as u32).all(|machine| lasts(node, machine));
            let healthy = hooks && (0..MOST_MACHINES).all(immortal);
            if healthy && error.kind() == ErrorKind::Timeout && provider.witness().begun(&args) == 0 {
                return Err(format!("task {number} was sent, and no worker began it: {error:#}"));
            }
            explained(seed, &error).map(|()| Some(false))
        }
    }
}

/// How a pool ended.
enum PoolEnd {
    Ended,
    Failed(Error),
    /// The last handle is dropped, without a shutdown.
    Dropped,
}

async fn end(seed: Seed, pool: Pool) -> PoolEnd {
    if seed.chance("dropped", 0, 0, 5) {
        return PoolEnd::Dropped;
    }
    match pool.shutdown(SHUTDOWN).await {
        Ok(()) => PoolEnd::Ended,
        Err(error) => PoolEnd::Failed(error),
    }
}

const MOST_NODES: u32 = 4;
/// The provider's numbers of nodes are below this.
const MOST_MACHINES: u32 = 16;
