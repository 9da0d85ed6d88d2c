//! What a user says of a provider, option by option.

use std::path::PathBuf;

use skyward_core::remote::ssh::Target;
use skyward_core::spec::Secret;

use crate::aws::Aws;
use crate::images::ImageChoice;
use crate::options::{Addressing, CacheIn, Capacity, Credentials};

impl Aws {
    /// Sets the region. Otherwise it is that of `AWS_REGION`, or of the profile.
    #[must_use]
    pub fn region(self, region: impl Into<String>) -> Self {
        self.with(|options| options.region = Some(region.into()))
    }

    /// Takes the credentials and settings of this profile, rather than of that which `AWS_PROFILE` names.
    #[must_use]
    pub fn profile(self, profile: impl Into<String>) -> Self {
        self.with(|options| options.profile = Some(profile.into()))
    }

    /// Takes this access key, such as one of a role that was assumed for a customer, rather than what the default chain finds. It is not renewed: a pool that lives longer than a session's token
    /// can be ended by no call any more, and its machines end by their lease.
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

    /// Fails unless the credentials are of this account, a number of 12 digits.
    #[must_use]
    pub fn expect_account(self, account: impl Into<String>) -> Self {
        self.with(|options| options.expect_account = Some(account.into()))
    }

    /// Launches machines of this image, by its id `ami-…`.
    #[must_use]
    pub fn image(self, id: impl Into<String>) -> Self {
        self.with(|options| options.image = ImageChoice::Id(id.into()))
    }

    /// Launches machines of the newest Deep Learning image, also those without accelerators.
    #[must_use]
    pub fn deep_learning(self) -> Self {
        self.with(|options| options.image = ImageChoice::DeepLearning)
    }

    /// Launches machines of the newest image of Ubuntu 24.04, without drivers of accelerators. Otherwise machines with accelerators are of the newest Deep Learning image.
    #[must_use]
    pub fn ubuntu(self) -> Self {
        self.with(|options| options.image = ImageChoice::Ubuntu)
    }

    /// Sets the user to log in as: the default user of the image, who may become root without a password.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        self.with(|options| options.user = Some(user.into()))
    }

    /// Sets the size of the root disk in GiB: 100 otherwise, or what the pool asks for. It is never smaller than the image.
    #[must_use]
    pub fn disk_gib(self, gibibytes: u32) -> Self {
        self.with(|options| options.disk_gib = Some(gibibytes))
    }

    /// Launches machines in these subnets, of which the first of each zone is used. Otherwise in those of the default network.
    #[must_use]
    pub fn subnets(self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(|options| options.subnets = ids.into_iter().map(Into::into).collect())
    }

    /// Adds one more of the [subnets](Self::subnets).
    #[must_use]
    pub fn subnet(self, id: impl Into<String>) -> Self {
        self.with(|options| options.subnets.push(id.into()))
    }

    /// Gives machines this security group, rather than one that is made for each pool. It must let in SSH from the client, and everything among the machines.
    #[must_use]
    pub fn security_group(self, id: impl Into<String>) -> Self {
        self.with(|options| options.security_group = Some(id.into()))
    }

    /// Lets these networks log in, such as `203.0.113.7/32`. Otherwise it is the address that this client has, which is looked up once at the [address service](Self::address_service); for machines
    /// that are reached by [private addresses](Addressing::Private), the addresses of their own network.
    #[must_use]
    pub fn ssh_from(self, networks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with(|options| options.ssh_from = networks.into_iter().map(Into::into).collect())
    }

    /// Looks up the client's address here; `https://checkip.amazonaws.com` otherwise, which is AWS's own. It answers with the address in a line.
    #[must_use]
    pub fn address_service(self, url: impl Into<String>) -> Self {
        self.with(|options| options.address_service = url.into())
    }

    /// Sets by which address machines are reached; the public one otherwise.
    #[must_use]
    pub fn addressing(self, addressing: Addressing) -> Self {
        self.with(|options| options.addressing = addressing)
    }

    /// Sets the port of the machines' SSH servers, as the image has it; 22 otherwise.
    #[must_use]
    pub fn ssh_port(self, port: u16) -> Self {
        self.with(|options| options.ssh_port = port)
    }

    /// Reaches machines through this host.
    #[must_use]
    pub fn bastion(self, bastion: Target) -> Self {
        self.with(|options| options.bastion = Some(bastion))
    }

    /// Lets in this public key too, a line as in `~/.ssh/id_ed25519.pub`, for people who want to look around.
    #[must_use]
    pub fn public_key(self, line: impl Into<String>) -> Self {
        self.with(|options| options.public_keys.push(line.into()))
    }

    /// Gives machines the role of this instance profile, by its name or ARN, such as one that reads a bucket.
    #[must_use]
    pub fn instance_profile(self, profile: impl Into<String>) -> Self {
        self.with(|options| options.instance_profile = Some(profile.into()))
    }

    /// Puts the machines of a pool close to each other, in a placement group that is made for it: the network is faster, and capacity harder to get.
    #[must_use]
    pub fn placement_group(self, wanted: bool) -> Self {
        self.with(|options| options.placement_group = wanted)
    }

    /// Launches machines in this capacity reservation, `cr-…`, and nowhere else: its type and zone
    /// are all that is offered, on demand. It is billed whether it is used or not; the price of an
    /// offer is that on demand. Whoever names it needs the permission
    /// `ec2:DescribeCapacityReservations`.
    #[must_use]
    pub fn capacity_reservation(self, id: impl Into<String>) -> Self {
        self.with(|options| options.capacity = Some(Capacity::Reservation(id.into())))
    }

    /// Launches machines in this capacity block, `cr-…`, by the same rules. It was paid for when it
    /// was bought, so that its machines cost nothing by the hour, and EC2 begins to end them 30
    /// minutes before it ends: they are [reported](skyward_core::provider::MachineReport::ends_in)
    /// to end then.
    #[must_use]
    pub fn capacity_block(self, id: impl Into<String>) -> Self {
        self.with(|options| options.capacity = Some(Capacity::Block(id.into())))
    }

    /// Looks up the account's quotas, and leaves out offers that they do not allow. It needs the permission `servicequotas:GetServiceQuota`.
    #[must_use]
    pub fn look_up_quotas(self, wanted: bool) -> Self {
        self.with(|options| options.look_up_quotas = wanted)
    }

    /// Replaces a spot machine when EC2 recommends to move away from it, and not only when it is taken back.
    #[must_use]
    pub fn replace_on_rebalance(self, wanted: bool) -> Self {
        self.with(|options| options.replace_on_rebalance = wanted)
    }

    /// Adds a tag to everything that is made.
    #[must_use]
    pub fn tag(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|options| drop(options.tags.insert(key.into(), value.into())))
    }

    /// Keeps types and prices for a day in this folder. Otherwise it is the user's cache folder; or the memory of this process, where an [endpoint](Self::endpoint_url) is named that may not be AWS's.
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
