//! Runs a call on a rehearsed pool, and gathers what happens.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::finding::{Failure, Finding, FindingKind, Stage, findings, of_ranks};
use super::told::{LAST, Stall, Told};
use super::{Rehearsal, RehearsalLimits};
use crate::error::{Error, ErrorKind, Result, silence};
use crate::ids::{PoolId, Rank};
use crate::payload::{Output, PendingCompute, Task};
use crate::pool::{ComputePool, Pool, PoolBuilder};

/// A rehearsal that has been checked and not started.
#[derive(Debug)]
pub(in crate::pool) struct Rehearsed {
    pub(in crate::pool) builder: PoolBuilder,
    pub(in crate::pool) ranks: u32,
    pub(in crate::pool) devices: u32,
    pub(in crate::pool) limits: RehearsalLimits,
}

/// What a call has come to.
struct Played<T> {
    pool: PoolId,
    start_took: Duration,
    run_took: Duration,
    /// By rank.
    results: Vec<Option<T>>,
    failures: Vec<Failure>,
    ended: Instant,
}

/// Starts the pool, makes the call on all of its workers, and ends it. `refused` is what the pool
/// would be refused with that is rehearsed.
pub(in crate::pool) async fn play<T: Output>(
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
    let (mut played, mut told) = (None, Told::default());
    let ended = start_and_run(builder, task, limits.call, &mut played, &mut told).await;
    let Some(Played { pool, start_took, run_took, results, failures: of_call, ended: call_ended }) = played else {
        failures.extend(ended.err().map(|error| failure(Stage::Start, error)));
        rehearsal.findings = findings(failures, &[]);
        return rehearsal;
    };
    failures.extend(told.retried.drain(..).map(|error| failure(Stage::Call, error)));
    failures.extend(of_call);
    let hints = hints(&failures, &told, ranks, joined);
    failures.iter_mut().for_each(|failure| told.add_places(failure, call_ended, limits.stall));
    failures.extend(ended.err().map(|error| failure(Stage::End, error)));
    rehearsal.findings = findings(failures, &told.exits);
    rehearsal.findings.extend(told.gaps());
    rehearsal.findings.extend(hints);
    rehearsal.results = of_all(results, ranks);
    (rehearsal.start_took, rehearsal.run_took) = (Some(start_took), Some(run_took));
    rehearsal.pool = Some(pool);
    rehearsal
}

/// Gives the pool's end. `played` is what the call has come to, where it was made, and `told` what
/// the pool has told up to its end.
async fn start_and_run<T: Output>(
    builder: PoolBuilder,
    task: Task,
    longest: Duration,
    played: &mut Option<Played<T>>,
    told: &mut Told,
) -> Result<()> {
    let began = Instant::now();
    let (listen, events) = oneshot::channel();
    let scope = pin!(builder.scope(async |pool| {
        // Nobody misses it where nobody listens: the other end is dropped with this one.
        let _ = listen.send(pool.events());
        *played = Some(run::<T>(pool, task, began.elapsed(), longest).await);
        Ok(())
    }));
    // As long as the pool lives, its end included: a pool does not wait for a reader that is slow.
    let listening = pin!(async {
        if let Ok(events) = events.await {
            told.follow(events).await;
        }
    });
    match select(scope, listening).await {
        Either::Left((ended, listening)) => {
            // What is told may come after what it is about. Without an end, it is known not to be complete.
            let _ = timeout(LAST, listening).await;
            ended
        }
        Either::Right(((), scope)) => scope.await,
    }
}

/// What the payload returned, by rank, where it returned on all of them.
fn of_all<T>(results: Vec<Option<T>>, ranks: u32) -> Option<Vec<T>> {
    // There is none of any where the call was not taken.
    (results.len() == ranks as usize).then(|| results.into_iter().collect()).flatten()
}

/// Runs the task on all workers, until each has its outcome, or shortly after one has failed: the
/// others may wait for it for ever.
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
                        deadline = deadline.min(Instant::now() + SETTLING);
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

/// What is worth knowing of a call in which nothing may have failed.
fn hints(failures: &[Failure], told: &Told, ranks: u32, joined: bool) -> Vec<Finding> {
    let mut hints = Vec::new();
    if ranks > 1 && !joined {
        hints.push(Finding {
            kind: FindingKind::NoGang,
            ranks: Vec::new(),
            message: format!("the payload ran on {ranks} ranks, each by itself: no plugin joins them into one world"),
            hint: "if its ranks use collectives, add the plugin of their framework, such as `plugins::jax()` or \
                   `plugins::torch()`; if they do not, all is well: such calls are not watched for stalls, and \
                   `.timeout(…)` bounds them"
                .to_owned(),
            error: None,
        });
    }
    let went_on = !failures.iter().any(|failure| failure.stage == Stage::Call);
    let longest = told.stalls.iter().max_by_key(|stall| stall.silent).filter(|_| went_on);
    if let Some(Stall { silent, stacks, .. }) = longest {
        let message = silence(*silent, stacks);
        hints.push(Finding {
            kind: FindingKind::Silence,
            ranks: Vec::new(),
            message: format!("{message}; then it went on"),
            hint: "a `Limits::stall` of the pool must be longer than that, or the payload says that it goes on with \
                   `sky.progress()`"
                .to_owned(),
            error: Some(Error::new(ErrorKind::Stalled, message).with_stacks(stacks.clone())),
        });
    }
    hints
}

/// What the other ranks get to fail too when one has: a little longer than the scheduler takes to
/// tell a cause from what follows from it.
const SETTLING: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
