//! What a user says of a provider, option by option.

use std::path::PathBuf;

use skyward_core::remote::ssh::Target;
use skyward_core::spec::Secret;

use crate::aws::Aws;
use crate::images::ImageChoice;
use crate::options::{Addressing, CacheIn, Capacity, Credentials};

impl Aws {
    /// Sets the region. The default is that of `AWS_REGION`, or of the profile.
    #[must_use]
    pub fn region(self, region: impl Into<String>) -> Self {
        self.with(|options| options.region = Some(region.into()))
    }

    /// Takes credentials and settings from this profile. The default is the profile that
    /// `AWS_PROFILE` names.
    #[must_use]
    pub fn profile(self, profile: impl Into<String>) -> Self {
        self.with(|options| options.profile = Some(profile.into()))
    }

    /// Takes this access key, such as that of a role assumed for a customer, in place of what the
    /// default chain finds. Skyward does not renew it: once a session token expires, no call can
    /// end the pool any more, and its machines end when their lease does.
    #[must_use]
    pub fn credentials(
        self,
        access_key_id: impl Into<String>,
        secret_access_key: impl Into<Secret>,
        session_token: Option<Secret>,
    ) -> Self {
        let (access_key_id, secret_access_key) = (access_key_id.into(), secret_access_key.into());
        self.with(|options| options.credentials = Some(Credentials { access_key_id, secret_access_key, session_token }))
    }

    /// Sends calls of all services to this URL.
    #[must_use]
    pub fn endpoint_url(self, url: impl Into<String>) -> Self {
        self.with(|options| options.endpoint_url = Some(url.into()))
    }

    /// Fails unless the credentials belong to this account, a number of 12 digits.
    #[must_use]
    pub fn expect_account(self, account: impl Into<String>) -> Self {
        self.with(|options| options.expect_account = Some(account.into()))
    }

    /// Launches machines from this image, by its id `ami-…`.
    #[must_use]
    pub fn image(self, id: impl Into<String>) -> Self {
        self.with(|options| options.image = ImageChoice::Id(id.into()))
    }

    /// Launches all machines from the newest Deep Learning image, also those without accelerators.
    #[must_use]
    pub fn deep_learning(self) -> Self {
        self.with(|options| options.image = ImageChoice::DeepLearning)
    }

    /// Launches all machines from the newest image of Ubuntu 24.04, which has no drivers for
    /// accelerators. By default, machines with accelerators start from the newest Deep Learning
    /// image.
    #[must_use]
    pub fn ubuntu(self) -> Self {
        self.with(|options| options.image = ImageChoice::Ubuntu)
    }

    /// Sets the user to log in as, who must be able to become root without a password. The default
    /// is the default user of the image.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        self.with(|options| options.user = Some(user.into()))
    }

    /// Sets the size of the root disk in GiB. The default is what the pool asks for, or else 100.
    /// The disk is never smaller than the image.
    #[must_use]
    pub fn disk_gib(self, gibibytes: u32) -> Self {
        self.with(|options| options.disk_gib = Some(gibibytes))
    }

    /// Launches machines in these subnets; in each zone, the first one is used. The default is the
    /// subnets of the default network.
    #[must_use]
    pub fn subnets(self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(|options| options.subnets = ids.into_iter().map(Into::into).collect())
    }

    /// Adds one more of the [subnets](Self::subnets).
    #[must_use]
    pub fn subnet(self, id: impl Into<String>) -> Self {
        self.with(|options| options.subnets.push(id.into()))
    }

    /// Gives machines this security group. By default, each pool makes its own. The group must
    /// allow SSH from the client, and all traffic among the machines.
    #[must_use]
    pub fn security_group(self, id: impl Into<String>) -> Self {
        self.with(|options| options.security_group = Some(id.into()))
    }

    /// Lets these networks log in, such as `203.0.113.7/32`. The default is this client's own
    /// address, which is looked up once at the [address service](Self::address_service); for
    /// machines that the client reaches by [private addresses](Addressing::Private), the addresses
    /// of their own network.
    #[must_use]
    pub fn ssh_from(self, networks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(|options| options.ssh_from = networks.into_iter().map(Into::into).collect())
    }

    /// Looks up the client's address at this service, which must answer with the address in one
    /// line. The default is AWS's own, `https://checkip.amazonaws.com`.
    #[must_use]
    pub fn address_service(self, url: impl Into<String>) -> Self {
        self.with(|options| options.address_service = url.into())
    }

    /// Sets by which address the client reaches machines. The default is the public one.
    #[must_use]
    pub fn addressing(self, addressing: Addressing) -> Self {
        self.with(|options| options.addressing = addressing)
    }

    /// Sets the port of the SSH servers in the image. The default is 22.
    #[must_use]
    pub fn ssh_port(self, port: u16) -> Self {
        self.with(|options| options.ssh_port = port)
    }

    /// Reaches machines through this host.
    #[must_use]
    pub fn bastion(self, bastion: Target) -> Self {
        self.with(|options| options.bastion = Some(bastion))
    }

    /// Also lets this public key log in, a line as in `~/.ssh/id_ed25519.pub`, for people who want
    /// to look around on a machine.
    #[must_use]
    pub fn public_key(self, line: impl Into<String>) -> Self {
        self.with(|options| options.public_keys.push(line.into()))
    }

    /// Gives machines the role of this instance profile, by its name or ARN, such as one that reads
    /// a bucket.
    #[must_use]
    pub fn instance_profile(self, profile: impl Into<String>) -> Self {
        self.with(|options| options.instance_profile = Some(profile.into()))
    }

    /// Puts the machines of a pool close to each other, in a placement group of the pool's own. The
    /// network is faster, and capacity is harder to get.
    #[must_use]
    pub fn placement_group(self, wanted: bool) -> Self {
        self.with(|options| options.placement_group = wanted)
    }

    /// Launches machines in this capacity reservation, `cr-…`, and nowhere else: the provider
    /// offers its type in its zone alone, on demand. AWS bills the reservation whether it is used
    /// or not; the price of the offer is the on-demand price. The credentials need the permission
    /// `ec2:DescribeCapacityReservations`.
    #[must_use]
    pub fn capacity_reservation(self, id: impl Into<String>) -> Self {
        self.with(|options| options.capacity = Some(Capacity::Reservation(id.into())))
    }

    /// Launches machines in this capacity block, `cr-…`, and nowhere else. The block is paid for
    /// when it is bought, so its machines cost nothing by the hour. EC2 begins to end them 30
    /// minutes before the end of the block, 60 where the block is of UltraServers, and the provider
    /// [reports](skyward_core::provider::MachineReport::ends_in) that time as their end.
    #[must_use]
    pub fn capacity_block(self, id: impl Into<String>) -> Self {
        self.with(|options| options.capacity = Some(Capacity::Block(id.into())))
    }

    /// Looks up the account's quotas, and leaves out offers that they do not allow. The credentials
    /// need the permission `servicequotas:GetServiceQuota`.
    #[must_use]
    pub fn look_up_quotas(self, wanted: bool) -> Self {
        self.with(|options| options.look_up_quotas = wanted)
    }

    /// Replaces a spot machine as soon as EC2 recommends a rebalance, and not only when EC2 takes
    /// the machine back.
    #[must_use]
    pub fn replace_on_rebalance(self, wanted: bool) -> Self {
        self.with(|options| options.replace_on_rebalance = wanted)
    }

    /// Adds a tag to everything that the provider makes.
    #[must_use]
    pub fn tag(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|options| drop(options.tags.insert(key.into(), value.into())))
    }

    /// Keeps types and prices for a day in this folder. The default is the user's cache folder.
    /// With an [endpoint](Self::endpoint_url), which may not be AWS's, it is the memory of this
    /// process.
    #[must_use]
    pub fn cache_folder(self, folder: impl Into<PathBuf>) -> Self {
        self.with(|options| options.cache = CacheIn::Folder(folder.into()))
    }

    /// Keeps types and prices in the memory of this process alone.
    #[must_use]
    pub fn without_cache(self) -> Self {
        self.with(|options| options.cache = CacheIn::Memory)
    }
}
