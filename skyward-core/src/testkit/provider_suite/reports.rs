//! Clauses on `inspect`.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::timing::LATE_APPEARANCE;
use super::trial::{LOOKS, trial};
use crate::provider::{MachineState, Provider};
use crate::testkit::Violation;
use crate::testkit::timing::LOOK_PAUSE;

/// `inspect` answers for each machine, in the order of the request.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn inspect_answers_in_order(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("inspect_answers_in_order", provider, async |trial| {
        let (a, b) = (trial.launch(0).await?, trial.launch(1).await?);
        trial.terminate(&a.id).await?;
        trial.gone(&a.id).await?;
        for (asked, gone) in [
            (vec![], vec![]),
            (vec![a.id.clone(), b.id.clone()], vec![true, false]),
            (vec![b.id.clone(), a.id.clone()], vec![false, true]),
        ] {
            let reports = trial.ask("inspect", provider.inspect(&asked)).await?;
            let answered: Vec<bool> = reports.iter().map(|report| report.state == MachineState::Gone).collect();
            trial.require(answered == gone, || {
                format!("for {asked:?}, of which {} is gone, it reported {reports:?}", a.id)
            })?;
        }
        // Two running machines differ in their places.
        let c = trial.launch(2).await?;
        let places = [trial.there(&b).await?, trial.there(&c).await?];
        for order in [[0, 1], [1, 0]] {
            let asked = order.map(|one| [&b, &c][one].id.clone());
            let reports = trial.ask("inspect", provider.inspect(&asked)).await?;
            let told: Vec<_> = reports.iter().map(|report| report.place.as_ref()).collect();
            let right = order.map(|one| Some(&places[one]));
            trial.require(told == right, || format!("for {asked:?}, which are at {right:?}, it reported {told:?}"))?;
        }
        Ok(())
    })
    .await
}

/// What a report says of the time that a machine [lived](crate::provider::MachineReport::lived) is
/// true: it is the time from its launch until its end, and does not grow after that. The clause holds
/// for a provider that reports none.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn lived_is_true(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("lived_is_true", provider, async |trial| {
        let begun = Instant::now();
        let machine = trial.launch(0).await?;
        let launched = Instant::now();
        sleep(LATE_APPEARANCE).await;
        let least = launched.elapsed();
        trial.terminate(&machine.id).await?;
        let ending = trial.report(&machine.id).await?;
        trial.gone(&machine.id).await?;
        let lives = [least, begun.elapsed()];
        trial.lived(&machine.id, &ending, lives)?;
        let gone = trial.report(&machine.id).await?;
        if gone.lived.is_some() {
            sleep(LATE_APPEARANCE).await;
            trial.lived(&machine.id, &trial.report(&machine.id).await?, lives)?;
        }
        Ok(())
    })
    .await
}

/// `inspect` never reports a machine that may still be starting as gone.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn inspect_does_not_give_up_a_new_machine(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("inspect_does_not_give_up_a_new_machine", provider, async |trial| {
        let machine = trial.launch(0).await?;
        for _ in 0..LOOKS {
            let report = trial.report(&machine.id).await?;
            trial.require(!report.state.is_over(), || format!("a machine that was just launched is {report}"))?;
            sleep(LOOK_PAUSE).await;
        }
        Ok(())
    })
    .await
}

/// `inspect` reports the place of a running machine: an absolute folder of at most 60 bytes, and an
/// address. It reports the same place each time, also later, and after `connect`.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn places_are_given(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("places_are_given", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let place = trial.there(&machine).await?;
        let begun = Instant::now();
        let stays = async |until: Duration, done: &str| {
            let mut pause = LOOK_PAUSE;
            loop {
                let report = trial.report(&machine.id).await?;
                let same = report.place.as_ref() == Some(&place) || report.state == MachineState::Unknown;
                trial.require(same, || {
                    format!(
                        "the machine ran at {place:?}, and must be there for its whole life: {:?} later{done} it is \
                         {report}, at {:?}",
                        begun.elapsed(),
                        report.place
                    )
                })?;
                if begun.elapsed() >= until {
                    return Ok(());
                }
                sleep(pause).await;
                pause = (pause * 2).min(LATE_APPEARANCE / 6);
            }
        };
        stays(LATE_APPEARANCE, "").await?;
        let _remote = trial.connect(&machine).await?;
        stays(begun.elapsed() + LATE_APPEARANCE / 3, ", after `connect`,").await
    })
    .await
}
