//! Clauses on batches that are launched all or none.

use tokio::time::{Instant, sleep};

use super::service::Service;
use super::timing::LATE_APPEARANCE;
use super::trial::{LOOKS, Trial, trial};
use crate::provider::{LaunchBatch, Provider};
use crate::testkit::Violation;

/// With [`gangs`](crate::provider::Capabilities::gangs), a batch that is
/// [all or none](LaunchBatch::all_or_none) starts all of its machines, which are listed, or none:
/// also when the service has only some of them. The second part is checked for a service with a
/// [limit](Service::limit). The clause holds for a provider without the capability.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines, and the service with its limit.
pub async fn gangs_are_whole(provider: &(impl Provider + Clone), service: &dyn Service) -> Result<(), Violation> {
    trial("gangs_are_whole", provider, async |trial| {
        if !provider.capabilities().gangs {
            return Ok(());
        }
        let whole = gang(trial, &[0, 1]).await?;
        let launched = trial.launch_batch("launch, all or none", &whole).await?;
        let again = trial.launch_batch("launch, all or none, again", &whole).await?;
        trial.require(launched == again, || {
            format!("a batch was launched, all or none, as {launched:?}, and the same batch again as {again:?}")
        })?;
        let listed = trial.listed("list", provider, |listed| listed.len() == 2).await?;
        trial.require(listed.len() == 2, || {
            format!("two machines were launched, all or none, and listed: {listed:?}")
        })?;
        for machine in &launched {
            trial.terminate(&machine.id).await?;
            trial.gone(&machine.id).await?;
        }
        if !service.limit(Some(1)).await {
            return Ok(());
        }
        let part = gang(trial, &[2, 3]).await;
        let answers = match &part {
            Ok(part) => trial.ask("launch, all or none", async { Ok(provider.launch(part).await) }).await,
            Err(violation) => Err(violation.clone()),
        };
        service.limit(None).await;
        let answers = answers?;
        trial.note(answers.iter().flatten());
        let begun = Instant::now();
        loop {
            let there = trial.list().await?;
            let has = |number: u32| there.iter().any(|machine| machine.number.0 == number);
            trial.require(!has(2) && !has(3) && answers.iter().all(Result::is_err), || {
                format!(
                    "a batch of two was launched, all or none, and the service had one machine: none may be \
                     launched. `launch` returned {answers:?}, and {there:?} are listed"
                )
            })?;
            if begun.elapsed() >= trial.settles_in() + LATE_APPEARANCE {
                return Ok(());
            }
            sleep(LATE_APPEARANCE / LOOKS).await;
        }
    })
    .await
}

/// With [`gangs`](crate::provider::Capabilities::gangs), the end of one machine of a batch that was
/// launched [all or none](LaunchBatch::all_or_none) is not the end of the others. The clause holds
/// for a provider without the capability.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn gang_machines_end_alone(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("gang_machines_end_alone", provider, async |trial| {
        if !provider.capabilities().gangs {
            return Ok(());
        }
        let batch = gang(trial, &[0, 1]).await?;
        let launched = trial.launch_batch("launch, all or none", &batch).await?;
        let [a, b] = &launched[..] else { return Ok(()) };
        trial.there(b).await?;
        trial.terminate(&a.id).await?;
        trial.gone(&a.id).await?;
        let begun = Instant::now();
        loop {
            let report = trial.report(&b.id).await?;
            trial.require(!report.state.is_over(), || {
                format!(
                    "two machines were launched, all or none, and one was ended: the other, {}, must run on, and is \
                     {report}",
                    b.id
                )
            })?;
            if begun.elapsed() >= LATE_APPEARANCE {
                return Ok(());
            }
            sleep(LATE_APPEARANCE / LOOKS).await;
        }
    })
    .await
}

async fn gang(trial: &Trial<'_>, numbers: &[u32]) -> Result<LaunchBatch, Violation> {
    let mut batch = trial.batch(numbers).await?;
    batch.all_or_none = true;
    Ok(batch)
}
