//! The provider.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use aws_sdk_ec2::types::Instance;
use futures_util::future::join_all;
use ipnet::IpNet;
use skyward_core::error::{Error, ErrorKind, Refusal, Result};
use skyward_core::ids::{LaunchId, MachineId, PoolId};
use skyward_core::provider::{
    Capabilities, Labels, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Part, Place,
    PoolRecord, PoolRequest, Provider, Requirements, clock,
};
use skyward_core::remote::Remote;

use crate::address;
use crate::call::DISK_GIB;
use crate::capacity;
use crate::client::{Account, Clients};
use crate::connect;
use crate::describe;
use crate::errors::called;
use crate::images::ImageChoice;
use crate::launch::{self, Answers};
use crate::lease;
use crate::list;
use crate::machines;
use crate::network::{self, Network};
use crate::offers::{self, Setting, Sources};
use crate::options::{self, Addressing, Options};
use crate::parking;
use crate::placement;
use crate::pool::{Pool, Shared};
use crate::reached::Reached;
use crate::tags::{self, Tags};
use crate::teardown;
use crate::timing::{LISTED_LATE, SEEN_WITHIN, UNKNOWN_KEPT};

/// Machines of AWS EC2.
///
/// A pool asks for accelerators by name. The provider tries the types, zones and markets that have
/// them one after another, the cheapest first. Credentials and region come from where AWS's own
/// tools take them: profiles, SSO, `aws login`, containers, roles of instances.
///
/// Every machine powers itself off when the client stops renewing its lease: when the client crashes,
/// or its laptop sleeps for longer than [`Limits::lease`](skyward_core::spec::Limits::lease). When the
/// laptop wakes, a pool that is still open launches other machines, within its budget.
///
/// Clones share one cache of facts about the account. The page `docs/aws.md` leads from an empty
/// account to a trained model, and `docs/aws-policy.json` is the policy that the credentials need.
///
/// ```no_run
/// # mod skyward { pub use skyward_core::*; pub mod provider { pub use skyward_aws::Aws; } }
/// # async fn run() -> skyward_core::Result<()> {
/// use skyward::pool::Pool;
/// use skyward::provider::Aws;
/// use skyward::spec::Accelerator;
///
/// let pool = Pool::builder().provider(Aws::new().region("eu-west-1")).accelerator(Accelerator::new("A10G", 1)).nodes(2).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Aws {
    options: Arc<Options>,
    account: Account,
    pools: Arc<Mutex<HashMap<PoolId, Arc<Pool>>>>,
    /// When a caller first asked about each instance that EC2 does not list.
    asked: Arc<Mutex<HashMap<MachineId, Instant>>>,
    /// When the capacity block of this provider's machines ends, as EC2 reported with the last
    /// offers.
    block_ends: Arc<Mutex<Option<SystemTime>>>,
}

impl Aws {
    /// The account and the region of the SDK's default chain.
    pub fn new() -> Self {
        Self::default()
    }

    /// The provider with another option. It shares no answers with the provider before, as they may
    /// not hold with the new option.
    pub(crate) fn with(self, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Arc::unwrap_or_clone(self.options);
        change(&mut options);
        Self { options: Arc::new(options), ..Self::default() }
    }

    async fn clients(&self) -> Result<&Clients> {
        self.options.check()?;
        self.account.clients(&self.options).await
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<PoolId, Arc<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self, pool: &PoolId) -> Option<Arc<Pool>> {
        self.pools().get(pool).cloned()
    }

    /// The pool, as it was prepared here or first needed.
    fn known(&self, pool: &PoolId, lease: Duration) -> Result<Arc<Pool>> {
        if let Some(pool) = self.pool(pool) {
            return Ok(pool);
        }
        let made = Arc::new(Pool::new(pool.clone(), lease, self.account.clock())?);
        Ok(Arc::clone(self.pools().entry(pool.clone()).or_insert(made)))
    }

    /// What the machines of a pool share; makes it if it does not exist yet, for this owner and with
    /// these labels.
    async fn shared(&self, clients: &Clients, pool: &Pool, owner: &str, labels: &Labels) -> Result<Arc<Shared>> {
        let _making = pool.making.lock().await;
        if let Some(shared) = pool.shared() {
            return Ok(shared);
        }
        let tags = pool.tags(owner, labels, &self.options.tags);
        let shared = Arc::new(self.make_shared(clients, pool, &tags).await?);
        pool.share(Some(Arc::clone(&shared)));
        Ok(shared)
    }

    async fn make_shared(&self, clients: &Clients, pool: &Pool, tags: &Tags) -> Result<Shared> {
        let options = &self.options;
        let network = Network::find(clients, options).await?;
        let group = match &options.security_group {
            Some(group) => group.clone(),
            None => {
                let (from, own) = self.who_may_log_in(&network).await?;
                let group = network::make_group(clients, &network, &pool.id, tags, options.ssh_port, &from).await?;
                pool.entry.set(clients, options, &group, own).await;
                group
            }
        };
        let placement_group = match options.placement_group {
            true => Some(placement::make(clients, &pool.id, tags).await?),
            false => None,
        };
        Ok(Shared { network, group, is_ours: options.security_group.is_none(), placement_group })
    }

    /// The networks that may log in to the machines, and the address of this client where the security
    /// group follows its changes.
    async fn who_may_log_in(&self, network: &Network) -> Result<(Vec<IpNet>, Option<IpNet>)> {
        let given = self.options.ssh_from()?;
        if !given.is_empty() {
            return Ok((given, None));
        }
        match self.options.addressing {
            Addressing::Private => {
                let blocks = network.blocks.iter().map(|block| options::network(block));
                Ok((blocks.collect::<Result<_>>()?, None))
            }
            Addressing::Public => {
                let own = address::of_client(&self.options.address_service).await?;
                // Through a bastion, the machines see the bastion's address.
                Ok((vec![own], Some(own).filter(|_| self.options.bastion.is_none())))
            }
        }
    }

    /// Launches, by calls of at most [`MOST`] machines that may share a call; all or none, by one
    /// call.
    async fn launch_all(&self, batch: &LaunchBatch) -> Result<Vec<Result<Machine>>> {
        let Some(first) = batch.requests.first() else { return Ok(Vec::new()) };
        let pool = self.known(&first.pool, first.lease)?;
        let calls = if batch.all_or_none { vec![batch.requests.clone()] } else { shared_calls(&batch.requests) };
        let launched = calls.into_iter().map(|requests| async {
            let launches: Vec<LaunchId> = requests.iter().map(|request| request.launch.clone()).collect();
            let answers = self.launch_some(&pool, batch, requests).await;
            answers.unwrap_or_else(|error| launches.into_iter().map(|launch| (launch, Err(error.clone()))).collect())
        });
        let answers: Answers = join_all(launched).await.into_iter().flatten().collect();
        let answer = |request: &LaunchRequest| answers.get(&request.launch).cloned().unwrap_or_else(unanswered);
        Ok(batch.requests.iter().map(answer).collect())
    }

    /// Launches machines of a batch by one call.
    async fn launch_some(&self, pool: &Pool, batch: &LaunchBatch, requests: Vec<LaunchRequest>) -> Result<Answers> {
        let Some(first) = requests.first() else { return Ok(Answers::new()) };
        let clients = self.clients().await?;
        let shared = self.shared(clients, pool, &first.owner, &first.labels).await?;
        pool.entry.before_launch(clients, &self.options, pool).await?;
        let (options, all_or_none) = (&self.options, batch.all_or_none);
        Ok(launch::launch(clients, options, pool, &shared, &batch.offer, requests, all_or_none).await)
    }

    /// The command on each machine that prints notices of its end.
    fn watch(&self) -> Vec<String> {
        let rebalance = if self.options.replace_on_rebalance { "yes" } else { "no" };
        ["sh", "-c", WATCH, "watch", rebalance].map(str::to_owned).to_vec()
    }

    /// The report of an instance that may be listed or not, and what is remembered of it.
    fn report(
        &self,
        machine: &MachineId,
        instance: Option<&Instance>,
        watch: &[String],
        now: SystemTime,
    ) -> MachineReport {
        let pools = self.pools();
        let known = pools.values().find_map(|pool| Some((Arc::clone(pool), pool.seen(machine)?)));
        drop(pools);
        let Some(instance) = instance else {
            // EC2 may not list yet what this process launched a moment ago.
            if known.as_ref().is_some_and(|(_, seen)| clock::since(seen.launched) < SEEN_WITHIN) {
                return MachineReport::new(MachineState::Starting);
            }
            // EC2 may not list yet what another process has launched either, and when it did so is
            // not known here.
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let first = *asked.entry(machine.clone()).or_insert_with(clock::now);
            asked.retain(|_, first| clock::since(*first) < UNKNOWN_KEPT);
            let settled = known.is_some() || clock::since(first) >= LISTED_LATE;
            return MachineReport::new(if settled { MachineState::Gone } else { MachineState::Unknown });
        };
        let block_ends = *self.block_ends.lock().unwrap_or_else(PoisonError::into_inner);
        let report = machines::report(instance, self.options.addressing, watch, now, block_ends);
        if let Some((pool, _)) = known {
            if let Some(address) = machines::reached_at(instance, self.options.addressing) {
                pool.update(machine, |seen| seen.address = Some(address.to_owned()));
            }
            match report.state {
                MachineState::Released => pool.on_ending(machine),
                MachineState::Gone => pool.forget(machine),
                _ => {}
            }
        }
        report
    }

    /// Renews the tags of the pools that own these instances, when a renewal is due.
    async fn renew(&self, clients: &Clients, instances: &[Instance]) {
        let mut pools: Vec<Arc<Pool>> = self.pools().values().cloned().collect();
        let now = clock::now();
        let is_of = |instance: &Instance, pool: &Pool| {
            machines::is_live(instance) && tags::value(instance.tags(), tags::POOL) == Some(pool.id.as_str())
        };
        pools.retain(|pool| instances.iter().any(|instance| is_of(instance, pool)) && pool.renewals.is_due(now));
        for pool in pools {
            // The tags of the whole pool are renewed; `instances` may be a part of it.
            let Ok(all) = describe::instances(clients, vec![tags::of_pool(&pool.id)]).await else { continue };
            let live = all.into_iter().filter(machines::is_live).filter_map(|instance| instance.instance_id);
            let mut renewed = lease::renew(clients, &pool.id, pool.lease, live.collect()).await;
            // The group has a call of its own: EC2 refuses a whole call when one of its resources
            // is gone.
            if let Some(shared) = pool.shared().filter(|shared| shared.is_ours) {
                renewed &= lease::renew(clients, &pool.id, pool.lease, vec![shared.group.clone()]).await;
            }
            if renewed {
                pool.renewals.done(now);
            }
        }
    }
}

#[async_trait]
impl Provider for Aws {
    fn name(&self) -> &str {
        "aws"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().outlives_client().keeper().batches().gangs().preemptible().settles_in(LISTED_LATE)
    }

    async fn identity(&self) -> Result<String> {
        let clients = self.clients().await?;
        Ok(format!("account {} in {}", clients.account, clients.region))
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let clients = self.clients().await?;
        let network = Network::find(clients, &self.options).await?;
        let sources = Sources {
            ec2: &clients.ec2,
            catalog: &clients.catalog,
            on_demand: &clients.on_demand,
            quotas: clients.quotas.as_ref(),
            clock: &clients.clock,
        };
        let setting = Setting {
            region: clients.region.clone(),
            zones: network.subnets.keys().cloned().collect(),
            disk_gib: self.options.disk_gib.unwrap_or(DISK_GIB),
            own_image: matches!(self.options.image, ImageChoice::Id(_)),
        };
        // Answers are kept by the clock of this client.
        let now = SystemTime::now();
        if let Some(capacity) = &self.options.capacity {
            let reserved = capacity::find(clients, capacity, clients.clock.now()).await?;
            let offer = offers::reserved(sources, &setting, requirements, &reserved, now).await?;
            *self.block_ends.lock().unwrap_or_else(PoisonError::into_inner) = reserved.ends;
            return Ok(vec![offer]);
        }
        let answer = offers::offers(sources, &setting, requirements, now).await?;
        match answer.nothing {
            Some(nothing) => Err(Error::refused(Refusal::NotOffered, nothing.words)),
            None => Ok(answer.offers),
        }
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        let clients = self.clients().await?;
        let known = self.known(&pool.pool, pool.lease)?;
        self.shared(clients, &known, &pool.owner, &pool.labels).await.map(|_| ())
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        let message =
            format!("the pool {} cannot be taken over: only its client has the keys of its machines", pool.pool);
        Err(Error::refused(Refusal::Denied, message).with_hint(
            "its keys are in the memory of the process that launched the machines; `skyward::reap()` ends what that process has left",
        ))
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        match self.launch_all(batch).await {
            Ok(machines) => machines,
            Err(error) => batch.requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let clients = self.clients().await?;
        let instances = describe::by_id(clients, machines).await?;
        self.renew(clients, &instances).await;
        let pools: Vec<Arc<Pool>> = self.pools().values().cloned().collect();
        join_all(pools.iter().map(|pool| list::tell(clients, pool))).await;
        let (watch, now) = (self.watch(), clients.clock.now());
        let report = |machine: &MachineId| {
            let found = instances.iter().find(|instance| instance.instance_id() == Some(machine.as_str()));
            self.report(machine, found, &watch, now)
        };
        Ok(machines.iter().map(report).collect())
    }

    async fn connect(&self, machine: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        let clients = self.clients().await?;
        let pool = self.known(&machine.pool, Duration::ZERO)?;
        let ssh = connect::connect(clients, &self.options, &pool, &machine.id).await?;
        let (account, options) = (self.account.clone(), Arc::clone(&self.options));
        Ok(Box::new(Reached { ssh, machine: machine.id.clone(), pool, account, options }))
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        match self.clients().await {
            Ok(clients) => {
                parking::park(clients, machines).await;
                let ended = teardown::terminate(clients, machines).await;
                let pools = self.pools();
                for (machine, _) in machines.iter().zip(&ended).filter(|(_, ended)| ended.is_ok()) {
                    pools.values().for_each(|pool| pool.on_ending(machine));
                }
                ended
            }
            Err(error) => machines.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let clients = self.clients().await?;
        // A pool of another process may have made a placement group.
        let shared = self.pool(pool).and_then(|pool| pool.shared());
        let has_placement = shared.is_none_or(|shared| shared.placement_group.is_some());
        teardown::teardown(clients, pool, has_placement).await?;
        self.pools().remove(pool);
        Ok(())
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let listed = list::list(self.clients().await?, pool, self.pool(pool).as_deref()).await?;
        Ok(listed.into_iter().filter(|listed| listed.is_live).map(|listed| listed.machine).collect())
    }

    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let clients = self.clients().await?;
        let ours = || tags::filter("tag-key", [tags::POOL]);
        let instances = describe::instances(clients, vec![ours()]).await?;
        let live = instances.iter().filter(|instance| machines::is_live(instance));
        let mut records: Vec<PoolRecord> = live.filter_map(|instance| machines::record(instance.tags())).collect();
        let groups = clients.ec2.describe_security_groups().filters(ours()).send().await;
        for group in called("DescribeSecurityGroups", groups)?.security_groups.unwrap_or_default() {
            records.extend(machines::record(group.tags()));
        }
        for group in placement::all(clients, ours()).await? {
            records.extend(machines::record(group.tags()));
        }
        records.iter_mut().for_each(|record| record.expires = clients.clock.local(record.expires));
        Ok(PoolRecord::of_parts(records))
    }
}

/// The options, and the number of pools.
impl fmt::Debug for Aws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aws")
            .field("options", &self.options)
            .field("pools", &self.pools().len())
            .finish_non_exhaustive()
    }
}

/// The launches of a batch, divided by what those of one call must have in common: the instances of
/// a call share its user data.
fn shared_calls(requests: &[LaunchRequest]) -> Vec<Vec<LaunchRequest>> {
    let mut alike: BTreeMap<_, Vec<LaunchRequest>> = BTreeMap::new();
    for request in requests {
        // The time left of one budget, computed twice, differs by the moment between the two.
        let minutes = request.ends_in.map(|ends_in| ends_in.as_secs() / 60);
        let key = (request.lease, request.boot, minutes, &request.owner, &request.labels);
        alike.entry(key).or_default().push(request.clone());
    }
    alike.into_values().flat_map(|alike| alike.chunks(MOST).map(<[_]>::to_vec).collect::<Vec<_>>()).collect()
}

/// The error for an instance that the answer to a call for several instances leaves out. The next
/// call finds its state.
fn unanswered<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Provider, "EC2 returned no result for one of the instances of a call").temporary())
}

/// The most machines that are launched by one call, unless all or none are.
const MOST: usize = 100;
const WATCH: &str = include_str!("scripts/watch.sh");

#[cfg(test)]
mod tests {
    use skyward_core::ids::MachineNumber;

    use super::*;

    #[test]
    fn launches_share_a_call_if_their_user_data_is_the_same() {
        let request = |number: u32, ends_in: u64| {
            let launch = LaunchId::new(format!("p-n{number}-a1"));
            let request = LaunchRequest::new(launch, PoolId::new("p"), MachineNumber(number), LISTED_LATE);
            request.ends_in(Duration::from_secs(ends_in))
        };
        let sizes = |requests: &[LaunchRequest]| shared_calls(requests).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(&(0..150).map(|number| request(number, 3600)).collect::<Vec<_>>()), [100, 50]);
        assert_eq!(sizes(&[request(0, 3601), request(1, 3659), request(2, 3600)]), [3], "one minute");
        let differ = [
            request(0, 3600),
            request(1, 60),
            request(2, 3600).labels([("team", "vision")]),
            request(3, 3600).boot(LISTED_LATE * 2),
            request(4, 3600).owner("ada"),
        ];
        assert_eq!(sizes(&differ), [1; 5]);
    }
}
