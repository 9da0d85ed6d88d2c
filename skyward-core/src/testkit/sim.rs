//! The whole pool on a paused clock, with faults drawn from a seed.
//!
//! [`run`] plays one seed. A pool on a [`FakeProvider`] gets tasks, cancels some, and ends. The
//! seed decides which faults happen in the meantime:
//!
//! - The provider refuses offers, does not know the state of its machines, and never answers some
//!   calls.
//! - Machines fail to start, are queued, arrive late, freeze, die, are preempted, and end after a
//!   notice or at their walltime.
//! - Connections are cut with the frames in them, and frames arrive late or twice.
//!
//! Lost machines are replaced, pools grow and shrink by themselves or by `resize`, and late
//! machines join. The simulation opens no socket and starts no process and no thread: hours pass in
//! milliseconds.
//!
//! ```
//! # use skyward_core as skyward;
//! skyward::testkit::sim::run(7).unwrap();
//! ```

mod calls;
mod checks;
mod faults;
mod panics;
mod play;
mod seed;
mod timing;

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use self::checks::{paid, settled, watch_money};
use self::play::play;
use self::seed::Seed;
use self::timing::PLAY;
use super::fake_provider::FakeProvider;
use super::fake_worker::Calls;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The seed that broke the invariant.
    pub seed: u64,
    /// What did not hold.
    pub what: String,
}

/// What happened while a seed was played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// Whether the pool became ready.
    pub ready: bool,
    /// Tasks that the pool took.
    pub tasks: usize,
    /// Tasks that returned.
    pub returned: usize,
    /// Tasks that were tried more than once, or failed.
    pub failed: usize,
    /// Machines that were started.
    pub machines: usize,
    /// Machines that took the place of another one.
    pub replaced: usize,
    /// Whether the pool at some time had more nodes than when it became ready.
    pub grown: bool,
    /// Launches that the provider refused.
    pub refused: usize,
    /// Machines whose end the provider gave notice of.
    pub forewarned: usize,
    /// Calls that tasks made.
    pub calls: Calls,
    /// Reports on the calls below a task.
    pub call_reports: usize,
    /// Reports of gangs that made no progress.
    pub stalled: usize,
    /// Whether the pool ended because of its budget.
    pub overspent: bool,
    /// Resizes that the pool completed.
    pub resized: usize,
    /// A hash of all messages that the nodes received, and of their times: the same each time the
    /// seed is played.
    pub trace: u64,
    /// How long the play took on the paused clock.
    pub took: Duration,
}

/// Plays one seed.
///
/// Invariants that are checked all the time:
///
/// - No task has two outcomes, or an outcome of another task.
/// - No task reaches a worker that already has it, or arrives before its source.
/// - No generation starts beside an older one.
/// - No task reaches a machine whose place another machine has taken.
/// - A call has one outcome for each try of its caller.
/// - In a wait, a worker helps only with calls below the try that waits.
/// - Nothing panics. In builds with debug assertions, the scheduler checks its tables after each
///   event, and the driver checks that scheduler and rows follow the fleet's decisions.
///
/// Invariants that are checked at the end:
///
/// - Each task has an outcome, and each try at a gang was started with all of its members.
/// - Only gangs were reported as stalled, and none too early.
/// - The last call has ended with the last task, and no call has run for long after the try of its
///   caller was over.
/// - The counts in the pool's reports on calls never went back.
/// - No machine, agent or worker is left, no task of the pool still runs, and everything ended
///   within a bound.
///
/// The first call installs a panic hook for the process, which records the panics of the thread that
/// plays, and then calls the hook that was there before.
///
/// Two plays of a seed are identical, down to the order of events that are due at the same moment.
///
/// # Errors
///
/// The first broken invariant.
pub fn run(seed: u64) -> Result<Seen, Broken> {
    panics::record();
    let seen = std::panic::catch_unwind(|| run_once(seed));
    // A panic explains whatever else is broken.
    match panics::first() {
        Some(panic) => Err(Broken { seed, what: panic }),
        None => seen.unwrap_or_else(|_| Err(Broken { seed, what: "a panic without a report".to_owned() })),
    }
}

fn run_once(seed: u64) -> Result<Seen, Broken> {
    let broken = |what: String| Broken { seed, what };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| broken(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        let seed = Seed(seed);
        let provider = FakeProvider::new(seed.script());
        let started = Instant::now();
        let mut seen = Seen::default();
        let played = async {
            tokio::select! {
                played = play(seed, &provider, &mut seen) => played,
                overspent = watch_money(seed, provider.clone()) => Err(overspent),
            }
        };
        match timeout(PLAY, played).await {
            Ok(played) => played.map_err(broken)?,
            Err(_) => return Err(broken(format!("the pool had not ended after {PLAY:?}: {seen:?}"))),
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

/// Plays `count` seeds one after another, from `first` on. Prints a broken invariant with the
/// command that plays its seed again.
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

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, what } = self;
        write!(
            f,
            "seed {seed}: {what}\nplay it again: SKYWARD_SIM_SEED={seed} cargo test -p skyward-core --test simulation -- --nocapture"
        )
    }
}

impl std::error::Error for Broken {}
