//! The script of a client: callers that dispatch all kinds of tasks at the same time, each with a
//! number of its own, and check the results.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt;
use futures_util::future::{join_all, try_join_all};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use skyward::checkpoint::Checkpoints;
use skyward::compute::{Artifact, PendingCompute};
use skyward::compute::{ComputePool, ComputePoolExt};
use skyward::error::{Error, ErrorKind};
use skyward::payload::{Output, Payload, RetryPolicy, Streaming};
use skyward::plugin::{Hook, HookKind, Plugin};
use skyward::pool::Pool;
use skyward::provider::Market;
use skyward::spec::{ClusterInfo, Limits};
use skyward::storage::Storage;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::freeze::freeze;
use super::recorder::{Recorder, say, tell_retries};
use super::{THREADS, provider};
use crate::timing::{CALLS_END, LONG_TASK, TASK_OUTCOME, TRANSFER, TREE};
use crate::words::{
    Answer, CALL_LOST, CALLS_TIMEOUT, END_OF_INSTANCES, LEASE, Line, Provider, START_OF_INSTANCES, Script,
};

/// Plays the script, and reports what happens. Fails if the script cannot be read.
pub(crate) async fn play(script: &str) -> Result<()> {
    let script: Arc<Script> = Arc::new(serde_json::from_str(script).context("the script cannot be read")?);
    let mut limits = Limits::default();
    let (start, end) = match script.provider {
        Provider::Aws { .. } => (START_OF_INSTANCES, END_OF_INSTANCES),
        Provider::Local | Provider::Docker { .. } | Provider::Ssh { .. } => (20_000, 10_000),
    };
    limits.start = Duration::from_millis(start);
    limits.shutdown = Duration::from_millis(end);
    limits.grace = Duration::from_millis(300);
    limits.hooks = Duration::from_secs(10);
    limits.lease = Duration::from_millis(LEASE);
    let builder = Pool::builder().nodes(script.nodes).workers_per_node(script.workers_per_node).limits(limits);
    let builder = builder.shared_provider(provider(&script.provider, script.slots)?);
    // Only spot machines are preempted.
    let is_spot = matches!(script.provider, Provider::Aws { .. });
    let builder = if is_spot { builder.market(Market::Spot) } else { builder };
    let builder = builder.storage(Storage::folder(&script.storage));
    let builder = if script.joined { builder.plugin(Sockets { hangs: script.hangs }) } else { builder };
    let mut retries = None;
    let ended = builder
        .scope(async |pool| {
            retries = Some(tokio::spawn(tell_retries(pool.events())));
            say(&Line::Ready);
            let calls = Arc::new(AtomicU64::new(1));
            let until = Instant::now() + Duration::from_millis(script.busy);
            if let Some((after, time)) = script.freeze {
                // Blocks the runtime's threads, like a service that computes or waits on them.
                let (after, time) = (Duration::from_millis(after), Duration::from_millis(time));
                freeze(Handle::current(), THREADS, after, time);
            }
            let callers = (0..script.callers).map(|number| {
                let seed = script.seed ^ (u64::from(number) + 1) << 32;
                let caller = Caller {
                    pool: Recorder::new(pool.clone()),
                    script: Arc::clone(&script),
                    calls: Arc::clone(&calls),
                    random: SmallRng::seed_from_u64(seed),
                };
                tokio::spawn(caller.run(until))
            });
            for caller in join_all(callers).await {
                if let Err(error) = caller {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            all_calls_ended(pool).await;
            say(&Line::Ending);
            Ok(())
        })
        .await;
    if let Some(retries) = retries {
        // The pool is closed, so only the remaining events are left to report.
        let _ = timeout(Duration::from_secs(5), retries).await;
    }
    say(&Line::Ended { error: ended.err().map(|error| format!("{:?}: {error}", error.kind())) });
    Ok(())
}

struct Caller {
    pool: Recorder,
    script: Arc<Script>,
    calls: Arc<AtomicU64>,
    random: SmallRng,
}

/// A call's own number, and the rank that ran it.
type Own = (u64, u32);

impl Caller {
    async fn run(mut self, until: Instant) {
        while Instant::now() < until {
            match self.random.random_range(0..100) {
                0..15 if self.script.long => self.hold().await,
                15..65 if self.script.calls => self.tree().await,
                0..20 => self.one(0, RetryPolicy::default()).await,
                20..35 => {
                    let millis = self.random.random_range(20..200);
                    self.one(millis, RetryPolicy::default()).await;
                }
                35..45 => {
                    let millis = self.random.random_range(20..120);
                    self.one(millis, RetryPolicy::times(2)).await;
                }
                45..55 => self.stream().await,
                55..65 => self.map(until).await,
                65..80 => self.each_rank().await,
                80..90 => self.tree().await,
                90..94 => self.dropped().await,
                94..96 => self.artifact().await,
                96..98 if self.script.joined => self.train_together().await,
                96..98 => self.train().await,
                _ => self.litter().await,
            }
            if self.pool.refuses() {
                // A pool that takes no tasks refuses at once, and would refuse the next call too.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    async fn one(&mut self, millis: u64, retry: RetryPolicy) {
        let (number, call) = self.call::<Own>("sleep");
        let call: PendingCompute<Own> = call.arg("millis", millis).into();
        let outcome = within(&self.pool, self.limited(call).retry(retry).run(&self.pool)).await;
        answer(number, 0, outcome, |(returned, _)| *returned == number);
    }

    /// A task that runs for longer than a connection may be cut.
    async fn hold(&mut self) {
        let (number, call) = self.call::<Own>("hold");
        let (millis, native) = (self.random.random_range(1500..4000_u64), self.random.random::<bool>());
        let call: PendingCompute<Own> = call.arg("millis", millis).arg("native", native).into();
        let outcome = within(&self.pool, self.limited(call).timeout(LONG_TASK).run(&self.pool)).await;
        answer(number, 0, outcome, |(returned, _)| *returned == number);
    }

    /// A task whose payload makes calls, which make calls in turn.
    async fn tree(&mut self) {
        let (number, nodes, call) = self.tree_call();
        let retry = if self.random.random() { RetryPolicy::times(2) } else { RetryPolicy::default() };
        let outcome = within(&self.pool, call.retry(retry).run(&self.pool)).await;
        let outcome = match outcome {
            // Without waiting for its calls, such a task would have ended long ago.
            Some(Err(error)) if error.kind() == ErrorKind::Timeout => {
                return say(&Line::Answered { call: number, member: 0, outcome: Answer::Failed(CALLS_TIMEOUT.into()) });
            }
            Some(Err(error)) if is_lost_call(&error) => {
                return say(&Line::Answered { call: number, member: 0, outcome: Answer::Failed(CALL_LOST.into()) });
            }
            outcome => outcome,
        };
        answer(number, 0, outcome, |value| *value == (number, nodes));
    }

    /// The number of the call, the number of nodes in its tree, and the call.
    fn tree_call(&mut self) -> (u64, u64, PendingCompute<(u64, u64)>) {
        let (number, call) = self.call::<(u64, u64)>("tree");
        let (width, depth): (u64, u32) = (self.random.random_range(1..=3), self.random.random_range(1..=3));
        let form = ["map", "submit", "hidden"][self.random.random_range(0..3)];
        let (millis, again): (u64, bool) = (self.random.random_range(0..30), self.random.random());
        let call = call.arg("width", width).arg("depth", depth).arg("millis", millis);
        let call: PendingCompute<(u64, u64)> = call.arg("form", form).arg("again", again).into();
        let nodes = (0..=depth).map(|level| width.pow(level)).sum();
        (number, nodes, self.limited(call).timeout(TREE))
    }

    async fn litter(&mut self) {
        let (number, call) = self.call::<Own>("litter");
        let outcome = within(&self.pool, self.limited(call.into()).run(&self.pool)).await;
        answer(number, 0, outcome, |(returned, _)| *returned == number);
    }

    /// A task that gives a file or a folder, which its caller then reads. A machine that ends meanwhile
    /// takes it along; nothing else may.
    async fn artifact(&mut self) {
        let (number, call) = self.call::<Artifact>("artifact");
        let size = self.random.random_range(1_u64..=if self.script.long { 6 << 20 } else { 3 << 19 }) & !7;
        let files = if self.random.random() { 0 } else { self.random.random_range(1_u64..20) };
        let call: PendingCompute<Artifact> = call.arg("size", size).arg("files", files).into();
        let outcome = within(&self.pool, self.limited(call).timeout(LONG_TASK).run(&self.pool)).await;
        let artifact = match outcome {
            Some(Ok(artifact)) => artifact,
            other => return answer(number, 0, other.map(|it| it.map(drop)), |()| false),
        };
        let target = std::env::temp_dir().join(format!("artifact-{}-{number}", std::process::id()));
        let saved = timeout(TRANSFER, artifact.save_to(&self.pool, &target)).await.ok();
        let saved = saved.map(|saved| saved.map(|()| is_whole(&target, number, size, files)));
        let _ = if files == 0 { std::fs::remove_file(&target) } else { std::fs::remove_dir_all(&target) };
        answer(number, 0, saved, |whole| *whole);
    }

    /// A training, which goes on from its last checkpoint whatever ends its workers.
    async fn train(&mut self) {
        let (number, call) = self.call::<(u64, u64)>("train");
        let (steps, every) = (self.random.random_range(1..60_u64), self.random.random_range(1..10_u64));
        let call = call.arg("steps", steps).arg("every", every).arg("millis", self.random.random_range(0..20_u64));
        let retry = RetryPolicy::times(2);
        let call = self.limited(call.into()).retry(retry).timeout(LONG_TASK);
        let outcome = within(&self.pool, call.run(&self.pool)).await;
        let is_kept = match &outcome {
            Some(Ok(_)) => self.is_kept(number, steps).await,
            _ => true,
        };
        answer(number, 0, outcome, |value| is_kept && *value == (number, trained(steps)));
    }

    /// A training of all ranks of a world.
    async fn train_together(&mut self) {
        let ranks = self.script.nodes * self.script.workers_per_node;
        let (number, call) = self.call::<(u64, u32, u64)>("train_together");
        let steps = self.random.random_range(1..60_u64);
        let call = call.arg("steps", steps).arg("millis", self.random.random_range(0..20_u64));
        let call = self.limited(call.into()).retry(RetryPolicy::times(2)).timeout(LONG_TASK);
        let fits = |rank, value: &(u64, u32, u64)| *value == (number, rank, trained(steps));
        self.broadcast(number, call, ranks, fits).await;
    }

    /// Whether the storage has the last step of a training, whole.
    async fn is_kept(&self, number: u64, steps: u64) -> bool {
        let Ok(kept) = Checkpoints::open(&Storage::folder(&self.script.storage), &format!("call-{number}")) else {
            return false;
        };
        let Ok(Some(latest)) = kept.latest().await else { return false };
        let target = std::env::temp_dir().join(format!("checkpoint-{}-{number}", std::process::id()));
        let is_saved = latest.save_to(&target).await.is_ok();
        let content = std::fs::read(target.join("0")).unwrap_or_default();
        let _ = std::fs::remove_dir_all(&target);
        is_saved && latest.step() == steps as i64 && content.starts_with(&trained(steps).to_le_bytes())
    }

    async fn stream(&mut self) {
        let (number, call) = self.call::<Streaming<(u64, u64)>>("stream");
        let count: u64 = self.random.random_range(1..60);
        let pause: u64 = if self.script.long { self.random.random_range(1..40) } else { 2 };
        let call: PendingCompute<Streaming<(u64, u64)>> = call.arg("count", count).arg("pause", pause).into();
        let read = async {
            let mut stream = self.limited(call).timeout(LONG_TASK).run(&self.pool).await?;
            let mut next = 0;
            while let Some(item) = stream.next().await {
                if item? != (number, next) {
                    return Ok(false);
                }
                next += 1;
            }
            Ok(next == count)
        };
        let outcome = within(&self.pool, read).await;
        answer(number, 0, outcome, |whole| *whole);
    }

    /// A map makes its calls when there is room for them, and none when the time is over: a map
    /// that goes on while a pool has no workers waits for each of its calls in turn, longer than
    /// any of them may take.
    async fn map(&mut self, until: Instant) {
        let count = self.random.random_range(2..600);
        let made = Mutex::new(Vec::new());
        let calls = (0..count).map_while(|_| {
            let (number, call) = (Instant::now() < until).then(|| self.call::<Own>("sleep"))?;
            lock(&made).push(Some(number));
            Some(self.limited(call.arg("millis", 0_u64).into()))
        });
        let mut mapped = self.pool.map_unordered(calls);
        let read = async {
            while let Some((index, outcome)) = mapped.next().await {
                let number = lock(&made).get_mut(index).and_then(Option::take);
                match number {
                    Some(number) => answer(number, 0, Some(outcome), |(returned, _)| *returned == number),
                    None => say(&Line::Answered {
                        call: 0,
                        member: 0,
                        outcome: Answer::Wrong(format!("the index {index} of a map is unknown, or came twice")),
                    }),
                }
            }
            Ok(())
        };
        let _ = within(&self.pool, read).await;
        drop(mapped);
        for number in std::mem::take(&mut *lock(&made)).into_iter().flatten() {
            say(&Line::Answered { call: number, member: 0, outcome: Answer::Left });
        }
    }

    /// A call on each rank; in a joined world, a gang whose members meet.
    async fn each_rank(&mut self) {
        let ranks = self.script.nodes * self.script.workers_per_node;
        if self.script.joined {
            let (number, call) = self.call::<(u64, u32, u32)>("meet");
            let sum = ranks * (ranks + 1) / 2;
            self.broadcast(number, call.into(), ranks, |rank, value| *value == (number, rank, sum)).await;
        } else {
            let (number, call) = self.call::<Own>("sleep");
            let call = call.arg("millis", 0_u64).into();
            self.broadcast(number, call, ranks, |rank, value| *value == (number, rank)).await;
        }
    }

    async fn broadcast<T: Output>(
        &self,
        number: u64,
        call: PendingCompute<T>,
        ranks: u32,
        fits: impl Fn(u32, &T) -> bool,
    ) {
        let handles = match self.limited(call).into_task() {
            Ok(task) => self.pool.submit_all(task).await,
            Err(error) => Err(error),
        };
        match handles {
            Ok(handles) => {
                let each = handles.into_iter().enumerate().map(|(rank, handle)| {
                    let (rank, fits) = (rank as u32, &fits);
                    async move {
                        let outcome = within(&self.pool, T::receive(handle)).await;
                        answer(number, rank, outcome, |value| fits(rank, value));
                        Ok::<(), Error>(())
                    }
                });
                let _ = try_join_all(each).await;
            }
            Err(error) => (0..ranks).for_each(|rank| answer::<T>(number, rank, Some(Err(error.clone())), |_| false)),
        }
    }

    /// A call that its caller drops.
    async fn dropped(&mut self) {
        if self.random.random() {
            return self.dropped_tree().await;
        }
        let (number, call) = self.call::<Own>("sleep");
        let call: PendingCompute<Own> = call.arg("millis", 5000_u64).into();
        let patience = Duration::from_millis(self.random.random_range(0..150));
        match timeout(patience, self.limited(call).run(&self.pool)).await {
            Ok(outcome) => answer(number, 0, Some(outcome), |_| false),
            Err(_) => say(&Line::Answered { call: number, member: 0, outcome: Answer::Dropped }),
        }
    }

    /// A tree that its caller drops, with all calls in it.
    async fn dropped_tree(&mut self) {
        let (number, nodes, call) = self.tree_call();
        let patience = Duration::from_millis(self.random.random_range(0..150));
        match timeout(patience, call.run(&self.pool)).await {
            Ok(Err(error)) if is_lost_call(&error) => {
                say(&Line::Answered { call: number, member: 0, outcome: Answer::Failed(CALL_LOST.into()) });
            }
            Ok(outcome) => answer(number, 0, Some(outcome), |value| *value == (number, nodes)),
            Err(_) => say(&Line::Answered { call: number, member: 0, outcome: Answer::Dropped }),
        }
    }

    /// Adds timeouts, so that no task waits for ever for a stopped worker, or for a node that the
    /// others cannot reach.
    fn limited<T: Output>(&self, call: PendingCompute<T>) -> PendingCompute<T> {
        let call = call.timeout(Duration::from_secs(2));
        match self.script.provider {
            Provider::Local => call,
            Provider::Docker { .. } | Provider::Ssh { .. } | Provider::Aws { .. } => {
                call.queue_timeout(Duration::from_secs(12))
            }
        }
    }

    fn call<T: Output>(&self, entry: &'static str) -> (u64, Payload<T>) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = Payload::python("tasks.py", include_str!("tasks.py"), entry);
        (number, call.arg("call", number).arg("log", self.script.executions.clone()))
    }
}

/// The state of a training after so many steps.
fn trained(steps: u64) -> u64 {
    (1..=steps).fold(1, |state, step| (state * 31 + step) % 1_000_003)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outcome, or `None` after the deadline; then prints the pool's status for the people who read
/// the output.
async fn within<T>(pool: &Recorder, outcome: impl Future<Output = skyward::Result<T>>) -> Option<skyward::Result<T>> {
    let outcome = timeout(TASK_OUTCOME, outcome).await.ok();
    if outcome.is_none() {
        eprintln!("{:#?}", pool.status());
    }
    outcome
}

fn answer<T>(call: u64, member: u32, outcome: Option<skyward::Result<T>>, fits: impl Fn(&T) -> bool) {
    let outcome = match outcome {
        None => Answer::Lost,
        Some(Ok(value)) if fits(&value) => Answer::Returned,
        Some(Ok(_)) => Answer::Wrong("the value is not the one that the call returns".into()),
        Some(Err(error)) if is_explained(&error) => Answer::Failed(format!("{:?}", error.kind())),
        Some(Err(error)) => Answer::Wrong(format!("{:?}: {error}", error.kind())),
    };
    say(&Line::Answered { call, member, outcome });
}

/// Checks that all calls end with the last task of the callers.
async fn all_calls_ended(pool: &Pool) {
    let end = Instant::now() + CALLS_END;
    loop {
        let calls = pool.status().calls;
        if (calls.waiting, calls.running) == (0, 0) {
            return;
        }
        if Instant::now() > end {
            let why = format!("all tasks have ended, and the pool still has calls: {calls:?}");
            return say(&Line::Answered { call: 0, member: 0, outcome: Answer::Wrong(why) });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether what was saved is what the payload has made, and nothing else.
fn is_whole(target: &Path, number: u64, size: u64, files: u64) -> bool {
    let content = number.to_le_bytes().repeat(size as usize / 8);
    let is = |path: &Path| std::fs::read(path).is_ok_and(|found| found == content);
    match files {
        0 => is(target),
        _ => {
            let count = std::fs::read_dir(target).map_or(0, Iterator::count) as u64;
            count == files && (0..files).all(|file| is(&target.join(file.to_string())))
        }
    }
}

/// Whether a payload raised because the worker of one of its calls was lost.
fn is_lost_call(error: &Error) -> bool {
    error.exception().is_some_and(|exception| exception.type_name.ends_with("WorkerLost"))
}

/// Whether killed or stopped processes can cause this error.
fn is_explained(error: &Error) -> bool {
    match error.kind() {
        // A collective raises this when a peer is gone.
        ErrorKind::Raised => error.exception().is_some_and(|exception| exception.type_name == "ConnectionError"),
        // A stopped mover, or a machine out of reach.
        ErrorKind::Io => error.is_temporary(),
        ErrorKind::WorkerExited
        | ErrorKind::ArtifactLost
        | ErrorKind::NodeLost
        | ErrorKind::Failed
        | ErrorKind::Timeout
        | ErrorKind::QueueTimeout
        | ErrorKind::Cancelled
        | ErrorKind::Closed
        | ErrorKind::Hook
        | ErrorKind::Start => true,
        _ => false,
    }
}

/// Joins the workers into one world, with sockets alone.
#[derive(Debug)]
struct Sockets {
    hangs: bool,
}

impl Plugin for Sockets {
    fn name(&self) -> &str {
        "sockets"
    }

    fn joins_world(&self, _: &ClusterInfo) -> bool {
        true
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        let hook = Hook::new(HookKind::App, "world.py", include_str!("world.py"), "around_app");
        Some(hook.config(serde_json::json!({ "hangs": self.hangs })))
    }
}
