//! The invariants of a simulated pool: its events, size, errors and budget, and what is left after
//! its end. A broken invariant is an `Err` that says what did not hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::calls::Reports;
use super::seed::{DEAREST, Seed};
use super::timing::{BACKGROUND_END, LATEST_END};
use crate::compute::{PoolPhase, PoolStatus};
use crate::error::{Error, ErrorKind};
use crate::event::{EventItem, Events, PoolEvent};
use crate::ids::{Attempt, PoolId, TaskId};
use crate::spec::Budget;
use crate::testkit::fake_provider::FakeProvider;

/// What the pool's events reported.
#[derive(Default)]
pub(super) struct TaskEvents {
    /// The tries that were started, of each task.
    pub(super) starts: BTreeMap<TaskId, BTreeSet<Attempt>>,
    /// Reports of tasks without progress, and the time without progress.
    pub(super) stalls: Vec<(TaskId, Duration)>,
    pub(super) calls: Reports,
}

pub(super) async fn listen(mut events: Events) -> TaskEvents {
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
            PoolEvent::TaskStalled { task, silent, .. } => told.stalls.push((*task, *silent)),
            _ => {}
        }
    }
    told
}

/// Checks that each try at a gang was started with all of its members.
pub(super) fn whole(gangs: &[Vec<TaskId>], starts: &BTreeMap<TaskId, BTreeSet<Attempt>>) -> Result<(), String> {
    for gang in gangs {
        let tries: Vec<_> = gang.iter().map(|id| starts.get(id)).collect();
        if tries.iter().any(|other| *other != tries[0]) {
            return Err(format!("a gang was started without a member: {gang:?} were started at {tries:?}"));
        }
    }
    Ok(())
}

/// Checks the invariants of a pool's size.
pub(super) fn sized(status: &PoolStatus, (least, most): (u32, u32)) -> Result<(), String> {
    if status.phase != PoolPhase::Ready {
        return Ok(());
    }
    let there = status.nodes.iter().filter(|node| !node.draining).count() as u32;
    let last = status.nodes.iter().position(|node| node.draining).unwrap_or(status.nodes.len());
    if there < least || there > most || last as u32 != there {
        return Err(format!("the pool has {there} nodes instead of {least} to {most}: {:?}", status.nodes));
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

/// Accepts errors that a fault may cause; any other error is a defect of the pool.
pub(super) fn explained(seed: Seed, error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::Protocol | ErrorKind::Decode | ErrorKind::Argument | ErrorKind::NotFound | ErrorKind::Plugins => {
            Err(format!("an error that no fault explains: {error:#}"))
        }
        ErrorKind::Budget if seed.budget() == Budget::default() => {
            Err(format!("a budget error of a pool without a budget: {error:#}"))
        }
        _ => Ok(()),
    }
}

/// Checks the invariants of the budget.
pub(super) fn paid(seed: Seed, provider: &FakeProvider) -> Result<(), String> {
    let Budget { usd_per_hour, usd, hours, .. } = seed.budget();
    let (rate, spent, life) = (provider.usd_per_hour(), provider.spent(), provider.lived());
    // Each machine may cost up to a minute more than the budget.
    let minute = provider.launched() as f64 * DEAREST / 60.0;
    if usd_per_hour.is_some_and(|most| rate > most + 1e-6) {
        return Err(format!("the machines cost ${rate}/h, and the budget is {:?}", seed.budget()));
    }
    if usd.is_some_and(|most| spent > most + minute) {
        return Err(format!("the machines have cost ${spent}, and the budget is {:?}", seed.budget()));
    }
    if hours.is_some_and(|most| life.as_secs_f64() > most * 3600.0 + 60.0) {
        return Err(format!("machines existed for {life:?}, and the budget is {:?}", seed.budget()));
    }
    Ok(())
}

/// Checks the budget for as long as the pool lives.
pub(super) async fn watch_money(seed: Seed, provider: FakeProvider) -> String {
    loop {
        if let Err(broken) = paid(seed, &provider) {
            return broken;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

pub(super) fn left(provider: &FakeProvider) -> Result<(), String> {
    match provider.machines() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("the pool has ended, and machines are left: {left:?}")),
    }
}

/// Waits until an abandoned pool has ended its machines.
pub(super) async fn gone(provider: &FakeProvider) -> Result<(), String> {
    let end = Instant::now() + BACKGROUND_END;
    while !provider.machines().is_empty() || Instant::now() < end - BACKGROUND_END / 2 {
        if Instant::now() >= end {
            return left(provider);
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Checks that nothing of the pool and its nodes is left or still runs.
pub(super) async fn settled(provider: &FakeProvider) -> Result<(), String> {
    let left = provider.machines();
    if !left.is_empty() {
        return Err(format!("machines are left: {left:?}"));
    }
    let running = provider.running();
    if !running.is_empty() {
        return Err(format!("agents or workers still run: {running:?}"));
    }
    let wrongs = provider.witness().wrongs();
    if !wrongs.is_empty() {
        return Err(wrongs.join("; "));
    }
    // Deaths by the script may still wait for their time.
    sleep(LATEST_END).await;
    let pool = PoolId::new("p-simulated");
    let listed = crate::provider::Provider::list(provider, &pool).await.map_err(|error| format!("{error:#}"))?;
    if !listed.is_empty() {
        return Err(format!("machines were released, but are not gone: {listed:?}"));
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    match metrics.num_alive_tasks() {
        0 => Ok(()),
        count => Err(format!("{count} tasks of the runtime still run after the pool has ended")),
    }
}
