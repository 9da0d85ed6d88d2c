//! Machines that boot again.

use std::time::Duration;

use skyward_core::ids::{LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::{LaunchBatch, LaunchRequest, Machine, Offer, PoolRequest, Provider, Requirements};

use crate::scene::{Scene, torn_down, until};

const LEASE: Duration = Duration::from_secs(3600);

fn pool() -> PoolId {
    PoolId::new("p-reboot")
}

async fn launch(aws: &impl Provider, offer: &Offer, number: u32, ends_in: Duration) -> Machine {
    let launch = LaunchId::new(format!("p-reboot-n{number}-a1"));
    let request = LaunchRequest::new(launch, pool(), MachineNumber(number), LEASE).ends_in(ends_in);
    aws.launch(&LaunchBatch::one(offer.clone(), request)).await.remove(0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_reboot_gives_a_machine_no_more_time() {
    let scene = Scene::new().await;
    let aws = scene.aws();
    aws.prepare(&PoolRequest::new(pool(), LEASE)).await.unwrap();
    let offer = aws.offers(&Requirements::default()).await.unwrap().remove(0);
    let is_there = |machine: &MachineId| scene.instances().iter().any(|id| id == machine.as_str());
    let is_booted = |machine: &MachineId| {
        scene.cloud.instances().iter().any(|instance| instance.id == machine.as_str() && instance.is_booted)
    };
    let first = launch(&aws, &offer, 0, Duration::from_secs(45)).await.id;
    until("the machine has booted", async || is_booted(&first)).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    scene.cloud.reboot(first.as_str()).await.unwrap();
    // It ends after the time that is left to the first one, and before that which a boot would give
    // it.
    let second = launch(&aws, &offer, 1, Duration::from_secs(35)).await.id;
    until("the first machine has ended", async || !is_there(&first)).await;
    assert!(is_there(&second), "the first has lived longer than it was to");
    let console = scene.cloud.console(first.as_str());
    assert!(console.contains("reboot: Restarting system") && console.contains("Powering off."), "{console}");
    until("the second machine has ended, too", async || !is_there(&second)).await;
    torn_down(&aws, &pool()).await;
    scene.until_nothing_left().await;
}
