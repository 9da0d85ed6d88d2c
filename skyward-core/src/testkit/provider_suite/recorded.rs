//! A provider that remembers for which pools it was called.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, Machine, MachineReport, Offer, Part, Place, PoolRecord, PoolRequest, Provider,
    Requirements,
};
use crate::remote::Remote;

/// The provider under test, which remembers the pools that were prepared. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Recorded<P> {
    inner: P,
    pools: Arc<Mutex<BTreeSet<PoolId>>>,
}

impl<P> Recorded<P> {
    pub(super) fn new(inner: P) -> Self {
        Self { inner, pools: Arc::default() }
    }

    fn note(&self, pool: &PoolId) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).insert(pool.clone());
    }

    /// The pools that were prepared so far.
    pub(super) fn prepared(&self) -> Vec<PoolId> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[async_trait]
impl<P: Provider> Provider for Recorded<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn identity(&self) -> Result<String> {
        self.inner.identity().await
    }

    fn parts(&self) -> Vec<Part> {
        self.inner.parts()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        self.inner.offers(requirements).await
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.note(&pool.pool);
        self.inner.prepare(pool).await
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        self.note(&pool.pool);
        self.inner.adopt(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        self.inner.launch(batch).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        self.inner.inspect(machines).await
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        self.inner.connect(machine, at).await
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        self.inner.terminate(machines).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        self.inner.teardown(pool).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        self.inner.list(pool).await
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        self.inner.pools().await
    }
}
