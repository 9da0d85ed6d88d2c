//! Providers that break one clause each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::{MachineId, NodeIndex, PoolId};
use skyward_core::provider::{LaunchRequest, Local, Machine, MachineStatus, Offer, Provider, Requirements};
use skyward_core::remote::{Process, Remote};
use skyward_core::testkit::provider_suite as suite;

use super::Folder;

/// How a provider is broken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    NameChanges,
    OffersAnything,
    OtherNode,
    LongFolder,
    TwoMachines,
    SameFolder,
    LateLaunch,
    WrongOrder,
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
    EndsUnreached,
    Resurrects,
}

/// This host, with one fault.
#[derive(Debug, Clone)]
struct Broken {
    local: Local,
    fault: Fault,
    calls: Arc<AtomicUsize>,
    launched: Arc<Mutex<Vec<Machine>>>,
    pools: Arc<Mutex<Vec<(String, PoolId)>>>,
}

impl Broken {
    fn new(folder: &Folder, fault: Fault) -> Self {
        let local = folder.local();
        Self { local, fault, calls: Arc::default(), launched: Arc::default(), pools: Arc::default() }
    }

    fn first(&self, what: &str, pool: &PoolId) -> bool {
        let key = (what.to_owned(), pool.clone());
        let mut pools = self.pools.lock().unwrap();
        let first = !pools.contains(&key);
        pools.push(key);
        first
    }

    fn count(&self) -> usize {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Provider, what)
}

#[async_trait]
impl Provider for Broken {
    fn name(&self) -> &str {
        if self.fault == Fault::NameChanges && self.count() % 2 == 1 { "other" } else { "broken" }
    }

    async fn identity(&self) -> Result<Option<String>> {
        self.local.identity().await
    }

    fn outlives_client(&self) -> bool {
        self.local.outlives_client()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        match self.fault {
            Fault::OffersAnything => Ok(vec![Offer::new("host", "here", 1, 1)]),
            _ => self.local.offers(requirements).await,
        }
    }

    async fn prepare(&self, pool: &PoolId) -> Result<()> {
        let first = self.first("prepare", pool);
        if self.fault == Fault::SecondPrepareFails && !first {
            return Err(refused("the network exists"));
        }
        self.local.prepare(pool).await
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Machine> {
        match self.fault {
            Fault::OtherNode => {
                let mut machine = self.local.launch(request).await?;
                machine.node = NodeIndex(0);
                Ok(machine)
            }
            Fault::LongFolder => {
                let mut machine = self.local.launch(request).await?;
                machine.folder = format!("/{}", "long/".repeat(20));
                Ok(machine)
            }
            Fault::TwoMachines => {
                let mut other = request.clone();
                other.node = NodeIndex(self.count() as u32);
                let attempt = skyward_core::ids::Attempt(self.count() as u32 + 1);
                other.launch = skyward_core::ids::LaunchId::of(&request.pool, other.node, attempt);
                self.local.launch(&other).await
            }
            Fault::SameFolder => {
                let mut machine = self.local.launch(request).await?;
                machine.folder = "/tmp".into();
                machine.address = "127.0.0.1".into();
                Ok(machine)
            }
            Fault::LateLaunch => {
                let (local, request) = (self.local.clone(), request.clone());
                let late = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    local.launch(&request).await
                });
                late.await.unwrap()
            }
            _ => {
                let machine = self.local.launch(request).await?;
                self.launched.lock().unwrap().push(machine.clone());
                Ok(machine)
            }
        }
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineStatus>> {
        let mut states = self.local.inspect(machines).await?;
        match self.fault {
            Fault::WrongOrder => states.sort_by_key(|state| *state == MachineStatus::Running),
            Fault::GivenUp if self.count() < 3 => states.fill(MachineStatus::Gone),
            _ => {}
        }
        Ok(states)
    }

    async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>> {
        match self.fault {
            Fault::ConnectsAnywhere | Fault::LeavesProcesses => Ok(Box::new(Process::new())),
            Fault::EndsUnreached => {
                self.local.terminate(&machine.id).await?;
                Err(refused("it does not answer yet").temporary())
            }
            _ => self.local.connect(machine).await,
        }
    }

    async fn terminate(&self, machine: &MachineId) -> Result<()> {
        match self.fault {
            Fault::TerminateDoesNothing if self.count() == 0 => return Ok(()),
            Fault::TerminateUnknownFails if !self.first(machine.as_str(), &PoolId::new("terminated")) => {
                return Err(refused("there is no such machine"));
            }
            _ => {}
        }
        self.local.terminate(machine).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let first = self.first("teardown", pool);
        match self.fault {
            Fault::SecondTeardownFails if !first => return Err(refused("there is no such network")),
            Fault::TeardownEndsAll => {
                let launched = std::mem::take(&mut *self.launched.lock().unwrap());
                for machine in launched {
                    self.local.terminate(&machine.id).await?;
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
                machines.iter_mut().for_each(|machine| machine.address.clear());
                Ok(machines)
            }
            _ => self.local.list(pool).await,
        }
    }
}

#[tokio::test]
async fn a_machine_that_ends_before_it_is_reached_is_found_at_once() {
    let folder = Folder::new();
    let broken = Broken::new(&folder, Fault::EndsUnreached);
    // What is only retried is found after ten minutes.
    let found = tokio::time::timeout(Duration::from_secs(60), suite::connect_reaches_the_machine(&broken)).await;
    let violation = found.expect("it is still tried to reach the machine").unwrap_err();
    assert_eq!(violation.clause, "connect_reaches_the_machine");
    assert!(violation.found.contains("reports the machine") && violation.found.contains("as gone"), "{violation}");
}

/// Checks one clause of a provider with one fault.
macro_rules! finds {
    ($($fault:ident => $clause:ident),+ $(,)?) => {
        $(
            let folder = Folder::new();
            let broken = Broken::new(&folder, Fault::$fault);
            let violation = suite::$clause(&broken).await.expect_err(stringify!($fault));
            assert_eq!(violation.clause, stringify!($clause), "{violation}");
            // What the clause is right about in a provider without fault.
            suite::$clause(&folder.local()).await.unwrap();
        )+
    };
}

#[tokio::test]
async fn each_clause_finds_what_breaks_it() {
    finds! {
        NameChanges => name_is_one_word,
        OffersAnything => offers_meet_the_requirements,
        OtherNode => launch_answers_its_request,
        LongFolder => launch_answers_its_request,
        TwoMachines => launch_is_idempotent,
        SameFolder => launches_differ,
        LateLaunch => dropped_launch_is_listed,
        WrongOrder => inspect_answers_in_order,
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
    }
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
async fn a_list_from_memory_is_found() {
    let folder = Folder::new();
    let (provider, again) = (Broken::new(&folder, Fault::Resurrects), Broken::new(&folder, Fault::Resurrects));
    let violation = suite::list_is_not_memory(&provider, &again).await.unwrap_err();
    assert_eq!(violation.clause, "list_is_not_memory");
    assert!(violation.found.contains("another value lists []"), "{violation}");
}

#[tokio::test]
async fn all_names_every_broken_clause() {
    let folder = Folder::new();
    let broken = Broken::new(&folder, Fault::SecondTeardownFails);
    let violations = suite::all(&broken, &folder.local()).await.unwrap_err();
    let clauses: Vec<&str> = violations.iter().map(|violation| violation.clause).collect();
    assert!(clauses.contains(&"teardown_is_idempotent") && !clauses.contains(&"launch_is_idempotent"), "{clauses:?}");
}
