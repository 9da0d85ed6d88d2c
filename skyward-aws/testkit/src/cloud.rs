//! A cloud: moto, the proxy before it, the machines behind it, and a network on addresses of this
//! machine.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use aws_sdk_ec2::types::Tag;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::guard;
use crate::host::{self, Inside};
use crate::hypervisor::{Hypervisor, Instance};
use crate::left::{self, Left};
use crate::network;
use crate::options::{CloudOptions, missing};
use crate::phases::Phases;
use crate::proxy::{Calls, Skew};
use crate::records::Market;
use crate::reservation::Reservation;
use crate::rules::Rules;
use crate::timing::MACHINES_END;

/// An EC2 on loopback. Dropping it ends its machines and servers, and removes its files.
///
/// It runs on threads of its own, so neither a paused clock nor a blocked runtime of the test stops
/// it.
#[derive(Debug)]
pub struct Cloud {
    inside: Arc<Inside>,
    runtime: Handle,
    /// Asks the threads to end; they say when they have.
    stop: Option<oneshot::Sender<()>>,
    stopped: blocking::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Cloud {
    /// Starts one.
    ///
    /// # Errors
    /// When moto cannot be installed or started, or this host cannot run machines: see [`missing`].
    ///
    /// # Cancel safety
    /// When dropped, the cloud ends soon after it has started.
    pub async fn start(options: CloudOptions) -> Result<Self> {
        let (sender, receiver) = oneshot::channel();
        // A thread of the runtime's blocking pool would end when it is idle, and moto with it.
        std::thread::Builder::new().name("loopback-ec2".into()).spawn(move || {
            let _ = sender.send(Self::start_blocking(options));
        })?;
        receiver.await.context("the thread that starts the cloud has ended")?
    }

    /// The same for programs without a runtime.
    ///
    /// # Errors
    /// As [`Cloud::start`].
    pub fn start_blocking(options: CloudOptions) -> Result<Self> {
        if let Some(reason) = missing().filter(|_| options.has_machines) {
            bail!("{reason}");
        }
        let (stop, stopping) = oneshot::channel();
        let (started, start) = blocking::channel();
        let (stopped_sender, stopped) = blocking::channel();
        let thread = std::thread::Builder::new().name("loopback-ec2".into()).spawn(move || {
            host::run(options, &started, stopping);
            let _ = stopped_sender.send(());
        })?;
        let (inside, runtime) = start.recv().context("the cloud's thread has ended")??;
        Ok(Self { inside, runtime, stop: Some(stop), stopped, thread: Some(thread) })
    }

    /// The URL that clients call for all services of AWS.
    pub fn endpoint(&self) -> &str {
        &self.inside.endpoint
    }

    /// Its region.
    pub fn region(&self) -> &str {
        &self.inside.region
    }

    /// The environment variables for a client: credentials, region, and settings that prevent it
    /// from looking elsewhere.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.environment_of(KEY, "secret")
    }

    /// The network's VPC.
    pub fn vpc(&self) -> &str {
        &self.inside.vpc.id
    }

    /// The network's subnets by their zones.
    pub fn subnets(&self) -> &BTreeMap<String, String> {
        &self.inside.vpc.subnets
    }

    /// The port of the machines' SSH servers.
    pub fn ssh_port(&self) -> u16 {
        self.inside.ssh_port
    }

    /// The faults that hold.
    pub fn rules(&self) -> &Rules {
        &self.inside.rules
    }

    /// What clients have called.
    pub fn calls(&self) -> &Calls {
        &self.inside.calls
    }

    /// Limits how many instances of a type can exist at once, in a zone and market. Everything else
    /// is unlimited.
    pub fn set_capacity(&self, instance_type: &str, zone: &str, market: Market, count: u32) {
        let key = (instance_type.to_owned(), zone.to_owned(), market);
        self.inside.backend.settings().capacity.insert(key, count);
    }

    /// Replaces the account's capacity reservations.
    pub fn set_reservations(&self, reservations: impl IntoIterator<Item = Reservation>) {
        let reservations = reservations.into_iter().map(|one| (one.id.clone(), one));
        self.inside.backend.settings().reservations = reservations.collect();
    }

    /// Sets the phases of instances that are launched from now on.
    pub fn set_phases(&self, phases: Phases) {
        self.inside.backend.settings().phases = phases;
    }

    /// Lets this much time pass at once for the phases of instances: minutes of shutting down are
    /// over without a test that waits for minutes.
    pub fn pass(&self, time: Duration) {
        self.inside.backend.records.clock.pass(time);
    }

    /// Sets the largest page of lists, which must be smaller than EC2's.
    pub fn set_page(&self, items: usize) {
        self.inside.backend.settings().page = Some(items.max(1));
    }

    /// Refuses so many more deletions of security groups with `DependencyViolation`.
    pub fn set_dependency_violations(&self, count: u32) {
        self.inside.backend.settings().dependency_violations = count;
    }

    /// Sets what a type costs on demand, in USD per hour. Spot prices change with it.
    pub fn set_price(&self, instance_type: &str, usd: f64) {
        self.inside.backend.settings().prices.insert(instance_type.to_owned(), usd);
    }

    /// Sets the value of a quota by its code, in vCPUs.
    pub fn set_quota(&self, code: &str, value: f64) {
        self.inside.backend.settings().quotas.insert(code.to_owned(), value);
    }

    /// Sets how many seconds the clock of the services is ahead of this host's, or behind it if
    /// negative. A call whose signature is more than five minutes from their time is refused; each
    /// answer has their time as its `Date`.
    pub fn set_clock_skew(&self, seconds: i64) {
        self.inside.backend.settings().skew = Skew { seconds };
    }

    /// Verifies signatures from now on, and allows a client what this policy allows. Returns the
    /// environment of such a client.
    ///
    /// Calls of EC2 that launch, end, tag, make or delete instances and groups, change the rules and
    /// interfaces of groups, or read a console are allowed for their resources and under the policy's
    /// conditions by tags. Of other calls the action alone is checked, and nothing of calls of
    /// Pricing and Service Quotas.
    ///
    /// # Errors
    /// When the policy has an element, a condition's operator or a condition's key that is not
    /// evaluated here, or moto refuses it.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn enforce(&self, policy: &str) -> Result<BTreeMap<String, String>> {
        let (backend, policy) = (Arc::clone(&self.inside.backend), policy.to_owned());
        let (key, secret) = self.on_own_threads(async move { backend.enforce(&policy).await }).await?;
        Ok(self.environment_of(&key, &secret))
    }

    /// What is left: instances that nobody has ended, volumes, network interfaces, addresses,
    /// security groups but the default ones and one without rules in each network, key pairs, placement
    /// groups. What EC2 deletes with an
    /// instance that shuts down is not left. With a tag's key, only those that have the tag.
    ///
    /// # Errors
    /// When moto does not answer.
    ///
    /// # Cancel safety
    /// The call changes nothing.
    pub async fn left(&self, tag_key: Option<&str>) -> Result<Vec<Left>> {
        let (ec2, tag_key) = (self.inside.ec2.clone(), tag_key.map(str::to_owned));
        let backend = Arc::clone(&self.inside.backend);
        self.on_own_threads(async move { left::find(&ec2, &backend, tag_key.as_deref()).await }).await
    }

    /// The states of all instances, by their ids, as EC2 has them once their phases are over: one
    /// that is pending is running here, and one that shuts down is terminated.
    ///
    /// # Errors
    /// When moto does not answer.
    ///
    /// # Cancel safety
    /// The call changes nothing.
    pub async fn states(&self) -> Result<BTreeMap<String, String>> {
        let (ec2, backend) = (self.inside.ec2.clone(), Arc::clone(&self.inside.backend));
        let states = async move {
            let states = ec2.states().await?.into_iter();
            let is_over = |id: &str| backend.records.get(id).is_some_and(|record| record.is_over());
            Ok(states
                .map(|(id, state)| if is_over(&id) { (id, "terminated".to_owned()) } else { (id, state) })
                .collect())
        };
        self.on_own_threads(states).await
    }

    /// Why the rules of security groups are not enforced here, so that everybody reaches every
    /// machine; none where they are. A test that needs them says so in its `ignore`, and asserts that
    /// this is none.
    pub fn unenforced(&self) -> Option<&str> {
        self.inside.unenforced.as_deref()
    }

    /// The URL of a service that answers with the address that a client comes from, as EC2 and the
    /// public addresses of the machines see it.
    pub fn address_service(&self) -> String {
        format!("http://{}/", self.inside.address_service.address)
    }

    /// Moves the clients on this host to another address, as after a change of their network: from
    /// now on they come from this address of loopback where they connect to public addresses of
    /// machines or to the address service, and connections from the one before are dead, though
    /// nobody tells their ends. At first, clients come from 127.0.0.1.
    ///
    /// # Errors
    /// When the rules of security groups are not enforced here.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn move_client(&self, address: Ipv4Addr) -> Result<()> {
        guard::loopback(address.into())?;
        let firewall = self.inside.backend.firewall.clone();
        let firewall = firewall.with_context(|| self.unenforced().unwrap_or_default().to_owned())?;
        self.on_own_threads(async move { firewall.move_client(address).await }).await
    }

    /// Makes the default VPC usable, or removes it. This host does not have its private addresses,
    /// so clients reach its machines by their public ones.
    ///
    /// # Errors
    /// When the default VPC was removed before, or is still in use.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn default_vpc(&self, is_wanted: bool) -> Result<()> {
        let client = self.inside.ec2.client.clone();
        let change = async move {
            match is_wanted {
                true => network::open_default(&client).await.map(drop),
                false => network::remove_default(&client).await,
            }
        };
        self.on_own_threads(change).await
    }

    /// The instances that have a machine.
    pub fn instances(&self) -> Vec<Instance> {
        self.inside.hypervisor.as_ref().map(|hypervisor| hypervisor.instances()).unwrap_or_default()
    }

    /// What an instance has written to its console.
    pub fn console(&self, id: &str) -> String {
        self.inside.backend.consoles.read(id).unwrap_or_default()
    }

    /// Makes EC2 take a spot instance back: the instance's metadata says so now, and the instance
    /// ends when the notice is over.
    ///
    /// # Errors
    /// When its machine is not up.
    pub fn interrupt(&self, id: &str, notice: Duration) -> Result<()> {
        let _here = self.runtime.enter();
        self.hypervisor()?.interrupt(id, notice)
    }

    /// Makes EC2 recommend a rebalance: the spot instance is likely to be taken back.
    ///
    /// # Errors
    /// When its machine is not up.
    pub fn rebalance(&self, id: &str) -> Result<()> {
        self.hypervisor()?.rebalance(id)
    }

    /// Makes EC2 schedule an event, such as `instance-retirement`, for the host of an instance.
    ///
    /// # Errors
    /// When its machine is not up.
    pub fn schedule(&self, id: &str, code: &str, after: Duration) -> Result<()> {
        self.hypervisor()?.schedule(id, code, after)
    }

    /// Terminates an instance behind the client's back.
    ///
    /// # Errors
    /// When there is none.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn kill(&self, id: &str) -> Result<()> {
        let (hypervisor, id) = (self.hypervisor()?, id.to_owned());
        self.on_own_threads(async move { hypervisor.terminate(&id, None).await }).await
    }

    /// Protects an instance from TerminateInstances, or removes the protection. The machine may
    /// still power itself off.
    pub fn protect(&self, id: &str, is_protected: bool) {
        self.inside.backend.records.protect(id, is_protected);
    }

    /// Gives resources a tag, or its tag another value.
    ///
    /// # Errors
    /// When there is no resource with one of these ids.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn tag(&self, ids: &[String], key: &str, value: &str) -> Result<()> {
        let tag = Tag::builder().key(key).value(value).build();
        let call = self.inside.ec2.client.create_tags().set_resources(Some(ids.to_vec())).tags(tag).send();
        self.on_own_threads(async move { call.await.map(drop).context("cannot tag") }).await
    }

    /// Makes an instance profile of IAM; its ARN.
    ///
    /// # Errors
    /// When there is one with this name.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn make_instance_profile(&self, name: &str) -> Result<String> {
        let (backend, name) = (Arc::clone(&self.inside.backend), name.to_owned());
        let made = async move { backend.ask("iam", "CreateInstanceProfile", &[("InstanceProfileName", &name)]).await };
        let made = self.on_own_threads(made).await?;
        Ok(made.at(&["CreateInstanceProfileResult", "InstanceProfile", "Arn"]).to_owned())
    }

    /// Reboots an instance at once, as after a failure of its host. Its disk is as at the first
    /// boot, except for the folders of users, temporary files and units and `/var/lib/skyward`,
    /// which keep their content.
    ///
    /// # Errors
    /// When it has not booted, or does not come up again.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn reboot(&self, id: &str) -> Result<()> {
        let (hypervisor, id) = (self.hypervisor()?, id.to_owned());
        self.on_own_threads(async move { hypervisor.reboot(&id).await }).await
    }

    /// Ends the SSH server of an instance with all its sessions; the rest of it goes on.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill_sshd(&self, id: &str) -> Result<()> {
        self.hypervisor()?.machine(id)?.kill_sshd();
        Ok(())
    }

    /// Ends the SSH server of an instance with all its sessions and starts it again, as systemd
    /// does after a crash.
    ///
    /// # Errors
    /// When there is none, or the server does not come up.
    ///
    /// # Cancel safety
    /// When dropped, the change happens all the same.
    pub async fn restart_sshd(&self, id: &str) -> Result<()> {
        let machine = self.hypervisor()?.machine(id)?;
        self.on_own_threads(async move {
            machine.kill_sshd();
            machine.start_sshd().await
        })
        .await
    }

    /// Stops the SSH server of an instance with all its sessions, so that connections are neither
    /// answered nor refused, or continues it.
    ///
    /// # Errors
    /// When there is none.
    pub fn block_ssh(&self, id: &str, is_blocked: bool) -> Result<()> {
        self.hypervisor()?.machine(id)?.block_sshd(is_blocked);
        Ok(())
    }

    /// Keeps this many of the next instances from booting, while EC2 lists them as running.
    ///
    /// # Errors
    /// When this cloud has no machines.
    pub fn fail_boots(&self, count: u32) -> Result<()> {
        self.hypervisor()?.fail_boots(count);
        Ok(())
    }

    fn hypervisor(&self) -> Result<Arc<Hypervisor>> {
        self.inside.hypervisor.clone().context("this cloud has no machines")
    }

    fn environment_of(&self, key: &str, secret: &str) -> BTreeMap<String, String> {
        let empty = self.inside.folder.join("empty").display().to_string();
        let pairs = [
            ("AWS_ACCESS_KEY_ID", key),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", &self.inside.region),
            ("AWS_ENDPOINT_URL", &self.inside.endpoint),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_CONFIG_FILE", &empty),
            ("AWS_SHARED_CREDENTIALS_FILE", &empty),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Connections of the client live on the cloud's threads.
    async fn on_own_threads<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.runtime.spawn(work).await.context("the cloud has ended")?
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        // A thread that does not end takes its machines with it when the process ends.
        if self.stopped.recv_timeout(MACHINES_END).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// The access key of a client without a policy.
const KEY: &str = "AKIALOOPBACKCLIENT00";
