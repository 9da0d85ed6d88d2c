//! Which failed calls are retried, how often, and for how long.

use super::*;

async fn terminate(scripted: Scripted) -> (Result<()>, u32) {
    let scripted = Arc::new(scripted);
    let done = terminate_one(&Checked::new(scripted.clone()), "m-1").await;
    let calls = *scripted.calls.lock().unwrap();
    (done, calls)
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_temporary_error_is_retried() {
    let answers = Mutex::new(vec![Err(busy()), Err(busy()), Ok(())]);
    let (done, calls) = terminate(Scripted { answers, ..Scripted::default() }).await;
    assert!(done.is_ok());
    assert_eq!(calls, 3);
}

#[test]
fn pauses_differ_and_stay_within_their_bounds() {
    let pause = Duration::from_secs(8);
    let waits: Vec<_> = (0..100).map(|salt| jittered(pause, mixed(salt, "m"))).collect();
    assert!(waits.iter().all(|wait| (pause / 2..=pause).contains(wait)), "{waits:?}");
    let early = waits.iter().filter(|wait| **wait < pause * 3 / 4).count();
    assert!((25..75).contains(&early), "{early} of 100 are in the first half");
    assert_ne!(jittered(pause, mixed(1, "a")), jittered(pause, mixed(1, "b")));
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_final_error_is_not_retried() {
    let answers = Mutex::new(vec![Err(Error::new(ErrorKind::Provider, "forbidden")), Ok(())]);
    let (done, calls) = terminate(Scripted { answers, ..Scripted::default() }).await;
    assert_eq!(calls, 1);
    assert_eq!(done.unwrap_err().to_string(), "forbidden (provider: scripted, machine: m-1)");
}

#[tokio::test(start_paused = true)]
async fn retries_end() {
    let (done, calls) = terminate(Scripted { answers: Mutex::new(vec![Err(busy())]), ..Scripted::default() }).await;
    assert_eq!(calls, TRIES);
    assert_eq!(done.unwrap_err().to_string(), "throttled (provider: scripted, machine: m-1, tries: 8)");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_at_its_deadline() {
    let started = Instant::now();
    let (done, _) = terminate(Scripted { hangs: true, ..Scripted::default() }).await;
    let error = done.unwrap_err();
    assert_eq!(started.elapsed(), 2 * MINUTE);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.is_temporary());
    assert_eq!(error.message(), "scripted did not terminate the machine within 120s");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_all_tries_together() {
    let scripted = Scripted { answers: Mutex::new(vec![Err(busy())]), ..Scripted::default() };
    let started = Instant::now();
    let checked = Checked::new(Arc::new(scripted)).deadline(Duration::from_secs(1));
    terminate_one(&checked, "m").await.unwrap_err();
    assert!(started.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn each_error_before_a_retry_is_reported() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let answers = Mutex::new(vec![Err(busy()), Err(refused()), Ok(())]);
    let checked = Checked::new(Arc::new(Scripted { answers, ..Scripted::default() }));
    let reporting = checked.reporting(move |error| sink.lock().unwrap().push(error.message().to_owned()));
    terminate_one(&reporting, "m").await.unwrap();
    assert_eq!(*heard.lock().unwrap(), ["throttled", "nothing listens on port 22"]);
}
