//! What the provider remembers of its launches, so that none starts two machines.

use std::time::Duration;

use skyward_aws::Aws;
use skyward_aws_testkit::{Call, CloudOptions, Phases, Rule};
use skyward_core::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::{LaunchBatch, LaunchRequest, MachineState, Offer, Provider};

use crate::scene::{Scene, torn_down, until};

/// A cloud that lists a new instance so late.
async fn listed_late(hidden: Duration) -> Scene {
    Scene::of(CloudOptions::new().without_machines().phases(Phases { hidden, ..Phases::NONE })).await
}

/// One launch, the same each time.
fn batch(scene: &Scene) -> LaunchBatch {
    let zone = scene.cloud.subnets().keys().next().unwrap();
    let (pool, number) = (PoolId::new("p-once"), MachineNumber(0));
    let launch = LaunchId::of(&pool, number, Attempt(1));
    let request = LaunchRequest::new(launch, pool, number, Duration::from_secs(60));
    LaunchBatch::one(Offer::new("g5.xlarge", zone, 4, 16), request)
}

fn is_real(call: &Call) -> bool {
    !call.is_dry_run()
}

async fn ended(scene: Scene, aws: &Aws, machine: &MachineId) {
    aws.terminate(std::slice::from_ref(machine)).await.remove(0).unwrap();
    torn_down(aws, &PoolId::new("p-once")).await;
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_launch_that_is_dropped_before_its_answer_is_repeated_by_the_same_call() {
    let scene = listed_late(Duration::from_secs(3600)).await;
    let (aws, batch) = (scene.aws(), batch(&scene));
    scene.cloud.rules().add(Rule::hang_after("RunInstances").when(is_real));
    let dropped = tokio::spawn({
        let (aws, batch) = (aws.clone(), batch.clone());
        async move { aws.launch(&batch).await }
    });
    until("the call is made", async || scene.launches().len() == 1).await;
    dropped.abort();
    assert!(dropped.await.is_err());
    scene.cloud.rules().clear();
    let machine = aws.launch(&batch).await.remove(0).unwrap();
    let calls = scene.launches();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].parameters, calls[1].parameters);
    scene.cloud.set_phases(Phases::NONE);
    assert_eq!(scene.cloud.states().await.unwrap().len(), 1, "instances that were ever there");
    ended(scene, &aws, &machine.id).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_launch_that_was_answered_is_not_made_again_while_its_machine_is_not_listed() {
    let scene = listed_late(Duration::from_secs(3600)).await;
    let (aws, batch) = (scene.aws(), batch(&scene));
    let first = aws.launch(&batch).await.remove(0).unwrap();
    let again = aws.launch(&batch).await.remove(0).unwrap();
    assert_eq!(first, again);
    assert_eq!(scene.launches().len(), 1);
    ended(scene, &aws, &first.id).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_launch_that_another_process_has_made_returns_its_machine_as_soon_as_it_is_listed() {
    let scene = listed_late(Duration::from_secs(2)).await;
    // As another process: it shares nothing with the first one.
    let (aws, other, batch) = (scene.aws(), scene.aws(), batch(&scene));
    let machine = other.launch(&batch).await.remove(0).unwrap();
    let found = loop {
        match aws.launch(&batch).await.remove(0) {
            Ok(found) => break found,
            Err(error) => assert!(error.is_temporary(), "{error:?}"),
        }
    };
    assert_eq!(found, machine);
    ended(scene, &aws, &machine.id).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_call_that_named_something_that_is_gone_is_followed_by_one_with_another_token() {
    let scene = listed_late(Duration::ZERO).await;
    let (aws, batch) = (scene.aws(), batch(&scene));
    let gone = "The security group 'sg-1' does not exist in VPC 'vpc-1'";
    scene.cloud.rules().add(Rule::error("RunInstances", 400, "InvalidGroup.NotFound", gone).when(is_real).times(2));
    for _ in 0..2 {
        let error = aws.launch(&batch).await.remove(0).unwrap_err();
        assert!(error.is_temporary(), "{error:?}");
    }
    let machine = aws.launch(&batch).await.remove(0).unwrap();
    let calls = scene.launches();
    let mut tokens: Vec<&str> = calls.iter().map(|call| call.get("ClientToken")).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 3, "{tokens:?}");
    ended(scene, &aws, &machine.id).await;
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_machine_of_another_process_that_is_not_listed_is_not_gone_before_ec2_must_list_it() {
    let scene = listed_late(Duration::ZERO).await;
    let (aws, machine) = (scene.aws(), MachineId::new("i-0123456789abcdef0"));
    let state = async || aws.inspect(std::slice::from_ref(&machine)).await.unwrap()[0].state;
    assert_eq!(state().await, MachineState::Unknown);
    tokio::time::pause();
    tokio::time::advance(aws.capabilities().settles_in).await;
    tokio::time::resume();
    assert_eq!(state().await, MachineState::Gone);
    scene.assert_nothing_left().await;
}

/// Lets EC2 list a volume that nothing uses, in the first lists of volumes.
fn list_volume(scene: &Scene, lists: usize) {
    let lists_it = Rule::rewrite("DescribeVolumes", |body| {
        let volume = "<item><volumeId>vol-0123456789abcdef0</volumeId><status>available</status></item>";
        body.replace("<volumeSet/>", &format!("<volumeSet>{volume}</volumeSet>"))
            .replace("<volumeSet></volumeSet>", &format!("<volumeSet>{volume}</volumeSet>"))
    });
    scene.cloud.rules().add(lists_it.times(lists));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_volume_that_stays_is_named_with_the_command_that_removes_it() {
    let scene = listed_late(Duration::ZERO).await;
    list_volume(&scene, usize::MAX);
    let error = scene.aws().teardown(&PoolId::new("p-once")).await.unwrap_err();
    let hint = error.hint().unwrap_or_default();
    let command = "aws ec2 delete-volume --region us-east-1 --volume-id vol-0123456789abcdef0";
    assert!(error.message().contains("vol-0123456789abcdef0") && hint.contains(command), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_volume_that_is_deleted_a_moment_after_its_instance_is_no_error() {
    let scene = listed_late(Duration::ZERO).await;
    list_volume(&scene, 1);
    scene.aws().teardown(&PoolId::new("p-once")).await.unwrap();
    scene.assert_nothing_left().await;
}
