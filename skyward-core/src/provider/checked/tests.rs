//! A provider with scripted answers, for the tests of each subject.

mod choice;
mod connect;
mod gather;
mod launch;
mod look;
mod pace;
mod retries;

use async_trait::async_trait;
use tokio::time::Instant;

use super::call::{TRIES, jittered};
use super::timing::LONGEST_BOOTING_PAUSE;
use super::*;
use crate::error::Result;
use crate::ids::{Attempt, LaunchId, MachineId, MachineNumber};
use crate::provider::{
    Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Part, Place, PoolRecord,
    PoolRequest, Reason, Requirements,
};
use crate::remote::Remote;

/// Returns scripted answers from `terminate`, `connect` and `inspect`, the last one forever;
/// `launch` returns the machine of another launch.
#[derive(Debug, Default)]
struct Scripted {
    answers: Mutex<Vec<Result<()>>>,
    calls: Mutex<u32>,
    hangs: bool,
    pace: Duration,
    /// None: the provider cannot tell.
    identity: Option<String>,
    /// The times of the calls of `list`.
    listed: Mutex<Vec<Instant>>,
    offers: Vec<Offer>,
    /// The requirements of each call of `offers`.
    wanted: Mutex<Vec<Requirements>>,
    connects: Mutex<Vec<Result<()>>>,
    /// The times of the calls of `connect`.
    connected: Mutex<Vec<Instant>>,
    /// After `connects`, `connect` does not return.
    connect_hangs: bool,
    states: Mutex<Vec<Result<MachineState>>>,
    /// The reasons in the reports, if any.
    reasons: Mutex<Vec<Option<Reason>>>,
    /// Held by `inspect` while it waits for `inspect_takes`.
    inspecting: tokio::sync::Mutex<()>,
    inspect_takes: Duration,
    /// The number of machines in each call of `inspect`.
    inspected: Mutex<Vec<usize>>,
}

/// The next answer of a script; the last one forever.
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
        Capabilities::new().outlives_client().pace(self.pace)
    }
    async fn identity(&self) -> Result<String> {
        self.identity.clone().ok_or_else(|| Error::new(ErrorKind::Provider, "the service does not tell who it is"))
    }
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }
    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        self.wanted.lock().unwrap().push(requirements.clone());
        Ok(self.offers.clone())
    }
    async fn prepare(&self, _: &PoolRequest) -> Result<()> {
        Ok(())
    }
    async fn adopt(&self, _: &PoolRequest) -> Result<()> {
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
            Some(state) => {
                let mut report = MachineReport::new(state?);
                report.reason = next(&self.reasons).flatten();
                Ok(vec![report; machines.len()])
            }
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
        self.listed.lock().unwrap().push(Instant::now());
        Ok(Vec::new())
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        Ok(Vec::new())
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Provider, "throttled").temporary()
}

fn refused() -> Error {
    Error::new(ErrorKind::Io, "nothing listens on port 22").temporary()
}

/// Requests for this many machines of one pool.
fn batch(count: u32) -> LaunchBatch {
    let pool = PoolId::random();
    let request = |number| {
        let number = MachineNumber(number);
        LaunchRequest::new(LaunchId::of(&pool, number, Attempt(1)), pool.clone(), number, MINUTE)
    };
    LaunchBatch::new(Offer::new("t", "p", 1, 1), (0..count).map(request).collect())
}

async fn terminate_one(checked: &Checked, machine: &str) -> Result<()> {
    checked.terminate(&[MachineId::new(machine)]).await.remove(0)
}

#[tokio::test]
async fn a_broken_contract_is_named() {
    let checked = Checked::new(Arc::new(Scripted::default()));
    let error = checked.launch(&batch(1)).await.remove(0).unwrap_err();
    assert!(error.message().contains("another launch"), "{error}");
    let error = checked.inspect(&[MachineId::new("m")]).await.unwrap_err();
    assert!(error.message().ends_with("`inspect` of 1 machines returned 0 reports"), "{error}");
}

/// The unit of the durations in these tests.
const MINUTE: Duration = Duration::from_secs(60);
