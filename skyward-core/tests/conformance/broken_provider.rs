//! Providers that break one clause each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::{
    Capabilities, LaunchBatch, LaunchRequest, Local, Machine, MachineReport, MachineState, Offer, Part, Place,
    PoolRecord, PoolRequest, Provider, Requirements, launch_each, terminate_each,
};
use skyward_core::remote::{Process, Remote};
use skyward_core::testkit::provider_suite as suite;

use super::Folder;

/// How a provider is broken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    NameChanges,
    OffersAnything,
    OtherNumber,
    LongFolder,
    TwoMachines,
    ForgetsLaunches,
    SamePlace,
    MovingPlace,
    LateLaunch,
    WrongOrder,
    SwapsPlaces,
    EndsTheFirst,
    GivenUp,
    ListsEverything,
    ListLosesFacts,
    TerminateUnknownFails,
    TerminateDoesNothing,
    LeavesProcesses,
    SecondPrepareFails,
    SecondTeardownFails,
    TeardownEndsAll,
    ConnectsAnywhere,
    NeverConnects,
    EndsUnreached,
    Resurrects,
    NoKeeper,
    LeavesFolders,
    LeavesUsedFolders,
    ListsNoPools,
    ListsPoolsOfMemory,
    ForgetsOwners,
    SaysExpired,
    ListsPoolsForEver,
    RandomIdentity,
    NamelessParts,
    OwnersOfMemory,
    NeverLived,
    LivesOn,
}

/// This host, with one fault.
#[derive(Debug, Clone)]
struct Broken {
    local: Local,
    fault: Fault,
    calls: Arc<AtomicUsize>,
    launched: Arc<Mutex<Vec<Machine>>>,
    ended: Arc<Mutex<Vec<MachineId>>>,
    /// The machines that were connected to.
    used: Arc<Mutex<Vec<MachineId>>>,
    pools: Arc<Mutex<Vec<(String, PoolId)>>>,
    made: Instant,
}

impl Broken {
    fn new(folder: &Folder, fault: Fault) -> Self {
        let local = folder.local();
        Self {
            local,
            fault,
            calls: Arc::default(),
            launched: Arc::default(),
            ended: Arc::default(),
            used: Arc::default(),
            pools: Arc::default(),
            made: Instant::now(),
        }
    }

    fn first(&self, what: &str, pool: &PoolId) -> bool {
        let key = (what.to_owned(), pool.clone());
        let mut pools = self.pools.lock().unwrap();
        let first = !pools.contains(&key);
        pools.push(key);
        first
    }

    async fn launch_one(&self, batch: &LaunchBatch, request: &LaunchRequest) -> Result<Machine> {
        let local = async |request: LaunchRequest| {
            let batch = LaunchBatch::one(batch.offer.clone(), request);
            self.local.launch(&batch).await.remove(0)
        };
        // A request of the same pool that no caller made.
        let other = || {
            let mut other = request.clone();
            other.number = MachineNumber(self.count() as u32);
            other.launch = LaunchId::of(&request.pool, other.number, Attempt(self.count() as u32 + 1));
            other
        };
        match self.fault {
            Fault::OtherNumber => {
                let mut machine = local(request.clone()).await?;
                machine.number = MachineNumber(0);
                Ok(machine)
            }
            Fault::TwoMachines => local(other()).await,
            Fault::ForgetsLaunches => {
                let known = self.launched.lock().unwrap().iter().find(|known| known.launch == request.launch).cloned();
                if let Some(known) = known {
                    return Ok(known);
                }
                let mut again = other();
                again.launch = LaunchId::of(&request.pool, request.number, Attempt(rand::random::<u16>().into()));
                let mut machine = local(again).await?;
                (machine.launch, machine.number) = (request.launch.clone(), request.number);
                self.launched.lock().unwrap().push(machine.clone());
                Ok(machine)
            }
            // The owner is that of `prepare`, which may have run in another process.
            Fault::OwnersOfMemory => local(request.clone().owner("")).await,
            Fault::LateLaunch => {
                let (local, batch) = (self.local.clone(), LaunchBatch::one(batch.offer.clone(), request.clone()));
                let late = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    local.launch(&batch).await.remove(0)
                });
                late.await.unwrap()
            }
            _ => {
                let machine = local(request.clone()).await?;
                self.launched.lock().unwrap().push(machine.clone());
                Ok(machine)
            }
        }
    }

    async fn terminate_one(&self, machine: &MachineId) -> Result<()> {
        match self.fault {
            Fault::TerminateDoesNothing if self.count() == 0 => return Ok(()),
            Fault::TerminateUnknownFails if !self.first(machine.as_str(), &PoolId::new("terminated")) => {
                return Err(refused("there is no such machine"));
            }
            Fault::LeavesFolders | Fault::LeavesUsedFolders
                if self.fault == Fault::LeavesFolders || self.used.lock().unwrap().contains(machine) =>
            {
                let place = self.local.inspect(std::slice::from_ref(machine)).await?.remove(0).place;
                end_one(&self.local, machine).await?;
                self.ended.lock().unwrap().push(machine.clone());
                place.map_or(Ok(()), |place| std::fs::create_dir_all(place.folder)).unwrap();
                return Ok(());
            }
            _ => {}
        }
        end_one(&self.local, machine).await
    }

    fn count(&self) -> usize {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

async fn end_one(local: &Local, machine: &MachineId) -> Result<()> {
    local.terminate(std::slice::from_ref(machine)).await.remove(0)
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Provider, what)
}

#[async_trait]
impl Provider for Broken {
    fn name(&self) -> &str {
        if self.fault == Fault::NameChanges && self.count() % 2 == 1 { "other" } else { "broken" }
    }

    fn capabilities(&self) -> Capabilities {
        match self.fault {
            Fault::NoKeeper => self.local.capabilities().keeper().settles_in(Duration::ZERO),
            _ => self.local.capabilities(),
        }
    }

    async fn identity(&self) -> Result<String> {
        match self.fault {
            Fault::RandomIdentity => Ok(PoolId::random().to_string()),
            _ => self.local.identity().await,
        }
    }

    fn parts(&self) -> Vec<Part> {
        match self.fault {
            // Its machines do not have its identity in their ids.
            Fault::NamelessParts => vec![Part::new("here", Arc::new(self.local.clone()))],
            _ => self.local.parts(),
        }
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        match self.fault {
            Fault::OffersAnything => Ok(vec![Offer::new("host", "here", 1, 1)]),
            _ => self.local.offers(requirements).await,
        }
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        let first = self.first("prepare", &pool.pool);
        if self.fault == Fault::SecondPrepareFails && !first {
            return Err(refused("the network exists"));
        }
        self.local.prepare(pool).await
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        self.local.adopt(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        launch_each(batch, |request| self.launch_one(batch, request)).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let mut reports = self.local.inspect(machines).await?;
        for (report, machine) in reports.iter_mut().zip(machines) {
            match (self.fault, &mut report.place) {
                (Fault::LongFolder, Some(place)) => place.folder = format!("/{}", "long/".repeat(20)),
                (Fault::SamePlace, place @ Some(_)) => *place = Some(Place::new("127.0.0.1", "/tmp").on_client_host()),
                (Fault::MovingPlace, Some(place)) => place.address = format!("127.0.0.{}", self.count() % 200 + 1),
                (Fault::NeverLived, _) if report.state.is_over() => report.lived = Some(Duration::ZERO),
                (Fault::LivesOn, _) if report.state.is_over() => report.lived = Some(self.made.elapsed()),
                (Fault::LeavesFolders | Fault::LeavesUsedFolders, _)
                    if self.ended.lock().unwrap().contains(machine) =>
                {
                    *report = MachineReport::new(MachineState::Gone);
                }
                _ => {}
            }
        }
        match self.fault {
            Fault::WrongOrder => reports.sort_by_key(|report| report.state == MachineState::Running),
            Fault::SwapsPlaces => reports.sort_by_key(|report| report.place.as_ref().map(|place| place.folder.clone())),
            Fault::GivenUp if self.count() < 3 => reports.fill(MachineReport::new(MachineState::Gone)),
            _ => {}
        }
        Ok(reports)
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        self.used.lock().unwrap().push(machine.id.clone());
        match self.fault {
            Fault::ConnectsAnywhere | Fault::LeavesProcesses => Ok(Box::new(Process::new())),
            Fault::NeverConnects => Err(refused("permission denied")),
            Fault::EndsUnreached => {
                end_one(&self.local, &machine.id).await?;
                Err(refused("it does not answer yet").temporary())
            }
            _ => self.local.connect(machine, at).await,
        }
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        let first = match self.fault {
            Fault::EndsTheFirst => &machines[..machines.len().min(1)],
            _ => machines,
        };
        let mut ended = terminate_each(first, |machine| self.terminate_one(machine)).await;
        ended.resize_with(machines.len(), || Ok(()));
        ended
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let first = self.first("teardown", pool);
        match self.fault {
            Fault::SecondTeardownFails if !first => return Err(refused("there is no such network")),
            Fault::TeardownEndsAll => {
                let launched = std::mem::take(&mut *self.launched.lock().unwrap());
                for machine in launched {
                    end_one(&self.local, &machine.id).await?;
                }
            }
            _ => {}
        }
        self.local.teardown(pool).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        match self.fault {
            Fault::ListsEverything => Ok(self.launched.lock().unwrap().clone()),
            Fault::Resurrects => {
                let launched = self.launched.lock().unwrap().clone();
                Ok(launched.into_iter().filter(|machine| machine.pool == *pool).collect())
            }
            Fault::ListLosesFacts => {
                let mut machines = self.local.list(pool).await?;
                machines.iter_mut().for_each(|machine| machine.facts.clear());
                Ok(machines)
            }
            _ => self.local.list(pool).await,
        }
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let mut pools = self.local.pools().await?;
        match self.fault {
            Fault::ListsNoPools => pools.clear(),
            Fault::ListsPoolsOfMemory => {
                let launched = self.launched.lock().unwrap();
                pools.retain(|record| launched.iter().any(|machine| machine.pool == record.pool));
            }
            Fault::ForgetsOwners => pools.iter_mut().for_each(|record| record.owner.clear()),
            Fault::SaysExpired => pools.iter_mut().for_each(|record| record.expires = SystemTime::UNIX_EPOCH),
            Fault::ListsPoolsForEver => {
                let launched = self.launched.lock().unwrap();
                let ever = launched.iter().map(|machine| PoolRecord::new(machine.pool.clone(), SystemTime::now()));
                pools = PoolRecord::of_parts(pools.into_iter().chain(ever));
            }
            _ => {}
        }
        Ok(pools)
    }
}

#[tokio::test]
async fn a_machine_that_ends_before_it_is_reached_is_found_at_once() {
    let folder = Folder::new();
    let broken = Broken::new(&folder, Fault::EndsUnreached);
    // A suite that only retried would report the violation after ten minutes.
    let found = tokio::time::timeout(Duration::from_secs(60), suite::connect_reaches_the_machine(&broken)).await;
    let violation = found.expect("the suite stops trying to reach the machine").unwrap_err();
    assert_eq!(violation.clause, "connect_reaches_the_machine");
    assert!(violation.found.contains("reports the machine") && violation.found.contains("as gone"), "{violation}");
}

/// Checks that each clause finds a fault of a provider. They wait most of the time, so all of them
/// run at once.
macro_rules! finds {
    ($($fault:ident => $clause:ident),+ $(,)?) => {
        tokio::join!($(async {
            let folder = Folder::new();
            let broken = Broken::new(&folder, Fault::$fault);
            let violation = suite::$clause(&broken).await.expect_err(stringify!($fault));
            assert_eq!(violation.clause, stringify!($clause), "{violation}");
            // The clause holds for a provider without faults.
            suite::$clause(&folder.local()).await.unwrap();
        }),+)
    };
}

#[tokio::test]
async fn each_clause_finds_its_fault() {
    finds! {
        NameChanges => name_is_one_word,
        OffersAnything => offers_meet_the_requirements,
        OtherNumber => launch_answers_its_request,
        LongFolder => places_are_given,
        MovingPlace => places_are_given,
        TwoMachines => launch_is_idempotent,
        SamePlace => launches_differ,
        LateLaunch => dropped_launch_is_listed,
        WrongOrder => inspect_answers_in_order,
        SwapsPlaces => inspect_answers_in_order,
        EndsTheFirst => terminate_ends_each,
        GivenUp => inspect_does_not_give_up_a_new_machine,
        ListsEverything => list_finds_what_was_launched,
        ListLosesFacts => list_finds_what_was_launched,
        TerminateUnknownFails => terminate_is_idempotent,
        Resurrects => terminate_may_come_early,
        TerminateDoesNothing => terminate_is_seen,
        SecondPrepareFails => prepare_is_repeatable,
        SecondTeardownFails => teardown_is_idempotent,
        TeardownEndsAll => teardown_leaves_other_pools,
        ConnectsAnywhere => connect_refuses_what_is_gone,
        NeverConnects => connect_reaches_the_machine,
        NoKeeper => keeper_ends_the_machine,
        NoKeeper => keeper_ends_the_machine_at_its_time,
        NeverLived => lived_is_true,
        LivesOn => lived_is_true,
        LeavesFolders => gone_leaves_nothing,
        LeavesUsedFolders => gone_leaves_nothing,
    };
}

#[tokio::test]
async fn processes_that_outlive_their_machine_are_found() {
    let folder = Folder::new();
    let violation = suite::terminate_ends_what_runs(&Broken::new(&folder, Fault::LeavesProcesses)).await.unwrap_err();
    assert_eq!(violation.clause, "terminate_ends_what_runs");
    let left: Vec<&str> = violation.found.split('"').skip(1).step_by(2).collect();
    assert_eq!(left.len(), 2, "{violation}");
    for pid in left {
        assert!(std::process::Command::new("kill").args(["-9", pid]).status().unwrap().success());
    }
}

#[tokio::test]
async fn an_identity_that_changes_and_machines_without_their_part_are_found() {
    let folder = Folder::new();
    let random = Broken::new(&folder, Fault::RandomIdentity);
    let violation = suite::identity_stays_the_same(&random, &random.clone()).await.unwrap_err();
    assert!(
        violation.clause == "identity_stays_the_same" && violation.to_string().contains("to another value"),
        "{violation}"
    );
    let nameless = Broken::new(&folder, Fault::NamelessParts);
    let violation = suite::parts_have_their_machines(&nameless).await.unwrap_err();
    assert!(
        violation.clause == "parts_have_their_machines" && violation.to_string().contains("is listed by"),
        "{violation}"
    );
}

#[tokio::test]
async fn a_list_from_memory_is_found() {
    let folder = Folder::new();
    let (provider, again) = (Broken::new(&folder, Fault::Resurrects), Broken::new(&folder, Fault::Resurrects));
    let violation = suite::list_is_not_memory(&provider, &again).await.unwrap_err();
    assert_eq!(violation.clause, "list_is_not_memory");
    assert!(violation.found.contains("another value lists []"), "{violation}");
}

#[tokio::test]
async fn pools_that_are_listed_wrongly_are_found() {
    for (fault, found) in [
        (Fault::ListsNoPools, "`pools` does not list its pool"),
        (Fault::ListsPoolsOfMemory, "`pools` by another value does not list its pool"),
        (Fault::ForgetsOwners, "started the pool, and `pools` says ``"),
        (Fault::SaysExpired, "says that its pool has expired"),
        (Fault::ListsPoolsForEver, "is torn down, and listed as"),
    ] {
        let folder = Folder::new();
        let provider = Broken::new(&folder, fault);
        // `again` stands for another process, which has launched nothing. With `ListsPoolsForEver`
        // it must be the value that launched.
        let again = if fault == Fault::ListsPoolsForEver { provider.clone() } else { Broken::new(&folder, fault) };
        let violation = suite::pools_lists_what_is_there(&provider, &again).await.unwrap_err();
        assert_eq!(violation.clause, "pools_lists_what_is_there");
        assert!(violation.found.contains(found), "{violation}");
    }
    let folder = Folder::new();
    suite::pools_lists_what_is_there(&folder.local(), &folder.local()).await.unwrap();
}

#[tokio::test]
async fn an_owner_that_only_prepare_knows_is_found() {
    let folder = Folder::new();
    let (provider, again) = (Broken::new(&folder, Fault::OwnersOfMemory), Broken::new(&folder, Fault::OwnersOfMemory));
    let violation = suite::launch_needs_no_memory(&provider, &again).await.unwrap_err();
    assert_eq!(violation.clause, "launch_needs_no_memory");
    assert!(violation.found.ends_with("has Some(\"\")"), "{violation}");
    suite::launch_needs_no_memory(&folder.local(), &folder.local()).await.unwrap();
}

#[tokio::test]
async fn a_second_machine_for_a_launch_that_another_process_repeats_is_found() {
    let folder = Folder::new();
    let (provider, again) =
        (Broken::new(&folder, Fault::ForgetsLaunches), Broken::new(&folder, Fault::ForgetsLaunches));
    suite::launch_is_idempotent(&provider).await.unwrap();
    let violation = suite::launch_is_not_memory(&provider, &again).await.unwrap_err();
    assert_eq!(violation.clause, "launch_is_not_memory", "{violation}");
    suite::launch_is_not_memory(&folder.local(), &folder.local()).await.unwrap();
}

#[tokio::test]
async fn all_reports_every_broken_clause() {
    let folder = Folder::new();
    let broken = Broken::new(&folder, Fault::SecondTeardownFails);
    let violations = suite::all(&broken, &folder.local()).await.unwrap_err();
    let clauses: Vec<&str> = violations.iter().map(|violation| violation.clause).collect();
    assert!(clauses.contains(&"teardown_is_idempotent") && !clauses.contains(&"launch_is_idempotent"), "{clauses:?}");
}
