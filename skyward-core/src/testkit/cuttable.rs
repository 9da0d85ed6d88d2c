//! A provider whose connections a test can cut, as a failing network does: the processes at both
//! ends live on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::task::AbortHandle;

use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, Machine, MachineReport, Offer, Place, PoolRecord, PoolRequest, Provider, Requirements,
};
use crate::remote::{ByteStream, Command, CommandOutput, OnLine, Remote};

/// The machines of another provider, with connections to agents and workers that a test can cut.
/// All clones cut the same connections.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::provider::Local;
/// use skyward::testkit::cuttable::Cuttable;
///
/// let provider = Cuttable::new(Local::default());
/// assert_eq!(provider.cut(), 0, "no pool has opened a connection yet");
/// ```
#[derive(Debug, Clone)]
pub struct Cuttable {
    inner: Arc<dyn Provider>,
    cables: Cables,
}

#[derive(Debug)]
struct CuttableRemote {
    inner: Box<dyn Remote>,
    cables: Cables,
}

#[derive(Debug)]
struct Cable {
    to_agent: bool,
    carry: AbortHandle,
}

type Cables = Arc<Mutex<Vec<Cable>>>;

impl Cuttable {
    /// Wraps this provider.
    pub fn new(inner: impl Provider) -> Self {
        Self { inner: Arc::new(inner), cables: Cables::default() }
    }

    /// Cuts every connection. Returns how many connections there were; those that had ended by
    /// themselves count too.
    pub fn cut(&self) -> usize {
        self.cut_where(|_| true)
    }

    /// Cuts the connections to workers, and leaves those to agents. Returns how many connections it
    /// cut; those that had ended by themselves count too.
    pub fn cut_workers(&self) -> usize {
        self.cut_where(|cable| !cable.to_agent)
    }

    fn cut_where(&self, chosen: impl Fn(&Cable) -> bool) -> usize {
        let mut cables = lock(&self.cables);
        let before = cables.len();
        cables.retain(|cable| {
            let cut = chosen(cable);
            if cut {
                cable.carry.abort();
            }
            !cut
        });
        before - cables.len()
    }
}

#[async_trait]
impl Provider for Cuttable {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn identity(&self) -> Result<String> {
        self.inner.identity().await
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        self.inner.offers(requirements).await
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.inner.prepare(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        self.inner.launch(batch).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        self.inner.inspect(machines).await
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        let inner = self.inner.connect(machine, at).await?;
        Ok(Box::new(CuttableRemote { inner, cables: Arc::clone(&self.cables) }))
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

#[async_trait]
impl Remote for CuttableRemote {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.inner.run(command, on_line).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.inner.put(path, bytes, mode).await
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        self.inner.builder().await
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let mut far = self.inner.open(socket).await?;
        let (near, mut middle) = tokio::io::duplex(4096);
        let carry = tokio::spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut middle, &mut far).await;
        });
        let cable = Cable { to_agent: socket.ends_with(AGENT), carry: carry.abort_handle() };
        lock(&self.cables).push(cable);
        Ok(Box::new(near))
    }
}

fn lock(cables: &Cables) -> MutexGuard<'_, Vec<Cable>> {
    cables.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of the path of an agent's socket.
const AGENT: &str = "agent.sock";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Local;

    #[tokio::test]
    async fn a_cuttable_provider_has_the_identity_and_capabilities_of_its_inner_one() {
        let (local, cuttable) = (Local::default(), Cuttable::new(Local::default()));
        assert_eq!(cuttable.identity().await.unwrap(), local.identity().await.unwrap());
        assert_eq!(cuttable.capabilities(), local.capabilities());
    }
}
