//! How long the client tries to reach a machine.

use super::*;

fn machine() -> Machine {
    let batch = batch(1);
    Machine::of(&batch, &batch.requests[0], MachineId::new("m-1"))
}

/// Connects to a machine of a pool whose `Limits::start` is ten minutes.
async fn connect(scripted: Scripted) -> (Arc<Scripted>, Option<Error>) {
    let scripted = Arc::new(scripted);
    let checked = Checked::new(scripted.clone()).deadline(10 * MINUTE).of_pool(&PoolId::new("p"));
    let error = checked.connect(&machine(), &Place::new("127.0.0.1", "/f")).await.err();
    (scripted, error)
}

#[tokio::test(start_paused = true)]
async fn a_booting_machine_is_tried_for_as_long_as_it_takes() {
    let started = Instant::now();
    let connects = std::iter::repeat_n(Err(refused()), 800).chain([Ok(())]).collect();
    let states = vec![
        Ok(MachineState::Starting),
        Err(busy()),
        Ok(MachineState::Unknown),
        Ok(MachineState::Starting),
        Ok(MachineState::Running),
    ];
    let scripted = Scripted { connects: Mutex::new(connects), states: Mutex::new(states), ..Scripted::default() };
    let (scripted, error) = connect(scripted).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(scripted.connected.lock().unwrap().len(), 801);
    // Longer than a server takes to boot, with inspections all the while. The last pauses are no
    // longer than the first ones, or a server that has just booted would wait.
    assert!((3 * MINUTE..=800 * LONGEST_BOOTING_PAUSE).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert!(scripted.inspected.lock().unwrap().len() > 10);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_answers_is_given_up_at_the_limit_in_the_hint() {
    let started = Instant::now();
    let states = Mutex::new(vec![Ok(MachineState::Running)]);
    let scripted = Scripted { connects: Mutex::new(vec![Err(refused())]), states, ..Scripted::default() };
    let (_, error) = connect(scripted).await;
    let error = error.unwrap();
    assert!((9 * MINUTE..=10 * MINUTE).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(error.message(), "nothing listens on port 22");
    assert!(format!("{error:#}").contains("given up after: 600s"), "{error}");
    assert_eq!(error.hint(), Some("`Limits::start` gives more time"));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_ends_during_connect_is_given_up_at_once() {
    for state in [MachineState::Ending, MachineState::Gone] {
        for connect_hangs in [false, true] {
            let started = Instant::now();
            let states = Mutex::new(vec![Ok(MachineState::Starting), Ok(state)]);
            let connects = Mutex::new(vec![Err(refused())]);
            let reasons = Mutex::new(vec![None, Some(Reason::Failed)]);
            let scripted = Scripted { connects, states, reasons, connect_hangs, ..Scripted::default() };
            let error = connect(scripted).await.1.unwrap();
            // The second inspection is 2 seconds after the first.
            assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
            assert!(error.message().contains("reports the machine m-1 as"), "{error}");
            assert!(format!("{error:?}").ends_with("caused by: nothing listens on port 22"), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connect_is_not_retried_after_a_final_error() {
    for kind in [ErrorKind::Login, ErrorKind::HostKey] {
        let connects = Mutex::new(vec![Err(refused()), Err(Error::new(kind, "no")), Ok(())]);
        let states = Mutex::new(vec![Ok(MachineState::Running)]);
        let (scripted, error) = connect(Scripted { connects, states, ..Scripted::default() }).await;
        assert_eq!(error.unwrap().kind(), kind);
        assert_eq!(scripted.connected.lock().unwrap().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_call_that_hangs_has_the_last_error_before() {
    let states = Mutex::new(vec![Ok(MachineState::Running)]);
    let connects = Mutex::new(vec![Err(busy()), Err(refused())]);
    let (_, error) = connect(Scripted { connects, states, connect_hangs: true, ..Scripted::default() }).await;
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.message(), "scripted did not reach the machine within 600s");
    assert!(error.summary().ends_with(": nothing listens on port 22"), "{}", error.summary());
    assert!(format!("{error:?}").contains("caused by: nothing listens on port 22"), "{error:?}");
    assert_eq!(error.hint(), Some("`Limits::start` gives more time"));
}
