//! Pools that an engine lists, and how pools of a client that is gone are reaped. The client is a
//! process of its own: this program, started again with a role.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use skyward_core::error::Result;
use skyward_core::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::{
    Capabilities, Docker, LaunchBatch, LaunchRequest, Machine, MachineReport, Offer, Part, Place, PoolRecord,
    PoolRequest, Provider, Requirements,
};
use skyward_core::remote::Remote;

use crate::support;

/// An engine that shows the pools of these tests as they will be two minutes later.
#[derive(Debug)]
struct Later(Docker);

#[async_trait]
impl Provider for Later {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    async fn identity(&self) -> Result<String> {
        self.0.identity().await
    }
    fn parts(&self) -> Vec<Part> {
        self.0.parts()
    }
    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        self.0.offers(requirements).await
    }
    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.0.prepare(pool).await
    }
    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        self.0.adopt(pool).await
    }
    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        self.0.launch(batch).await
    }
    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        self.0.inspect(machines).await
    }
    async fn connect(&self, machine: &Machine, at: &Place) -> Result<Box<dyn Remote>> {
        self.0.connect(machine, at).await
    }
    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        self.0.terminate(machines).await
    }
    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        self.0.teardown(pool).await
    }
    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        self.0.list(pool).await
    }
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let mut pools = self.0.pools().await?;
        // The engine may have pools of other clients.
        let own = pools.iter_mut().filter(|record| record.owner == "ada");
        own.for_each(|record| record.expires -= Duration::from_secs(120));
        Ok(pools)
    }
}

/// A pool with a lease, whose owner is `ada`.
fn request(pool: &PoolId, lease: Duration) -> PoolRequest {
    PoolRequest::new(pool.clone(), lease).owner("ada").labels([("team", "vision")])
}

async fn launch(docker: &Docker, pool: &PoolId, lease: Duration) -> Machine {
    let number = MachineNumber(0);
    let request = LaunchRequest::new(LaunchId::of(pool, number, Attempt(1)), pool.clone(), number, lease)
        .owner("ada")
        .labels([("team", "vision")]);
    let offer = docker.offers(&Requirements::default()).await.unwrap().remove(0);
    docker.launch(&LaunchBatch::one(offer, request)).await.remove(0).unwrap()
}

async fn listed(docker: &impl Provider, pool: &PoolId) -> Option<PoolRecord> {
    docker.pools().await.unwrap().into_iter().find(|record| record.pool == *pool)
}

/// A command that runs this program in a role, with a state folder of its own.
fn command(role: &str, pool: &PoolId, image: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["pools::role", "--exact", "--ignored", "--nocapture"]).stdin(Stdio::null());
    command.env(ROLE, role).env("POOL", pool.as_str()).env("IMAGE", image);
    command.env("SKYWARD_STATE_DIR", std::env::temp_dir().join(format!("skyward-state-{role}-{pool}")));
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_killed_clients_network_is_reaped_by_a_process_with_another_state_folder() {
    let image = support::node_image();
    let (left, live) = (PoolId::random(), PoolId::random());
    let docker = Docker::new(&image);
    // Another client's pool, whose machine lives for an hour.
    let lease = Duration::from_secs(3600);
    docker.prepare(&request(&live, lease)).await.unwrap();
    launch(&docker, &live, lease).await;
    // The client kills itself at the end of its role.
    assert!(!command("client", &left, &image).status().unwrap().success());
    assert_eq!(support::left(left.as_str()), [format!("network skyward-{left}")]);
    let record = listed(&docker, &left).await.unwrap();
    let over = SystemTime::now() + Duration::from_secs(10);
    assert!(record.owner == "ada" && record.expires < over, "{record:?}");
    let reap = async || {
        let output = command("reap", &left, &image).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text
    };
    let said = reap().await;
    assert!(said.contains(&format!("ended {left} (docker): it had no machine")), "{said}");
    assert!(said.contains(&format!("alive {live}: ada started it")), "{said}");
    assert_eq!(support::left(left.as_str()), Vec::<String>::new());
    assert_eq!(support::left(live.as_str()).len(), 2);
    assert_eq!(listed(&docker, &left).await, None);
    docker.teardown(&live).await.unwrap();
    for role in ["client", "reap"] {
        let _ = std::fs::remove_dir_all(std::env::temp_dir().join(format!("skyward-state-{role}-{left}")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_pool_whose_network_was_removed_before_its_first_machine_makes_it_again() {
    let image = support::node_image();
    let (docker, pool) = (Docker::new(&image), PoolId::random());
    let lease = Duration::from_secs(3600);
    docker.prepare(&request(&pool, lease)).await.unwrap();
    support::ask(&["network", "rm", &format!("skyward-{pool}")]).unwrap();
    let machine = launch(&docker, &pool, lease).await;
    for (kind, name) in [("network", format!("skyward-{pool}")), ("container", machine.id.to_string())] {
        let format = match kind {
            "network" => "{{json .Labels}}",
            _ => "{{json .Config.Labels}}",
        };
        let labels = support::ask(&[kind, "inspect", "--format", format, &name]).unwrap();
        assert!(labels.contains(r#""skyward.label.team":"vision""#), "{kind}: {labels}");
        assert!(labels.contains(r#""skyward.owner":"ada""#), "{kind}: {labels}");
    }
    docker.teardown(&pool).await.unwrap();
    assert_eq!(support::left(pool.as_str()), Vec::<String>::new());
}

/// The roles in which the tests start this program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role that the other tests play"]
async fn role() {
    let (pool, image) = (PoolId::new(std::env::var("POOL").unwrap()), std::env::var("IMAGE").unwrap());
    match std::env::var(ROLE).unwrap().as_str() {
        "client" => {
            Docker::new(image).prepare(&request(&pool, Duration::from_secs(1))).await.unwrap();
            let this = rustix::process::getpid();
            rustix::process::kill_process(this, rustix::process::Signal::KILL).unwrap();
        }
        _ => println!("{}", skyward_core::reap_expired(Arc::new(Later(Docker::new(image)))).await.unwrap()),
    }
}

const ROLE: &str = "SKYWARD_TEST_ROLE";
