//! A provider whose connections a test can cut, as a failing network does: the processes at both
//! ends live on. The network may also be a distant one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, Machine, MachineReport, Offer, Part, Place, PoolRecord, PoolRequest, Provider,
    Requirements,
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
    latency: Duration,
    cables: Cables,
}

#[derive(Debug)]
struct CuttableRemote {
    inner: Box<dyn Remote>,
    latency: Duration,
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
        Self { inner: Arc::new(inner), latency: Duration::ZERO, cables: Cables::default() }
    }

    /// Makes all bytes of connections to agents and workers arrive this much later, in both
    /// directions; a round trip takes twice the time. Commands and uploads are not delayed, nor are
    /// connections that were opened before.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
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
        self.inner.launch(batch).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        self.inner.inspect(machines).await
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        let inner = self.inner.connect(machine, at).await?;
        Ok(Box::new(CuttableRemote { inner, latency: self.latency, cables: Arc::clone(&self.cables) }))
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
        let (mut from_far, mut to_far) = tokio::io::split(self.inner.open(socket).await?);
        let (near, middle) = tokio::io::duplex(4096);
        let (mut from_near, mut to_near) = tokio::io::split(middle);
        let latency = self.latency;
        let carry = tokio::spawn(async move {
            tokio::join!(carry(&mut from_near, &mut to_far, latency), carry(&mut from_far, &mut to_near, latency));
        });
        let cable = Cable { to_agent: socket.ends_with(AGENT), carry: carry.abort_handle() };
        lock(&self.cables).push(cable);
        Ok(Box::new(near))
    }
}

/// Writes what it reads, as much later as `latency` says, until one end is closed.
async fn carry(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin), latency: Duration) {
    let (sender, mut arriving) = mpsc::channel(IN_FLIGHT);
    let read = async move {
        let mut bytes = BytesMut::with_capacity(READ);
        while from.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
            if sender.send((Instant::now() + latency, bytes.split())).await.is_err() {
                return;
            }
            bytes.reserve(READ);
        }
    };
    let write = async move {
        while let Some((due, bytes)) = arriving.recv().await {
            // A timer would be rounded up to a millisecond.
            if due > Instant::now() {
                sleep_until(due).await;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

fn lock(cables: &Cables) -> MutexGuard<'_, Vec<Cable>> {
    cables.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reads of a connection that may be under way, and the bytes of one.
const IN_FLIGHT: usize = 1024;
const READ: usize = 16 << 10;

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
