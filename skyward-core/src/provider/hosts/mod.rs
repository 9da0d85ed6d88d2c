//! Nodes on hosts that exist already.

mod claiming;
mod facts;
mod host;
mod identity;
mod logind;
mod on_machine;
mod record;
mod refusal;
mod site;
mod timing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use tokio::time::Instant;

use self::claiming::{claim, clash};
use self::on_machine::OnMachine;
use self::refusal::{Refusal, none_free};
use self::site::Site;
use self::timing::CLAIM_SETTLES;
use super::ends::Ends;
use super::{
    Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Part, Place, PoolRecord,
    PoolRequest, Provider, Requirements, launch_each, terminate_each,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineId, PoolId};
use crate::remote::{Remote, Ssh};

pub use self::host::Host;

/// Nodes on hosts that are reached by SSH: a lab's machines, a rented server.
///
/// A node is a slot of a host, a folder there, and the processes that carry the node's mark in
/// their environment. The host itself keeps the claim of a slot, as a lock that a keeper holds: no
/// two clients ever share a slot, and when a client is gone, its claims end with their lease. A
/// host needs Linux, an SSH server, and what every Debian has: a shell, coreutils, util-linux,
/// grep, sed and awk.
///
/// ```no_run
/// # use skyward_core as skyward;
/// use skyward::provider::{Host, Hosts};
/// use skyward::remote::ssh::Key;
///
/// let key = || Key::file("~/.ssh/id_ed25519");
/// let hosts = Hosts::new([
///     Host::new("gpu1").user("alice").key(key()),
///     Host::new("gpu2").user("alice").key(key()).slots(2),
/// ]);
/// ```
#[derive(Debug, Clone)]
pub struct Hosts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sites: Vec<Arc<Site>>,
    known: Mutex<Known>,
    ends: Ends,
}

/// What this value has done. The state of the hosts themselves is always asked there.
#[derive(Debug, Default)]
struct Known {
    /// Pools that were prepared or adopted here, with the machines that they may have. Nobody else
    /// launches for them.
    pools: BTreeMap<PoolId, BTreeMap<MachineId, Machine>>,
    /// Launches that are not done. A launch without waiters may have claimed a slot all the same,
    /// and is completed before `list` reports on its pool.
    launches: BTreeMap<LaunchId, Launching>,
}

#[derive(Debug)]
struct Launching {
    pool: PoolId,
    /// How many callers wait for it.
    waiting: u32,
    done: Shared<BoxFuture<'static, Result<Machine>>>,
}

impl Hosts {
    /// Creates nodes on these hosts, without connecting yet.
    pub fn new(hosts: impl IntoIterator<Item = Host>) -> Self {
        let sites = hosts.into_iter().map(|host| Arc::new(Site::new(host))).collect();
        Self(Arc::new(Inner { sites, known: Mutex::default(), ends: Ends::default() }))
    }

    /// The hosts, if the list is valid.
    fn checked(&self) -> Result<&[Arc<Site>]> {
        let invalid = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint));
        if self.0.sites.is_empty() {
            return invalid("the list of hosts is empty".into(), "name one: `Hosts::new([Host::new(\"gpu1\")])`");
        }
        let mut labels = BTreeSet::new();
        for Site { label, host, .. } in self.0.sites.iter().map(Arc::as_ref) {
            if label.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
                return invalid(
                    format!("`{label}` is not the address of a host"),
                    "a host has a name, `gpu1`, or an address, `10.0.0.1`",
                );
            }
            if !labels.insert(label) {
                return invalid(
                    format!("the host {label} is listed twice"),
                    "list it once, and let it carry more nodes: `.slots(2)`",
                );
            }
            if host.slots == 0 {
                return invalid(format!("the host {label} has no slot"), "leave it out, or give it one: `.slots(1)`");
            }
        }
        Ok(&self.0.sites)
    }

    /// The host that a machine is on, by whatever name it is listed. Hosts that have not answered yet
    /// are asked what they are.
    async fn site(&self, machine: &MachineId) -> Result<&Arc<Site>> {
        let host = record::host_of(machine).unwrap_or_default();
        let find = || self.0.sites.iter().find(|site| site.is(host));
        if let Some(site) = find() {
            return Ok(site);
        }
        let unknown = self.0.sites.iter().filter(|site| site.identity().is_none());
        let asked = join_all(unknown.map(|site| async move { Some((&site.label, site.learn().await.err()?)) })).await;
        if let Some(site) = find() {
            return Ok(site);
        }
        let listed: Vec<_> = self.0.sites.iter().map(|site| site.label.as_str()).collect();
        let (silent, mut errors): (Vec<_>, Vec<_>) = asked.into_iter().flatten().unzip();
        Err(match errors.pop() {
            Some(error) => Error::new(
                ErrorKind::Provider,
                format!(
                    "the machine {machine} may be on a host that does not answer: {}",
                    silent.iter().map(|label| label.as_str()).collect::<Vec<_>>().join(", ")
                ),
            )
            .temporary()
            .caused_by(Some(error)),
            None => Error::new(
                ErrorKind::NotFound,
                format!("the machine {machine} is on the host `{host}`, which is not listed"),
            )
            .with_hint("list that host too, under any of its names, with the same user and folder"),
        }
        .with_context("listed", listed.join(", ")))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes launches that nobody waits for any more.
    async fn settle(&self, pool: &PoolId) {
        let dropped: Vec<_> = {
            let known = self.known();
            let dropped = known.launches.iter().filter(|(_, launch)| launch.pool == *pool && launch.waiting == 0);
            dropped.map(|(id, launch)| (id.clone(), launch.done.clone())).collect()
        };
        join_all(dropped.into_iter().map(|(id, done)| async move {
            if let Ok(machine) = done.await {
                self.remember(&machine);
            }
            let mut known = self.known();
            if known.launches.get(&id).is_some_and(|launch| launch.waiting == 0) {
                known.launches.remove(&id);
            }
        }))
        .await;
    }

    async fn launch_one(&self, offer: &Offer, request: &LaunchRequest) -> Result<Machine> {
        let sites = self.checked()?.to_vec();
        let done = {
            let mut known = self.known();
            let launch = known.launches.entry(request.launch.clone()).or_insert_with(|| Launching {
                pool: request.pool.clone(),
                waiting: 0,
                done: claim(sites, offer.clone(), request.clone()).boxed().shared(),
            });
            launch.waiting += 1;
            launch.done.clone()
        };
        let mut waiting = Waiting { hosts: self, launch: &request.launch, done: false };
        let result = done.await;
        waiting.done = true;
        if let Ok(machine) = &result {
            self.remember(machine);
        }
        result
    }

    async fn terminate_one(&self, machine: &MachineId) -> Result<()> {
        self.site(machine).await?.end(machine).await?;
        self.0.ends.forget(machine);
        for machines in self.known().pools.values_mut() {
            machines.remove(machine);
        }
        Ok(())
    }

    /// Notes a machine of a pool that was prepared or adopted here.
    fn remember(&self, machine: &Machine) {
        if let Some(machines) = self.known().pools.get_mut(&machine.pool) {
            machines.insert(machine.id.clone(), machine.clone());
        }
    }
}

#[async_trait]
impl Provider for Hosts {
    fn name(&self) -> &str {
        "hosts"
    }

    /// The hosts, by what they are: see [`parts`](Provider::parts).
    async fn identity(&self) -> Result<String> {
        let asked = join_all(self.checked()?.iter().map(|site| site.learn())).await;
        let known: BTreeSet<_> = asked.into_iter().map(|told| Ok(told?.id)).collect::<Result<_>>()?;
        Ok(known.into_iter().collect::<Vec<_>>().join(","))
    }

    /// The hosts. Each has its own records, and is identified by its machine id, the user and the
    /// folder there, not by its name or address, nor by the other hosts of the list.
    fn parts(&self) -> Vec<Part> {
        let alone = |site: &Arc<Site>| Inner {
            sites: vec![Arc::clone(site)],
            known: Mutex::default(),
            ends: self.0.ends.clone(),
        };
        let part = |site: &Arc<Site>| Part::new(site.label.clone(), Arc::new(Self(Arc::new(alone(site)))));
        self.0.sites.iter().map(part).collect()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().outlives_client().keeper().adopts().settles_in(CLAIM_SETTLES)
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let sites = self.checked()?;
        let close = requirements.accelerator.is_some();
        let all = join_all(sites.iter().map(|site| site.facts(close))).await;
        if let Some(error) = sites.iter().find_map(|site| clash(sites, site)) {
            return Err(error);
        }
        let (mut shares, mut refused) = (Vec::new(), Vec::new());
        for (site, facts) in sites.iter().zip(all) {
            match facts {
                Ok(facts) => {
                    let share = facts.share(&site.host);
                    if facts.taken.len() as u32 >= site.host.slots {
                        refused.push((site.label.clone(), Refusal::Taken(facts.taken)));
                    } else if requirements.are_met_by(&share) {
                        shares.push(share);
                    }
                }
                Err(error) => {
                    tracing::warn!(host = site.label, %error, "a host cannot be used and is left out");
                    refused.push((site.label.clone(), Refusal::Failed(error)));
                }
            }
        }
        match facts::offer(&shares, requirements) {
            Some(offer) => Ok(vec![offer]),
            None if refused.is_empty() => Ok(Vec::new()),
            None => Err(none_free("no host can run a node", &refused)),
        }
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.checked()?;
        self.known().pools.entry(pool.pool.clone()).or_default();
        Ok(())
    }

    /// Learns the machines of the pool from the hosts. A host that does not answer may have some:
    /// until it has answered, the pool cannot be listed. Fails only if no host answers.
    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        let sites = self.checked()?;
        let listed = join_all(sites.iter().map(|site| site.learn_machines(&pool.pool))).await;
        let (mut machines, mut errors) = (Vec::new(), Vec::new());
        for (site, listed) in sites.iter().zip(listed) {
            match listed {
                Ok(listed) => machines.extend(listed),
                Err(error) => errors.push(error.with_context("host", &site.label)),
            }
        }
        if errors.len() == sites.len()
            && let Some(error) = errors.pop()
        {
            return Err(error);
        }
        self.known().pools.entry(pool.pool.clone()).or_default();
        machines.iter().for_each(|machine| self.remember(machine));
        Ok(())
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        launch_each(batch, |request| self.launch_one(&batch.offer, request)).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let mut by_site: BTreeMap<&str, (&Arc<Site>, Vec<&MachineId>)> = BTreeMap::new();
        let mut reports: BTreeMap<String, MachineReport> = BTreeMap::new();
        for machine in machines {
            let site = match self.site(machine).await {
                Ok(site) => site,
                Err(error) if error.is_temporary() => {
                    let unknown = MachineReport::new(MachineState::Unknown).saying(error.to_string());
                    reports.insert(machine.to_string(), unknown);
                    continue;
                }
                Err(error) => return Err(error),
            };
            by_site.entry(&site.label).or_insert_with(|| (site, Vec::new())).1.push(machine);
        }
        let asked = by_site.values().map(|(site, machines)| async move {
            let told = match site.unreachable() {
                Some(error) => Err(error),
                None => site.inspect(machines).await,
            };
            told.unwrap_or_else(|error| {
                tracing::warn!(host = site.label, %error, "the state of machines on a host is unknown");
                let unknown = MachineReport::new(MachineState::Unknown).saying(error.to_string());
                machines.iter().map(|machine| (machine.to_string(), unknown.clone())).collect()
            })
        });
        reports.extend(join_all(asked).await.into_iter().flatten());
        let report = |machine: &MachineId| reports.get(machine.as_str()).cloned();
        let unknown = || MachineReport::new(MachineState::Unknown);
        let now = Instant::now();
        let see = |machine: &MachineId| self.0.ends.see(machine, report(machine).unwrap_or_else(unknown), now);
        Ok(machines.iter().map(see).collect())
    }

    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        let site = self.site(&machine.id).await?;
        let is_first = machine.facts.get(record::SLOT).is_some_and(|slot| slot == "0");
        let ssh = if is_first { site.ssh.clone() } else { Ssh::new(site.host.target.clone()) };
        Ok(Box::new(OnMachine::new(Arc::new(ssh), machine.clone(), at.folder.clone())))
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        terminate_each(machines, |machine| self.terminate_one(machine)).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        for machine in self.list(pool).await? {
            self.terminate_one(&machine.id).await?;
        }
        self.known().pools.remove(pool);
        Ok(())
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        self.settle(pool).await;
        let sites = self.checked()?;
        let owned = &self.known().pools.get(pool).cloned();
        let asked = sites.iter().map(|site| async move {
            match site.unreachable().filter(|_| owned.is_some() && !site.has_unanswered(pool)) {
                Some(error) => Err(error),
                None => site.list(pool).await,
            }
        });
        let unanswered: Vec<bool> = sites.iter().map(|site| site.has_unanswered(pool)).collect();
        let mut machines = Vec::new();
        for ((site, listed), unanswered) in sites.iter().zip(join_all(asked).await).zip(unanswered) {
            match (listed, owned) {
                (Ok(listed), _) => {
                    // Machines that this value has not known, of an adopted pool for example.
                    listed.iter().filter(|_| unanswered).for_each(|machine| self.remember(machine));
                    machines.extend(listed);
                }
                // Machines launched from here are known, and nobody else launches for this pool.
                (Err(error), Some(known)) if !site.has_unanswered(pool) => {
                    tracing::warn!(host = site.label, %error, "a host cannot list its machines");
                    let there = known.values().filter(|one| record::host_of(&one.id).is_some_and(|host| site.is(host)));
                    machines.extend(there.cloned());
                }
                (Err(error), _) => return Err(error.with_context("host", &site.label)),
            }
        }
        machines.sort_by(|a, b| (a.number, &a.id).cmp(&(b.number, &b.id)));
        Ok(machines)
    }

    /// Returns the pools of the users that the provider logs in as.
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let sites = self.checked()?;
        let mut parts = Vec::new();
        for (site, listed) in sites.iter().zip(join_all(sites.iter().map(|site| site.pools())).await) {
            parts.extend(listed.map_err(|error| error.with_context("host", &site.label))?);
        }
        Ok(PoolRecord::of_parts(parts))
    }
}

/// A caller that waits for a launch.
struct Waiting<'a> {
    hosts: &'a Hosts,
    launch: &'a LaunchId,
    done: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut known = self.hosts.known();
        if let Some(launch) = known.launches.get_mut(self.launch) {
            launch.waiting = launch.waiting.saturating_sub(1);
            // The result of a launch without waiters is not kept.
            if self.done && launch.waiting == 0 {
                known.launches.remove(self.launch);
            }
        }
    }
}
