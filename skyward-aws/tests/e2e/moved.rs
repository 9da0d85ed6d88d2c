//! Clients whose address changes, and clients that reach none of their machines.

use std::time::Duration;

use skyward_aws::{Addressing, Aws};
use skyward_aws_testkit::{CloudOptions, Phases};
use skyward_core::error::{Error, ErrorKind};
use skyward_core::event::PoolEvent;
use skyward_core::ids::{Attempt, LaunchId, MachineNumber, PoolId};
use skyward_core::pool::Pool;
use skyward_core::provider::{LaunchBatch, LaunchRequest, Machine, Place, Provider, Requirements};

use crate::address_service::AddressService;
use crate::addressing::let_in;
use crate::scene::{PATIENCE, SEVEN, Scene, event, limits, python, reached, until};

/// An address that the client gets.
const ELSEWHERE: &str = "203.0.113.9";

/// The networks that may no longer log in, as EC2 was told.
fn shut_out(scene: &Scene) -> Vec<String> {
    let calls = scene.cloud.calls().of("RevokeSecurityGroupIngress");
    calls.iter().map(|call| call.get("IpPermissions.1.IpRanges.1.CidrIp").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_client_whose_address_changes_is_let_in_again_and_keeps_its_machine() {
    let scene = Scene::new().await;
    let service = AddressService::start(None).await;
    let aws = scene.aws().addressing(Addressing::Public).address_service(&service.url);
    let mut limits = limits();
    limits.lease = Duration::from_secs(180);
    let pool = Pool::builder().provider(aws).limits(limits).start().await.unwrap();
    let mut events = pool.events();
    let before = scene.instances();
    assert_eq!(let_in(&scene), ["127.0.0.1/32"]);
    service.answer(Some(ELSEWHERE));
    scene.cloud.block_ssh(&before[0], true).unwrap();
    until("the new address is let in", async || let_in(&scene) == ["127.0.0.1/32", "203.0.113.9/32"]).await;
    until("the old one is not any more", async || shut_out(&scene) == ["127.0.0.1/32"]).await;
    scene.cloud.block_ssh(&before[0], false).unwrap();
    event(&mut events, |event| matches!(event, PoolEvent::NodeReconnected { .. }).then_some(())).await;
    assert_eq!(python::<u32>(SEVEN).run(&pool).await.unwrap(), 7);
    assert_eq!(scene.instances(), before, "the same machine");
    assert_eq!(scene.launches().len(), 1, "the same machine");
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

/// A cloud that lists at once what was launched: the end of a test lists what was launched a moment
/// before.
async fn listed_at_once() -> Scene {
    Scene::of(CloudOptions::new().phases(Phases { hidden: Duration::ZERO, ..Phases::default() })).await
}

/// A machine that the client has reached once, and which does not answer any more.
struct Silent {
    aws: Aws,
    machine: Machine,
    place: Place,
    batch: LaunchBatch,
}

impl Silent {
    async fn of(scene: &Scene, aws: Aws) -> Self {
        let pool = PoolId::new("p-moved");
        let request = |number| {
            let number = MachineNumber(number);
            LaunchRequest::new(LaunchId::of(&pool, number, Attempt(1)), pool.clone(), number, Duration::from_secs(600))
        };
        let offer = aws.offers(&Requirements::default()).await.unwrap().remove(0);
        let machine = aws.launch(&LaunchBatch::one(offer.clone(), request(0))).await.remove(0).unwrap();
        let (place, _) = reached(&aws, &machine).await;
        scene.cloud.block_ssh(machine.id.as_str(), true).unwrap();
        Self { aws, machine, place, batch: LaunchBatch::one(offer, request(1)) }
    }

    /// The error of connecting, when it is one with these words.
    async fn error_with(&self, word: &str) -> Error {
        let connect = async {
            loop {
                let error = self.aws.connect(&self.machine, &self.place).await.unwrap_err();
                assert!(error.kind() == ErrorKind::Timeout && error.is_temporary(), "{error:?}");
                if format!("{error:?}").contains(word) {
                    return error;
                }
            }
        };
        tokio::time::timeout(PATIENCE, connect).await.unwrap_or_else(|_| panic!("no error has `{word}`"))
    }

    async fn end(self, scene: Scene) {
        scene.end(&self.aws, &self.machine.pool).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn the_error_says_from_what_to_what_the_address_changed() {
    let scene = Scene::new().await;
    let service = AddressService::start(None).await;
    let silent = Silent::of(&scene, scene.aws().addressing(Addressing::Public).address_service(&service.url)).await;
    service.answer(Some(ELSEWHERE));
    silent.error_with("address changed from 127.0.0.1 to 203.0.113.9; the security group now allows 203.0.113.9").await;
    assert_eq!(let_in(&scene), ["127.0.0.1/32", "203.0.113.9/32"]);
    assert_eq!(shut_out(&scene), ["127.0.0.1/32"]);
    silent.end(scene).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn networks_that_were_named_are_not_changed_and_the_error_says_what_to_do() {
    let scene = Scene::new().await;
    let service = AddressService::start(Some(ELSEWHERE)).await;
    let aws = scene.aws().addressing(Addressing::Public).address_service(&service.url).ssh_from(["127.0.0.0/8"]);
    let silent = Silent::of(&scene, aws).await;
    let error = silent.error_with("127.0.0.0/8").await;
    assert!(error.hint().is_some_and(|hint| hint.contains(".ssh_from(") && hint.contains(".ssh_port(")), "{error}");
    assert_eq!((let_in(&scene), service.asked()), (vec!["127.0.0.0/8".to_owned()], 0));
    assert!(shut_out(&scene).is_empty());
    silent.end(scene).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn no_machine_is_launched_while_the_client_reaches_none_of_those_that_are_there() {
    let scene = listed_at_once().await;
    let silent = Silent::of(&scene, scene.aws()).await;
    let id = silent.machine.id.clone();
    silent.error_with("by a VPN or peering").await;
    let error = silent.aws.launch(&silent.batch).await.remove(0).unwrap_err();
    let hint = error.hint().unwrap_or_default();
    assert!(error.is_temporary() && error.refusal().is_none(), "{error:?}");
    assert!(error.message().contains(id.as_str()) && hint.contains(".ssh_port("), "{error:?}");
    assert_eq!(scene.launches().len(), 1);
    // The pool has given it up.
    silent.aws.terminate(&[id]).await.remove(0).unwrap();
    silent.aws.launch(&silent.batch).await.remove(0).unwrap();
    assert_eq!(scene.launches().len(), 2);
    silent.end(scene).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn no_machine_is_launched_while_the_client_reaches_none_and_does_not_know_its_address() {
    let scene = listed_at_once().await;
    let service = AddressService::start(None).await;
    let silent = Silent::of(&scene, scene.aws().addressing(Addressing::Public).address_service(&service.url)).await;
    service.answer(Some("<html>log in to this network</html>"));
    silent.error_with("log in to this network").await;
    let error = silent.aws.launch(&silent.batch).await.remove(0).unwrap_err();
    let hint = error.hint().unwrap_or_default();
    assert!(error.is_temporary() && error.refusal().is_none() && hint.contains(".ssh_from("), "{error:?}");
    silent.aws.terminate(std::slice::from_ref(&silent.machine.id)).await.remove(0).unwrap();
    silent.aws.launch(&silent.batch).await.remove(0).unwrap_err();
    assert_eq!(scene.launches().len(), 1, "nobody knows whether the next one would be reached");
    service.answer(None);
    until("the address is known again", async || match silent.aws.launch(&silent.batch).await.remove(0) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.is_temporary(), "{error:?}");
            false
        }
    })
    .await;
    assert_eq!(scene.launches().len(), 2);
    silent.end(scene).await;
}
