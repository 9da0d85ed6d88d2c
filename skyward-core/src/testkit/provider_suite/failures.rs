//! Clauses on what a provider tells while its service fails.

use std::time::SystemTime;

use tokio::time::{Instant, sleep, timeout};

use super::service::Service;
use super::timing::CALL;
use super::trial::{Trial, trial};
use crate::error::{Error, ErrorKind, Result as Answer};
use crate::provider::{Machine, MachineState, Provider};
use crate::testkit::Violation;
use crate::testkit::timing::LOOK_PAUSE;

/// While its service fails, the provider does not guess: `terminate` fails unless the machine is
/// ending, `list` and `pools` fail or have what is there, and `inspect` fails or reports no end.
/// A launch that failed leaves only machines that `list` finds. The clause holds for a service that
/// cannot be made to [fail](Service::fail).
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines, and the service failing.
pub async fn failures_are_told(provider: &(impl Provider + Clone), service: &dyn Service) -> Result<(), Violation> {
    trial("failures_are_told", provider, async |trial| {
        let machine = trial.launch(0).await?;
        trial.there(&machine).await?;
        let batch = trial.batch(&[1]).await?;
        trial.listed("list", provider, |listed| !listed.is_empty()).await?;
        if !service.fail(true).await {
            return Ok(());
        }
        let looked = looked(trial, &machine).await;
        let launched = timeout(CALL, provider.launch(&batch)).await;
        let ended = timeout(CALL, provider.terminate(std::slice::from_ref(&machine.id))).await;
        service.fail(false).await;
        recovered(trial).await?;
        looked?;
        let (launched, ended) = (launched.unwrap_or_default(), ended.unwrap_or_default());
        if let [Ok(launched)] = &launched[..] {
            trial.note([launched]);
        }
        let said = match &ended[..] {
            [answer] => answer.as_ref().map_err(|error| format!("{error:#}")),
            _ => Err(format!("`terminate` of one machine returned {} answers", ended.len())),
        };
        if said.is_ok() {
            let report = trial.report(&machine.id).await?;
            trial.require(report.state.is_over() || report.state == MachineState::Unknown, || {
                format!(
                    "while the service failed, `terminate` of the machine {} returned `Ok`, and must fail where it is \
                     not certain that the machine ends: later the machine is {report}",
                    machine.id
                )
            })?;
        }
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        torn_down(trial, service).await
    })
    .await
}

/// What the looks at the pool returned while the service failed.
async fn looked(trial: &Trial<'_>, machine: &Machine) -> Result<(), Violation> {
    let provider = trial.provider();
    if let Some(reports) = told(provider.inspect(std::slice::from_ref(&machine.id))).await {
        let over = reports.iter().find(|report| report.state.is_over());
        trial.require(over.is_none(), || {
            format!(
                "a machine runs and its service fails, so `inspect` must fail or report `Unknown`: it reports the \
                 machine as {over:?}"
            )
        })?;
    }
    if let Some(listed) = told(provider.list(&trial.pool)).await {
        trial.require(listed.iter().any(|other| other.id == machine.id), || {
            format!("the machine {} runs and its service fails, so `list` must fail: it has {listed:?}", machine.id)
        })?;
    }
    if let Some(pools) = told(provider.pools()).await {
        let lives = pools.iter().any(|record| record.pool == trial.pool && record.expires > SystemTime::now());
        trial.require(lives, || {
            format!(
                "the pool {} has a machine and the service fails, so `pools` must fail: it has {pools:?}",
                trial.pool
            )
        })?;
    }
    Ok(())
}

/// A teardown that succeeds while the service fails must have removed the pool.
async fn torn_down(trial: &Trial<'_>, service: &dyn Service) -> Result<(), Violation> {
    trial.empty().await?;
    if service.leftovers(&trial.pool).await.is_none() {
        return Ok(());
    }
    service.fail(true).await;
    let torn = told(trial.provider().teardown(&trial.pool)).await;
    service.fail(false).await;
    recovered(trial).await?;
    if torn.is_some() {
        let done = "while the service failed, `teardown` returned `Ok`";
        trial.nothing_left(service, done).await?;
    }
    Ok(())
}

/// Waits until the provider can be asked again: it may spare a service that has just failed.
async fn recovered(trial: &Trial<'_>) -> Result<(), Violation> {
    let end = Instant::now() + CALL;
    while told(trial.provider().list(&trial.pool)).await.is_none() {
        trial.require(Instant::now() < end, || {
            format!("the service works again, and `list` must too: it had not after {CALL:?}")
        })?;
        sleep(LOOK_PAUSE * 10).await;
    }
    Ok(())
}

/// The answer of a call, if it has one.
async fn told<T>(call: impl Future<Output = Answer<T>>) -> Option<T> {
    let late = |_| Err(Error::new(ErrorKind::Timeout, "the call did not return"));
    timeout(CALL, call).await.unwrap_or_else(late).ok()
}
