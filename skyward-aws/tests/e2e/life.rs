//! The whole life of a pool.

use std::collections::BTreeSet;
use std::time::Duration;

use indoc::indoc;
use skyward_aws_testkit::{CloudOptions, Phases};

use crate::scene::{SEVEN, Scene, python};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn one_node_answers_and_is_gone() {
    let scene = Scene::new().await;
    let call = python::<u32>(indoc! {"
        def f():
            return 6 * 7
    "});
    let answer = scene.pool(1).scope(async |pool| call.run(pool).await).await.unwrap();
    assert_eq!(answer, 42);
    let launches = scene.launches();
    let [launch] = launches.as_slice() else { panic!("{launches:?}") };
    for (parameter, value) in [
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("InstanceInitiatedShutdownBehavior", "terminate"),
        ("MetadataOptions.HttpTokens", "required"),
        ("MetadataOptions.HttpPutResponseHopLimit", "1"),
        ("BlockDeviceMapping.1.Ebs.Encrypted", "true"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
        ("NetworkInterface.1.DeleteOnTermination", "true"),
        ("NetworkInterface.1.AssociatePublicIpAddress", "false"),
    ] {
        assert_eq!(launch.get(parameter), value, "{parameter}");
    }
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn three_nodes_are_three_machines_that_know_one_another() {
    let scene = Scene::new().await;
    let call = python::<(String, Vec<String>)>(indoc! {"
        import skyward as sky
        import socket

        def f():
            info = sky.instance_info()
            return socket.gethostname(), [peer.addr for peer in info.peers]
    "});
    let told = scene.pool(3).scope(async |pool| call.broadcast(pool).await).await.unwrap();
    let hosts: BTreeSet<&String> = told.iter().map(|(host, _)| host).collect();
    assert_eq!(hosts.len(), 3, "{told:?}");
    assert!(told.iter().all(|(_, peers)| peers.len() == 3 && *peers == told[0].1), "{told:?}");
    let counts: Vec<_> = scene.launches().iter().map(|call| call.get("MaxCount").to_owned()).collect();
    assert_eq!(counts, ["3"], "one call for those that are asked for at once");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn instances_that_are_listed_late_and_pending_for_long_are_waited_for() {
    let [hidden, pending, ending] = [2, 4, 3].map(Duration::from_secs);
    let phases = Phases { hidden, pending, ending };
    let scene = Scene::of(CloudOptions::new().phases(phases)).await;
    let call = python::<u32>(SEVEN);
    let answers = scene.pool(2).scope(async |pool| call.broadcast(pool).await).await.unwrap();
    assert_eq!(answers, [7, 7]);
    let launched: usize = scene.launches().iter().map(|call| call.get("MaxCount").parse::<usize>().unwrap()).sum();
    assert_eq!(launched, 2, "none was launched again because it was not listed");
    scene.until_nothing_left().await;
}
