//! The calls of a provider, each with its limit, and the checks of its answers.

use std::time::Duration;

use async_trait::async_trait;

use super::looks::INSPECT;
use super::timing::{ANSWER, ARRIVAL, LAUNCH, LONGEST_BOOTING_PAUSE, PREPARATION, SHORTEST_INSPECT_PAUSE, TERMINATION};
use super::wait::UNREACHED;
use super::{Checked, lock};
use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, Machine, MachineReport, Offer, Part, Place, PoolRecord, PoolRequest, Provider,
    Requirements,
};
use crate::remote::Remote;

#[async_trait]
impl Provider for Checked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn identity(&self) -> Result<String> {
        let mut call = self.within(ANSWER, "report its identity", "");
        // Who the provider is decides whose calls it waits for.
        call.is_paced = false;
        let identity = self.call(&call, "", || self.inner.identity()).await?;
        self.pace.learn(self.name(), &identity);
        Ok(identity)
    }

    fn parts(&self) -> Vec<Part> {
        self.inner.parts()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let call = self.within(ANSWER, "list its offers", "");
        let mut offers = self.call(&call, "", || self.inner.offers(requirements)).await?;
        offers.iter_mut().for_each(|offer| offer.usd_per_hour = offer.usd_per_hour.or(self.assumed));
        offers.retain(|offer| requirements.are_met_by(offer));
        Ok(offers)
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        let call = self.within(PREPARATION, "prepare", "pool");
        self.call(&call, pool.pool.as_str(), || self.inner.prepare(pool)).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let call = self.within(LAUNCH, "launch a machine", "launch");
        let on: Vec<&str> = batch.requests.iter().map(|request| request.launch.as_str()).collect();
        let launched = self.call_each(&call, &on, |left| {
            let requests = left.into_iter().map(|one| batch.requests[one].clone()).collect();
            let part = LaunchBatch { requests, ..batch.clone() };
            async move { self.inner.launch(&part).await }
        });
        let checked = batch.requests.iter().zip(launched.await).map(|(request, launched)| {
            let machine = launched?;
            let Machine { launch, pool, number, offer, .. } = &machine;
            match (launch, pool, *number, offer) == (&request.launch, &request.pool, request.number, &batch.offer.id) {
                true => Ok(machine),
                false => Err(self
                    .broken("`launch` returned a machine of another launch")
                    .with_context("requested", &request.launch)
                    .with_context("returned", launch)),
            }
        });
        checked.collect()
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let call = self.within(ANSWER, INSPECT, "");
        let reports = self.call(&call, "", || self.inner.inspect(machines)).await?;
        if reports.len() != machines.len() {
            let (asked, returned) = (machines.len(), reports.len());
            return Err(self.broken(&format!("`inspect` of {asked} machines returned {returned} reports")));
        }
        Ok(reports)
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        let mut call = self.within(Duration::MAX, "reach the machine", "machine");
        call.limit = self.most.unwrap_or(ARRIVAL);
        // It goes to the machine, and not to the provider's service.
        call.is_paced = false;
        // A booting machine cannot be reached until it has booted, and trying costs the provider
        // nothing.
        call.tries = u32::MAX;
        call.longest_pause = LONGEST_BOOTING_PAUSE;
        tokio::select! {
            biased;
            reached = self.call(&call, machine.id.as_str(), || self.inner.connect(machine, at)) => reached,
            gone = self.until_gone(&machine.id, SHORTEST_INSPECT_PAUSE) => {
                Err(gone.with_hint(UNREACHED).caused_by(lock(&call.last).take()))
            }
        }
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        let call = self.within(TERMINATION, "terminate the machine", "machine");
        let on: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
        let ended = self.call_each(&call, &on, |left| {
            let left: Vec<MachineId> = left.into_iter().map(|one| machines[one].clone()).collect();
            async move { self.inner.terminate(&left).await }
        });
        ended.await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let call = self.within(PREPARATION, "tear down", "pool");
        self.call(&call, pool.as_str(), || self.inner.teardown(pool)).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let call = self.within(ANSWER, "list its machines", "pool");
        let mut machines = self.call(&call, pool.as_str(), || self.inner.list(pool)).await?;
        machines.retain(|machine| machine.pool == *pool);
        Ok(machines)
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let call = self.within(ANSWER, "list its pools", "");
        self.call(&call, "", || self.inner.pools()).await
    }
}
