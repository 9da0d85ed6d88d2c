use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::super::ledger::tests::{Record, Scratch, head, intent, lines, machine};
use super::*;
use crate::provider::{
    Capabilities, LaunchBatch, MachineReport, MachineState, Offer, Place, PoolRecord, PoolRequest, Requirements,
};
use crate::remote::Remote;

/// A provider with a list of machines.
#[derive(Debug, Default)]
pub(in crate::pool) struct Cloud {
    name: &'static str,
    identity: Option<&'static str>,
    machines: Mutex<Vec<Machine>>,
    /// From which look on its list has them.
    lists_from: usize,
    looks: AtomicUsize,
    /// Says that it ends machines, and does not.
    stuck: bool,
    /// Answers with an error alone.
    silent: bool,
    pub(in crate::pool) outlives: bool,
    torn_down: AtomicUsize,
    /// How often machines were ended, each with its id.
    ended: Mutex<Vec<MachineId>>,
    /// Those that it lists.
    pools: Mutex<Vec<PoolRecord>>,
    /// Its pools have live machines from the second look on.
    revives: bool,
}

#[async_trait]
impl Provider for Cloud {
    fn name(&self) -> &str {
        self.name
    }
    fn capabilities(&self) -> Capabilities {
        if self.outlives { Capabilities::new().outlives_client() } else { Capabilities::new() }
    }
    async fn identity(&self) -> Result<String> {
        self.answers()?;
        Ok(self.identity.unwrap_or("here").to_owned())
    }
    async fn offers(&self, _: &Requirements) -> Result<Vec<Offer>> {
        Ok(Vec::new())
    }
    async fn prepare(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let refused = |_| Err(Error::new(ErrorKind::Provider, "nothing is launched here"));
        batch.requests.iter().map(refused).collect()
    }
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let there = self.machines.lock().unwrap();
        let state = |id: &MachineId| {
            if there.iter().any(|machine| machine.id == *id) { MachineState::Running } else { MachineState::Gone }
        };
        Ok(machines.iter().map(|id| MachineReport::new(state(id))).collect())
    }
    async fn connect(&self, _: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        Err(Error::new(ErrorKind::Provider, "nothing is reached here"))
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        self.ended.lock().unwrap().extend_from_slice(machines);
        if !self.stuck {
            self.machines.lock().unwrap().retain(|other| !machines.contains(&other.id));
        }
        machines.iter().map(|_| Ok(())).collect()
    }
    async fn teardown(&self, _: &PoolId) -> Result<()> {
        self.torn_down.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    async fn list(&self, _: &PoolId) -> Result<Vec<Machine>> {
        // As an answer that takes time, so that whoever asks is pending at least once.
        tokio::task::yield_now().await;
        self.answers()?;
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        Ok(if look >= self.lists_from { self.machines.lock().unwrap().clone() } else { Vec::new() })
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        self.answers()?;
        let mut pools = self.pools.lock().unwrap();
        let listed = pools.clone();
        if self.revives {
            pools.iter_mut().for_each(|pool| pool.expires = SystemTime::now() + Duration::from_secs(60));
        }
        Ok(listed)
    }
}

impl Cloud {
    fn answers(&self) -> Result<()> {
        if self.silent { Err(Error::new(ErrorKind::Provider, "it is down")) } else { Ok(()) }
    }
}

/// A ledger with one pool of a dead owner at the provider `cloud` with the identity `here`, whose node 0 was told and node 1 only intended.
fn left_behind() -> (Scratch, PoolId, Vec<Machine>) {
    left_behind_at(super::super::ledger::now())
}

/// The same, at this time of a clock that may have been set since.
fn left_behind_at(now: u64) -> (Scratch, PoolId, Vec<Machine>) {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let machines = vec![machine(&pool, 0), machine(&pool, 1)];
    scratch.write(
        &pool,
        &lines(vec![
            head(&pool, "cloud", Some("here")),
            intent(&machines[0], now),
            intent(&machines[1], now),
            super::super::ledger::tests::fact(&machines[0]),
        ]),
    );
    (scratch, pool, machines)
}

async fn reap_with(scratch: &Scratch, clouds: &[&Arc<Cloud>]) -> Reaped {
    let providers = clouds.iter().map(|cloud| Arc::clone(*cloud) as Arc<dyn Provider>).collect();
    reap_in(scratch.0.clone(), providers).await.unwrap()
}

#[tokio::test]
async fn a_machine_that_the_provider_lists_late_is_ended_too() {
    let (scratch, pool, machines) = left_behind();
    let ids: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    let cloud = Arc::new(Cloud {
        name: "cloud",
        identity: Some("here"),
        machines: Mutex::new(machines),
        lists_from: 3,
        ..Cloud::default()
    });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert_eq!((&reaped.ended[0].pool, &reaped.ended[0].machines), (&pool, &ids));
    assert!(cloud.machines.lock().unwrap().is_empty());
    assert!(cloud.torn_down.load(Ordering::Relaxed) > 0);
    assert_eq!(scratch.files(), 0);
    assert_eq!(reap_with(&scratch, &[&cloud]).await.to_string(), "nothing was left behind");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_changes_neither_what_is_ended_nor_how_long_it_takes() {
    let now = super::super::ledger::now();
    for written in [0, now - 3600, now, now + 3600, u64::MAX] {
        // The second one appears in the list a second after the first look.
        for lists_from in [3, usize::MAX] {
            let (scratch, pool, machines) = left_behind_at(written);
            let cloud =
                Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), lists_from, ..Cloud::default() });
            let started = Instant::now();
            let given = [&cloud];
            let reaped = tokio::time::timeout(PATIENCE, reap_with(&scratch, &given)).await.unwrap();
            assert_eq!(reaped.ended.len(), 1, "written at {written}: {reaped}");
            let ended = cloud.ended.lock().unwrap().contains(&MachineId::new(format!("{pool}.n1")));
            assert_eq!(ended, lists_from == 3, "written at {written}: {reaped}");
            assert!(started.elapsed() < Duration::from_secs(10), "written at {written}: {:?}", started.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_was_just_preparing_is_removed_when_it_comes() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    scratch.write(&pool, &lines(vec![head(&pool, "cloud", Some("here"))]));
    let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
    let given = [&cloud];
    let reap = reap_with(&scratch, &given);
    let come = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cloud.torn_down.load(Ordering::Relaxed)
    };
    let (reaped, before) = tokio::join!(reap, come);
    assert_eq!(reaped.ended.len(), 1, "{reaped}");
    assert!(cloud.torn_down.load(Ordering::Relaxed) > before, "what came after a second is there still");
}

#[tokio::test]
async fn a_pool_of_a_newer_version_is_left_with_a_word_and_keeps_no_other_from_being_ended() {
    let (scratch, _, machines) = left_behind();
    let newer = PoolId::random();
    let Record::Pool(mut first) = head(&newer, "cloud", Some("here")) else { unreachable!() };
    first.version += 1;
    let written = lines(vec![Record::Pool(first), intent(&machine(&newer, 0), 1)]);
    scratch.write(&newer, &written);
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert_eq!((reaped.ended.len(), reaped.left.len()), (1, 1), "{reaped}");
    assert_eq!(reaped.left[0].pool, newer);
    let text = reaped.left[0].error.to_string();
    assert!(text.contains("written by a newer version: 3, and this one knows 2"), "{text}");
    assert!(text.contains("reap with the newer version"), "{text}");
    assert_eq!(scratch.read(&newer), written);
    assert_eq!(scratch.files(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_was_cut_off_at_any_byte_is_ended_or_told() {
    let (_, pool, machines) = left_behind();
    let now = super::super::ledger::now();
    let first = lines(vec![head(&pool, "cloud", Some("here"))]);
    let whole = [
        &first[..],
        &lines(vec![
            intent(&machines[0], now),
            intent(&machines[1], now),
            super::super::ledger::tests::fact(&machines[0]),
        ]),
    ]
    .concat();
    let play = async |cut: usize| {
        let scratch = Scratch::new();
        scratch.write(&pool, &whole[..cut]);
        let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines.clone()), ..Cloud::default() });
        let reaped = reap_with(&scratch, &[&cloud]).await;
        assert!(cloud.machines.lock().unwrap().is_empty(), "cut at {cut}: {reaped}");
        if cut < first.len() {
            // Whose it is cannot be known for sure, so it stays for somebody to look at.
            assert!(reaped.left[0].error.to_string().contains("first record is damaged"), "cut at {cut}: {reaped}");
            assert_eq!(scratch.read(&pool), whole[..cut], "cut at {cut}");
        } else {
            assert_eq!((reaped.ended.len(), scratch.files()), (1, 0), "cut at {cut}: {reaped}");
        }
    };
    // Each reads all processes of this host several times, on threads of its own.
    futures_util::stream::iter(0..=whole.len()).for_each_concurrent(32, play).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_confirmed_gone_stays_in_the_ledger() {
    let (scratch, pool, machines) = left_behind();
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), stuck: true, ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert!(reaped.ended.is_empty());
    assert_eq!(reaped.left[0].pool, pool);
    assert!(reaped.left[0].error.to_string().contains(&format!("{pool}.n1")), "{reaped}");
    assert_eq!((scratch.files(), cloud.torn_down.load(Ordering::Relaxed)), (1, 0));
}

#[tokio::test]
async fn a_pool_of_another_provider_or_account_is_left_and_says_which() {
    let (scratch, _, machines) = left_behind();
    let other = Arc::new(Cloud { name: "cloud", identity: Some("there"), ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&other]).await;
    let error = &reaped.left[0].error;
    assert_eq!(error.kind(), ErrorKind::Identity);
    assert!(error.to_string().contains("`cloud` (here)") && error.to_string().contains("`cloud` (there)"), "{error}");
    assert!(other.ended.lock().unwrap().is_empty());
    assert_eq!((other.looks.load(Ordering::Relaxed), scratch.files()), (0, 1), "its record is kept");
    let unlike = Arc::new(Cloud { name: "fog", identity: Some("here"), ..Cloud::default() });
    let error = &reap_with(&scratch, &[&unlike]).await.left[0].error;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("`cloud` (here)") && error.to_string().contains("`fog`"), "{error}");
    let right =
        Arc::new(Cloud { name: "cloud", identity: Some("here"), machines: Mutex::new(machines), ..Cloud::default() });
    assert_eq!(reap_with(&scratch, &[&other, &right]).await.ended.len(), 1);
    assert!(other.ended.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_provider_that_is_down_keeps_no_pool_of_another_one_from_being_ended() {
    let (scratch, pool, machines) = left_behind();
    let down = Arc::new(Cloud { name: "cloud", silent: true, ..Cloud::default() });
    let up = |machines| {
        Arc::new(Cloud { name: "cloud", identity: Some("here"), machines: Mutex::new(machines), ..Cloud::default() })
    };
    let reaped = reap_with(&scratch, &[&down, &up(Vec::new())]).await;
    assert_eq!((reaped.ended.len(), scratch.files()), (1, 0), "{reaped}");
    // It may be the one that has them.
    let (scratch, ..) = left_behind();
    let reaped = reap_with(&scratch, &[&down]).await;
    assert!(reaped.left[0].error.message().contains("it is down"), "{reaped}");
    assert_eq!(scratch.files(), 1);
    // Without its first record a pool may be at any of them.
    scratch.write(&pool, b"torn\n");
    let up = up(machines);
    let reaped = reap_with(&scratch, &[&down, &up]).await;
    assert!(up.machines.lock().unwrap().is_empty(), "{reaped}");
    assert!(reaped.left.iter().any(|left| left.pool == pool), "{reaped}");
}

/// The state folder is on a disk that several machines have.
#[tokio::test]
async fn pools_of_this_provider_on_another_machine_are_left() {
    let scratch = Scratch::new();
    let here = Local::new().identity().await.unwrap();
    let (folder, machine) = here.rsplit_once(" on ").unwrap();
    assert!(machine.starts_with("machine "), "{here}");
    // Also a record that does not say which machine.
    for elsewhere in [format!("{folder} on machine 0000000000000000"), folder.to_owned()] {
        let pool = PoolId::random();
        let written = lines(vec![head(&pool, "local", Some(&elsewhere))]);
        scratch.write(&pool, &written);
        let reaped = reap_with(&scratch, &[]).await;
        let error = &reaped.left[0].error;
        assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
        assert!(error.message().contains(&elsewhere) && error.message().contains(&here), "{error}");
        assert_eq!(scratch.read(&pool), written);
        std::fs::remove_file(scratch.path(&pool)).unwrap();
    }
    let pool = PoolId::random();
    let folder = std::env::temp_dir().join(format!("sky-other-{:08x}", rand::random::<u32>()));
    let other = Local::new().runtime_dir(folder).identity().await.unwrap();
    scratch.write(&pool, &lines(vec![head(&pool, "local", Some(&other))]));
    assert_eq!(reap_with(&scratch, &[]).await.ended.len(), 1, "another folder of this machine is found");
}

#[cfg(feature = "docker")]
#[tokio::test]
async fn a_pool_of_another_engine_at_the_same_path_is_left() {
    use crate::provider::Docker;
    use crate::remote::docker::tests::Pretended;
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let first = Pretended::with_id("AAAA");
    let docker = Arc::new(Docker::new("image").engine(&first.url()));
    let ledger = super::super::ledger::PoolLedger::default();
    ledger.open(scratch.0.clone(), &pool, docker.as_ref()).await.unwrap();
    let written = scratch.read(&pool);
    // Its client is gone: nobody holds the file.
    drop(ledger);
    let second = first.replaced_by("BBBB");
    let reaped =
        reap_in(scratch.0.clone(), vec![Arc::new(Docker::new("image").engine(&second.url())) as _]).await.unwrap();
    let error = &reaped.left[0].error;
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
    assert!(error.message().contains("engine AAAA") && error.message().contains("engine BBBB"), "{error}");
    assert_eq!(scratch.read(&pool), written);
    let again = second.replaced_by("AAAA");
    let reaped =
        reap_in(scratch.0.clone(), vec![Arc::new(Docker::new("image").engine(&again.url())) as _]).await.unwrap();
    assert_eq!((reaped.ended.len(), scratch.files()), (1, 0), "{reaped}");
}

#[tokio::test]
async fn two_at_once_end_each_pool_once() {
    let (scratch, _, machines) = left_behind();
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), ..Cloud::default() });
    let given = [&cloud];
    let (a, b) = tokio::join!(reap_with(&scratch, &given), reap_with(&scratch, &given));
    assert_eq!(a.ended.len() + b.ended.len(), 1, "{a}\n{b}");
    assert!(a.left.is_empty() && b.left.is_empty(), "{a}\n{b}");
    assert_eq!(cloud.ended.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn without_its_first_record_a_pool_is_ended_where_it_is_listed_and_stays_on_record() {
    let (scratch, pool, machines) = left_behind();
    scratch.write(&pool, &[&b"torn\n"[..], &lines(vec![intent(&machines[0], 1)])].concat());
    let cloud = Arc::new(Cloud { name: "cloud", machines: Mutex::new(machines), ..Cloud::default() });
    let reaped = reap_with(&scratch, &[&cloud]).await;
    assert!(reaped.left[0].error.to_string().contains("first record is damaged"), "{reaped}");
    assert!(cloud.machines.lock().unwrap().is_empty());
    assert_eq!(scratch.files(), 1);
}

/// Machines go on ending as far as they were told to, and the next one ends the rest.
#[tokio::test(start_paused = true)]
async fn a_reap_that_is_dropped_after_any_poll_leaves_nothing_to_the_next() {
    // How many polls it takes depends on the threads that read files for it.
    let mut dropped = 0;
    for polls in 0..MOST_POLLS {
        let (scratch, pool, machines) = left_behind();
        let cloud = Arc::new(Cloud {
            name: "cloud",
            identity: Some("here"),
            machines: Mutex::new(machines),
            ..Cloud::default()
        });
        let clouds = [&cloud];
        let mut reaping = Box::pin(reap_with(&scratch, &clouds));
        let mut polled = 0;
        let reaped = std::future::poll_fn(|context| {
            let drops = polled == polls;
            polled += 1;
            match drops {
                true => std::task::Poll::Ready(None),
                false => match reaping.as_mut().poll(context).map(Some) {
                    std::task::Poll::Pending if polled == polls => std::task::Poll::Ready(None),
                    polled => polled,
                },
            }
        })
        .await;
        drop(reaping);
        // What was dropped may still hold the ledger's lock for a moment, in a thread.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while scratch.files() > 0 {
            assert!(std::time::Instant::now() < deadline, "dropped after {polls} polls");
            reap_with(&scratch, &[&cloud]).await;
        }
        assert!(cloud.machines.lock().unwrap().is_empty(), "dropped after {polls} polls");
        match reaped {
            Some(reaped) => assert_eq!(reaped.ended[0].pool, pool),
            None => dropped += 1,
        }
    }
    // Before the first poll, and after one, when it waits for a file or for the list.
    assert!(dropped >= 2, "it was dropped {dropped} times");
}

const MOST_POLLS: usize = 16;

/// A pool with the machines of this cloud that expires, or has expired, so many seconds from now.
fn listed(pool: &PoolId, seconds: i64) -> PoolRecord {
    let now = SystemTime::now();
    let by = Duration::from_secs(seconds.unsigned_abs());
    PoolRecord::new(pool.clone(), if seconds < 0 { now - by } else { now + by }).owner("ada")
}

async fn reap_expired_with(scratch: &Scratch, cloud: &Arc<Cloud>) -> Reaped {
    super::expired::reap_expired_in(scratch.0.clone(), Arc::clone(cloud) as Arc<dyn Provider>).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_nobodys_ledger_is_ended_when_it_has_expired_and_the_provider_has_settled() {
    // A minute, and the five seconds in which this provider settles.
    for (seconds, is_over) in [(60, false), (-30, false), (-62, false), (-70, true), (-86_400, true)] {
        let (scratch, pool) = (Scratch::new(), PoolId::random());
        let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
        *cloud.machines.lock().unwrap() = vec![machine(&pool, 0)];
        *cloud.pools.lock().unwrap() = vec![listed(&pool, seconds)];
        let reaped = reap_expired_with(&scratch, &cloud).await;
        assert_eq!(cloud.machines.lock().unwrap().is_empty(), is_over, "{seconds}: {reaped}");
        assert_eq!(cloud.torn_down.load(Ordering::Relaxed) > 0, is_over, "{seconds}: {reaped}");
        match is_over {
            true => assert_eq!((&reaped.ended[0].pool, reaped.ended[0].machines.len()), (&pool, 1)),
            false => {
                let other = &reaped.elsewhere[0];
                assert_eq!((&other.pool, other.owner.as_str(), other.process), (&pool, "ada", None));
                assert!(other.expires.is_some() && reaped.to_string().contains("ada started it"), "{reaped}");
            }
        }
    }
}

#[tokio::test]
async fn a_pool_that_a_live_client_of_this_ledger_holds_is_not_ended_though_it_has_expired() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
    let ledger = super::super::ledger::PoolLedger::default();
    ledger.open(scratch.0.clone(), &pool, cloud.as_ref()).await.unwrap();
    *cloud.machines.lock().unwrap() = vec![machine(&pool, 0)];
    *cloud.pools.lock().unwrap() = vec![listed(&pool, -86_400)];
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!(reaped.elsewhere[0].process, Some(std::process::id()), "{reaped}");
    assert!(cloud.ended.lock().unwrap().is_empty() && cloud.torn_down.load(Ordering::Relaxed) == 0, "{reaped}");
    // Its client is gone, and so is what it left, its record too.
    drop(ledger);
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!((reaped.ended.len(), scratch.files()), (1, 0), "{reaped}");
}

#[tokio::test]
async fn a_record_of_another_provider_stays_in_the_ledger() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let written = lines(vec![head(&pool, "cloud", Some("there")), intent(&machine(&pool, 1), 1)]);
    scratch.write(&pool, &written);
    let cloud = Arc::new(Cloud { name: "cloud", ..Cloud::default() });
    *cloud.pools.lock().unwrap() = vec![listed(&pool, -86_400)];
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!((reaped.ended.len(), scratch.read(&pool)), (1, written), "{reaped}");
}

#[tokio::test]
async fn a_pool_that_has_a_machine_again_when_it_is_to_be_ended_is_left_alone() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let cloud = Arc::new(Cloud { name: "cloud", revives: true, ..Cloud::default() });
    *cloud.machines.lock().unwrap() = vec![machine(&pool, 0)];
    *cloud.pools.lock().unwrap() = vec![listed(&pool, -86_400)];
    let reaped = reap_expired_with(&scratch, &cloud).await;
    assert_eq!((reaped.ended.len(), reaped.elsewhere.len()), (0, 1), "{reaped}");
    assert!(cloud.ended.lock().unwrap().is_empty() && cloud.torn_down.load(Ordering::Relaxed) == 0, "{reaped}");
}

#[tokio::test]
async fn nothing_is_ended_where_the_provider_cannot_list_its_pools() {
    let scratch = Scratch::new();
    let cloud = Arc::new(Cloud { name: "cloud", silent: true, ..Cloud::default() });
    *cloud.pools.lock().unwrap() = vec![listed(&PoolId::random(), -86_400)];
    let error = super::expired::reap_expired_in(scratch.0.clone(), Arc::clone(&cloud) as _).await.unwrap_err();
    assert!(error.to_string().contains("it is down"), "{error}");
    assert!(cloud.ended.lock().unwrap().is_empty());
}
