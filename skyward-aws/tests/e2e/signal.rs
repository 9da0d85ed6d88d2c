//! Clients that are interrupted, by Ctrl-C: they end what they have made before they end
//! themselves.

use std::time::Duration;

use skyward_aws_testkit::{CloudOptions, Phases, Rule};

use crate::client::Client;
use crate::scene::{Scene, is_of_a_start, made, until};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_client_that_is_interrupted_at_any_call_of_its_start_leaves_nothing() {
    // What is launched is listed a while later: who ends at once overlooks it.
    let phases = Phases { hidden: Duration::from_secs(2), ..Phases::default() };
    let scene = Scene::of(CloudOptions::new().phases(phases)).await;
    for action in ["CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "RunInstances", "DescribeInstances"] {
        // What is called for happens, and its answer never comes.
        scene.cloud.rules().add(Rule::hang_after(action).when(is_of_a_start));
        let before = made(&scene, action);
        let mut client = Client::start(&scene, "signal");
        until("the call is made", async || made(&scene, action) > before).await;
        client.interrupt();
        // A call that hangs goes on hanging.
        scene.cloud.rules().clear();
        let status = client.ended().await;
        assert!(status.success(), "{action}: {status}, {:?}", scene.cloud.calls().actions());
        let left = scene.left().await;
        assert!(left.is_empty(), "{action}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_client_that_is_interrupted_while_it_connects_leaves_nothing() {
    let scene = Scene::new().await;
    // EC2 says that it runs, and nobody answers there.
    scene.cloud.fail_boots(1).unwrap();
    let mut client = Client::start(&scene, "signal");
    until("the client has seen that it runs", async || made(&scene, "DescribeInstances") > 0).await;
    client.interrupt();
    let status = client.ended().await;
    assert!(status.success(), "{status}");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_client_that_is_interrupted_while_its_pool_serves_leaves_nothing() {
    let scene = Scene::new().await;
    let mut client = Client::start(&scene, "signal");
    client.until_ready();
    client.interrupt();
    let status = client.ended().await;
    assert!(status.success(), "{status}");
    scene.assert_nothing_left().await;
}
