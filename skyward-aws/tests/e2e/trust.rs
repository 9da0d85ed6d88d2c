//! Who a machine is.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Mutex;

use base64::Engine as _;
use skyward_aws_testkit::{CloudOptions, Phases, Rule};
use skyward_core::error::ErrorKind;
use skyward_core::event::PoolEvent;

use crate::scene::{PATIENCE, SEVEN, Scene, event, python};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn each_machine_takes_a_host_key_of_its_own_which_its_user_data_does_not_have() {
    let scene = Scene::new().await;
    let call = python::<(String, String)>(
        r"
import subprocess

def f():
    text = open('/etc/ssh/ssh_host_ed25519_key.pub').read()
    others = subprocess.run('ls /etc/ssh | grep host_', shell=True, capture_output=True, text=True).stdout
    return text.split()[1], others
",
    );
    let told = scene.pool(3).scope(async |pool| call.broadcast(pool).await).await.unwrap();
    let launches = scene.launches();
    let data: Vec<String> = launches.iter().map(|call| user_data(call.get("UserData"))).collect();
    assert!(data.len() == 1 && data[0].contains("ssh-ed25519 "), "one launch: {data:?}");
    let keys: BTreeSet<&String> = told.iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), 3, "{told:?}");
    assert!(keys.iter().all(|key| !data[0].contains(key.as_str())), "{told:?}");
    for (_, files) in &told {
        assert!(!files.contains("rsa") && !files.contains("ecdsa"), "{files}");
    }
    scene.assert_nothing_left().await;
}

/// What a launch gives its instances, as they read it.
pub(crate) fn user_data(packed: &str) -> String {
    let packed = base64::engine::general_purpose::STANDARD.decode(packed).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    text
}

/// Every machine is reported at the address of the first one.
fn show_the_first_address(scene: &Scene) {
    let first = Mutex::new(None::<String>);
    scene.cloud.rules().add(Rule::rewrite("DescribeInstances", move |body| {
        let mut first = first.lock().unwrap();
        let mut parts = body.split("<privateIpAddress>");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (address, rest) = part.split_once('<').unwrap();
            let shown = first.get_or_insert_with(|| address.to_owned());
            text.push_str(&format!("<privateIpAddress>{shown}<{rest}"));
        }
        text
    }));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn another_machine_of_the_same_launch_at_the_address_is_refused() {
    let scene = Scene::new().await;
    show_the_first_address(&scene);
    // They have the same host key until each has its own.
    let error = scene.pool(2).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostKey, "{error:?}");
    scene.until_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_machine_with_another_key_at_the_address_is_refused_before_the_client_logs_in() {
    let scene = Scene::new().await;
    show_the_first_address(&scene);
    let first = scene.pool(1).start().await.unwrap();
    let error = scene.pool(1).start().await.unwrap_err();
    // It lets nobody in but its own client: another error would say that it was asked.
    assert_eq!(error.kind(), ErrorKind::HostKey, "{error:?}");
    first.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn an_address_that_another_instance_has_got_is_that_instances() {
    let scene = Scene::of(CloudOptions::new().phases(Phases::NONE)).await;
    let call = python::<u32>(SEVEN);
    let pool = scene.pool(1).start().await.unwrap();
    let mut events = pool.events();
    assert_eq!(call.clone().run(&pool).await.unwrap(), 7);
    let first = scene.cloud.instances()[0].clone();
    scene.cloud.kill(&first.id).await.unwrap();
    event(&mut events, |event| matches!(event, PoolEvent::NodeReplaced { .. }).then_some(())).await;
    assert_eq!(call.run(&pool).await.unwrap(), 7);
    // The emulator gives the address to the next instance at once, as EC2 may.
    let second = scene.cloud.instances()[0].clone();
    assert!(second.private == first.private && second.id != first.id, "{first:?} {second:?}");
    pool.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}
