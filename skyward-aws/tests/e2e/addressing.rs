//! How machines are reached: by public addresses in the default network, and through a bastion.

use skyward_aws::{Addressing, Aws};
use skyward_aws_testkit::CloudOptions;
use skyward_core::ids::{LaunchId, MachineNumber, PoolId};
use skyward_core::pool::Pool;
use skyward_core::provider::{LaunchBatch, LaunchRequest, PoolRequest, Provider, Requirements};
use skyward_core::remote::Command;
use skyward_core::remote::ssh::{HostKeys, Key, Target};

use crate::address_service::AddressService;
use crate::scene::{PATIENCE, SEVEN, Scene, limits, python, reached, torn_down};
use crate::sshd::{Options, Sshd};

/// The provider as it is where nothing is said of the network.
fn of_default_network(scene: &Scene) -> Aws {
    scene.aws().subnets(Vec::<String>::new()).addressing(Addressing::Public)
}

/// The networks that may log in to the machines, as EC2 was told.
pub(crate) fn let_in(scene: &Scene) -> Vec<String> {
    let calls = scene.cloud.calls().of("AuthorizeSecurityGroupIngress");
    let networks = calls.iter().flat_map(|call| {
        let all = call.parameters.iter().filter(|(name, _)| name.ends_with(".CidrIp") || name.ends_with(".CidrIpv6"));
        all.map(|(_, network)| network.clone()).collect::<Vec<_>>()
    });
    networks.collect()
}

/// Only a machine's SSH server is there to try it: the emulator's machines have private addresses
/// of the default network on no interface, and an agent needs its own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn where_nothing_is_said_machines_are_in_the_default_network_and_reached_by_public_addresses() {
    let scene = Scene::new().await;
    scene.cloud.default_vpc(true).await.unwrap();
    let service = AddressService::start(None).await;
    let aws = of_default_network(&scene).address_service(&service.url);
    let request = PoolRequest::new(PoolId::new("p-default"), limits().lease);
    aws.prepare(&request).await.unwrap();
    let offer = aws.offers(&Requirements::default()).await.unwrap().remove(0);
    let launch = LaunchId::new("p-default-n0-a1");
    let launch = LaunchRequest::new(launch, request.pool.clone(), MachineNumber(0), request.lease);
    let machine = aws.launch(&LaunchBatch::one(offer, launch)).await.remove(0).unwrap();
    let (place, remote) = reached(&aws, &machine).await;
    assert_eq!(remote.run(&Command::script("id -un"), &|_| {}).await.unwrap().stdout.trim(), "ubuntu");
    let instance = scene.cloud.instances().remove(0);
    assert!(instance.private.starts_with("172.") && instance.public.is_some(), "{instance:?}");
    assert_eq!(place.address, instance.private, "the others reach it by its private address");
    let launches = scene.launches();
    let [launch] = launches.as_slice() else { panic!("{launches:?}") };
    let subnet = launch.get("NetworkInterface.1.SubnetId");
    assert!(!subnet.is_empty() && !scene.cloud.subnets().values().any(|other| other == subnet), "{subnet}");
    assert_eq!(let_in(&scene), ["127.0.0.1/32"]);
    assert_eq!(service.asked(), 1);
    drop(remote);
    scene.end(&aws, &request.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_pool_works_by_public_addresses() {
    let scene = Scene::new().await;
    let service = AddressService::start(None).await;
    let aws = scene.aws().addressing(Addressing::Public).address_service(&service.url);
    let pool = Pool::builder().provider(aws).nodes(2).limits(limits()).start().await.unwrap();
    let call = python::<u32>(SEVEN);
    assert_eq!(call.broadcast(&pool).await.unwrap(), [7, 7]);
    let launches = scene.launches();
    assert!(launches.iter().all(|launch| launch.get("NetworkInterface.1.AssociatePublicIpAddress") == "true"));
    assert_eq!(let_in(&scene), ["127.0.0.1/32"]);
    assert!(service.asked() >= 1);
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn who_may_log_in_can_be_said_and_a_service_that_does_not_know_is_named() {
    let scene = Scene::of(CloudOptions::new().without_machines()).await;
    scene.cloud.default_vpc(true).await.unwrap();
    let service = AddressService::start(Some("<html>it works</html>")).await;
    let request = PoolRequest::new(PoolId::new("p-who"), limits().lease);
    let aws = of_default_network(&scene).address_service(&service.url);
    let error = aws.prepare(&request).await.unwrap_err();
    let (told, hint) = (error.message(), error.hint().unwrap_or_default());
    assert!(told.contains(&service.url) && told.contains("<html>") && hint.contains(".ssh_from("), "{error}");
    assert!(let_in(&scene).is_empty());
    assert_eq!(service.asked(), 1);
    let said = ["203.0.113.7", "2001:db8::/48"];
    let aws = of_default_network(&scene).address_service(&service.url).ssh_from(said);
    aws.prepare(&request).await.unwrap();
    assert_eq!(let_in(&scene), ["203.0.113.7/32", "2001:db8::/48"]);
    assert_eq!(service.asked(), 1);
    torn_down(&aws, &request.pool).await;
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn machines_are_reached_through_a_bastion() {
    let scene = Scene::new().await;
    let mut bastion = Sshd::start(&Options::new()).unwrap();
    let target = Target::new(bastion.address())
        .port(bastion.port())
        .user(bastion.user())
        .key(Key::file(bastion.client_key()))
        .host_keys(HostKeys::pinned(bastion.host_key()));
    let aws = scene.aws().bastion(target);
    let pool = Pool::builder().provider(aws).limits(limits()).start().await.unwrap();
    let call = python::<u32>(SEVEN);
    assert_eq!(call.clone().run(&pool).await.unwrap(), 7);
    // All of it goes through: without it nothing is answered, and with it the pool goes on.
    assert!(bastion.signal_sessions("KILL") > 0, "{}", bastion.log());
    bastion.stop();
    bastion.listen().unwrap();
    assert_eq!(call.run(&pool).await.unwrap(), 7);
    assert!(!bastion.sessions().is_empty(), "{}", bastion.log());
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}
