//! One call that launches instances, with a token: made again, it is the same call and starts
//! nothing more.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    BlockDeviceMapping, CapacityReservationSpecification, CapacityReservationTarget, EbsBlockDevice, HttpTokensState,
    IamInstanceProfileSpecification, InstanceInterruptionBehavior, InstanceMarketOptionsRequest,
    InstanceMetadataEndpointState, InstanceMetadataOptionsRequest, InstanceNetworkInterfaceSpecification, InstanceType,
    MarketType, Placement, ResourceType, ShutdownBehavior, SpotInstanceType, SpotMarketOptions, VolumeType,
};
use sha2::{Digest, Sha256};
use skyward_core::error::{Error, Refusal, Result};
use skyward_core::provider::{LaunchRequest, Offer};
use skyward_core::remote::ssh::KeyPair;
use skyward_core::spec::Secret;
use tokio::time::Instant;

use crate::assign::Launch;
use crate::client::Clients;
use crate::images::Image;
use crate::options::{Addressing, Capacity, Options};
use crate::pool::{Pool, Shared};
use crate::tags::{self, Tags};
use crate::user_data::user_data;

/// A call with all of its parameters: EC2 takes a repeated call only if they are the same.
#[derive(Debug)]
pub(crate) struct Call {
    /// The token, by which EC2 recognises a repeated call.
    pub(crate) token: String,
    /// The launches, in the order in which the instances of the answer take them.
    pub(crate) requests: Vec<LaunchRequest>,
    pub(crate) offer: Offer,
    /// The host key by which the client recognises the instances at first.
    pub(crate) host_key: KeyPair,
    pub(crate) image: Image,
    /// The user data, which contains the host key.
    user_data: Secret,
    subnet: String,
    group: String,
    placement_group: Option<String>,
    least: i32,
    tags: Tags,
    instance_tags: Tags,
    attempts: Mutex<Attempts>,
}

/// The attempts of a call whose launches are unknown.
#[derive(Debug, Default)]
struct Attempts {
    /// How many are under way.
    open: usize,
    /// When the last one ended without an answer.
    lost: Option<Instant>,
}

/// An attempt of a call. When it is dropped, it counts as one without an answer: also when the caller
/// stops waiting, as EC2 may have got it.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    call: &'a Call,
    is_answered: bool,
}

impl Attempt<'_> {
    /// EC2 has answered, so that it is known what this attempt has launched.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut attempts = self.call.attempts();
        attempts.open -= 1;
        if !self.is_answered {
            attempts.lost = Some(Instant::now());
        }
    }
}

impl Call {
    /// A call for these launches, all or none of them, or as many as there are.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotOffered`] where no subnet is in the offer's zone; [`Refusal::Misconfigured`].
    pub(crate) fn new(
        pool: &Pool,
        shared: &Shared,
        options: &Options,
        image: Image,
        offer: Offer,
        requests: Vec<LaunchRequest>,
        all_or_none: bool,
    ) -> Result<Self> {
        let subnet = shared.network.subnets.get(&offer.zone).cloned().ok_or_else(|| {
            Error::refused(Refusal::NotOffered, format!("none of the pool's subnets is in {}", offer.zone))
        })?;
        let first = requests.first().ok_or_else(|| Error::refused(Refusal::Misconfigured, "a call for no machine"))?;
        // The instances share their user data, so all of them end when the first one has to.
        let mut first = first.clone();
        first.ends_in = requests.iter().filter_map(|request| request.ends_in).min();
        let host_key = KeyPair::generate()?;
        let client = std::iter::once(pool.trust.client.public().to_owned());
        let keys: Vec<String> = client.chain(options.public_keys.iter().cloned()).collect();
        let now = pool.clock.now();
        let user_data = user_data(&first, now, &image.user, &host_key, &keys)?;
        let mut tags = pool.tags(&first.owner, &first.labels, &options.tags);
        tags.insert(tags::LEASE.to_owned(), first.lease.as_millis().to_string());
        let ends = first.ends_in.and_then(|ends_in| now.checked_add(ends_in));
        let instance_tags = tags::of_instances(&tags, &offer.id, ends, &requests);
        let count = i32::try_from(requests.len()).unwrap_or(i32::MAX);
        Ok(Self {
            token: pool_token(pool, &requests, &offer, all_or_none),
            least: if all_or_none { count } else { 1 },
            requests,
            offer,
            host_key,
            image,
            user_data: user_data.into(),
            subnet,
            group: shared.group.clone(),
            placement_group: shared.placement_group.clone(),
            tags,
            instance_tags,
            attempts: Mutex::default(),
        })
    }

    /// Begins an attempt.
    pub(crate) fn attempt(&self) -> Attempt<'_> {
        self.attempts().open += 1;
        Attempt { call: self, is_answered: false }
    }

    /// Since when an attempt of the call may have launched instances without an answer. None if each
    /// attempt was answered.
    pub(crate) fn in_doubt_since(&self) -> Option<Instant> {
        let attempts = self.attempts();
        if attempts.open > 0 { Some(Instant::now()) } else { attempts.lost }
    }

    /// The launches with the numbers of their machines.
    pub(crate) fn launches(&self) -> Vec<Launch> {
        self.requests.iter().map(|request| (request.launch.clone(), request.number)).collect()
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call as EC2 takes it, without its token.
    pub(crate) fn input(&self, clients: &Clients, options: &Options) -> RunInstancesFluentBuilder {
        let offer = &self.offer;
        let interface = InstanceNetworkInterfaceSpecification::builder()
            .device_index(0)
            .subnet_id(&self.subnet)
            .groups(&self.group)
            .associate_public_ip_address(options.addressing == Addressing::Public)
            .delete_on_termination(true)
            .build();
        // A machine whose lease expires shuts down, and a shutdown terminates it.
        let mut input = clients
            .ec2
            .run_instances()
            .image_id(&self.image.id)
            .instance_type(InstanceType::from(offer.machine_type.as_str()))
            .min_count(self.least)
            .max_count(i32::try_from(self.requests.len()).unwrap_or(i32::MAX))
            .network_interfaces(interface)
            .set_block_device_mappings(Some(self.disks()))
            .metadata_options(metadata())
            .instance_initiated_shutdown_behavior(ShutdownBehavior::Terminate)
            .tag_specifications(tags::specification(ResourceType::Instance, &self.instance_tags))
            .tag_specifications(tags::specification(ResourceType::Volume, &self.tags))
            .tag_specifications(tags::specification(ResourceType::NetworkInterface, &self.tags))
            .user_data(self.user_data.expose());
        if let Some(market) = self.market(options) {
            input = input.instance_market_options(market);
        }
        if offer.spot {
            input = input.tag_specifications(tags::specification(ResourceType::SpotInstancesRequest, &self.tags));
        }
        if let Some(capacity) = &options.capacity {
            let target = CapacityReservationTarget::builder().capacity_reservation_id(capacity.id()).build();
            let reservation = CapacityReservationSpecification::builder().capacity_reservation_target(target).build();
            input = input.capacity_reservation_specification(reservation);
        }
        if let Some(group) = &self.placement_group {
            input = input.placement(Placement::builder().group_name(group).build());
        }
        if let Some(profile) = &options.instance_profile {
            let named = IamInstanceProfileSpecification::builder();
            let named = if profile.starts_with("arn:") { named.arn(profile) } else { named.name(profile) };
            input = input.iam_instance_profile(named.build());
        }
        input
    }

    /// How the instances are bought: a spot request that EC2 does not repeat, a capacity block that
    /// is paid for, or on demand.
    ///
    /// Spot prices change while a machine runs. Where a budget in dollars counts the machine at a
    /// price, that price is the most that EC2 may charge, and EC2 takes the machine back when its
    /// price is higher:
    /// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_SpotMarketOptions.html>.
    fn market(&self, options: &Options) -> Option<InstanceMarketOptionsRequest> {
        let market = InstanceMarketOptionsRequest::builder();
        if matches!(options.capacity, Some(Capacity::Block(_))) {
            return Some(market.market_type(MarketType::CapacityBlock).build());
        }
        let most = self.requests.iter().filter_map(|request| request.most_usd_per_hour).reduce(f64::min);
        let spot = SpotMarketOptions::builder()
            .spot_instance_type(SpotInstanceType::OneTime)
            .instance_interruption_behavior(InstanceInterruptionBehavior::Terminate)
            .set_max_price(most.map(|most| most.to_string()))
            .build();
        self.offer.spot.then(|| market.market_type(MarketType::Spot).spot_options(spot).build())
    }

    /// The root disk and the further disks of the image. EC2 deletes all of them with the instance.
    fn disks(&self) -> Vec<BlockDeviceMapping> {
        let with_it = |device: &String| {
            let disk = EbsBlockDevice::builder().encrypted(true).delete_on_termination(true).build();
            BlockDeviceMapping::builder().device_name(device).ebs(disk).build()
        };
        std::iter::once(self.root()).chain(self.image.more_devices.iter().map(with_it)).collect()
    }

    fn root(&self) -> BlockDeviceMapping {
        let asked = self.offer.disk_gib.unwrap_or(DISK_GIB);
        let size = self.image.disk_gib(asked);
        let disk = EbsBlockDevice::builder()
            .volume_size(i32::try_from(size).unwrap_or(i32::MAX))
            .volume_type(VolumeType::Gp3)
            .encrypted(true)
            .delete_on_termination(true)
            .build();
        BlockDeviceMapping::builder().device_name(&self.image.root_device).ebs(disk).build()
    }
}

/// Version 2 alone, and not from containers:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html>.
fn metadata() -> InstanceMetadataOptionsRequest {
    InstanceMetadataOptionsRequest::builder()
        .http_endpoint(InstanceMetadataEndpointState::Enabled)
        .http_tokens(HttpTokensState::Required)
        .http_put_response_hop_limit(1)
        .build()
}

/// The token of a call; another one, where EC2 has refused the first because something that the
/// call named was missing.
fn pool_token(pool: &Pool, requests: &[LaunchRequest], offer: &Offer, all_or_none: bool) -> String {
    let mut token = token(requests, offer, all_or_none);
    while pool.was_refused(&token) {
        token = hex(&Sha256::digest(token.as_bytes()));
    }
    token
}

/// A token of at most 64 letters, which is the same for the same launches by the same offer, also
/// in another process.
fn token(requests: &[LaunchRequest], offer: &Offer, all_or_none: bool) -> String {
    let mut hash = Sha256::new();
    for request in requests {
        hash.update(request.launch.as_str());
        hash.update([0]);
    }
    hash.update(offer.id.as_str());
    hash.update([0, u8::from(all_or_none)]);
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The default size of the disk: an environment with a framework takes some tens of GiB.
pub(crate) const DISK_GIB: u32 = 100;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skyward_core::ids::{LaunchId, MachineNumber, PoolId};
    use skyward_core::pool::Pool;
    use skyward_core::provider::Market;
    use skyward_core::spec::Budget;

    use super::*;
    use crate::loopback::{Loopback, ec2};

    #[test]
    fn a_token_is_that_of_its_launches_and_offer() {
        let request = |launch: &str| {
            LaunchRequest::new(LaunchId::new(launch), PoolId::new("p"), MachineNumber(0), Duration::from_secs(1))
        };
        let offer = Offer::new("g5.xlarge", "eu-west-1a", 4, 16);
        let first = token(&[request("a"), request("b")], &offer, true);
        assert_eq!(first.len(), 64);
        assert_eq!(first, token(&[request("a"), request("b")], &offer, true));
        let others = [
            token(&[request("ab")], &offer, true),
            token(&[request("a")], &offer, true),
            token(&[request("a"), request("b")], &offer, false),
            token(&[request("a"), request("b")], &Offer::new("g5.2xlarge", "eu-west-1a", 4, 16), true),
        ];
        assert!(!others.contains(&first), "{others:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_spot_machine_may_cost_no_more_than_a_budget_in_dollars_counts() {
        let priced = Budget::usd_per_hour(1.0);
        for (market, budget, most) in [
            (Market::Spot, Some(priced), Some("0.0375")),
            (Market::Spot, Some(Budget::default().hours(1.0)), None),
            (Market::Spot, None, None),
            (Market::OnDemand, None, None),
        ] {
            let service = Loopback::start(ec2::answer);
            let pool = Pool::builder().provider(service.aws()).market(market);
            let pool = budget.into_iter().fold(pool, |pool, budget| pool.budget(budget));
            drop(pool.start().await.unwrap_err());
            let launches = service.asked_of("RunInstances");
            let told = launches.last().unwrap().get("InstanceMarketOptions.SpotOptions.MaxPrice");
            assert_eq!(told.map(String::as_str), most, "{market:?}");
        }
    }
}
