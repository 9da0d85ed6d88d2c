//! The connection to a fake machine, as a pool uses it before the agent runs.

use std::time::Duration;

use async_trait::async_trait;

use super::{FakeProvider, take};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::Machine;
use crate::remote::{ByteStream, Command, CommandOutput, OnLine, Remote};
use crate::testkit::fake_worker::{FakeNode, lock};

/// Answers the commands that make a machine ready; the last command starts the agent.
#[derive(Debug)]
pub(super) struct FakeRemote {
    pub(super) provider: FakeProvider,
    pub(super) machine: Machine,
    pub(super) node: FakeNode,
}

#[async_trait]
impl Remote for FakeRemote {
    fn describe(&self) -> String {
        format!("the fake machine {}", self.machine.id)
    }

    async fn run(&self, command: &Command, _: OnLine<'_>) -> Result<CommandOutput> {
        let node = self.machine.number.0;
        let call = self.provider.call("command", node);
        let turn = self.provider.0.script.faults.command(node, call);
        match tokio::time::timeout(command.deadline, take(turn, "run a command")).await {
            Ok(done) => done?,
            Err(_) => return Err(Error::new(ErrorKind::Timeout, "the command did not end in time")),
        }
        let gone = lock(&self.provider.0.state).machines.get(&self.machine.id).is_none_or(|fake| fake.gone.is_some());
        if gone {
            return Err(Error::new(ErrorKind::Bootstrap, "the machine is gone"));
        }
        let script = command.argv.last().map(String::as_str).unwrap_or_default();
        let Some((_, lease)) =
            script.rsplit_once(" -m skyward.agent ").and_then(|(_, line)| line.split_once("--lease "))
        else {
            return Ok(CommandOutput::new(0, "", ""));
        };
        // The first command finds an empty machine, as one that was never used.
        if call == 0 {
            return Ok(CommandOutput::new(75, "skyward-need environment worker\n", ""));
        }
        let lease = lease.split_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
        self.node.start_agent(Duration::from_secs_f64(lease));
        let ready =
            "skyward-python /fake/python\nskyward-path /fake/path\n{\"pid\":1,\"protocol\":1,\"python\":\"3.12.1\"}\n";
        Ok(CommandOutput::new(0, ready, ""))
    }

    async fn put(&self, _: &str, _: &[u8], _: u32) -> Result<()> {
        Ok(())
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let stream = self.node.open(socket);
        stream.ok_or_else(|| Error::new(ErrorKind::Io, format!("nothing listens at {socket}")).temporary())
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}
