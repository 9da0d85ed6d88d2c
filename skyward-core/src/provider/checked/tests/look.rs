//! Inspections of machines, and the wait until a machine runs.

use super::*;
use crate::error::WorkerExit;

#[tokio::test(start_paused = true)]
async fn inspections_at_one_moment_are_one_call() {
    let states = Mutex::new(vec![Ok(MachineState::Running), Ok(MachineState::Gone)]);
    let scripted = Arc::new(Scripted { states, ..Scripted::default() });
    let checked = Checked::new(scripted.clone());
    let ids: Vec<_> = (0..100).map(|number| MachineId::new(format!("m-{number}"))).collect();
    // A waiter that is dropped before the answer keeps no other waiter waiting.
    let _ = tokio::time::timeout(Duration::from_millis(5), checked.until_gone(&ids[0], Duration::ZERO)).await;
    let waits = ids.iter().map(|id| checked.until_gone(id, Duration::ZERO));
    let errors = futures_util::future::join_all(waits).await;
    assert!(errors.iter().all(|error| error.message().contains("as gone")), "{errors:?}");
    let inspected = scripted.inspected.lock().unwrap().clone();
    assert_eq!(inspected.len(), 2, "{inspected:?}");
    assert!(inspected.iter().all(|count| *count >= 100), "{inspected:?}");
}

#[tokio::test(start_paused = true)]
async fn an_inspection_without_waiters_is_dropped() {
    let scripted = Arc::new(Scripted { inspect_takes: MINUTE / 2, ..Scripted::default() });
    let checked = Checked::new(scripted.clone());
    let id = MachineId::new("m");
    let asked = tokio::time::timeout(Duration::from_secs(1), checked.until_gone(&id, Duration::ZERO)).await;
    assert!(asked.is_err());
    assert_eq!(*scripted.inspected.lock().unwrap(), [1]);
    // Others can have what it held.
    assert!(scripted.inspecting.try_lock().is_ok());
}

/// Waits for a machine whose provider reports these states in turn.
async fn until_there(states: Vec<MachineState>, queue: Duration) -> (Result<Place>, Duration, Vec<String>) {
    let states = Mutex::new(states.into_iter().map(Ok).collect());
    let checked = Checked::new(Arc::new(Scripted { states, ..Scripted::default() })).deadline(MINUTE);
    let (started, seen) = (Instant::now(), Mutex::new(Vec::new()));
    let on_report = |report: &MachineReport| seen.lock().unwrap().push(report.to_string());
    let there = checked.until_there(&MachineId::new("m"), Arriving { queue, pause: MINUTE }, on_report).await;
    (there.map(|(place, _)| place), started.elapsed(), seen.into_inner().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_runs_is_given_up_at_the_limit_of_its_state() {
    for (state, most, setting) in [
        (MachineState::Queued, 10 * MINUTE, "`Limits::machine_wait`"),
        (MachineState::Starting, MINUTE, "`Limits::start`"),
        (MachineState::Unknown, MINUTE, "`Limits::start`"),
        // It runs, but nobody knows where.
        (MachineState::Running, MINUTE, "`Limits::start`"),
    ] {
        let (there, took, _) = until_there(vec![state], 10 * MINUTE).await;
        let error = there.unwrap_err();
        assert!((most..most + MINUTE / 2).contains(&took), "{state}: {took:?}");
        assert!(error.message().contains(&format!("as {state} after")), "{error}");
        assert!(error.hint().unwrap().contains(setting), "{state}: {error}");
    }
    // `Unknown` concludes nothing: the machine still counts as queued.
    let (there, took, _) = until_there(vec![MachineState::Queued, MachineState::Unknown], 10 * MINUTE).await;
    assert!(took >= 10 * MINUTE && there.unwrap_err().hint().unwrap().contains("machine_wait"), "{took:?}");
    let (there, took, seen) = until_there(vec![MachineState::Starting, MachineState::Released], MINUTE).await;
    assert!(there.unwrap_err().message().ends_with("reports the machine m as released"));
    assert!(took < MINUTE && seen == ["starting", "released"], "{took:?} {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_final_error_of_inspect_ends_the_wait_for_a_machine() {
    let started = Instant::now();
    let forbidden = Error::new(ErrorKind::Provider, "not authorized to describe machines");
    let states = Mutex::new(vec![Err(busy()), Err(busy()), Err(forbidden)]);
    let checked = Checked::new(Arc::new(Scripted { states, ..Scripted::default() })).deadline(10 * MINUTE);
    let wait = Arriving { queue: MINUTE, pause: MINUTE };
    let seen = Mutex::new(Vec::new());
    let on_report = |report: &MachineReport| seen.lock().unwrap().push(report.to_string());
    let error = checked.until_there(&MachineId::new("m"), wait, on_report).await.unwrap_err();
    assert!(format!("{error:#}").contains("not authorized") && format!("{error:#}").contains("machine: m"), "{error}");
    // The last words of a provider that is busy are shown.
    assert_eq!(*seen.lock().unwrap(), ["unknown: throttled", "unknown: throttled"]);
    assert!(started.elapsed() < MINUTE, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_comes_a_moment_later_is_in_the_error_and_no_end_waits_longer_for_it() {
    let end = async |states: &[MachineState], reasons: &[Option<Reason>]| {
        let (states, started) = (states.iter().copied().map(Ok).collect(), Instant::now());
        let (states, reasons) = (Mutex::new(states), Mutex::new(reasons.to_vec()));
        let scripted = Arc::new(Scripted { states, reasons, ..Scripted::default() });
        let checked = Checked::new(scripted.clone()).deadline(MINUTE);
        let error = checked.until_gone(&MachineId::new("m"), Duration::ZERO).await;
        let asked = scripted.inspected.lock().unwrap().len();
        (error.exit().cloned(), asked, started.elapsed().as_secs())
    };
    use MachineState::{Ending, Gone, Released, Running, Unknown};
    let late = [None, Some(Reason::Preempted)];
    let preempted = Some(WorkerExit::Preempted);
    assert_eq!(end(&[Ending], &late).await, (preempted.clone(), 2, 1));
    assert_eq!(end(&[Released, Gone], &late).await, (preempted.clone(), 2, 1));
    assert_eq!(end(&[Ending], &late[1..]).await, (preempted, 1, 0), "it is known at once");
    assert_eq!(end(&[Ending], &late[..1]).await, (None, 2, 1), "it never comes");
    assert_eq!(end(&[Ending, Unknown], &late[..1]).await, (None, 2, 1));
    assert_eq!(end(&[Ending, Running], &late).await, (None, 2, 1), "it is the reason of another end");
    assert_eq!(end(&[Gone], &late[..1]).await, (None, 1, 0), "nobody can tell any more");
}
