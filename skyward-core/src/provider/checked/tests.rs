use std::sync::Mutex;

use super::*;
use crate::ids::{Attempt, LaunchId, MachineNumber};
use crate::provider::{Architecture, LaunchRequest};
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
    states: Mutex<Vec<Result<MachineState>>>,
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
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().outlives_client()
    }
    async fn identity(&self) -> Result<String> {
        Ok("here".to_owned())
    }
    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        self.wanted.lock().unwrap().push(requirements.clone());
        Ok(self.offers.clone())
    }
    async fn prepare(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let other = |request: &LaunchRequest| {
            let mut machine = Machine::of(batch, request, MachineId::new("m"));
            machine.launch = LaunchId::new("other");
            Ok(machine)
        };
        batch.requests.iter().map(other).collect()
    }
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        self.inspected.lock().unwrap().push(machines.len());
        let _held = self.inspecting.lock().await;
        tokio::time::sleep(self.inspect_takes).await;
        match next(&self.states) {
            Some(state) => Ok(vec![MachineReport::new(state?); machines.len()]),
            None => Ok(Vec::new()),
        }
    }
    async fn connect(&self, _: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
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
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        *self.calls.lock().unwrap() += 1;
        if self.hangs {
            std::future::pending::<()>().await;
        }
        machines.iter().map(|_| next(&self.answers).unwrap()).collect()
    }
    async fn teardown(&self, _: &PoolId) -> Result<()> {
        Ok(())
    }
    async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
        Ok(Vec::new())
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        Ok(Vec::new())
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Provider, "throttled").temporary()
}

async fn terminate_one(checked: &Checked, machine: &str) -> Result<()> {
    checked.terminate(&[MachineId::new(machine)]).await.remove(0)
}

async fn terminate(scripted: Scripted) -> (Result<()>, u32) {
    let scripted = Arc::new(scripted);
    let done = terminate_one(&Checked::new(scripted.clone()), "m-1").await;
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
    terminate_one(&checked, "m").await.unwrap_err();
    assert!(started.elapsed() <= Duration::from_secs(1));
}

#[tokio::test]
async fn a_broken_contract_is_named() {
    let checked = Checked::new(Arc::new(Scripted::default()));
    let error = checked.launch(&batch(1)).await.remove(0).unwrap_err();
    assert!(error.message().contains("another launch"), "{error}");
    let error = checked.inspect(&[MachineId::new("m")]).await.unwrap_err();
    assert!(error.message().contains("each machine"), "{error}");
}

fn wants(kind: Option<&str>, cpus: Option<u32>) -> Requirements {
    Requirements { accelerator: kind.map(|kind| Accelerator::new(kind, 1)), cpus, ..Requirements::default() }
}

fn with_offers() -> Scripted {
    let mut gpu = Offer::new("g5", "here", 8, 32);
    gpu.accelerator = Some(Accelerator::new("A10G", 1));
    gpu.usd_per_hour = Some(1.006);
    Scripted { offers: vec![Offer::new("m7", "here", 2, 8), gpu], ..Scripted::default() }
}

#[tokio::test]
async fn when_nothing_fits_the_hint_lists_what_there_is_and_what_it_does_not_have() {
    let checked = Checked::new(Arc::new(with_offers()));
    assert_eq!(checked.candidates(&wants(Some("a10g"), Some(4))).await.unwrap()[0].machine_type, "g5");
    let error = checked.candidates(&wants(Some("A10G"), Some(16))).await.unwrap_err();
    assert_eq!(error.message(), "the provider scripted has nothing with 1× A10G and 16 cores");
    assert_eq!(error.hint().unwrap(), "g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h) does not have: 16 cores");
    let error = checked.candidates(&wants(None, Some(16))).await.unwrap_err();
    assert_eq!(
        error.hint().unwrap(),
        "m7 in here (2 cores, 8 GiB) does not have: 16 cores; g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h) does not have: 16 cores"
    );
    let none = Checked::new(Arc::new(Scripted::default()));
    assert!(none.candidates(&wants(None, Some(4))).await.unwrap_err().hint().unwrap().contains("nothing at all"));
}

#[tokio::test]
async fn what_no_offer_can_serve_is_refused_by_name() {
    type Case = (fn(&mut Requirements), &'static str);
    let place = |wanted: &mut Requirements| wanted.places = vec!["eu-west-1a".to_owned()];
    let cases: [Case; 6] = [
        (|wanted| wanted.market = crate::provider::Market::Spot, "a spot price"),
        (place, "a place among eu-west-1a"),
        (|wanted| wanted.disk_gib = Some(500), "500 GiB of disk"),
        (|wanted| wanted.architecture = Some(Architecture::Aarch64), "an aarch64 processor"),
        (|wanted| wanted.most_usd_per_hour = Some(0.5), "a price of at most $0.5/h"),
        (|wanted| (wanted.cpus, wanted.market) = (Some(64), crate::provider::Market::Spot), "64 cores, a spot price"),
    ];
    for (want, lacks) in cases {
        let mut scripted = with_offers();
        scripted.offers.remove(0);
        let mut wanted = wants(Some("A10G"), None);
        want(&mut wanted);
        let error = Checked::new(Arc::new(scripted)).candidates(&wanted).await.unwrap_err();
        let shown = "g5 in here (8 cores, 32 GiB, 1× A10G, $1.01/h)";
        assert_eq!(error.message(), format!("the provider scripted has nothing with {wanted}"));
        assert_eq!(error.hint().unwrap(), format!("{shown} does not have: {lacks}"));
    }
    // What is only sold as spot is listed to who wants it on demand.
    let mut scripted = with_offers();
    scripted.offers.iter_mut().for_each(|offer| offer.spot = true);
    let error = Checked::new(Arc::new(scripted)).candidates(&wants(None, Some(4))).await.unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("m7 in here (2 cores, 8 GiB) does not have: 4 cores, an on-demand price; g5"), "{hint}");
}

#[tokio::test]
async fn an_accelerator_is_found_however_the_pool_and_the_provider_write_it() {
    let mut offer = Offer::new("p3", "here", 8, 61);
    offer.accelerator = Some(Accelerator::new("V100-SXM2", 1).with_memory_gib(16));
    let checked = Checked::new(Arc::new(Scripted { offers: vec![offer], ..Scripted::default() }));
    for kind in ["V100", "v100", "Tesla V100-SXM2-16GB"] {
        assert_eq!(checked.candidates(&wants(Some(kind), None)).await.unwrap()[0].machine_type, "p3", "{kind}");
    }
    for kind in ["V100-32GB", "P100", "V10"] {
        checked.candidates(&wants(Some(kind), None)).await.unwrap_err();
    }
}

#[tokio::test]
async fn when_the_accelerator_is_missing_no_offers_without_it_are_listed() {
    for cpus in [None, Some(4)] {
        let scripted = Arc::new(with_offers());
        let error = Checked::new(scripted.clone()).candidates(&wants(Some("H100"), cpus)).await.unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("no machine of it has 1× H100: "), "{hint}");
        assert!(!hint.contains("m7") && !hint.contains("g5"), "{hint}");
        // A provider that is not asked for an accelerator need not look for one.
        let asked = scripted.wanted.lock().unwrap().clone();
        assert!(asked.iter().all(|wanted| wanted.accelerator.is_some()), "{asked:?}");
    }
}

/// So many machines of one pool.
fn batch(count: u32) -> LaunchBatch {
    let pool = PoolId::random();
    let request = |number| {
        let number = MachineNumber(number);
        LaunchRequest::new(LaunchId::of(&pool, number, Attempt(1)), pool.clone(), number, MINUTE)
    };
    LaunchBatch::new(Offer::new("t", "p", 1, 1), (0..count).map(request).collect())
}

fn machine() -> Machine {
    let batch = batch(1);
    Machine::of(&batch, &batch.requests[0], MachineId::new("m-1"))
}

fn refused() -> Error {
    Error::new(ErrorKind::Io, "nothing listens on port 22").temporary()
}

/// Reaches a machine of a pool whose `Limits::start` is ten minutes.
async fn connect(scripted: Scripted) -> (Arc<Scripted>, Option<Error>) {
    let scripted = Arc::new(scripted);
    let checked = Checked::new(scripted.clone()).deadline(10 * MINUTE).of_pool(&PoolId::new("p"));
    let error = checked.connect(&machine(), &Place::new("127.0.0.1", "/f")).await.err();
    (scripted, error)
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_starts_is_reached_for_as_long_as_it_takes() {
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
    // Longer than a server takes to boot, and the provider was asked all the while; the last pauses are no longer than
    // the first ones, or a server that has just started would wait.
    assert!((3 * MINUTE..=800 * BOOTING).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert!(scripted.inspected.lock().unwrap().len() > 10);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_never_reached_is_given_up_at_the_limit_that_the_hint_names() {
    let started = Instant::now();
    let states = Mutex::new(vec![Ok(MachineState::Running)]);
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
    for state in [MachineState::Ending, MachineState::Gone] {
        for connect_hangs in [false, true] {
            let started = Instant::now();
            let states = Mutex::new(vec![Ok(MachineState::Starting), Ok(state)]);
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
        let states = Mutex::new(vec![Ok(MachineState::Running)]);
        let (scripted, error) = connect(Scripted { connects, states, ..Scripted::default() }).await;
        assert_eq!(error.unwrap().kind(), kind);
        assert_eq!(scripted.connected.lock().unwrap().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_says_what_it_failed_with_before() {
    let states = Mutex::new(vec![Ok(MachineState::Running)]);
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
    let states = Mutex::new(vec![Ok(MachineState::Running), Ok(MachineState::Gone)]);
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
    terminate_one(&reporting, "m").await.unwrap();
    assert_eq!(*heard.lock().unwrap(), ["throttled", "nothing listens on port 22"]);
}

/// Launches what its script says for each machine, by number.
#[derive(Debug, Default)]
struct Market {
    answers: Mutex<std::collections::BTreeMap<u32, Vec<Result<()>>>>,
    /// Which machines each call was for.
    asked: Mutex<Vec<Vec<u32>>>,
}

impl Market {
    async fn launch(self, count: u32) -> (Vec<Result<Machine>>, Vec<Vec<u32>>) {
        let market = Arc::new(self);
        let machines = Checked::new(market.clone()).launch(&batch(count)).await;
        let asked = market.asked.lock().unwrap().clone();
        (machines, asked)
    }
}

#[async_trait]
impl Provider for Market {
    fn name(&self) -> &str {
        "market"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }
    async fn identity(&self) -> Result<String> {
        Ok("here".to_owned())
    }
    async fn offers(&self, _: &Requirements) -> Result<Vec<Offer>> {
        Ok(Vec::new())
    }
    async fn prepare(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        self.asked.lock().unwrap().push(batch.requests.iter().map(|request| request.number.0).collect());
        let mut answers = self.answers.lock().unwrap();
        let one = |request: &LaunchRequest| {
            let script = answers.entry(request.number.0).or_default();
            let answer = if script.is_empty() { Ok(()) } else { script.remove(0) };
            answer.map(|()| Machine::of(batch, request, MachineId::new(request.launch.as_str())))
        };
        batch.requests.iter().map(one).collect()
    }
    async fn inspect(&self, _: &[MachineId]) -> Result<Vec<MachineReport>> {
        Ok(Vec::new())
    }
    async fn connect(&self, _: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        Err(refused())
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        machines.iter().map(|_| Ok(())).collect()
    }
    async fn teardown(&self, _: &PoolId) -> Result<()> {
        Ok(())
    }
    async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
        Ok(Vec::new())
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        Ok(Vec::new())
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_what_failed_for_now_alone_is_launched_again() {
    let final_error = Error::new(ErrorKind::Provider, "forbidden");
    let answers = [(1, vec![Err(busy()), Err(busy()), Ok(())]), (2, vec![Err(final_error)])];
    let market = Market { answers: Mutex::new(answers.into()), ..Market::default() };
    let (machines, asked) = market.launch(4).await;
    assert_eq!(asked, [vec![0, 1, 2, 3], vec![1], vec![1]]);
    let numbers: Vec<_> =
        machines.iter().map(|machine| machine.as_ref().ok().map(|machine| machine.number.0)).collect();
    assert_eq!(numbers, [Some(0), Some(1), None, Some(3)]);
    let error = machines[2].as_ref().unwrap_err();
    assert!(error.to_string().contains("forbidden") && error.to_string().contains("n2-a1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_tried_again_for_as_long_as_one_machine_may_be() {
    let always = vec![Err(busy()); 100];
    let (machines, asked) = Market { answers: Mutex::new([(0, always)].into()), ..Market::default() }.launch(2).await;
    assert_eq!((asked.len(), machines[1].is_ok()), (TRIES as usize, true));
    assert!(machines[0].as_ref().unwrap_err().to_string().contains("tries: 8"));
}

/// Waits for a machine whose provider reports these states one after another.
async fn until_there(states: Vec<MachineState>, queue: Duration) -> (Result<Place>, Duration, Vec<String>) {
    let states = Mutex::new(states.into_iter().map(Ok).collect());
    let checked = Checked::new(Arc::new(Scripted { states, ..Scripted::default() })).deadline(MINUTE);
    let (started, seen) = (Instant::now(), Mutex::new(Vec::new()));
    let on_report = |report: &MachineReport| seen.lock().unwrap().push(report.to_string());
    let there = checked.until_there(&MachineId::new("m"), Arriving { queue, pause: MINUTE }, on_report).await;
    (there.map(|(place, _)| place), started.elapsed(), seen.into_inner().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_never_there_is_given_up_at_the_limit_of_its_state() {
    for (state, most, setting) in [
        (MachineState::Queued, 10 * MINUTE, "`Limits::machine_wait`"),
        (MachineState::Starting, MINUTE, "`Limits::start`"),
        (MachineState::Unknown, MINUTE, "`Limits::start`"),
        // There, and nobody knows where.
        (MachineState::Running, MINUTE, "`Limits::start`"),
    ] {
        let (there, took, _) = until_there(vec![state], 10 * MINUTE).await;
        let error = there.unwrap_err();
        assert!((most..most + MINUTE / 2).contains(&took), "{state}: {took:?}");
        assert!(error.message().contains(&format!("as {state} after")), "{error}");
        assert!(error.hint().unwrap().contains(setting), "{state}: {error}");
    }
    // Nothing is concluded from what is not known: it is queued still.
    let (there, took, _) = until_there(vec![MachineState::Queued, MachineState::Unknown], 10 * MINUTE).await;
    assert!(took >= 10 * MINUTE && there.unwrap_err().hint().unwrap().contains("machine_wait"), "{took:?}");
    let (there, took, seen) = until_there(vec![MachineState::Starting, MachineState::Released], MINUTE).await;
    assert!(there.unwrap_err().message().ends_with("reports the machine m as released"));
    assert!(took < MINUTE && seen == ["starting", "released"], "{took:?} {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_asked_at_all_ends_the_wait_for_a_machine() {
    let started = Instant::now();
    let forbidden = Error::new(ErrorKind::Provider, "not authorized to describe machines");
    let states = Mutex::new(vec![Err(busy()), Err(busy()), Err(forbidden)]);
    let checked = Checked::new(Arc::new(Scripted { states, ..Scripted::default() })).deadline(10 * MINUTE);
    let wait = Arriving { queue: MINUTE, pause: MINUTE };
    let seen = Mutex::new(Vec::new());
    let on_report = |report: &MachineReport| seen.lock().unwrap().push(report.to_string());
    let error = checked.until_there(&MachineId::new("m"), wait, on_report).await.unwrap_err();
    assert!(error.to_string().contains("not authorized") && error.to_string().contains("machine: m"), "{error}");
    // The last words of a provider that is busy are shown.
    assert_eq!(*seen.lock().unwrap(), ["unknown: throttled", "unknown: throttled"]);
    assert!(started.elapsed() < MINUTE, "{:?}", started.elapsed());
}
