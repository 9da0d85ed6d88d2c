//! Clauses on `launch` and `list`.

use std::future::poll_fn;

use tokio::time::sleep;

use super::trial::{BRIEF, LOOKS, trial};
use crate::ids::PoolId;
use crate::provider::Provider;
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
        let listed = trial.list().await?;
        trial.require(listed.len() == 1, || format!("one launch id started {} machines: {listed:?}", listed.len()))
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
            format!("one launch id returned {launched:?}, and in another process {other:?}")
        })?;
        let listed = trial.list().await?;
        trial.require(listed.len() == 1, || format!("one launch id started {} machines: {listed:?}", listed.len()))
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

/// Dropping the future of `launch` leaves only machines that `list` finds: once those are ended, no
/// machine appears after them.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave a machine.
pub async fn dropped_launch_is_listed(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    for polls in [1_u32, 2, 3, 5, 8, 13] {
        trial("dropped_launch_is_listed", provider, async |trial| {
            let batch = trial.batch(&[0]).await?;
            {
                let mut launch = provider.launch(&batch);
                for _ in 0..polls {
                    let step = poll_fn(|context| {
                        let done = launch.as_mut().poll(context).is_ready();
                        // The clause wakes the launch itself: what the launch waits for may take
                        // longer than the clause.
                        context.waker().wake_by_ref();
                        std::task::Poll::Ready(done)
                    });
                    if step.await {
                        break;
                    }
                    sleep(BRIEF).await;
                }
            }
            for machine in trial.list().await? {
                trial.terminate(&machine.id).await?;
                trial.gone(&machine.id).await?;
            }
            for _ in 0..LOOKS {
                sleep(BRIEF).await;
                let late = trial.list().await?;
                trial.require(late.is_empty(), || {
                    format!("after {polls} polls every listed machine was ended, and then {late:?} appeared")
                })?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
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
        let mut listed = trial.list().await?;
        launched.sort_by(|a, b| a.id.cmp(&b.id));
        listed.sort_by(|a, b| a.id.cmp(&b.id));
        trial.require(launched == listed, || format!("{launched:?} were launched, {listed:?} are listed"))?;
        let other = trial.ask("list of a pool that never existed", provider.list(&PoolId::random())).await?;
        trial.require(other.is_empty(), || format!("a pool that never existed has {other:?}"))?;
        trial.terminate(&launched[0].id).await?;
        trial.gone(&launched[0].id).await?;
        let left = trial.list().await?;
        trial.require(left == launched[1..], || format!("{:?} are left, {left:?} are listed", &launched[1..]))
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
        let listed = trial.ask("list, by another value of the provider", again.list(&trial.pool)).await?;
        trial.require(listed == [machine.clone()], || {
            format!("{machine:?} was launched, another value lists {listed:?}")
        })?;
        trial.end_one("terminate, by another value of the provider", again, &machine.id).await?;
        trial.gone(&machine.id).await
    })
    .await
}
