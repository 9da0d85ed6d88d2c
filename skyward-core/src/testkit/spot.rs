//! A provider whose machines are taken back whenever a test says so.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, Machine, MachineReport, Offer, Part, Place, PoolRecord, PoolRequest, Provider,
    Requirements,
};
use crate::remote::Remote;

/// The machines of another provider, which can be taken back: the machine ends at once, with all that
/// runs on it, and the pool finds out by itself. Clones are the same provider.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::pool::Pool;
/// use skyward::provider::Local;
/// use skyward::testkit::Spot;
///
/// # async fn example() -> skyward::Result<()> {
/// let spot = Spot::new(Local::default());
/// let pool = Pool::builder().provider(spot.clone()).start().await?;
/// spot.take_back().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Spot {
    inner: Arc<dyn Provider>,
    launched: Arc<Mutex<Vec<MachineId>>>,
}

impl Spot {
    /// Machines of this provider.
    pub fn new(inner: impl Provider) -> Self {
        Self { inner: Arc::new(inner), launched: Arc::default() }
    }

    /// Takes the machine back that was launched last, and returns its id.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`] if no machine is there.
    /// - As [`Provider::terminate`].
    ///
    /// # Cancel safety
    ///
    /// The machine may be ending already.
    pub async fn take_back(&self) -> Result<MachineId> {
        let last = self.launched.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(machine) = last else {
            return Err(Error::new(
                ErrorKind::NotFound,
                "the provider has launched no machine that it could take back",
            ));
        };
        for ended in self.inner.terminate(std::slice::from_ref(&machine)).await {
            ended?;
        }
        Ok(machine)
    }
}

#[async_trait]
impl Provider for Spot {
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
        self.inner.prepare(pool).await
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        self.inner.adopt(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let machines = self.inner.launch(batch).await;
        let ids = machines.iter().flatten().map(|machine| machine.id.clone());
        self.launched.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        machines
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
