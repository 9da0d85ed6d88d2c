//! Clauses on `launch` and `list`.

use std::future::poll_fn;

use tokio::time::sleep;

use super::trial::{BRIEF, LOOKS, trial};
use crate::ids::PoolId;
use crate::provider::Provider;
use crate::testkit::Violation;

/// `launch` gives a machine of just this launch, pool and node, with an absolute folder of at most 60 bytes.
///
/// # Errors
///
/// What was seen.
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

/// `launch` with the same launch id gives the same machine, one after another and at the same time.
///
/// # Errors
///
/// What was seen.
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
        trial.require(a == b && b == c, || format!("three launches gave {a:?}, {b:?} and {c:?}"))?;
        let listed = trial.list().await?;
        trial.require(listed.len() == 1, || format!("one launch id started {} machines: {listed:?}", listed.len()))
    })
    .await
}

/// `launch` with the same launch id gives the same machine also to another process: to `again`, another value of the same provider.
///
/// # Errors
///
/// What was seen.
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
        trial
            .require(launched == other, || format!("one launch id gave {launched:?}, and another process {other:?}"))?;
        let listed = trial.list().await?;
        trial.require(listed.len() == 1, || format!("one launch id started {} machines: {listed:?}", listed.len()))
    })
    .await
}

/// Launches of two nodes are two machines, with ids and folders of their own.
///
/// # Errors
///
/// What was seen.
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

/// Dropping the future of `launch` leaves at most machines that `list` finds: once they are ended, none comes after them.
///
/// # Errors
///
/// What was seen.
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
                        // A wake-up of its own: what the launch waits for may take longer than this clause has.
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
                    format!("after {polls} polls and all that was listed had ended, there came {late:?}")
                })?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// `list` gives the live machines of a pool just as `launch` gave them, and those of no other pool.
///
/// # Errors
///
/// What was seen.
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
        trial.require(launched == listed, || format!("launched were {launched:?}, listed {listed:?}"))?;
        let other = trial.ask("list of a pool that never was", provider.list(&PoolId::random())).await?;
        trial.require(other.is_empty(), || format!("a pool that never was has {other:?}"))?;
        trial.terminate(&launched[0].id).await?;
        trial.gone(&launched[0].id).await?;
        let left = trial.list().await?;
        trial.require(left == launched[1..], || format!("left is {:?}, listed {left:?}", &launched[1..]))
    })
    .await
}

/// `list` finds a pool's machines from the provider's own records, not from this process's memory: `again`, another value of the same provider, finds and ends them.
///
/// # Errors
///
/// What was seen.
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
