//! Clauses on the end of machines.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::trial::{BRIEF, LONGEST, LOOKS, PAUSE, trial};
use crate::provider::{Provider, Reason};
use crate::remote::Command;
use crate::testkit::Violation;

/// `terminate` of an ended machine, and of one that the provider knows no more, is fine.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_is_idempotent(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_is_idempotent", provider, async |trial| {
        let machine = trial.launch(0).await?;
        trial.terminate(&machine.id).await?;
        trial.end_one("terminate of an ending machine", provider, &machine.id).await?;
        trial.gone(&machine.id).await?;
        trial.end_one("terminate of an ended machine", provider, &machine.id).await?;
        trial.ask("teardown", provider.teardown(&trial.pool)).await?;
        trial.end_one("terminate of a machine of a pool that is gone", provider, &machine.id).await
    })
    .await
}

/// `terminate` may be called before `launch` has returned, of whatever `list` finds; the machine does not come back.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_may_come_early(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_may_come_early", provider, async |trial| {
        let batch = trial.batch(&[0]).await?;
        let launch = timeout(LONGEST, provider.launch(&batch));
        let end = async {
            for _ in 0..LOOKS {
                for machine in trial.list().await? {
                    trial.end_one("terminate, while it is launched", provider, &machine.id).await?;
                }
                sleep(BRIEF).await;
            }
            Ok(())
        };
        // The launch of a machine that is ended meanwhile may fail.
        let (launched, ended) = tokio::join!(launch, end);
        ended?;
        for machine in launched.into_iter().flatten().flatten() {
            trial.terminate(&machine.id).await?;
            trial.gone(&machine.id).await?;
        }
        let left = trial.list().await?;
        trial.require(left.is_empty(), || format!("after its end there still is {left:?}"))
    })
    .await
}

/// `terminate` of several machines answers for each and ends each of them, and no other.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machines.
pub async fn terminate_ends_each(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_ends_each", provider, async |trial| {
        let (a, b, c) = (trial.launch(0).await?, trial.launch(1).await?, trial.launch(2).await?);
        let ended = [a.id, c.id];
        let answers = trial.ask("terminate", async { Ok(provider.terminate(&ended).await) }).await?;
        let failed = answers.iter().find_map(|answer| answer.as_ref().err());
        trial.require(answers.len() == 2 && failed.is_none(), || {
            format!("`terminate` of 2 machines gave {} answers, {failed:?} among them", answers.len())
        })?;
        for machine in &ended {
            trial.gone(machine).await?;
        }
        let report = trial.report(&b.id).await?;
        trial.require(!report.state.is_over(), || format!("with two others the machine {} is {report}", b.id))
    })
    .await
}

/// When `terminate` has returned, `inspect` reports the machine as ending, released or gone, and soon as gone.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_is_seen(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_is_seen", provider, async |trial| {
        let machine = trial.launch(0).await?;
        trial.terminate(&machine.id).await?;
        let report = trial.report(&machine.id).await?;
        trial.require(report.state.is_over(), || format!("after `terminate` the machine is {report}"))?;
        trial.gone(&machine.id).await
    })
    .await
}

/// A machine ends with all that runs on it, also with what left its session. Seen only of machines on the client's own host.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_ends_what_runs(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_ends_what_runs", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let place = trial.there(&machine).await?;
        if !place.on_client_host {
            return Ok(());
        }
        let remote = trial.connect(&machine).await?;
        let script = "sleep 600 >/dev/null 2>&1 & echo $!\nsetsid sleep 600 >/dev/null 2>&1 & echo $!";
        let output = trial.ask("run", remote.run(&Command::script(script), &|_| {})).await?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        let left: Vec<&str> = output.stdout.split_whitespace().filter(|pid| lives(pid)).collect();
        trial.require(left.is_empty(), || format!("the machine is gone, and its processes {left:?} run on"))
    })
    .await
}

/// A machine that is gone has left nothing: its folder is gone. Seen only of machines on the client's own host.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn gone_leaves_nothing(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("gone_leaves_nothing", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let place = trial.there(&machine).await?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        let left = place.on_client_host && std::path::Path::new(&place.folder).exists();
        trial.require(!left, || format!("the machine is gone, and its folder {} is there", place.folder))
    })
    .await
}

/// Where the provider says that a keeper ends each machine whose lease is not renewed, one does.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn keeper_ends_the_machine(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("keeper_ends_the_machine", provider, async |trial| {
        if !provider.capabilities().keeper {
            return Ok(());
        }
        let mut batch = trial.batch(&[0]).await?;
        for request in &mut batch.requests {
            (request.lease, request.boot) = (SHORT_LEASE, SHORT_LEASE);
        }
        let launched = trial.launch_batch("launch", &batch).await?;
        sleep(SHORT_LEASE / 2).await;
        for machine in &launched {
            let report = trial.report(&machine.id).await?;
            trial.require(!report.state.is_over(), || {
                format!("half a lease after its launch the machine {} is {report}", machine.id)
            })?;
        }
        let most = SHORT_LEASE * 2 + provider.capabilities().settles_in + KEPT;
        let end = Instant::now() + most;
        for machine in launched {
            loop {
                let report = trial.report(&machine.id).await?;
                if report.state.is_released() {
                    break;
                }
                trial.require(Instant::now() < end, || {
                    let lease = batch.requests[0].lease;
                    format!(
                        "nobody renewed the lease of {lease:?}, and after {most:?} the machine {} is {report}",
                        machine.id
                    )
                })?;
                sleep(PAUSE).await;
            }
        }
        Ok(())
    })
    .await
}

/// Where the provider says that a keeper ends each machine, one ends the machine that is launched [with an end](crate::provider::LaunchRequest::ends_in) then, though its lease is renewed.
///
/// # Errors
///
/// What was seen.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn keeper_ends_the_machine_at_its_time(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("keeper_ends_the_machine_at_its_time", provider, async |trial| {
        if !provider.capabilities().keeper {
            println!("{}: keeper_ends_the_machine_at_its_time is skipped: it has no keeper", provider.name());
            return Ok(());
        }
        let mut batch = trial.batch(&[0]).await?;
        for request in &mut batch.requests {
            (request.lease, request.boot, request.ends_in) = (LONG_LEASE, LONGEST, Some(SHORT_LIFE));
        }
        let begun = Instant::now();
        let machine = trial.launch_batch("launch", &batch).await?.remove(0);
        let place = trial.there(&machine).await?;
        let remote = trial.connect(&machine).await?;
        let renew = Command::script("touch -c -m \"$folder/lease\"").env("folder", &place.folder).deadline(SHORT_LIFE);
        let most = SHORT_LIFE + provider.capabilities().settles_in + KEPT;
        loop {
            // One that is on its way out need not be reached any more.
            let _ = timeout(SHORT_LIFE, remote.run(&renew, &|_| {})).await;
            let report = trial.report(&machine.id).await?;
            if report.state.is_over() {
                let lived = begun.elapsed();
                trial.require(lived + BRIEF >= SHORT_LIFE, || {
                    format!(
                        "the machine {} was to live for {SHORT_LIFE:?}, and after {lived:?} it is {report}",
                        machine.id
                    )
                })?;
                let reason = report.reason.is_none_or(|reason| reason == Reason::Expired);
                trial.require(reason, || {
                    format!("the time of the machine {} was over, and it is {report}", machine.id)
                })?;
                return trial.gone(&machine.id).await;
            }
            trial.require(begun.elapsed() < most, || {
                format!("the machine {} was to live for {SHORT_LIFE:?}, and after {most:?} it is {report}", machine.id)
            })?;
            sleep(SHORT_LIFE / 16).await;
        }
    })
    .await
}

/// Whether a process of this host runs; one that only waits to be reaped does not.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// The lease of a machine that nobody renews.
const SHORT_LEASE: Duration = Duration::from_secs(4);
/// The lease of a machine that is renewed.
const LONG_LEASE: Duration = Duration::from_secs(60);
/// After which time a machine ends whose lease is renewed.
const SHORT_LIFE: Duration = Duration::from_secs(6);
/// What a keeper gets to end what runs on its machine, on a host that is busy.
const KEPT: Duration = Duration::from_secs(10);
