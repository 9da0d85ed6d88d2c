//! Machines that are near each other.

use skyward_core::pool::Pool;

use crate::scene::{PATIENCE, SEVEN, Scene, limits, python, until};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn machines_are_in_a_placement_group_that_goes_after_them() {
    let scene = Scene::new().await;
    let environment = scene.cloud.enforce(include_str!("../../../docs/aws-policy.json")).await.unwrap();
    let (id, key) = (&environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"].as_str());
    let aws = scene.without_credentials().credentials(id, key, None).placement_group(true);
    let pool = Pool::builder().provider(aws).nodes(2).limits(limits()).start().await.unwrap();
    let call = python::<u32>(SEVEN);
    assert_eq!(call.broadcast(&pool).await.unwrap(), [7, 7]);
    let name = format!("skyward-{}", pool.id());
    let made = scene.cloud.calls().of("CreatePlacementGroup");
    let [made] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!(made.get("GroupName"), name.as_str());
    assert_eq!(made.get("Strategy"), "cluster");
    assert!(scene.launches().iter().all(|launch| launch.get("Placement.GroupName") == name));
    let left = scene.left().await;
    let group = left.iter().find(|left| left.kind == "placement group").unwrap();
    assert!(group.tags.contains(&("skyward:pool".to_owned(), pool.id().to_string())), "{group}");
    pool.shutdown(PATIENCE).await.unwrap();
    // What is not paid for any more is not waited for: the groups go a while later.
    let is_removed = async || scene.cloud.calls().count("DeletePlacementGroup") > 0;
    until("the placement group is removed", is_removed).await;
    let actions = scene.cloud.calls().actions();
    let ended = actions.iter().rposition(|action| action == "TerminateInstances");
    let removed = actions.iter().position(|action| action == "DeletePlacementGroup");
    assert!(ended.is_some() && ended < removed, "{actions:?}");
    scene.until_nothing_left().await;
}
