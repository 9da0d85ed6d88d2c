//! The clause on a client that takes over a pool of another one.

use std::sync::Arc;

use super::trial::{Trial, trial};
use crate::provider::{Checked, Machine, Provider};
use crate::remote::Command;
use crate::spec::Limits;
use crate::testkit::Violation;

/// With [`adopts`](crate::provider::Capabilities::adopts), `again`, another value of the provider,
/// takes over a pool: it lists, inspects and reaches the machine that the first value has launched,
/// launches another one, ends both and tears the pool down. Without the capability, `adopt` fails
/// with a final error.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn adopt_takes_over(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    trial("adopt_takes_over", provider, async |trial| {
        let request = trial.prepared();
        if !provider.capabilities().adopts {
            let adopted = again.adopt(&request).await;
            let is_final = adopted.as_ref().is_err_and(|error| !error.is_temporary());
            return trial.require(is_final, || {
                format!("a provider without the capability must refuse `adopt` for good: it returned {adopted:?}")
            });
        }
        let first = trial.launch(0).await?;
        let place = trial.there(&first).await?;
        for what in ["adopt", "adopt, a second time"] {
            trial.ask(what, again.adopt(&request)).await?;
        }
        let right = |listed: &[Machine]| listed == std::slice::from_ref(&first);
        let listed = trial.listed("list, after `adopt`", again, right).await?;
        trial.require(right(&listed), || format!("{first:?} was launched, and after `adopt` {listed:?} are listed"))?;
        let reports = trial.ask("inspect, after `adopt`", again.inspect(std::slice::from_ref(&first.id))).await?;
        let there = reports.first().and_then(|report| report.place.as_ref());
        trial.require(there == Some(&place), || {
            format!("the machine {} runs at {place:?}, and after `adopt` the reports are {reports:?}", first.id)
        })?;
        let checked = Checked::new(Arc::new(again.clone())).deadline(Limits::default().start);
        runs(trial, &checked, &first).await?;
        let offer = trial.batch(&[1]).await?.offer;
        let second = trial.launch_by("launch, after `adopt`", again, &trial.batch_of(&offer, &[1])).await?.remove(0);
        trial.there(&second).await?;
        runs(trial, &checked, &second).await?;
        for machine in [&first, &second] {
            trial.end_one("terminate, after `adopt`", again, &machine.id).await?;
            trial.gone(&machine.id).await?;
        }
        trial.ask("teardown, after `adopt`", again.teardown(&trial.pool)).await?;
        // Nothing of the pool is left, and what `prepare` had created is created again.
        trial.ask("adopt, after `teardown`", again.adopt(&request)).await?;
        trial.ask("teardown, after `adopt`", again.teardown(&trial.pool)).await
    })
    .await
}

/// A command runs on the machine.
async fn runs(trial: &Trial<'_>, checked: &Checked, machine: &Machine) -> Result<(), Violation> {
    let place = trial.there(machine).await?;
    let remote = trial.ask("connect, after `adopt`", checked.connect(machine, &place)).await?;
    let output = trial.ask("run, after `adopt`", remote.run(&Command::script("echo here"), &|_| {})).await?;
    trial.require(output.stdout.trim() == "here", || format!("a command on {} printed {output:?}", machine.id))
}
