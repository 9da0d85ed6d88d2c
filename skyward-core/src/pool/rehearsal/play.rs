//! Runs a call on a rehearsed pool and collects what happens.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::finding::{Failure, Finding, FindingKind, Stage, findings, of_ranks};
use super::observed::{Observed, Stall};
use super::timing::{LAST_EVENTS, OTHER_RANKS_FAIL};
use super::{Rehearsal, RehearsalLimits};
use crate::compute::ComputePool;
use crate::compute::PendingCompute;
use crate::error::{Error, ErrorKind, Result, silence};
use crate::ids::{PoolId, Rank};
use crate::payload::{Output, Task};
use crate::pool::{Pool, PoolBuilder};

/// A rehearsal that has been checked and not started.
#[derive(Debug)]
pub(super) struct Rehearsed {
    pub(super) builder: PoolBuilder,
    pub(super) ranks: u32,
    pub(super) devices: u32,
    pub(super) limits: RehearsalLimits,
}

/// The outcome of the call.
struct Played<T> {
    pool: PoolId,
    start_took: Duration,
    run_took: Duration,
    /// By rank.
    results: Vec<Option<T>>,
    failures: Vec<Failure>,
    ended: Instant,
}

/// Starts the rehearsed pool, makes the call on all of its workers, and ends the pool. `refused` is
/// the error with which the real pool would be refused, if it would.
pub(super) async fn play<T: Output>(
    Rehearsed { builder, ranks, devices, limits }: Rehearsed,
    call: PendingCompute<T>,
    refused: Option<Error>,
) -> Rehearsal<T> {
    let failure = |stage, error| Failure { stage, ranks: Vec::new(), error };
    let mut rehearsal = Rehearsal {
        entry: call.source().entry().to_owned(),
        ranks,
        devices,
        findings: Vec::new(),
        results: None,
        start_took: None,
        run_took: None,
        pool: None,
    };
    let mut failures: Vec<Failure> = refused.into_iter().map(|error| failure(Stage::Declared, error)).collect();
    let joined = builder.is_joined().map_err(|error| failure(Stage::Rehearsed, error));
    let task = call.into_task().map_err(|error| failure(Stage::Call, error));
    let (joined, task) = match (joined, task) {
        (Ok(joined), Ok(task)) => (joined, task),
        (joined, task) => {
            failures.extend(joined.err().into_iter().chain(task.err()));
            rehearsal.findings = findings(failures, &[]);
            return rehearsal;
        }
    };
    let (mut played, mut observed) = (None, Observed::default());
    let ended = start_and_run(builder, task, limits.call, &mut played, &mut observed).await;
    let Some(Played { pool, start_took, run_took, results, failures: of_call, ended: call_ended }) = played else {
        failures.extend(ended.err().map(|error| failure(Stage::Start, error)));
        rehearsal.findings = findings(failures, &[]);
        return rehearsal;
    };
    failures.extend(observed.retried.drain(..).map(|error| failure(Stage::Call, error)));
    failures.extend(of_call);
    let hints = hints(&failures, &observed, ranks, joined);
    failures.iter_mut().for_each(|failure| observed.add_places(failure, call_ended, limits.stall));
    failures.extend(ended.err().map(|error| failure(Stage::End, error)));
    rehearsal.findings = findings(failures, &observed.exits);
    rehearsal.findings.append(&mut observed.warnings);
    rehearsal.findings.extend(observed.gaps());
    rehearsal.findings.extend(hints);
    rehearsal.results = of_all(results, ranks);
    (rehearsal.start_took, rehearsal.run_took) = (Some(start_took), Some(run_took));
    rehearsal.pool = Some(pool);
    rehearsal
}

/// Starts the pool, makes the call and returns the result of the pool's end. `played` receives the
/// outcome of the call if it was made, `observed` what the pool reported until its end.
async fn start_and_run<T: Output>(
    builder: PoolBuilder,
    task: Task,
    longest: Duration,
    played: &mut Option<Played<T>>,
    observed: &mut Observed,
) -> Result<()> {
    let began = Instant::now();
    let (listen, events) = oneshot::channel();
    let scope = pin!(builder.scope(async |pool| {
        // The send fails only if the receiver, below, has been dropped; then no events are needed.
        let _ = listen.send(pool.events());
        *played = Some(run::<T>(pool, task, began.elapsed(), longest).await);
        Ok(())
    }));
    // Listens until the pool has ended. A pool does not wait for a slow reader of its events.
    let listening = pin!(async {
        if let Ok(events) = events.await {
            observed.follow(events).await;
        }
    });
    match select(scope, listening).await {
        Either::Left((ended, listening)) => {
            // Events may arrive after the pool has ended. If the last event does not arrive in
            // time, `observed` reports that events are missing.
            let _ = timeout(LAST_EVENTS, listening).await;
            ended
        }
        Either::Right(((), scope)) => scope.await,
    }
}

/// The values that the payload returned, by rank; `None` unless it returned on all ranks.
fn of_all<T>(results: Vec<Option<T>>, ranks: u32) -> Option<Vec<T>> {
    // `results` is empty if the pool did not accept the call.
    (results.len() == ranks as usize).then(|| results.into_iter().collect()).flatten()
}

/// Runs the task on all workers until each rank has its outcome, or until shortly after one rank
/// has failed, because the other ranks may wait for that rank for ever.
async fn run<T: Output>(pool: &Pool, task: Task, start_took: Duration, longest: Duration) -> Played<T> {
    let began = Instant::now();
    let mut played = Played {
        pool: pool.id().clone(),
        start_took,
        run_took: Duration::ZERO,
        results: Vec::new(),
        failures: Vec::new(),
        ended: began,
    };
    let fail = |ranks, error| Failure { stage: Stage::Call, ranks, error };
    let handles = match pool.submit_all(task).await {
        Ok(handles) => handles,
        Err(error) => {
            played.failures.push(fail(Vec::new(), error));
            return played;
        }
    };
    played.results.resize_with(handles.len(), || None);
    let mut running: FuturesUnordered<_> =
        (0..).zip(handles).map(|(rank, handle)| T::receive(handle).map(move |outcome| (Rank(rank), outcome))).collect();
    let mut left: Vec<Rank> = (0..running.len() as u32).map(Rank).collect();
    let mut deadline = began + longest;
    loop {
        tokio::select! {
            biased;
            outcome = running.next() => {
                let Some((rank, outcome)) = outcome else { break };
                left.retain(|other| *other != rank);
                match outcome {
                    Ok(value) => played.results[rank.0 as usize] = Some(value),
                    Err(error) => {
                        played.failures.push(fail(vec![rank], error));
                        deadline = deadline.min(Instant::now() + OTHER_RANKS_FAIL);
                    }
                }
            }
            () = sleep_until(deadline) => {
                if played.failures.is_empty() {
                    let late = format!("{} had not returned after {longest:?}", of_ranks(&left));
                    let error = Error::new(ErrorKind::Timeout, late).with_hint(
                        "rehearse a few steps of little data; `RehearsalLimits::call` gives the call more time",
                    );
                    played.failures.push(fail(left, error));
                }
                break;
            }
        }
    }
    played.ended = Instant::now();
    played.run_took = played.ended - began;
    played
}

/// The hints: observations that are no failures.
fn hints(failures: &[Failure], observed: &Observed, ranks: u32, joined: bool) -> Vec<Finding> {
    let mut hints = Vec::new();
    if ranks > 1 && !joined {
        hints.push(Finding {
            kind: FindingKind::NoGang,
            ranks: Vec::new(),
            message: format!("the payload ran on {ranks} independent ranks: no plugin joins them into one world"),
            hint: "if the ranks use collectives, add the plugin of their framework, such as `plugins::jax()` or \
                   `plugins::torch()`; otherwise nothing is wrong: such calls are not watched for stalls, and \
                   `.timeout(…)` limits them"
                .to_owned(),
            error: None,
        });
    }
    let went_on = !failures.iter().any(|failure| failure.stage == Stage::Call);
    let longest = observed.stalls.iter().max_by_key(|stall| stall.silent).filter(|_| went_on);
    if let Some(Stall { silent, stacks, .. }) = longest {
        let message = silence(*silent, stacks);
        hints.push(Finding {
            kind: FindingKind::Silence,
            ranks: Vec::new(),
            message: format!("{message}; then the call went on"),
            hint: "make the pool's `Limits::stall` longer than that, or report progress in the payload with \
                   `sky.progress()`"
                .to_owned(),
            error: Some(Error::new(ErrorKind::Stalled, message).with_stacks(stacks.clone())),
        });
    }
    hints
}

#[cfg(test)]
mod tests;
