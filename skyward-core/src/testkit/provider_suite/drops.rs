//! Clauses on launches whose futures are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::service::{Service, Unseen};
use super::timing::{LATE_APPEARANCE, LONGEST_DROPPED_PAUSE};
use super::trial::{Trial, nothing_left, trial};
use crate::ids::{LaunchId, MachineId, PoolId};
use crate::provider::{LaunchBatch, Machine, Provider};
use crate::testkit::Violation;
use crate::testkit::timing::LOOK_PAUSE;

/// Dropping the future of `launch` leaves only machines that `list` finds within
/// [`settles_in`](crate::provider::Capabilities::settles_in), whenever the future is dropped: no
/// machine appears later. A dropped launch that is repeated returns one machine.
///
/// The clause measures a launch, and drops others after parts of that time.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave machines.
pub async fn dropped_launch_is_listed(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    drops(provider, &Unseen).await
}

/// Dropping the future of `launch` leaves nothing that `list` does not find: when all listed
/// machines are gone and the pool is torn down, nothing of the pool exists. The clause drops launches
/// as [`dropped_launch_is_listed`] does, whose violations it reports too. It holds for a service that
/// does not tell its [leftovers](Service::leftovers).
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave machines.
pub async fn dropped_launch_leaves_nothing(
    provider: &(impl Provider + Clone),
    service: &dyn Service,
) -> Result<(), Violation> {
    match service.leftovers(&PoolId::random()).await {
        Some(_) => drops(provider, service).await,
        None => Ok(()),
    }
}

/// When a launch is dropped.
#[derive(Debug, Clone, Copy)]
enum When {
    /// After this many polls, for launches that hardly wait.
    Polls(u32),
    /// After this part of the time that a launch takes.
    Part(f64),
}

async fn drops(provider: &(impl Provider + Clone), service: &dyn Service) -> Result<(), Violation> {
    trial("dropped_launch_is_listed", provider, async |trial| {
        let batch = trial.batch(&[0]).await?;
        let mut lookout = Lookout::new(trial);
        let mut takes = Duration::ZERO;
        // The first launch of a pool may take longer than all others.
        for number in [0, 1] {
            let measured = trial.batch_of(&batch.offer, &[number]);
            let begun = Instant::now();
            let machine = trial.launch_batch("launch", &measured).await?.remove(0);
            takes = begun.elapsed();
            trial.terminate(&machine.id).await?;
            lookout.know(&machine);
        }
        for (turn, when) in DROPS.into_iter().enumerate() {
            let first = turn as u32 * 2 + 2;
            // Each other batch has two machines.
            let numbers = [first, first + 1];
            let batch = trial.batch_of(&batch.offer, &numbers[..1 + turn % 2]);
            let when = dropped(trial, &batch, when, takes).await;
            lookout.expect(&batch, when.clone());
            if turn % 3 == 2 {
                repeat(trial, &batch, &when).await?;
                lookout.expect(&batch, when);
            }
            lookout.look().await?;
        }
        let last = Instant::now();
        let mut pause = LOOK_PAUSE;
        while last.elapsed() < trial.settles_in() + LATE_APPEARANCE.max(takes * 2) {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_DROPPED_PAUSE);
            lookout.look().await?;
        }
        for machine in &lookout.seen {
            trial.gone(machine).await?;
        }
        let left = trial.listed("list", provider, <[_]>::is_empty).await?;
        trial.require(left.is_empty(), || format!("all listed machines are gone, and {left:?} are listed"))?;
        if service.leftovers(&trial.pool).await.is_none() {
            return Ok(());
        }
        trial.ask("teardown", provider.teardown(&trial.pool)).await?;
        let done = format!("launches were dropped, all {} machines that were listed are gone", lookout.seen.len());
        nothing_left("dropped_launch_leaves_nothing", service, &trial.pool, trial.settles_in(), &done).await
    })
    .await
}

/// Launches a batch and drops the future; returns when that was, in words.
async fn dropped(trial: &Trial<'_>, batch: &LaunchBatch, when: When, takes: Duration) -> String {
    let machines = batch.requests.len();
    match when {
        When::Part(part) => {
            let after = takes.mul_f64(part);
            let done = timeout(after, trial.provider().launch(batch)).await;
            trial.note(done.into_iter().flatten().flatten().collect::<Vec<_>>().iter());
            format!("{after:?} after the begin of a launch of {machines} machines, which takes {takes:?}")
        }
        When::Polls(polls) => {
            let mut launch = trial.provider().launch(batch);
            for _ in 0..polls {
                let step = poll_fn(|context| {
                    let done = launch.as_mut().poll(context).is_ready();
                    // The clause wakes the launch itself: what the launch waits for may take
                    // longer than the clause.
                    context.waker().wake_by_ref();
                    std::task::Poll::Ready(done)
                });
                if step.await {
                    break;
                }
                sleep(LOOK_PAUSE).await;
            }
            format!("after {polls} polls of a launch of {machines} machines")
        }
    }
}

/// Repeats a dropped launch.
async fn repeat(trial: &Trial<'_>, batch: &LaunchBatch, when: &str) -> Result<(), Violation> {
    let again = trial.ask("launch, again", async { Ok(trial.provider().launch(batch).await) }).await?;
    trial.note(again.iter().flatten());
    let failed = again.iter().filter_map(|machine| machine.as_ref().err());
    let failed: Vec<_> = failed.filter(|error| !error.is_temporary()).collect();
    trial.require(failed.iter().all(|error| error.refusal().is_some()), || {
        format!("the future of `launch` was dropped {when}, and then the same launch must work: it failed, {failed:?}")
    })
}

/// Sees which machines the dropped launches have left, and ends them.
struct Lookout<'t, 'a> {
    trial: &'t Trial<'a>,
    /// When each launch was dropped, also in words.
    dropped: BTreeMap<LaunchId, (Instant, String)>,
    seen: BTreeSet<MachineId>,
    launches: BTreeMap<LaunchId, MachineId>,
    /// When the last list was asked for.
    looked: Option<Instant>,
}

impl<'t, 'a> Lookout<'t, 'a> {
    fn new(trial: &'t Trial<'a>) -> Self {
        Self { trial, dropped: BTreeMap::new(), seen: BTreeSet::new(), launches: BTreeMap::new(), looked: None }
    }

    /// A machine that was ended already.
    fn know(&mut self, machine: &Machine) {
        self.seen.insert(machine.id.clone());
        self.launches.insert(machine.launch.clone(), machine.id.clone());
    }

    fn expect(&mut self, batch: &LaunchBatch, when: String) {
        let now = Instant::now();
        self.dropped.extend(batch.requests.iter().map(|request| (request.launch.clone(), (now, when.clone()))));
    }

    /// Lists, and ends each machine that was not there before. What decides is the order of the
    /// provider's answers, and not how fast this host is: a machine is late when a list that was
    /// asked for after the time in which lists settle did not have it yet.
    async fn look(&mut self) -> Result<(), Violation> {
        let (trial, asked, settles_in) = (self.trial, Instant::now(), self.trial.settles_in());
        let new: Vec<Machine> =
            trial.list().await?.into_iter().filter(|machine| !self.seen.contains(&machine.id)).collect();
        trial.note(&new);
        for machine in new {
            if let Some(other) = self.launches.insert(machine.launch.clone(), machine.id.clone()) {
                let found =
                    format!("the launch {} has started two machines, {other} and {}", machine.launch, machine.id);
                return Err(trial.violation(found));
            }
            let known = self.dropped.get(&machine.launch);
            if let Some(((at, when), looked)) = known.zip(self.looked) {
                trial.require(looked < *at + settles_in, || {
                    format!(
                        "the future of `launch` was dropped {when}: what it leaves must be listed within \
                         `settles_in`, {settles_in:?}. A list {:?} after the drop did not have the machine {}, and \
                         one after {:?} has it",
                        looked.saturating_duration_since(*at),
                        machine.id,
                        asked.saturating_duration_since(*at)
                    )
                })?;
            }
            self.seen.insert(machine.id.clone());
            trial.terminate(&machine.id).await?;
        }
        self.looked = Some(asked);
        Ok(())
    }
}

const DROPS: [When; 11] = [
    When::Polls(1),
    When::Polls(2),
    When::Polls(5),
    When::Polls(13),
    When::Part(0.0),
    When::Part(0.15),
    When::Part(0.3),
    When::Part(0.5),
    When::Part(0.7),
    When::Part(0.85),
    When::Part(0.97),
];
