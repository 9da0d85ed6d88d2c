//! Clauses on `launch` and `list`.

use super::trial::{Trial, trial};
use crate::ids::{Attempt, LaunchId, PoolId};
use crate::provider::{Machine, Provider};
use crate::testkit::Violation;

/// `launch` returns a machine with the launch id, pool, number and offer of its request.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn launch_answers_its_request(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("launch_answers_its_request", provider, async |trial| {
        let batch = trial.batch(&[3, 1]).await?;
        let launched = trial.launch_batch("launch", &batch).await?;
        for (machine, request) in launched.iter().zip(&batch.requests) {
            let same = machine.launch == request.launch && machine.pool == request.pool;
            let same = same && machine.number == request.number && machine.offer == batch.offer.id;
            trial.require(same, || {
                format!("{machine:?} was launched for {request:?} of the offer {}", batch.offer.id)
            })?;
        }
        Ok(())
    })
    .await
}

/// `launch` with the same launch id returns the same machine, one call after another and at the
/// same time.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn launch_is_idempotent(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("launch_is_idempotent", provider, async |trial| {
        let batch = trial.batch(&[0]).await?;
        let (a, b) =
            tokio::join!(trial.launch_batch("launch", &batch), trial.launch_batch("launch, at the same time", &batch));
        let (a, b) = (a?, b?);
        let c = trial.launch_batch("launch, again", &batch).await?;
        trial.require(a == b && b == c, || format!("three launches returned {a:?}, {b:?} and {c:?}"))?;
        one_machine(trial, &a[0]).await
    })
    .await
}

/// `launch` with the same launch id returns the same machine to another process too: to `again`,
/// another value of the same provider.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn launch_is_not_memory(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    trial("launch_is_not_memory", provider, async |trial| {
        let batch = trial.batch(&[0]).await?;
        let launched = trial.launch_batch("launch", &batch).await?;
        let other = trial.launch_by("launch, by another value of the provider", again, &batch).await?;
        trial.require(launched == other, || {
            format!(
                "a launch was repeated by another value of the provider, as after a restart: the first call returned \
                 {launched:?}, the second must return the same and returned {other:?}"
            )
        })?;
        one_machine(trial, &launched[0]).await
    })
    .await
}

/// Launches of two nodes return two machines, with ids and folders of their own.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn launches_differ(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("launches_differ", provider, async |trial| {
        let (a, b) = (trial.launch(0).await?, trial.launch(1).await?);
        trial.require(a.id != b.id, || format!("both machines are {}", a.id))?;
        let (a, b) = (trial.there(&a).await?, trial.there(&b).await?);
        trial.require((&a.address, &a.folder) != (&b.address, &b.folder), || format!("both machines are at {a:?}"))
    })
    .await
}

/// `list` returns the live machines of a pool exactly as `launch` returned them, and no machine of
/// another pool.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn list_finds_what_was_launched(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("list_finds_what_was_launched", provider, async |trial| {
        let mut launched = vec![trial.launch(0).await?, trial.launch(1).await?];
        launched.sort_by(|a, b| a.id.cmp(&b.id));
        let listed = trial.listed("list", provider, |listed| sorted(listed) == launched).await?;
        trial.require(launched == sorted(&listed), || {
            let settles_in = trial.settles_in();
            format!(
                "{launched:?} were launched, and `list` must have them within `settles_in`, {settles_in:?}: it has \
                 {listed:?}"
            )
        })?;
        let other = trial.ask("list of a pool that never existed", provider.list(&PoolId::random())).await?;
        trial.require(other.is_empty(), || format!("a pool that never existed has {other:?}"))?;
        trial.terminate(&launched[0].id).await?;
        trial.gone(&launched[0].id).await?;
        let left = trial.listed("list", provider, |left| left == &launched[1..]).await?;
        trial.require(left == launched[1..], || {
            format!("one of two machines is gone, and `list` must have {:?}: it has {left:?}", &launched[1..])
        })
    })
    .await
}

/// `list` finds a pool's machines in the provider's own records, not in this process's memory:
/// `again`, another value of the same provider, finds and ends them.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn list_is_not_memory(
    provider: &(impl Provider + Clone),
    again: &(impl Provider + Clone),
) -> Result<(), Violation> {
    trial("list_is_not_memory", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let right = |listed: &[Machine]| listed == std::slice::from_ref(&machine);
        let listed = trial.listed("list, by another value of the provider", again, right).await?;
        trial.require(right(&listed), || format!("{machine:?} was launched, another value lists {listed:?}"))?;
        trial.end_one("terminate, by another value of the provider", again, &machine.id).await?;
        trial.gone(&machine.id).await
    })
    .await
}

/// The id of a machine that is gone is not the id of a later machine of the pool.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn ids_are_not_used_again(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("ids_are_not_used_again", provider, async |trial| {
        let mut batch = trial.batch(&[0]).await?;
        let first = trial.launch_batch("launch", &batch).await?.remove(0);
        trial.terminate(&first.id).await?;
        trial.gone(&first.id).await?;
        for request in &mut batch.requests {
            request.launch = LaunchId::of(&trial.pool, request.number, Attempt(2));
        }
        let second = trial.launch_batch("launch of a successor", &batch).await?.remove(0);
        trial.require(first.id != second.id, || {
            format!(
                "the machine {} is gone, and a successor was launched, which must have an id of its own: it is \
                 {second:?}",
                first.id
            )
        })
    })
    .await
}

/// One launch id has started this machine alone.
async fn one_machine(trial: &Trial<'_>, machine: &Machine) -> Result<(), Violation> {
    let listed = trial.listed("list", trial.provider(), |listed| !listed.is_empty()).await?;
    let alone = matches!(&listed[..], [one] if one.id == machine.id);
    trial.require(alone, || {
        format!(
            "one launch id must have started {machine:?} alone: it has started {} machines, {listed:?}",
            listed.len()
        )
    })
}

fn sorted(machines: &[Machine]) -> Vec<Machine> {
    let mut sorted = machines.to_vec();
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    sorted
}
