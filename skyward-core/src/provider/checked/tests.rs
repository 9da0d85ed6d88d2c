use std::sync::Mutex;

use super::*;
use crate::ids::{Attempt, LaunchId, NodeIndex};
use crate::spec::Accelerator;

/// Answers `terminate`, `connect` and `inspect` with what is scripted, the last for ever; `launch` with another launch's machine.
#[derive(Debug, Default)]
struct Scripted {
    answers: Mutex<Vec<Result<()>>>,
    calls: Mutex<u32>,
    hangs: bool,
    offers: Vec<Offer>,
    /// What `offers` was asked for.
    wanted: Mutex<Vec<Requirements>>,
    connects: Mutex<Vec<Result<()>>>,
    /// When `connect` was called.
    connected: Mutex<Vec<Instant>>,
    /// After these, `connect` does not return.
    connect_hangs: bool,
    states: Mutex<Vec<Result<MachineStatus>>>,
    /// Held by `inspect` while it waits for `inspect_takes`.
    inspecting: tokio::sync::Mutex<()>,
    inspect_takes: Duration,
    /// About how many machines `inspect` was asked each time.
    inspected: Mutex<Vec<usize>>,
}

/// The next answer of a script; the last for ever.
fn next<T: Clone>(script: &Mutex<Vec<T>>) -> Option<T> {
    let mut script = script.lock().unwrap();
    if script.len() > 1 { Some(script.remove(0)) } else { script.first().cloned() }
}

#[async_trait]
impl Provider for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }
    async fn identity(&self) -> Result<Option<String>> {
        Ok(None)
    }
    fn outlives_client(&self) -> bool {
        true
    }
    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        self.wanted.lock().unwrap().push(requirements.clone());
        Ok(self.offers.clone())
    }
    async fn prepare(&self, _: &PoolId) -> Result<()> {
        Ok(())
    }
    async fn launch(&self, request: &LaunchRequest) -> Result<Machine> {
        let mut other = request.clone();
        other.launch = LaunchId::new("other");
        Ok(Machine::new(&other, MachineId::new("m"), "127.0.0.1", "/f"))
    }
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineStatus>> {
        self.inspected.lock().unwrap().push(machines.len());
        let _held = self.inspecting.lock().await;
        tokio::time::sleep(self.inspect_takes).await;
        match next(&self.states) {
            Some(state) => Ok(vec![state?; machines.len()]),
            None => Ok(Vec::new()),
        }
    }
    async fn connect(&self, _: &Machine) -> Result<Box<dyn Remote>> {
        self.connected.lock().unwrap().push(Instant::now());
        if self.connect_hangs && self.connects.lock().unwrap().is_empty() {
            std::future::pending::<()>().await;
        }
        let answer = match self.connect_hangs {
            true => self.connects.lock().unwrap().remove(0),
            false => next(&self.connects).unwrap_or(Ok(())),
        };
        answer.map(|()| Box::new(crate::remote::Process::new()) as Box<dyn Remote>)
    }
    async fn terminate(&self, _: &MachineId) -> Result<()> {
        *self.calls.lock().unwrap() += 1;
        if self.hangs {
            std::future::pending::<()>().await;
        }
        next(&self.answers).unwrap()
    }
    async fn teardown(&self, _: &PoolId) -> Result<()> {
        Ok(())
    }
    async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
        Ok(Vec::new())
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Provider, "throttled").temporary()
}

async fn terminate(scripted: Scripted) -> (Result<()>, u32) {
    let scripted = Arc::new(scripted);
    let done = Checked::new(scripted.clone()).terminate(&MachineId::new("m-1")).await;
    let calls = *scripted.calls.lock().unwrap();
    (done, calls)
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_now_is_tried_again() {
    let answers = Mutex::new(vec![Err(busy()), Err(busy()), Ok(())]);
    let (done, calls) = terminate(Scripted { answers, ..Scripted::default() }).await;
    assert_eq!((done.is_ok(), calls), (true, 3));
}

#[test]
fn waits_differ_and_are_within_their_bounds() {
    let pause = Duration::from_secs(8);
    let waits: Vec<_> = (0..100).map(|salt| jittered(pause, mixed(salt, "m"))).collect();
    assert!(waits.iter().all(|wait| (pause / 2..=pause).contains(wait)), "{waits:?}");
    let early = waits.iter().filter(|wait| **wait < pause * 3 / 4).count();
    assert!((25..75).contains(&early), "{early} of 100 are in the first half");
    assert_ne!(jittered(pause, mixed(1, "a")), jittered(pause, mixed(1, "b")));
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_good_is_not() {
    let answers = Mutex::new(vec![Err(Error::new(ErrorKind::Provider, "forbidden")), Ok(())]);
    let (done, calls) = terminate(Scripted { answers, ..Scripted::default() }).await;
    assert_eq!(calls, 1);
    assert_eq!(done.unwrap_err().to_string(), "forbidden (provider: scripted, machine: m-1)");
}

#[tokio::test(start_paused = true)]
async fn tries_end() {
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
    assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, ErrorStatus::Temporary));
    assert_eq!(error.message(), "scripted did not terminate the machine within 120s");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_for_all_tries_together() {
    let scripted = Scripted { answers: Mutex::new(vec![Err(busy())]), ..Scripted::default() };
    let started = Instant::now();
    let checked = Checked::new(Arc::new(scripted)).deadline(Duration::from_secs(1));
    checked.terminate(&MachineId::new("m")).await.unwrap_err();
    assert!(started.elapsed() <= Duration::from_secs(1));
}

#[tokio::test]
async fn a_broken_contract_is_named() {
    let checked = Checked::new(Arc::new(Scripted::default()));
    let (pool, node) = (PoolId::random(), NodeIndex(0));
    let launch = LaunchId::of(&pool, node, Attempt(1));
    let request = LaunchRequest::new(launch, pool, node, Offer::new("t", "p", 1, 1), MINUTE);
    assert!(checked.launch(&request).await.unwrap_err().message().contains("another launch"));
    let error = checked.inspect(&[MachineId::new("m")]).await.unwrap_err();
    assert!(error.message().contains("each machine"), "{error}");
}

fn wants(kind: Option<&str>, cpus: Option<u32>) -> Requirements {
    Requirements { accelerator: kind.map(|kind| Accelerator::new(kind, 1)), cpus, ..Requirements::default() }
}

fn with_offers() -> Scripted {
    let mut gpu = Offer::new("g5", "here", 8, 32);
    gpu.accelerator = Some(Accelerator::new("A10G", 1));
    gpu.usd_per_hour = 1.006;
    Scripted { offers: vec![Offer::new("m7", "here", 2, 8), gpu], ..Scripted::default() }
}

#[tokio::test]
async fn when_nothing_fits_the_hint_lists_what_meets_all_but_the_size() {
    let checked = Checked::new(Arc::new(with_offers()));
    assert_eq!(checked.choose(&wants(Some("a10g"), Some(4))).await.unwrap().machine_type, "g5");
    let error = checked.choose(&wants(Some("A10G"), Some(16))).await.unwrap_err();
    assert_eq!(error.message(), "the provider scripted has nothing with 1× A10G and 16 cores");
    assert_eq!(error.hint().unwrap(), "it has: g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h)");
    let error = checked.choose(&wants(None, Some(16))).await.unwrap_err();
    assert_eq!(
        error.hint().unwrap(),
        "it has: m7 in here (2 cores, 8 GiB); g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h)"
    );
    let none = Checked::new(Arc::new(Scripted::default()));
    assert!(none.choose(&wants(None, Some(4))).await.unwrap_err().hint().unwrap().contains("nothing at all"));
}

#[tokio::test]
async fn an_accelerator_is_found_however_the_pool_and_the_provider_write_it() {
    let mut offer = Offer::new("p3", "here", 8, 61);
    offer.accelerator = Some(Accelerator::new("V100-SXM2", 1).with_memory_gib(16));
    let checked = Checked::new(Arc::new(Scripted { offers: vec![offer], ..Scripted::default() }));
    for kind in ["V100", "v100", "Tesla V100-SXM2-16GB"] {
        assert_eq!(checked.choose(&wants(Some(kind), None)).await.unwrap().machine_type, "p3", "{kind}");
    }
    for kind in ["V100-32GB", "P100", "V10"] {
        checked.choose(&wants(Some(kind), None)).await.unwrap_err();
    }
}

#[tokio::test]
async fn when_the_accelerator_is_missing_no_offers_without_it_are_listed() {
    for cpus in [None, Some(4)] {
        let scripted = Arc::new(with_offers());
        let error = Checked::new(scripted.clone()).choose(&wants(Some("H100"), cpus)).await.unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("no machine of it has 1× H100: "), "{hint}");
        assert!(!hint.contains("m7") && !hint.contains("g5"), "{hint}");
        // A provider that is not asked for an accelerator need not look for one.
        let asked = scripted.wanted.lock().unwrap().clone();
        assert!(asked.iter().all(|wanted| wanted.accelerator.is_some()), "{asked:?}");
    }
}

fn machine() -> Machine {
    let (pool, node) = (PoolId::random(), NodeIndex(0));
    let launch = LaunchId::of(&pool, node, Attempt(1));
    let request = LaunchRequest::new(launch, pool, node, Offer::new("t", "p", 1, 1), MINUTE);
    Machine::new(&request, MachineId::new("m-1"), "127.0.0.1", "/f")
}

fn refused() -> Error {
    Error::new(ErrorKind::Io, "nothing listens on port 22").temporary()
}

/// Reaches a machine of a pool whose `Limits::start` is ten minutes.
async fn connect(scripted: Scripted) -> (Arc<Scripted>, Option<Error>) {
    let scripted = Arc::new(scripted);
    let checked = Checked::new(scripted.clone()).deadline(10 * MINUTE).of_pool(&PoolId::new("p"));
    let error = checked.connect(&machine()).await.err();
    (scripted, error)
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_starts_is_reached_for_as_long_as_it_takes() {
    let started = Instant::now();
    let connects = std::iter::repeat_n(Err(refused()), 40).chain([Ok(())]).collect();
    let states = vec![
        Ok(MachineStatus::Starting),
        Err(busy()),
        Ok(MachineStatus::Unknown),
        Ok(MachineStatus::Starting),
        Ok(MachineStatus::Running),
    ];
    let scripted = Scripted { connects: Mutex::new(connects), states: Mutex::new(states), ..Scripted::default() };
    let (scripted, error) = connect(scripted).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(scripted.connected.lock().unwrap().len(), 41);
    // Longer than a server takes to boot, and the provider was asked all the while.
    assert!(started.elapsed() > 3 * MINUTE, "{:?}", started.elapsed());
    assert!(scripted.inspected.lock().unwrap().len() > 10);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_never_reached_is_given_up_at_the_limit_that_the_hint_names() {
    let started = Instant::now();
    let states = Mutex::new(vec![Ok(MachineStatus::Running)]);
    let scripted = Scripted { connects: Mutex::new(vec![Err(refused())]), states, ..Scripted::default() };
    let (_, error) = connect(scripted).await;
    let error = error.unwrap();
    assert!((9 * MINUTE..=10 * MINUTE).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!((error.kind(), error.message()), (ErrorKind::Io, "nothing listens on port 22"));
    assert!(error.to_string().contains("given up after: 600s"), "{error}");
    assert_eq!(error.hint(), Some("`Limits::start` gives more time"));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_ends_while_it_is_reached_is_given_up_at_once() {
    for state in [MachineStatus::Ending, MachineStatus::Gone] {
        for connect_hangs in [false, true] {
            let started = Instant::now();
            let states = Mutex::new(vec![Ok(MachineStatus::Starting), Ok(state)]);
            let connects = Mutex::new(vec![Err(refused())]);
            let (_, error) = connect(Scripted { connects, states, connect_hangs, ..Scripted::default() }).await;
            let error = error.unwrap();
            // The second look is 2 seconds after the first.
            assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
            assert!(error.message().contains("reports the machine m-1 as"), "{error}");
            assert!(format!("{error:?}").ends_with("caused by: nothing listens on port 22"), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_error_of_connect_is_not_tried_again() {
    for kind in [ErrorKind::Login, ErrorKind::HostKey] {
        let connects = Mutex::new(vec![Err(refused()), Err(Error::new(kind, "no")), Ok(())]);
        let states = Mutex::new(vec![Ok(MachineStatus::Running)]);
        let (scripted, error) = connect(Scripted { connects, states, ..Scripted::default() }).await;
        assert_eq!(error.unwrap().kind(), kind);
        assert_eq!(scripted.connected.lock().unwrap().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_says_what_it_failed_with_before() {
    let states = Mutex::new(vec![Ok(MachineStatus::Running)]);
    let connects = Mutex::new(vec![Err(busy()), Err(refused())]);
    let (_, error) = connect(Scripted { connects, states, connect_hangs: true, ..Scripted::default() }).await;
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        error.message(),
        "scripted did not reach the machine within 600s; before, it failed with: nothing listens on port 22"
    );
    assert!(format!("{error:?}").contains("caused by: nothing listens on port 22"), "{error:?}");
    assert_eq!(error.hint(), Some("`Limits::start` gives more time"));
}

#[tokio::test(start_paused = true)]
async fn machines_that_are_asked_about_at_one_moment_are_one_question() {
    let states = Mutex::new(vec![Ok(MachineStatus::Running), Ok(MachineStatus::Gone)]);
    let scripted = Arc::new(Scripted { states, ..Scripted::default() });
    let checked = Checked::new(scripted.clone());
    let ids: Vec<_> = (0..100).map(|number| MachineId::new(format!("m-{number}"))).collect();
    // One that is dropped before it is answered keeps nobody waiting.
    let _ = tokio::time::timeout(Duration::from_millis(5), checked.until_gone(&ids[0], Duration::ZERO)).await;
    let waits = ids.iter().map(|id| checked.until_gone(id, Duration::ZERO));
    let errors = futures_util::future::join_all(waits).await;
    assert!(errors.iter().all(|error| error.message().contains("as gone")), "{errors:?}");
    let inspected = scripted.inspected.lock().unwrap().clone();
    assert_eq!(inspected.len(), 2, "{inspected:?}");
    assert!(inspected.iter().all(|count| *count >= 100), "{inspected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_waits_for_any_more_is_dropped() {
    let scripted = Arc::new(Scripted { inspect_takes: MINUTE / 2, ..Scripted::default() });
    let checked = Checked::new(scripted.clone());
    let id = MachineId::new("m");
    let asked = tokio::time::timeout(Duration::from_secs(1), checked.until_gone(&id, Duration::ZERO)).await;
    assert!(asked.is_err());
    assert_eq!(*scripted.inspected.lock().unwrap(), [1]);
    // Whatever it held others may have now.
    assert!(scripted.inspecting.try_lock().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_tried_again_is_reported() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let answers = Mutex::new(vec![Err(busy()), Err(refused()), Ok(())]);
    let checked = Checked::new(Arc::new(Scripted { answers, ..Scripted::default() }));
    let reporting = checked.reporting(move |error| sink.lock().unwrap().push(error.message().to_owned()));
    reporting.terminate(&MachineId::new("m")).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), ["throttled", "nothing listens on port 22"]);
}
