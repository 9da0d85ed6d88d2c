//! How machines are reached: by public addresses in the default network, and through a bastion.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skyward_aws::{Addressing, Aws};
use skyward_aws_testkit::CloudOptions;
use skyward_core::ids::{LaunchId, MachineNumber, PoolId};
use skyward_core::pool::Pool;
use skyward_core::provider::{LaunchBatch, LaunchRequest, PoolRequest, Provider, Requirements};
use skyward_core::remote::Command;
use skyward_core::remote::ssh::{HostKeys, Key, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::scene::{PATIENCE, PAUSE, SEVEN, Scene, limits, python, until};
use crate::sshd::{Options, Sshd};

/// Answers each request with the address that it comes from, or with something else; how often it
/// was asked.
struct AddressService {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl AddressService {
    async fn start(instead: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, from)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let text = instead.map_or_else(|| from.ip().to_string(), str::to_owned);
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len() + 1);
                let _ = stream.write_all(format!("{head}{text}\n").as_bytes()).await;
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The provider as it is where nothing is said of the network.
fn of_default_network(scene: &Scene) -> Aws {
    scene.aws().subnets(Vec::<String>::new()).addressing(Addressing::Public)
}

/// The networks that may log in to the machines, as EC2 was told.
fn let_in(scene: &Scene) -> Vec<String> {
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
    let ids = [machine.id.clone()];
    let (place, remote) = tokio::time::timeout(PATIENCE, async {
        loop {
            let report = aws.inspect(&ids).await.unwrap().remove(0);
            if let Some(place) = report.place {
                match aws.connect(&machine, &place).await {
                    Ok(remote) => return (place, remote),
                    Err(error) => assert!(error.is_temporary(), "{error:?}"),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await
    .expect("the machine is reached");
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
    aws.terminate(&ids).await.remove(0).unwrap();
    until("the machine is gone", || scene.instances().is_empty()).await;
    aws.teardown(&request.pool).await.unwrap();
    scene.assert_nothing_left().await;
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
    assert_eq!(service.asked(), 1);
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
    aws.teardown(&request.pool).await.unwrap();
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
