//! Clauses on the end of machines.

use tokio::time::{Instant, sleep, timeout};

use super::timing::{
    CALL, CLOCKS_ROUND, KEEPER_END, LASTING_LEASE, LONGEST_LOOK_PAUSE, RENEWED_LEASE, SHORT_LEASE, SHORT_LIFE,
};
use super::trial::{LOOKS, trial};
use crate::provider::{Provider, Reason};
use crate::remote::Command;
use crate::testkit::Violation;
use crate::testkit::timing::LOOK_PAUSE;

/// `terminate` succeeds for a machine that has ended, and for one that the provider no longer
/// knows.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
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

/// `terminate` may be called before `launch` has returned, with any machine that `list` finds; the
/// machine does not come back.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn terminate_may_come_early(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("terminate_may_come_early", provider, async |trial| {
        let batch = trial.batch(&[0]).await?;
        let launch = timeout(CALL, provider.launch(&batch));
        let end = async {
            for _ in 0..LOOKS {
                for machine in trial.list().await? {
                    trial.end_one("terminate, while it is launched", provider, &machine.id).await?;
                }
                sleep(LOOK_PAUSE).await;
            }
            Ok(())
        };
        // The launch of a machine that is ended in the meantime may fail.
        let (launched, ended) = tokio::join!(launch, end);
        ended?;
        for machine in launched.into_iter().flatten().flatten() {
            trial.terminate(&machine.id).await?;
            trial.gone(&machine.id).await?;
        }
        let left = trial.listed("list", provider, <[_]>::is_empty).await?;
        trial.require(left.is_empty(), || format!("machines are left after their end: {left:?}"))
    })
    .await
}

/// `terminate` of several machines answers for each of them and ends each of them, and no other
/// machine.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
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
            format!("`terminate` of 2 machines returned {} answers; the first error is {failed:?}", answers.len())
        })?;
        for machine in &ended {
            trial.gone(machine).await?;
        }
        let report = trial.report(&b.id).await?;
        trial.require(!report.state.is_over(), || {
            format!("two other machines were terminated, and the machine {} is {report}", b.id)
        })
    })
    .await
}

/// When `terminate` has returned, `inspect` reports the machine as ending, released or gone, and
/// soon as gone.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
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

/// A machine ends with every process on it, including processes that left their session. The clause
/// is checked only for machines on the client's own host.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
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
        trial.require(left.is_empty(), || format!("the machine is gone, and its processes {left:?} still run"))
    })
    .await
}

/// A machine that is gone leaves nothing: its folder is gone with the files that a command has
/// written into it, and does not come back. The clause is checked only for machines on the client's
/// own host.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn gone_leaves_nothing(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("gone_leaves_nothing", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let place = trial.there(&machine).await?;
        if !place.on_client_host {
            return Ok(());
        }
        let remote = trial.connect(&machine).await?;
        let script = "mkdir -p \"$folder/suite/a b\"; : >\"$folder/suite/a b/file\"; : >\"$folder/.suite\"";
        let used = Command::script(script).env("folder", &place.folder);
        let output = trial.ask("run", remote.run(&used, &|_| {})).await?;
        trial.require(output.success(), || format!("a command that writes into the machine's folder {output:?}"))?;
        trial.terminate(&machine.id).await?;
        trial.gone(&machine.id).await?;
        for _ in 0..LOOKS {
            let left = std::path::Path::new(&place.folder).exists();
            trial.require(!left, || {
                format!(
                    "a command has written files into the folder {}, and then the machine was ended and is reported \
                     as gone: nothing of it may be left, and the folder exists",
                    place.folder
                )
            })?;
            sleep(LONGEST_LOOK_PAUSE / LOOKS).await;
        }
        Ok(())
    })
    .await
}

/// If the provider's capabilities include a keeper, the keeper ends a machine whose lease is not
/// renewed. The clause holds for a provider without a keeper.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn keeper_ends_the_machine(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("keeper_ends_the_machine", provider, async |trial| {
        if !provider.capabilities().keeper {
            println!(
                "{}: keeper_ends_the_machine has nothing to check: the capabilities say that there is no keeper",
                provider.name()
            );
            return Ok(());
        }
        let mut batch = trial.batch(&[0]).await?;
        for request in &mut batch.requests {
            (request.lease, request.boot) = (SHORT_LEASE, SHORT_LEASE);
        }
        let begun = Instant::now();
        let launched = trial.launch_batch("launch", &batch).await?;
        sleep(SHORT_LEASE / 2).await;
        for machine in &launched {
            let report = trial.report(&machine.id).await?;
            trial.require(!report.state.is_over(), || {
                format!("half a lease after its launch the machine {} is {report}", machine.id)
            })?;
        }
        let most = SHORT_LEASE * 2 + provider.capabilities().settles_in + KEEPER_END;
        let end = Instant::now() + most;
        for machine in launched {
            loop {
                let report = trial.report(&machine.id).await?;
                if report.state.is_released() {
                    trial.lived(&machine.id, &report, [SHORT_LEASE / 2, begun.elapsed()])?;
                    break;
                }
                trial.require(Instant::now() < end, || {
                    let lease = batch.requests[0].lease;
                    format!(
                        "the lease of {lease:?} was not renewed, and after {most:?} the machine {} is {report}",
                        machine.id
                    )
                })?;
                sleep(LONGEST_LOOK_PAUSE).await;
            }
        }
        Ok(())
    })
    .await
}

/// If the provider's capabilities include a keeper, the keeper ends a machine that was launched
/// [with an end](crate::provider::LaunchRequest::ends_in) at that time, even if its lease is
/// renewed. The clause holds for a provider without a keeper.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn keeper_ends_the_machine_at_its_time(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("keeper_ends_the_machine_at_its_time", provider, async |trial| {
        if !provider.capabilities().keeper {
            println!("{}: keeper_ends_the_machine_at_its_time has nothing to check: the capabilities say that there is no keeper", provider.name());
            return Ok(());
        }
        let mut batch = trial.batch(&[0]).await?;
        for request in &mut batch.requests {
            (request.lease, request.boot, request.ends_in) = (RENEWED_LEASE, LASTING_LEASE, Some(SHORT_LIFE));
        }
        let begun = Instant::now();
        let machine = trial.launch_batch("launch", &batch).await?.remove(0);
        let place = trial.there(&machine).await?;
        let remote = trial.connect(&machine).await?;
        let renew = Command::script("touch -c -m \"$folder/lease\"").env("folder", &place.folder).deadline(SHORT_LIFE);
        let most = SHORT_LIFE + provider.capabilities().settles_in + KEEPER_END;
        loop {
            // A machine that is ending may refuse the connection.
            let _ = timeout(SHORT_LIFE, remote.run(&renew, &|_| {})).await;
            let report = trial.report(&machine.id).await?;
            if report.state.is_over() {
                let lived = begun.elapsed();
                trial.require(lived + CLOCKS_ROUND >= SHORT_LIFE, || {
                    format!(
                        "the machine {} was launched for {SHORT_LIFE:?}, and after {lived:?} it is {report}",
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
                format!("the machine {} was launched for {SHORT_LIFE:?}, and after {most:?} it is {report}", machine.id)
            })?;
            sleep(SHORT_LIFE / 16).await;
        }
    })
    .await
}

/// Whether a process of this host runs; a process that only waits to be reaped does not.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}
