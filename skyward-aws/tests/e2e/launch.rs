//! Launches: which machine is which, and what was launched by a call whose answer was lost.

use std::collections::BTreeMap;

use skyward_aws::Aws;
use skyward_aws_testkit::{CloudOptions, Phases, Rule};
use skyward_core::error::{Refusal, Result};
use skyward_core::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::{LaunchBatch, LaunchRequest, Machine, MachineState, Provider, Requirements};

use crate::scene::{Scene, limits, until};

/// A batch of machines of one pool.
async fn batch(aws: &Aws, count: u32) -> LaunchBatch {
    let pool = pool();
    let request = |number| {
        let number = MachineNumber(number);
        LaunchRequest::new(LaunchId::of(&pool, number, Attempt(1)), pool.clone(), number, limits().lease)
    };
    let offer = aws.offers(&Requirements::default()).await.unwrap().remove(0);
    LaunchBatch::new(offer, (0..count).map(request).collect())
}

fn pool() -> PoolId {
    PoolId::new("p-launch")
}

/// A cloud without machines, and a provider.
async fn without_machines() -> (Scene, Aws) {
    let scene = Scene::of(CloudOptions::new().without_machines().phases(Phases::NONE)).await;
    let aws = scene.aws();
    (scene, aws)
}

/// The launch of each machine. Two machines have two launches.
fn by_id(machines: impl IntoIterator<Item = Machine>) -> BTreeMap<MachineId, LaunchId> {
    let machines: Vec<Machine> = machines.into_iter().collect();
    let launches: BTreeMap<_, _> =
        machines.iter().map(|machine| (machine.launch.clone(), machine.id.clone())).collect();
    assert_eq!(launches.len(), machines.len(), "{machines:?}");
    machines.into_iter().map(|machine| (machine.id, machine.launch)).collect()
}

fn all(answers: Vec<Result<Machine>>) -> BTreeMap<MachineId, LaunchId> {
    by_id(answers.into_iter().map(Result::unwrap))
}

async fn listed(aws: &Aws) -> BTreeMap<MachineId, LaunchId> {
    by_id(aws.list(&pool()).await.unwrap())
}

/// A real launch, and not a dry run.
fn real(rule: Rule) -> Rule {
    rule.when(|call| !call.is_dry_run())
}

/// The launch indexes of an answer become others.
fn indexes(action: &str, change: impl Fn(usize) -> usize + Send + Sync + 'static) -> Rule {
    Rule::rewrite(action, move |body| {
        let mut parts = body.split("<amiLaunchIndex>");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (index, rest) = part.split_once('<').unwrap();
            text.push_str(&format!("<amiLaunchIndex>{}<{rest}", change(index.parse().unwrap())));
        }
        text
    })
}

/// EC2 lists no instance.
fn unlisted() -> Rule {
    Rule::rewrite("DescribeInstances", |body| match body.split_once("<reservationSet>") {
        Some((head, rest)) => {
            let (_, tail) = rest.split_once("</reservationSet>").unwrap();
            format!("{head}<reservationSet></reservationSet>{tail}")
        }
        None => body.to_owned(),
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn machines_are_told_apart_in_each_process_although_their_launch_indexes_are_equal() {
    let (scene, aws) = without_machines().await;
    scene.cloud.rules().add(indexes("*", |_| 0));
    let made = all(aws.launch(&batch(&aws, 3).await).await);
    assert_eq!(made.len(), 3);
    assert_eq!(listed(&aws).await, made);
    assert_eq!(listed(&scene.aws()).await, made, "another process");
    scene.end(&aws, &pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn the_order_of_the_answer_is_what_each_process_reads_back() {
    let (scene, aws) = without_machines().await;
    scene.cloud.rules().add(indexes("DescribeInstances", |index| 2 - index));
    // EC2 does not know yet what it launched a moment ago.
    let late = Rule::error("CreateTags", 400, "InvalidInstanceID.NotFound", "The instance ID does not exist");
    scene.cloud.rules().add(late.times(1));
    scene.cloud.rules().add(indexes("RunInstances", |index| 2 - index));
    let made = all(aws.launch(&batch(&aws, 3).await).await);
    // The tag that failed is made good when the machines are inspected.
    let ids: Vec<MachineId> = made.keys().cloned().collect();
    aws.inspect(&ids).await.unwrap();
    assert_eq!(listed(&aws).await, made);
    assert_eq!(listed(&scene.aws()).await, made, "another process");
    let tagged = scene.cloud.calls().of("CreateTags");
    let keys: Vec<&str> = tagged.iter().map(|call| call.get("Tag.1.Key")).collect();
    assert_eq!(keys, ["skyward:launch"; 3], "two machines have another place than their index, and one call failed");
    assert_eq!(all(aws.launch(&batch(&aws, 3).await).await), made);
    scene.end(&aws, &pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn machines_of_a_lost_answer_stay_what_the_first_list_has_made_of_them() {
    let (scene, aws) = without_machines().await;
    let batch = batch(&aws, 3).await;
    scene.cloud.rules().add(real(Rule::drop_after("RunInstances")).times(1));
    scene.cloud.rules().add(indexes("*", |_| 0));
    for answer in aws.launch(&batch).await {
        assert!(answer.unwrap_err().is_temporary());
    }
    assert_eq!(listed(&scene.aws()).await.len(), 3, "another process");
    let first = listed(&aws).await;
    assert_eq!(first.len(), 3);
    assert_eq!(all(aws.launch(&batch).await), first);
    assert_eq!(scene.cloud.states().await.unwrap().len(), 3);
    assert_eq!(listed(&scene.aws()).await, first, "another process");
    scene.end(&aws, &pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_second_instance_of_a_launch_is_ended_and_no_list_leaves_it_out_before() {
    let (scene, aws) = without_machines().await;
    let made = all(aws.launch(&batch(&aws, 2).await).await);
    let ids: Vec<String> = made.keys().map(ToString::to_string).collect();
    scene.cloud.tag(&ids, "skyward:launch", "0+1=1").await.unwrap();
    let other = scene.aws();
    let refused = Rule::error("TerminateInstances", 403, "UnauthorizedOperation", "You may not.");
    scene.cloud.rules().add(refused);
    let error = other.list(&pool()).await.unwrap_err();
    assert!(error.is_temporary() && ids.iter().any(|id| error.message().contains(id)), "{error}");
    scene.cloud.rules().clear();
    let left = listed(&other).await;
    assert_eq!(left.len(), 1, "{left:?}");
    let states = scene.cloud.states().await.unwrap();
    let running = states.iter().filter(|(_, state)| ["pending", "running"].contains(&state.as_str()));
    let running: Vec<&String> = running.map(|(id, _)| id).collect();
    assert_eq!(running, left.keys().map(MachineId::as_str).collect::<Vec<_>>());
    scene.end(&other, &pool()).await;
}

/// Makes a call whose first attempt has this fate, and whose later ones are refused.
async fn refused_later(first: fn(&str) -> Rule, code: &str) -> (Scene, Aws, LaunchBatch) {
    let (scene, aws) = without_machines().await;
    let batch = batch(&aws, 1).await;
    scene.cloud.rules().add(real(first("RunInstances")).times(1));
    scene.cloud.rules().add(real(Rule::error("RunInstances", 400, code, "It is refused.")));
    let error = one(&aws, &batch).await.unwrap_err();
    assert!(error.is_temporary() && error.refusal().is_none(), "{error}");
    (scene, aws, batch)
}

async fn one(aws: &Aws, batch: &LaunchBatch) -> Result<Machine> {
    aws.launch(batch).await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_refusal_after_a_lost_answer_forgets_no_machine() {
    for code in ["UnauthorizedOperation", "VcpuLimitExceeded", "InsufficientInstanceCapacity"] {
        let (scene, aws, batch) = refused_later(Rule::drop_after, code).await;
        scene.cloud.rules().add(unlisted().times(3));
        let made = one(&aws, &batch).await.unwrap_or_else(|error| panic!("{code}: {error:?}"));
        assert_eq!(scene.cloud.states().await.unwrap().into_keys().collect::<Vec<_>>(), [made.id.as_str()]);
        assert_eq!(one(&aws, &batch).await.unwrap(), made);
        scene.end(&aws, &pool()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_refusal_counts_once_ec2_must_list_what_an_earlier_attempt_has_launched() {
    let (scene, aws, batch) = refused_later(Rule::drop_before, "VcpuLimitExceeded").await;
    let denied = Rule::error("DescribeInstances", 403, "UnauthorizedOperation", "You may not list.");
    scene.cloud.rules().add(denied.times(1));
    let error = one(&aws, &batch).await.unwrap_err();
    assert!(error.is_temporary() && error.refusal().is_none(), "nobody knows: {error}");
    let told = error.to_string();
    assert!(told.contains("VcpuLimitExceeded") && told.contains("may have launched"), "{told}");
    let error = one(&aws, &batch).await.unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Quota(_))), "{error:?}");
    scene.end(&aws, &pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_call_whose_answer_nobody_waited_for_is_not_refused_by_a_later_refusal() {
    let (scene, aws) = without_machines().await;
    let batch = batch(&aws, 1).await;
    scene.cloud.rules().add(real(Rule::hang_after("RunInstances")).times(1));
    let launched = until("it is launched", async || !scene.cloud.states().await.unwrap().is_empty());
    tokio::select! {
        answers = aws.launch(&batch) => panic!("{answers:?}"),
        () = launched => {}
    }
    scene.cloud.rules().add(real(Rule::error("RunInstances", 403, "UnauthorizedOperation", "You may not.")));
    let made = one(&aws, &batch).await.unwrap();
    assert_eq!(scene.cloud.states().await.unwrap().into_keys().collect::<Vec<_>>(), [made.id.as_str()]);
    scene.end(&aws, &pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn throttling_after_a_lost_answer_is_no_refusal() {
    let (scene, aws, batch) = refused_later(Rule::drop_after, "RequestLimitExceeded").await;
    let error = one(&aws, &batch).await.unwrap_err();
    assert!(error.is_temporary() && error.refusal().is_none(), "{error}");
    scene.cloud.rules().clear();
    one(&aws, &batch).await.unwrap();
    assert_eq!(scene.cloud.states().await.unwrap().len(), 1);
    scene.end(&aws, &pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_launch_whose_machine_has_ended_is_that_machine_or_lost_and_not_made_again() {
    let (scene, aws, batch) = refused_later(Rule::drop_after, "IdempotentInstanceTerminated").await;
    let id = MachineId::new(scene.cloud.states().await.unwrap().into_keys().next().unwrap());
    aws.terminate(std::slice::from_ref(&id)).await.remove(0).unwrap();
    let machine = one(&aws, &batch).await.unwrap();
    assert_eq!(machine.id, id);
    let report = async || aws.inspect(std::slice::from_ref(&id)).await.unwrap().remove(0);
    until("it is known that it has ended", async || report().await.state == MachineState::Gone).await;
    // Later EC2 lists it no more.
    scene.cloud.rules().add(unlisted());
    let error = one(&aws, &batch).await.unwrap_err();
    assert_eq!(error.refusal(), Some(&Refusal::Capacity), "{error}");
    assert!(error.message().contains("IdempotentInstanceTerminated"), "{error}");
    assert_eq!(scene.cloud.states().await.unwrap().len(), 1);
    scene.cloud.rules().clear();
    scene.end(&aws, &pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn a_launch_that_another_process_makes_at_the_same_time_is_its_machine() {
    let (scene, first) = without_machines().await;
    let second = scene.aws();
    let batch = batch(&first, 1).await;
    let made = one(&first, &batch).await.unwrap();
    scene.cloud.rules().add(unlisted().times(3));
    // The list does not show it yet, so this process makes the call too, with keys of its own.
    assert_eq!(one(&second, &batch).await.unwrap().id, made.id);
    assert_eq!(scene.cloud.states().await.unwrap().len(), 1);
    scene.end(&first, &pool()).await;
}
