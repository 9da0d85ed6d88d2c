//! The calls of a provider, each with its limit, and the checks of its answers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::call::Call;
use super::gather::NO_RESULT;
use super::listing::LIST;
use super::look::{INSPECT, inspect_all};
use super::timing::{ANSWER, ARRIVAL, LAUNCH, LONGEST_BOOTING_PAUSE, PREPARATION, SHORTEST_INSPECT_PAUSE, TERMINATION};
use super::wait::UNREACHED;
use super::{Checked, broken, lock};
use crate::error::Result;
use crate::ids::{MachineId, PoolId};
use crate::provider::{
    Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, Offer, Part, Place, PoolRecord, PoolRequest,
    Provider, Requirements,
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

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        let call = self.within(PREPARATION, "take over a pool", "pool");
        self.call(&call, pool.pool.as_str(), || self.inner.adopt(pool)).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        let is_gathered = self.gathers() && !batch.all_or_none;
        let call = self.within(LAUNCH, "launch a machine", "launch").gathered(is_gathered);
        let on: Vec<&str> = batch.requests.iter().map(|request| request.launch.as_str()).collect();
        let launched = self.call_each(&call, &on, |left| {
            let requests: Vec<LaunchRequest> = left.into_iter().map(|one| batch.requests[one].clone()).collect();
            let part = LaunchBatch { requests, ..batch.clone() };
            async {
                match call.is_gathered {
                    true => self.launch_gathered(part, &call).await,
                    false => self.inner.launch(&part).await,
                }
            }
        });
        let checked = batch.requests.iter().zip(launched.await).map(|(request, launched)| {
            let machine = launched?;
            let Machine { launch, pool, number, offer, .. } = &machine;
            match (launch, pool, *number, offer) == (&request.launch, &request.pool, request.number, &batch.offer.id) {
                true => Ok(machine),
                false => Err(broken(&*self.inner, "`launch` returned a machine of another launch")
                    .with_context("requested", &request.launch)
                    .with_context("returned", launch)),
            }
        });
        checked.collect()
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let call = self.within(ANSWER, INSPECT, "").gathered(self.gathers());
        let inspect = || async {
            match call.is_gathered {
                true => self.inspect_gathered(machines, &call.had_turn).await.into_iter().collect(),
                false => inspect_all(&*self.inner, machines).await.into_iter().collect(),
            }
        };
        self.call(&call, "", inspect).await
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
        if !self.gathers() {
            // One call for each machine, so that a machine whose call gets no answer does not delay
            // the others.
            return join_all(machines.iter().map(|machine| self.terminate_one(machine))).await;
        }
        let call = self.within(TERMINATION, TERMINATE, "machine").gathered(true);
        let on: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
        let ended = self.call_each(&call, &on, |left| {
            let left = left.into_iter().map(|one| (machines[one].clone(), machines[one].clone())).collect();
            let end = |provider: Arc<dyn Provider>, machines: Vec<MachineId>| async move {
                provider.terminate(&machines).await
            };
            self.gathers.terminate.call((), left, self.asked(TERMINATE), &call.had_turn, end)
        });
        ended.await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let call = self.within(PREPARATION, "tear down", "pool");
        self.call(&call, pool.as_str(), || self.inner.teardown(pool)).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let call = self.within(ANSWER, LIST, "pool");
        let mut machines = self.call(&call, pool.as_str(), || self.inner.list(pool)).await?;
        machines.retain(|machine| machine.pool == *pool);
        Ok(machines)
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let call = self.within(ANSWER, "list its pools", "");
        self.call(&call, "", || self.inner.pools()).await
    }
}

impl Checked {
    async fn launch_gathered(&self, batch: LaunchBatch, call: &Call) -> Vec<Result<Machine>> {
        let Some(pool) = batch.requests.first().map(|request| request.pool.clone()) else { return Vec::new() };
        let LaunchBatch { requests, offer, .. } = batch;
        let alike = (pool, offer.id.clone());
        let requests = requests.into_iter().map(|request| ((request.number, request.launch.clone()), request));
        let launch = |provider: Arc<dyn Provider>, requests: Vec<LaunchRequest>| async move {
            provider.launch(&LaunchBatch::new(offer, requests)).await
        };
        self.gathers.launch.call(alike, requests.collect(), self.asked(call.what), &call.had_turn, launch).await
    }

    async fn terminate_one(&self, machine: &MachineId) -> Result<()> {
        let call = self.within(TERMINATION, TERMINATE, "machine");
        let end = async |_| self.inner.terminate(std::slice::from_ref(machine)).await;
        let ended = self.call_each(&call, &[machine.as_str()], end).await.pop();
        ended.unwrap_or_else(|| Err(broken(&*self.inner, NO_RESULT)))
    }
}

const TERMINATE: &str = "terminate the machine";
