//! Clauses on machines in a queue.

use tokio::time::{Instant, sleep};

use super::service::Service;
use super::timing::LATE_APPEARANCE;
use super::trial::{LOOKS, Trial, trial};
use crate::ids::MachineId;
use crate::provider::{Machine, MachineState, Provider};
use crate::testkit::Violation;

/// A machine that the service holds in its queue is reported as queued, without a place, and is
/// listed. Once it is let go, it runs. A queued machine can be ended, and does not start later. The
/// clause holds for a service that cannot [hold](Service::hold) machines.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines, and the service holding them.
pub async fn queued_machines_wait(provider: &(impl Provider + Clone), service: &dyn Service) -> Result<(), Violation> {
    trial("queued_machines_wait", provider, async |trial| {
        if !service.hold(true).await {
            return Ok(());
        }
        let held = held(trial).await;
        service.hold(false).await;
        let (ended, waiting) = held?;
        trial.there(&waiting).await?;
        let begun = Instant::now();
        while begun.elapsed() < trial.settles_in() + LATE_APPEARANCE {
            let report = trial.report(&ended).await?;
            let listed = trial.list().await?.into_iter().any(|machine| machine.id == ended);
            trial.require(report.state == MachineState::Gone && !listed, || {
                let listed = if listed { "listed" } else { "not listed" };
                format!(
                    "the machine {ended} was ended in the queue and was gone, and must not start later: it is \
                     {report}, and {listed}"
                )
            })?;
            sleep(LATE_APPEARANCE / LOOKS).await;
        }
        Ok(())
    })
    .await
}

/// Launches two machines, ends the first while both are queued, and returns both.
async fn held(trial: &Trial<'_>) -> Result<(MachineId, Machine), Violation> {
    let (first, second) = (trial.launch(0).await?, trial.launch(1).await?);
    let both = |listed: &[Machine]| [&first, &second].iter().all(|machine| listed.contains(machine));
    let listed = trial.listed("list", trial.provider(), both).await?;
    trial.require(both(&listed), || {
        format!("{first:?} and {second:?} are held in the queue, and must be listed: `list` has {listed:?}")
    })?;
    for machine in [&first, &second] {
        let report = trial.report(&machine.id).await?;
        let waits = matches!(report.state, MachineState::Queued | MachineState::Unknown) && report.place.is_none();
        trial.require(waits, || {
            format!(
                "the machine {} is held in the queue, and must be reported as queued, without a place: it is {report}, \
                 at {:?}",
                machine.id, report.place
            )
        })?;
    }
    trial.terminate(&first.id).await?;
    trial.gone(&first.id).await?;
    Ok((first.id, second))
}
