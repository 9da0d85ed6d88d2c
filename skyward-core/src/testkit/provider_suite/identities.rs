//! Clauses on `identity` and `parts`.

use super::service::Service;
use super::trial::{ask, require, trial};
use crate::provider::MachineState::Unknown;
use crate::provider::{Machine, Provider};
use crate::testkit::Violation;

/// `identity` is not empty, and the same for `again`, another value of the same provider. So are the
/// identities of the parts, in any order.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// The function starts nothing.
pub async fn identity_stays_the_same(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    let clause = "identity_stays_the_same";
    let (first, second) = (identities(clause, provider).await?, identities(clause, again).await?);
    let empty = first.iter().any(String::is_empty);
    require(clause, !empty, || format!("an identity is empty: {first:?}"))?;
    require(clause, first == second, || format!("the identities are {first:?}, and {second:?} to another value"))?;
    let later = identities(clause, provider).await?;
    require(clause, first == later, || format!("the identities were {first:?}, and later they are {later:?}"))
}

/// `parts` is empty, or a machine is in the list of one part alone, and its id ends with `@` and the
/// identity of that part.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn parts_have_their_machines(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("parts_have_their_machines", provider, async |trial| {
        if provider.parts().is_empty() {
            return Ok(());
        }
        let machine = trial.launch(0).await?;
        let mut holders = Vec::new();
        for part in provider.parts() {
            let has = |listed: &[Machine]| listed.iter().any(|other| other.id == machine.id);
            // Only the parts that do not have it take as long as lists take to settle.
            let listed = match holders.is_empty() {
                true => trial.listed("list of a part", &*part.provider, has).await?,
                false => trial.ask("list of a part", part.provider.list(&trial.pool)).await?,
            };
            if listed.iter().any(|other| other.id == machine.id) {
                holders.push(trial.ask("identity of a part", part.provider.identity()).await?);
            }
        }
        let right = matches!(&holders[..], [one] if machine.id.as_str().ends_with(&format!("@{one}")));
        trial.require(right, || format!("the machine {} is listed by the parts {holders:?}", machine.id))
    })
    .await
}

/// Two values of a provider are one: `again` lists and inspects a machine as the value does that
/// launched it, and has its pool in `pools` until it has torn the pool down.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn values_are_one_provider(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    trial("values_are_one_provider", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let place = trial.there(&machine).await?;
        let asked = std::slice::from_ref(&machine.id);
        let reports = trial.ask("inspect, by another value of the provider", again.inspect(asked)).await?;
        let right = reports.len() == 1
            && reports.iter().all(|report| report.place.as_ref() == Some(&place) || report.state == Unknown);
        trial.require(right, || {
            format!("the machine {} runs at {place:?}, and another value reports it as {reports:?}", machine.id)
        })?;
        trial.end_one("terminate, by another value of the provider", again, &machine.id).await?;
        let report = trial.report(&machine.id).await?;
        trial.require(report.state.is_over(), || {
            format!("another value has ended the machine {}, and this one reports it as {report}", machine.id)
        })?;
        trial.gone(&machine.id).await?;
        trial.ask("teardown, by another value of the provider", again.teardown(&trial.pool)).await
    })
    .await
}

/// A value with machines [elsewhere](Service::elsewhere) has another identity, and does not list the
/// machines of the provider. The clause holds without such a value.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn identities_differ(provider: &(impl Provider + Clone), service: &dyn Service) -> Result<(), Violation> {
    trial("identities_differ", provider, async |trial| {
        let Some(elsewhere) = service.elsewhere() else { return Ok(()) };
        let clause = "identities_differ";
        let (here, there) = (identities(clause, provider).await?, identities(clause, &*elsewhere).await?);
        let shared = here.iter().find(|identity| there.contains(identity));
        trial.require(shared.is_none(), || {
            format!("a provider with machines elsewhere must have another identity: both have {shared:?}")
        })?;
        let machine = trial.launch(0).await?;
        let listed = trial.ask("list, by a provider with machines elsewhere", elsewhere.list(&trial.pool)).await?;
        trial.require(listed.is_empty(), || {
            format!("a provider with machines elsewhere may not list {}: it has {listed:?}", machine.id)
        })
    })
    .await
}

async fn identities(clause: &'static str, provider: &dyn Provider) -> Result<Vec<String>, Violation> {
    let parts = provider.parts();
    if parts.is_empty() {
        return Ok(vec![ask(clause, "identity", provider.identity()).await?]);
    }
    let mut all = Vec::new();
    for part in parts {
        all.push(ask(clause, "identity of a part", part.provider.identity()).await?);
    }
    all.sort();
    Ok(all)
}
