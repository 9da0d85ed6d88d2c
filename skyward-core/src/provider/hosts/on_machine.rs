//! A machine on a host: all commands carry its mark.

use std::sync::Arc;

use async_trait::async_trait;

use super::record::DEVICES;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::Machine;
use crate::provider::keeper::MARK;
use crate::remote::{ByteStream, Command, CommandOutput, OnLine, Remote, shell};

/// Runs commands in the machine's folder, with its mark and its accelerators in their environment.
/// Fails when the folder is gone.
#[derive(Debug)]
pub(super) struct OnMachine {
    remote: Arc<dyn Remote>,
    machine: Machine,
    folder: String,
}

impl OnMachine {
    pub(super) fn new(remote: Arc<dyn Remote>, machine: Machine, folder: String) -> Self {
        Self { remote, machine, folder }
    }
}

#[async_trait]
impl Remote for OnMachine {
    fn describe(&self) -> String {
        self.remote.describe()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        let Some(program) = command.argv.first() else {
            return Err(Error::new(ErrorKind::Bootstrap, "the command is empty"));
        };
        let mut wrapped = command.clone();
        wrapped.argv = shell::script(ENTER).to_vec();
        wrapped.argv.push(self.folder.clone());
        wrapped.argv.extend(command.argv.iter().cloned());
        wrapped.env.insert(MARK.to_owned(), self.machine.id.to_string());
        // Other nodes may share the host: a node that asked for no accelerator sees none.
        let devices = self.machine.facts.get(DEVICES).cloned().unwrap_or_default();
        wrapped.env.entry(DEVICES.to_owned()).or_insert(devices);
        let output = self.remote.run(&wrapped, on_line).await?;
        let said = |what: &str| output.status == 127 && output.stderr.trim_end().ends_with(what);
        if said(GONE) {
            let message = format!("the machine {} is gone: its folder {} does not exist", self.machine.id, self.folder);
            return Err(Error::new(ErrorKind::Bootstrap, message));
        }
        if said(NO_PROGRAM) {
            let message = format!("cannot run `{program}` on {}: there is no such program", self.describe());
            return Err(Error::new(ErrorKind::Bootstrap, message));
        }
        Ok(output)
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.remote.put(path, bytes, mode).await
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        self.remote.open(socket).await
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        self.remote.builder().await
    }
}

/// Runs a command within the machine's folder, with the machine's key in its environment.
const ENTER: &str = r#"cd "$0" 2>/dev/null || { echo "skyward: the machine is gone" >&2; exit 127; }
{ read -r SKYWARD_MACHINE_KEY <key && export SKYWARD_MACHINE_KEY; } 2>/dev/null
command -v "$1" >/dev/null 2>&1 || { echo "skyward: no such program" >&2; exit 127; }
exec "$@""#;
const GONE: &str = "skyward: the machine is gone";
const NO_PROGRAM: &str = "skyward: no such program";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
    use crate::remote::Process;

    #[tokio::test]
    async fn a_node_sees_only_its_own_accelerators() {
        let folder = std::env::temp_dir().to_string_lossy().into_owned();
        for (given, seen) in [(None, "\n"), (Some("2,3"), "2,3\n")] {
            let facts = given.map(|given| (DEVICES.to_owned(), given.to_owned())).into_iter().collect();
            let (id, launch, pool) = (MachineId::new("m"), LaunchId::new("l"), PoolId::new("p"));
            let machine = Machine { id, launch, pool, number: MachineNumber(0), offer: OfferId::new("o"), facts };
            let remote = OnMachine::new(Arc::new(Process::new()), machine, folder.clone());
            let command = Command::script("echo ${CUDA_VISIBLE_DEVICES-all}");
            assert_eq!(remote.run(&command, &|_| {}).await.unwrap().stdout, seen);
        }
    }
}
