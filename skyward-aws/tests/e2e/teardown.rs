//! The end of a pool, where something stands in its way.

use std::time::Duration;

use skyward_aws_testkit::{CloudOptions, Phases, Rule};
use skyward_core::ids::MachineId;
use skyward_core::provider::Provider;

use crate::scene::{PATIENCE, SEVEN, Scene, is_of_a_start, limits, made, python, torn_down, until};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_group_that_is_still_used_is_removed_when_it_is_not_any_more() {
    let scene = Scene::of(CloudOptions::new().phases(Phases::NONE)).await;
    scene.cloud.set_dependency_violations(3);
    let call = python::<u32>(SEVEN);
    assert_eq!(scene.pool(1).scope(async |pool| call.run(pool).await).await.unwrap(), 7);
    let calls = scene.cloud.calls();
    assert_eq!(calls.count("DeleteSecurityGroup"), 4);
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn what_is_gone_already_is_no_error() {
    let scene = Scene::of(CloudOptions::new().phases(Phases::NONE)).await;
    let pool = scene.pool(2).start().await.unwrap();
    let both: Vec<MachineId> = scene.instances().into_iter().map(MachineId::new).collect();
    let gone = both[0].to_string();
    scene.cloud.kill(&gone).await.unwrap();
    // As EC2 does when it has forgotten the instance: it refuses the call for all that are named
    // with it.
    let refusal = format!("The instance ID '{gone}' does not exist");
    let names = move |call: &skyward_aws_testkit::Call| call.list("InstanceId").contains(&gone.as_str());
    scene.cloud.rules().add(Rule::error("TerminateInstances", 400, "InvalidInstanceID.NotFound", &refusal).when(names));
    // The pool would try again; this is one answer of the provider.
    let ended = scene.aws().terminate(&both).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_eq!(scene.cloud.states().await.unwrap()[both[1].as_str()], "terminated");
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn an_instance_that_is_protected_is_named_and_keeps_none_of_the_others() {
    let scene = Scene::new().await;
    let mut limits = limits();
    // Its keeper ends it otherwise, which nobody can forbid.
    limits.lease = Duration::from_secs(3600);
    let pool = scene.pool(3).limits(limits).start().await.unwrap();
    let (id, instances) = (pool.id().clone(), scene.instances());
    let protected = instances[1].as_str();
    scene.cloud.protect(protected, true);
    let error = pool.shutdown(Duration::from_secs(20)).await.unwrap_err();
    let told = format!("{error:?}");
    let command = format!("--instance-id {protected} --no-disable-api-termination");
    assert!(told.contains(&command), "{told}");
    assert!(!told.contains(&instances[0]) && !told.contains(&instances[2]), "{told}");
    let calls = scene.cloud.calls().of("TerminateInstances");
    assert_eq!(calls[0].list("InstanceId").len(), 3, "one call for all");
    let states = scene.cloud.states().await.unwrap();
    let running: Vec<_> = states.iter().filter(|(_, state)| *state == "running").map(|(id, _)| id.as_str()).collect();
    assert_eq!(running, [protected]);
    // What the hint says.
    scene.cloud.protect(protected, false);
    let aws = scene.aws();
    aws.terminate(&[MachineId::new(protected)]).await.remove(0).unwrap();
    torn_down(&aws, &id).await;
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn what_stays_is_named_with_the_command_that_removes_it() {
    // The groups of machines that shut down are not waited for.
    let scene = Scene::of(CloudOptions::new().phases(Phases::NONE)).await;
    let pool = scene.pool(1).start().await.unwrap();
    let denied = "You are not authorized to perform this operation.";
    scene.cloud.rules().add(Rule::error("DeleteSecurityGroup", 403, "UnauthorizedOperation", denied));
    let error = pool.shutdown(Duration::from_secs(15)).await.unwrap_err();
    let told = format!("{error:?}");
    assert!(told.contains("aws ec2 delete-security-group --region us-east-1 --group-id sg-"), "{told}");
    // Before the rule is gone: what still tries to delete the group would succeed then.
    let left = scene.left().await;
    assert!(left.len() == 1 && left[0].kind == "security group", "{left:?}");
    scene.cloud.rules().clear();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_start_that_is_dropped_at_any_call_leaves_nothing() {
    let scene = Scene::new().await;
    // The first of them is also called for what a dropped start has launched, until that is gone.
    for action in
        ["DescribeInstances", "CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "DescribeImages", "RunInstances"]
    {
        // What is called for happens, and its answer never comes.
        scene.cloud.rules().add(Rule::hang_after(action).when(is_of_a_start));
        let before = made(&scene, action);
        let starting = tokio::spawn(scene.pool(1).start());
        until("the call is made", async || made(&scene, action) > before).await;
        starting.abort();
        let _ = starting.await;
        scene.cloud.rules().clear();
    }
    let calls = scene.cloud.calls().clone();
    scene.until_nothing_left().await;
    let launches = calls.of("RunInstances").iter().filter(|call| !call.is_dry_run()).count();
    assert_eq!(launches, 2, "those that were dropped before their launch have launched nothing");
}
