//! What the instances of a pool that has ended still hold.

use std::time::Duration;

use skyward_aws_testkit::{CloudOptions, Phases, Rule};
use skyward_core::ids::PoolId;
use skyward_core::provider::Provider;

use crate::scene::{PATIENCE, SEVEN, Scene, python};

/// A cloud whose instances shut down for so long.
async fn ending_in(ending: Duration) -> Scene {
    Scene::of(CloudOptions::new().phases(Phases { ending, ..Phases::default() })).await
}

/// Only the security group is left, until the instances have shut down.
async fn the_group_goes_with_the_instances(scene: Scene) {
    let left = scene.left().await;
    assert!(left.len() == 1 && left[0].kind == "security group", "{left:?}");
    scene.cloud.pass(Duration::from_secs(600));
    scene.until_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn nothing_waits_for_instances_that_shut_down_for_minutes() {
    let scene = ending_in(Duration::from_secs(600)).await;
    for _ in 0..2 {
        let call = python::<u32>(SEVEN);
        assert_eq!(scene.pool(2).scope(async |pool| call.broadcast(pool).await).await.unwrap(), [7, 7]);
        // The instances shut down, and the group of their pool is gone.
        let left = scene.left().await;
        assert!(left.is_empty(), "{left:?}");
    }
    let calls = scene.cloud.calls();
    assert_eq!(calls.count("DeleteSecurityGroup"), 2, "no deletion was refused");
    assert!(calls.of("TerminateInstances").iter().all(|call| call.get("SkipOsShutdown") == "true"));
    // One for each pool, and one that both have used.
    assert_eq!(calls.count("CreateSecurityGroup"), 3);
    let parking = calls.of("RevokeSecurityGroupEgress");
    assert_eq!(parking.len(), 1, "nothing may leave by the group either");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_pool_whose_interfaces_cannot_be_moved_ends_when_its_instances_are_paid_for_no_more() {
    let scene = ending_in(Duration::from_secs(600)).await;
    let denied = "You are not authorized to perform this operation.";
    let rule = Rule::error("ModifyNetworkInterfaceAttribute", 403, "UnauthorizedOperation", denied);
    scene.cloud.rules().add(rule);
    let call = python::<u32>(SEVEN);
    assert_eq!(scene.pool(1).scope(async |pool| call.run(pool).await).await.unwrap(), 7);
    the_group_goes_with_the_instances(scene).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn each_of_many_instances_that_end_together_costs_no_call() {
    let scene = ending_in(Duration::from_secs(600)).await;
    let pool = scene.pool(17).start().await.unwrap();
    pool.shutdown(PATIENCE).await.unwrap();
    assert_eq!(scene.cloud.calls().count("ModifyNetworkInterfaceAttribute"), 0);
    the_group_goes_with_the_instances(scene).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn the_group_of_ending_instances_is_removed_when_it_has_not_been_used_for_a_while() {
    let scene = ending_in(Duration::ZERO).await;
    let call = python::<u32>(SEVEN);
    assert_eq!(scene.pool(1).scope(async |pool| call.run(pool).await).await.unwrap(), 7);
    let aws = scene.aws();
    let listed = aws.pools().await.unwrap();
    assert!(listed.len() == 1 && listed[0].pool.as_str() == "parking", "{listed:?}");
    let left = listed[0].expires.duration_since(std::time::SystemTime::now()).unwrap();
    assert!(left > Duration::from_secs(3600), "{left:?}");
    // As `reap_expired` does then.
    aws.teardown(&PoolId::new("parking")).await.unwrap();
    assert!(aws.pools().await.unwrap().is_empty());
    scene.assert_nothing_left().await;
}
