//! A wrapper of the provider that records when instances are reported as running, and that can put
//! simulated nodes in the place of machines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use skyward::error::{Error, ErrorKind};
use skyward::ids::{MachineId, PoolId};
use skyward::provider::{
    Aws, Capabilities, LaunchBatch, Machine, MachineReport, MachineState, Offer, Part, Place, PoolRecord, PoolRequest,
    Provider, Requirements,
};
use skyward::remote::Remote;
use skyward::testkit::fake_provider::FakeProvider;
use skyward::testkit::fake_worker::Faultless;

/// Passes all calls to the provider, except that `simulated` replaces connections.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    aws: Aws,
    simulated: Option<Simulated>,
    running: Arc<Mutex<Option<Instant>>>,
}

/// Simulated nodes in this process, by their instances.
#[derive(Debug, Clone)]
struct Simulated {
    nodes: FakeProvider,
    of: Arc<Mutex<HashMap<MachineId, Machine>>>,
}

impl Watched {
    /// A wrapper for instances with machines.
    pub(crate) fn new(aws: Aws) -> Self {
        Self { aws, simulated: None, running: Arc::default() }
    }

    /// A wrapper for instances without machines.
    pub(crate) fn simulated(aws: Aws) -> Self {
        let nodes = FakeProvider::new(Arc::new(Faultless));
        Self { simulated: Some(Simulated { nodes, of: Arc::default() }), ..Self::new(aws) }
    }

    /// When the first instance was reported as running.
    pub(crate) fn running(&self) -> skyward::Result<Instant> {
        lock(&self.running).ok_or_else(|| Error::new(ErrorKind::Provider, "no instance was reported as running"))
    }
}

#[async_trait]
impl Provider for Watched {
    fn name(&self) -> &str {
        self.aws.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.aws.capabilities()
    }

    async fn identity(&self) -> skyward::Result<String> {
        self.aws.identity().await
    }

    fn parts(&self) -> Vec<Part> {
        self.aws.parts()
    }

    async fn offers(&self, requirements: &Requirements) -> skyward::Result<Vec<Offer>> {
        self.aws.offers(requirements).await
    }

    async fn prepare(&self, pool: &PoolRequest) -> skyward::Result<()> {
        self.aws.prepare(pool).await
    }

    async fn adopt(&self, pool: &PoolRequest) -> skyward::Result<()> {
        self.aws.adopt(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<skyward::Result<Machine>> {
        let launched = self.aws.launch(batch).await;
        if let Some(simulated) = &self.simulated {
            for (machine, request) in launched.iter().zip(&batch.requests) {
                let one = LaunchBatch::one(batch.offer.clone(), request.clone());
                if let (Ok(machine), Some(Ok(node))) = (machine, simulated.nodes.launch(&one).await.pop()) {
                    lock(&simulated.of).insert(machine.id.clone(), node);
                }
            }
        }
        launched
    }

    async fn inspect(&self, machines: &[MachineId]) -> skyward::Result<Vec<MachineReport>> {
        let reports = self.aws.inspect(machines).await?;
        if reports.iter().any(|report| report.state == MachineState::Running) {
            lock(&self.running).get_or_insert_with(Instant::now);
        }
        Ok(reports)
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> skyward::Result<Box<dyn Remote>> {
        let Some(simulated) = &self.simulated else { return self.aws.connect(machine, at).await };
        let node = lock(&simulated.of).get(&machine.id).cloned();
        let node = node.ok_or_else(|| Error::new(ErrorKind::Provider, format!("{} was not launched", machine.id)))?;
        simulated.nodes.connect(&node, at).await
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<skyward::Result<()>> {
        if let Some(simulated) = &self.simulated {
            let nodes: Vec<MachineId> = {
                let of = lock(&simulated.of);
                machines.iter().filter_map(|machine| Some(of.get(machine)?.id.clone())).collect()
            };
            simulated.nodes.terminate(&nodes).await;
        }
        self.aws.terminate(machines).await
    }

    async fn teardown(&self, pool: &PoolId) -> skyward::Result<()> {
        self.aws.teardown(pool).await
    }

    async fn list(&self, pool: &PoolId) -> skyward::Result<Vec<Machine>> {
        self.aws.list(pool).await
    }

    async fn pools(&self) -> skyward::Result<Vec<PoolRecord>> {
        self.aws.pools().await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
