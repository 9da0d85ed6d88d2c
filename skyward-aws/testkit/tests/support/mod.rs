//! A client of a cloud, as a provider has it, and what a launch needs.

// Each test uses a part of it.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    Filter, InstanceInterruptionBehavior, InstanceMarketOptionsRequest, InstanceNetworkInterfaceSpecification,
    InstanceStateName, InstanceType, IpPermission, IpRange, MarketType, ShutdownBehavior, SpotMarketOptions,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use skyward_aws_testkit::{Cloud, CloudOptions, Instance, Phases};

/// The newest image of Ubuntu for x86_64.
pub(crate) const IMAGE: &str = "ami-0a240400000000002";

/// A cloud without machines, which lists at once what was launched.
pub(crate) async fn calls_only() -> Cloud {
    let phases = Phases { hidden: Duration::ZERO, ..Phases::default() };
    with_machines(CloudOptions::new().without_machines().phases(phases)).await
}

/// A cloud with machines.
pub(crate) async fn with_machines(options: CloudOptions) -> Cloud {
    Cloud::start(options).await.unwrap_or_else(|error| panic!("{error:#}"))
}

pub(crate) fn client(cloud: &Cloud) -> Client {
    client_with(cloud, &cloud.environment())
}

/// A client with these variables, that tries each call once.
pub(crate) fn client_with(cloud: &Cloud, environment: &std::collections::BTreeMap<String, String>) -> Client {
    let (key, secret) = (&environment["AWS_ACCESS_KEY_ID"], &environment["AWS_SECRET_ACCESS_KEY"]);
    let config = aws_sdk_ec2::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(environment["AWS_REGION"].clone()))
        .endpoint_url(cloud.endpoint())
        .credentials_provider(Credentials::new(key, secret, None, None, "test"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .retry_config(RetryConfig::disabled())
        .build();
    Client::from_conf(config)
}

/// The subnet in the zone with this letter.
pub(crate) fn subnet(cloud: &Cloud, letter: &str) -> String {
    cloud.subnets()[&format!("{}{letter}", cloud.region())].clone()
}

/// A launch of one machine of a type in the first zone.
pub(crate) fn launch(cloud: &Cloud, client: &Client) -> RunInstancesFluentBuilder {
    let interface = InstanceNetworkInterfaceSpecification::builder()
        .device_index(0)
        .subnet_id(subnet(cloud, "a"))
        .associate_public_ip_address(true)
        .delete_on_termination(true)
        .build();
    client
        .run_instances()
        .image_id(IMAGE)
        .instance_type(InstanceType::G5Xlarge)
        .min_count(1)
        .max_count(1)
        .network_interfaces(interface)
        .instance_initiated_shutdown_behavior(ShutdownBehavior::Terminate)
}

/// What makes it a spot instance.
pub(crate) fn spot() -> InstanceMarketOptionsRequest {
    let options = SpotMarketOptions::builder();
    let options = options.instance_interruption_behavior(InstanceInterruptionBehavior::Terminate).build();
    InstanceMarketOptionsRequest::builder().market_type(MarketType::Spot).spot_options(options).build()
}

/// Launches it, and gives the ids.
pub(crate) async fn ids(launch: RunInstancesFluentBuilder) -> Vec<String> {
    let answer = launch.send().await.unwrap();
    answer.instances().iter().map(|instance| instance.instance_id().unwrap().to_owned()).collect()
}

/// EC2's code of an error.
pub(crate) fn code<T, E: ProvideErrorMetadata>(answer: Result<T, E>) -> Option<String> {
    answer.err().and_then(|error| error.code().map(str::to_owned))
}

/// User data of a cloud-config in JSON.
pub(crate) fn user_data(config: &serde_json::Value) -> String {
    STANDARD.encode(format!("#cloud-config\n{config}"))
}

/// A key pair in a folder that goes with it.
pub(crate) struct Key {
    folder: PathBuf,
}

impl Key {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("skyward-testkit-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let key = Self { folder };
        let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"];
        assert!(std::process::Command::new("ssh-keygen").args(arguments).arg(key.path()).status().unwrap().success());
        key
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("key")
    }

    pub(crate) fn private(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    pub(crate) fn public(&self) -> String {
        std::fs::read_to_string(self.path().with_extension("pub")).unwrap().trim().to_owned()
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The keys of a machine's user, and of the machine.
pub(crate) struct Login {
    pub(crate) own: Key,
    pub(crate) host: Key,
}

impl Login {
    pub(crate) fn new(name: &str) -> Self {
        Self { own: Key::new(&format!("{name}-own")), host: Key::new(&format!("{name}-host")) }
    }

    /// The part of a cloud-config that gives a machine these keys.
    pub(crate) fn config(&self) -> serde_json::Value {
        serde_json::json!({
            "ssh_keys": { "ed25519_private": self.host.private(), "ed25519_public": self.host.public() },
            "ssh_authorized_keys": [self.own.public()],
        })
    }

    /// Runs a command on a machine.
    pub(crate) async fn ssh(&self, cloud: &Cloud, address: &str, command: &str) -> Output {
        ssh(cloud, address, &self.own, &self.host, command).await
    }

    /// What the command writes, which must succeed.
    pub(crate) async fn read(&self, cloud: &Cloud, machine: &Instance, command: &str) -> String {
        let output = self.ssh(cloud, &machine.private, command).await;
        assert!(output.status.success(), "{command}: {}\n{}", text(&output.stderr), cloud.console(&machine.id));
        text(&output.stdout)
    }
}

/// Runs a command on a machine by OpenSSH's client, which accepts one host key.
pub(crate) async fn ssh(cloud: &Cloud, address: &str, own: &Key, host: &Key, command: &str) -> Output {
    let known = host.folder.join(format!("known-{address}"));
    std::fs::write(&known, format!("machine {}\n", host.public())).unwrap();
    let options = ["StrictHostKeyChecking=yes", "HostKeyAlias=machine", "BatchMode=yes", "IdentitiesOnly=yes"];
    let mut ssh = tokio::process::Command::new("ssh");
    for option in options {
        ssh.args(["-o", option]);
    }
    ssh.args(["-F", "none", "-o", "ConnectTimeout=10", "-o"]).arg(format!("UserKnownHostsFile={}", known.display()));
    ssh.arg("-i").arg(own.path()).args(["-p", &cloud.ssh_port().to_string(), &format!("ubuntu@{address}"), command]);
    tokio::time::timeout(Duration::from_secs(60), ssh.output()).await.unwrap().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Waits for what must come, and says what is on the consoles where it does not.
pub(crate) async fn wait(cloud: &Cloud, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        if Instant::now() > end {
            let consoles: Vec<String> = cloud.instances().iter().map(|one| cloud.console(&one.id)).collect();
            panic!("it never came that {what}; the consoles:\n{}", consoles.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Lets everybody reach all machines that have the default group of their network.
pub(crate) async fn open(client: &Client) {
    let named = Filter::builder().name("group-name").values("default").build();
    let groups = client.describe_security_groups().filters(named).send().await.unwrap();
    for group in groups.security_groups() {
        let everybody = IpRange::builder().cidr_ip("0.0.0.0/0").build();
        let all = IpPermission::builder().ip_protocol("-1").ip_ranges(everybody).build();
        let rule = client.authorize_security_group_ingress().group_id(group.group_id().unwrap());
        rule.ip_permissions(all).send().await.unwrap();
    }
}

/// Waits until an instance runs and its cloud-init has finished.
pub(crate) async fn booted(cloud: &Cloud, client: &Client, id: &str) -> Instance {
    wait(cloud, "EC2 says that it runs", async || {
        let Ok(answer) = client.describe_instances().instance_ids(id).send().await else { return false };
        let state = answer.reservations()[0].instances()[0].state().and_then(|state| state.name());
        state == Some(&InstanceStateName::Running)
    })
    .await;
    let find = || cloud.instances().into_iter().find(|one| one.id == id);
    wait(cloud, "the machine has booted", async || find().is_some_and(|one| one.is_booted)).await;
    find().unwrap()
}

/// A security group without rules in the cloud's network.
pub(crate) async fn group(cloud: &Cloud, client: &Client, name: &str) -> String {
    let made = client.create_security_group().group_name(name).description(name).vpc_id(cloud.vpc());
    made.send().await.unwrap().group_id().unwrap().to_owned()
}

/// Waits until EC2 lists instances as terminated, whose time has come.
pub(crate) async fn terminated(cloud: &Cloud, client: &Client, ids: &[String]) {
    wait(cloud, "they are terminated", async || {
        let answer = client.describe_instances().set_instance_ids(Some(ids.to_vec())).send().await.unwrap();
        let mut all = answer.reservations().iter().flat_map(|one| one.instances());
        all.all(|one| one.state().unwrap().name() == Some(&InstanceStateName::Terminated))
    })
    .await;
}

/// A filter of EC2 with one value.
pub(crate) fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}
