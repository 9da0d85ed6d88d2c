//! The calls of [`Provider`], answered as the script says.

use std::time::SystemTime;

use async_trait::async_trait;
use tokio::time::Instant;

use super::FakeProvider;
use super::faults::Turn;
use super::remote::FakeRemote;
use super::take;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Part, Place, PoolRecord,
    PoolRequest, Provider, Reason, Requirements, launch_each, terminate_each,
};
use crate::remote::Remote;
use crate::testkit::fake_worker::lock;

#[async_trait]
impl Provider for FakeProvider {
    fn name(&self) -> &str {
        "fake"
    }

    async fn identity(&self) -> Result<String> {
        Ok("this process".to_owned())
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.script.faults.capabilities()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        Ok(self.0.script.faults.offers().into_iter().filter(|offer| requirements.are_met_by(offer)).collect())
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        lock(&self.0.state).pools.insert(pool.pool.clone(), pool.clone());
        Ok(())
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        self.prepare(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        lock(&self.0.state).batches.push(batch.requests.iter().map(|request| request.number).collect());
        if batch.all_or_none {
            let refused: Vec<Error> = batch.requests.iter().filter_map(|_| self.try_offer(batch).err()).collect();
            if let Some(refused) = refused.first() {
                return batch.requests.iter().map(|_| Err(refused.clone())).collect();
            }
        }
        let one = async |request: &LaunchRequest| {
            let node = request.number.0;
            if !batch.all_or_none {
                self.try_offer(batch)?;
            }
            lock(&self.0.state).asked.insert(request.number, request.launch.clone());
            let turn = self.0.script.faults.launch(node, self.call("launch", node));
            match turn {
                Turn::Never => drop(self.start(batch, request)),
                Turn::Late(time) => {
                    let (provider, batch, request) = (self.clone(), batch.clone(), request.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(time).await;
                        provider.start(&batch, &request);
                    });
                }
                Turn::Works(_) | Turn::FailsForNow | Turn::Fails => {}
            }
            take(turn, "launch").await?;
            Ok(self.start(batch, request))
        };
        launch_each(batch, one).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let report = |machine: &MachineId| {
            let unknown = self
                .node_of(machine)
                .is_some_and(|node| self.0.script.faults.is_unknown(node, self.call("inspect", node)));
            match lock(&self.0.state).machines.get(machine) {
                _ if unknown => MachineReport::new(MachineState::Unknown),
                Some(fake) => {
                    let (now, node) = (Instant::now(), fake.machine.number.0);
                    let faults = &self.0.script.faults;
                    let lived = fake.lived(now).and_then(|lived| faults.reported_life(node, fake.nth, lived));
                    MachineReport { lived, ..fake.report(now) }
                }
                None => MachineReport::new(MachineState::Gone),
            }
        };
        Ok(machines.iter().map(report).collect())
    }

    async fn connect(&self, machine: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        let node = machine.number.0;
        take(self.0.script.faults.connect(node, self.call("connect", node)), "connect").await?;
        let there = lock(&self.0.state)
            .machines
            .get(&machine.id)
            .filter(|fake| fake.gone.is_none())
            .map(|fake| fake.node.clone());
        match there {
            Some(there) => Ok(Box::new(FakeRemote { provider: self.clone(), machine: machine.clone(), node: there })),
            None => Err(Error::new(ErrorKind::Provider, format!("the machine {} is gone", machine.id))),
        }
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        let one = async |machine: &MachineId| {
            let Some(node) = self.node_of(machine) else { return Ok(()) };
            let turn = self.0.script.faults.terminate(node, self.call("terminate", node));
            let time = match turn {
                Turn::Works(time) => time,
                turn => return take(turn, "terminate").await,
            };
            if let Some(fake) = lock(&self.0.state).machines.get_mut(machine) {
                fake.node.end();
                fake.end(Instant::now() + time, Reason::Asked);
            }
            Ok(())
        };
        terminate_each(machines, one).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        lock(&self.0.state).pools.remove(pool);
        Ok(())
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let now = Instant::now();
        let mut state = lock(&self.0.state);
        state.lists += 1;
        let there = state.machines.values().filter(|fake| fake.gone.is_none_or(|gone| gone + fake.lingers > now));
        Ok(there.map(|fake| fake.machine.clone()).filter(|machine| machine.pool == *pool).collect())
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let machines = self.machines();
        let now = SystemTime::now();
        let record = |pool: &PoolRequest| {
            let lives = machines.iter().any(|machine| machine.pool == pool.pool);
            let expires = if lives { now + pool.lease } else { now };
            PoolRecord::new(pool.pool.clone(), expires).owner(&pool.owner)
        };
        Ok(lock(&self.0.state).pools.values().map(record).collect())
    }
}
