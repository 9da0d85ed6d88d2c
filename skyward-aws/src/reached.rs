//! An instance that the client has reached, and reaches again when its connection is lost.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use skyward_core::error::{ErrorKind, Result};
use skyward_core::ids::MachineId;
use skyward_core::remote::{ByteStream, Command, CommandOutput, OnLine, Remote, Ssh};
use tokio::time::sleep;

use crate::client::Account;
use crate::entry::{self, Change};
use crate::options::Options;
use crate::pool::Pool;
use crate::timing::SLOW_OPEN;

/// An instance that the client has reached.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) ssh: Ssh,
    pub(crate) machine: MachineId,
    pub(crate) pool: Arc<Pool>,
    pub(crate) account: Account,
    pub(crate) options: Arc<Options>,
}

impl Reached {
    async fn look(&self) -> Result<Option<Change>> {
        let clients = self.account.clients(&self.options).await?;
        self.pool.entry.look(clients, &self.options, &self.pool).await
    }
}

#[async_trait]
impl Remote for Reached {
    fn describe(&self) -> String {
        self.ssh.describe()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.ssh.run(command, on_line).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.ssh.put(path, bytes, mode).await
    }

    /// A pool opens a stream to reach an agent again. When that takes long, the client looks whether
    /// its address has changed, and the security group lets the new address in while the connection
    /// is still being tried: the lease ends soon.
    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let mut opening = pin!(self.ssh.open(socket));
        let looking = async {
            sleep(SLOW_OPEN).await;
            self.look().await
        };
        let (opened, looked) = tokio::select! {
            biased;
            opened = opening.as_mut() => (opened, Ok(None)),
            looked = looking => (opening.await, looked),
        };
        let error = match opened {
            Ok(stream) => {
                self.pool.on_reached(&self.machine);
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::Timeout => error,
            Err(error) => return Err(error),
        };
        self.pool.on_silent(&self.machine);
        Err(entry::explain(error, looked, &self.options))
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        self.ssh.builder().await
    }
}
