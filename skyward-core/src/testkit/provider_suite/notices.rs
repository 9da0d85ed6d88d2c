//! Clauses on ends that are known in advance.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::service::Service;
use super::timing::{CALL, END_REPORTED, NOTICES_ROUND, SERVICE_NOTICE, SHORT_LIFE};
use super::trial::{Trial, trial};
use crate::ids::MachineId;
use crate::provider::{MachineReport, MachineState, Place, Provider, Reason};
use crate::remote::Command;
use crate::testkit::Violation;
use crate::testkit::timing::LOOK_PAUSE;

/// What a report says of the time that a machine [has left](MachineReport::ends_in) is true: the
/// machine does not end before, and ends soon after. The clause launches a machine with an
/// [end](crate::provider::LaunchRequest::ends_in), and holds for a provider that reports none.
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn ends_in_is_true(provider: &(impl Provider + Clone)) -> Result<(), Violation> {
    trial("ends_in_is_true", provider, async |trial| {
        let mut batch = trial.batch(&[0]).await?;
        batch.requests.iter_mut().for_each(|request| request.ends_in = Some(SHORT_LIFE));
        let machine = trial.launch_batch("launch", &batch).await?.remove(0);
        loop {
            if let Some(first) = notice(trial, &machine.id).await? {
                return until_over(trial, &machine.id, first).await;
            }
            let state = trial.report(&machine.id).await?.state;
            if state.is_over() || state == MachineState::Running {
                return Ok(());
            }
            sleep(LOOK_PAUSE * 10).await;
        }
    })
    .await
}

/// The provider tells before its service takes a machine back: with
/// [`preemptible`](crate::provider::Capabilities::preemptible), `inspect` reports the time that is
/// left and that the machine is preempted; with a [watch command](Place::watch), the command prints
/// a notice. The clause holds for a service that cannot [preempt](Service::preempt).
///
/// # Errors
///
/// A [`Violation`] with what was seen, when the clause does not hold.
///
/// # Cancel safety
///
/// Dropping the future may leave the machine.
pub async fn preemptions_are_told(provider: &(impl Provider + Clone), service: &dyn Service) -> Result<(), Violation> {
    trial("preemptions_are_told", provider, async |trial| {
        let machine = trial.launch(0).await?;
        let place = trial.there(&machine).await?;
        let inspects = provider.capabilities().preemptible;
        if !inspects && place.watch.is_none() || !service.preempt(&machine.id, SERVICE_NOTICE).await {
            return Ok(());
        }
        // `None` where the provider does not promise to tell.
        let by_inspect = async { Ok(if inspects { Some(in_time(reported(trial, &machine.id)).await?) } else { None }) };
        let by_watch = async {
            Ok(if place.watch.is_some() { Some(in_time(printed(trial, &machine, &place)).await?) } else { None })
        };
        let (by_inspect, by_watch) = tokio::join!(by_inspect, by_watch);
        for (how, told) in [("`inspect`", by_inspect?), ("the watch command of its place", by_watch?)] {
            trial.require(told.is_none_or(|reason| reason == Some(Reason::Preempted)), || {
                format!(
                    "the service takes the machine {} back in {SERVICE_NOTICE:?}, and {how} must tell before that it \
                     is preempted: it told {}",
                    machine.id,
                    told.flatten().map_or("nothing".to_owned(), |reason| format!("that {reason}"))
                )
            })?;
        }
        Ok(())
    })
    .await
}

/// What the provider tells before the machine is taken back.
async fn in_time(told: impl Future<Output = Result<Option<Reason>, Violation>>) -> Result<Option<Reason>, Violation> {
    timeout(SERVICE_NOTICE, told).await.unwrap_or(Ok(None))
}

/// When a report came, and the time after which the machine ends by it.
#[derive(Debug, Clone, Copy)]
struct Notice {
    asked: Instant,
    told: Instant,
    left: Duration,
}

async fn notice(trial: &Trial<'_>, machine: &MachineId) -> Result<Option<Notice>, Violation> {
    let asked = Instant::now();
    let MachineReport { state, ends_in, .. } = trial.report(machine).await?;
    Ok(ends_in.filter(|_| !state.is_over()).map(|left| Notice { asked, told: Instant::now(), left }))
}

/// Follows a machine until it is over, and compares its end with what the reports said.
async fn until_over(trial: &Trial<'_>, machine: &MachineId, first: Notice) -> Result<(), Violation> {
    let (mut earliest, mut latest) = (first, first);
    loop {
        let report = trial.report(machine).await?;
        if report.state.is_over() {
            let ended = Instant::now();
            let told = latest.asked + latest.left;
            return trial.require(told <= ended + NOTICES_ROUND, || {
                format!(
                    "`inspect` reported that the machine {machine} ends in {:?}, and {:?} later it is {report}: it \
                     ended too early",
                    latest.left,
                    ended.saturating_duration_since(latest.asked)
                )
            });
        }
        if let Some(next) = notice(trial, machine).await? {
            if next.asked + next.left > latest.asked + latest.left {
                latest = next;
            }
            if next.told + next.left < earliest.told + earliest.left {
                earliest = next;
            }
        }
        let most = earliest.left + trial.settles_in() + END_REPORTED;
        trial.require(earliest.told.elapsed() < most, || {
            format!(
                "`inspect` reported that the machine {machine} ends in {:?}, and {:?} later it is {report}: it did \
                 not end",
                earliest.left,
                earliest.told.elapsed()
            )
        })?;
        sleep(SHORT_LIFE / 32).await;
    }
}

/// Waits until `inspect` reports the end of a running machine, and returns the reason.
async fn reported(trial: &Trial<'_>, machine: &MachineId) -> Result<Option<Reason>, Violation> {
    loop {
        let report = trial.report(machine).await?;
        if report.state == MachineState::Running && report.ends_in.is_some() {
            return Ok(report.reason);
        }
        if report.state.is_over() {
            return Ok(None);
        }
        sleep(LOOK_PAUSE * 10).await;
    }
}

/// Runs the watch command until it prints a notice, and returns the reason.
async fn printed(
    trial: &Trial<'_>,
    machine: &crate::provider::Machine,
    place: &Place,
) -> Result<Option<Reason>, Violation> {
    let remote = trial.connect(machine).await?;
    let lines = Mutex::new(Vec::new());
    let on_line = |line: &str| {
        if let Ok(mut lines) = lines.lock() {
            lines.push(line.to_owned());
        }
    };
    let command = Command::new(place.watch.iter().flatten().cloned()).deadline(CALL);
    let run = async {
        loop {
            // As the agent does, which starts the command again when it ends.
            let _ = timeout(CALL, remote.run(&command, &on_line)).await;
            sleep(LOOK_PAUSE * 100).await;
        }
    };
    let read = async {
        loop {
            if let Some(line) = lines.lock().ok().and_then(|mut lines| lines.pop()) {
                return line;
            }
            sleep(LOOK_PAUSE).await;
        }
    };
    let line = tokio::select! { line = read => line, () = run => String::new() };
    let mut words = line.split_whitespace();
    let (kind, seconds) = (words.next(), words.next().map(str::parse::<f64>));
    match (kind, seconds) {
        (Some("preempted"), Some(Ok(_))) => Ok(Some(Reason::Preempted)),
        (Some("expired"), Some(Ok(_))) => Ok(Some(Reason::Expired)),
        _ => Err(trial.violation(format!(
            "the watch command {:?} must print lines `KIND SECONDS WORDS`, of the kinds `preempted` and `expired`: it \
             printed {line:?}",
            place.watch
        ))),
    }
}
