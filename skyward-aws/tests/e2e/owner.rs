//! Clients that are killed: what they leave ends by itself, and another process finds it.

use std::time::{Duration, SystemTime};

use skyward_aws_testkit::Rule;

use crate::client::{Client, reap_expired};
use crate::scene::{Scene, until};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn the_machines_of_a_killed_client_power_off_by_their_lease() {
    let scene = Scene::new().await;
    let mut client = Client::start(&scene, "lease");
    client.until_ready();
    assert_eq!(scene.instances().len(), 1);
    client.kill();
    until("the machine has powered off", async || scene.instances().is_empty()).await;
    let states = scene.cloud.states().await.unwrap();
    assert!(states.values().all(|state| state == "terminated"), "{states:?}");
    // The group costs nothing; whoever reaps removes it.
    client.reap(&scene);
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn the_budget_of_a_killed_client_holds_although_its_lease_is_long() {
    let scene = Scene::new().await;
    let mut client = Client::start(&scene, "budget");
    client.until_ready();
    client.kill();
    until("the machine has powered off", async || scene.instances().is_empty()).await;
    client.reap(&scene);
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn what_a_client_launched_that_was_killed_before_its_answer_came_is_found_and_ended() {
    let scene = Scene::new().await;
    scene.cloud.rules().add(Rule::hang_after("RunInstances").when(|call| !call.is_dry_run()));
    let mut client = Client::start(&scene, "launch");
    until("the instance is there", async || scene.instances().len() == 1).await;
    client.kill();
    scene.cloud.rules().clear();
    assert_eq!(client.reap(&scene), "ended 1");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn another_host_ends_what_has_expired_and_leaves_a_live_pool_alone() {
    let scene = Scene::new().await;
    let mut live = Client::start(&scene, "long-lease");
    live.until_ready();
    let of_live = scene.instances();
    let mut lost = Client::start(&scene, "long-lease");
    lost.until_ready();
    lost.kill();
    let left = scene.left().await;
    let machine = left.iter().find(|left| left.kind == "instance" && !of_live.contains(&left.id)).unwrap();
    let pool = machine.tags.iter().find(|(key, _)| key == "skyward:pool").unwrap();
    let of_lost: Vec<String> =
        left.iter().filter(|left| left.tags.contains(pool)).map(|left| left.id.clone()).collect();
    // As if nobody had renewed the tags since then. A period is 10 minutes.
    let expire = async |minutes: u64| {
        let expired = SystemTime::now() - Duration::from_secs(60 * minutes);
        let seconds = expired.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string();
        scene.cloud.tag(&of_lost, "skyward:expires-at", &seconds).await.unwrap();
    };
    assert_eq!(reap_expired(&scene), "ended 0, 2 elsewhere", "nothing has expired");
    expire(5).await;
    assert_eq!(reap_expired(&scene), "ended 0, 2 elsewhere", "one period was missed, which the next one makes good");
    expire(13).await;
    assert_eq!(reap_expired(&scene), "ended 1, 1 elsewhere");
    assert_eq!(scene.instances(), of_live);
    live.kill();
    assert_eq!(live.reap(&scene), "ended 1");
    scene.assert_nothing_left().await;
}
