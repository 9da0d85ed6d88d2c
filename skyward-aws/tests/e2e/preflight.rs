//! What is wrong before anything is launched.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use skyward_aws::{Addressing, Aws};
use skyward_aws_testkit::Rule;
use skyward_core::error::ErrorKind;
use skyward_core::pool::Pool;
use skyward_core::provider::Provider;

use crate::scene::{Scene, limits};

/// The error of a start with this provider.
async fn refused(aws: Aws) -> skyward_core::Error {
    Pool::builder().provider(aws).limits(limits()).start().await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn credentials_that_are_not_valid_are_refused_by_name() {
    let scene = Scene::new().await;
    for (code, word) in [
        ("InvalidClientTokenId", "get-caller-identity"),
        ("ExpiredToken", "log in again"),
        ("AccessDenied", "aws-policy.json"),
    ] {
        scene.cloud.rules().clear();
        scene.cloud.rules().add(Rule::error("GetCallerIdentity", 403, code, "The security token is no good."));
        let error = refused(scene.aws()).await;
        assert!(format!("{error:#}").contains(code) && error.hint().is_some_and(|hint| hint.contains(word)), "{error}");
    }
    scene.cloud.rules().clear();
    let error = refused(scene.aws().expect_account("999999999999")).await;
    assert!(error.message().contains("999999999999") && error.message().contains("123456789012"), "{error}");
    assert_eq!(scene.cloud.calls().count("RunInstances"), 0);
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn an_account_without_a_default_network_is_told_how_to_make_one_or_name_one() {
    let scene = Scene::new().await;
    scene.cloud.default_vpc(false).await.unwrap();
    let error = refused(scene.aws().subnets(Vec::<String>::new())).await;
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("create-default-vpc") && hint.contains(".subnets("), "{error}");
    let error = refused(scene.aws().subnets(["subnet-0123456789abcdef0"])).await;
    assert!(format!("{error:#}").contains("subnet-0123456789abcdef0"), "{error}");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_port_that_is_blocked_is_explained() {
    let scene = Scene::new().await;
    let mut limits = limits();
    limits.start = std::time::Duration::from_secs(15);
    // Nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = Pool::builder().provider(scene.aws().ssh_port(port)).limits(limits).start().await.unwrap_err();
    let told = format!("{error:?}");
    assert!(told.contains("ssh_port") || told.contains("ssh_from"), "{told}");
    scene.until_nothing_left().await;
}

#[test]
fn without_credentials_or_region_it_is_said_where_they_were_looked_for() {
    for (region, words) in [
        (None, ["no AWS region is set", ".region(", "AWS_REGION"]),
        (Some("eu-west-1"), ["no AWS credentials were found", "aws configure sso", "AWS_ACCESS_KEY_ID"]),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["preflight::client", "--exact", "--ignored", "--nocapture"]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            child.env_remove(name);
        }
        child.env("HOME", "/nonexistent").env("AWS_EC2_METADATA_DISABLED", "true");
        child.envs(region.map(|region| ("AWS_REGION", region)));
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

/// The host's name belongs to nobody, so only a proxy can be asked for it.
#[test]
fn aws_is_called_through_the_proxy_that_the_environment_names_except_for_hosts_without_it() {
    for (without, is_asked) in [("", true), ("other.invalid,aws.skyward.invalid", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        // It lets nothing through. The thread ends with the process.
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                heard.lock().unwrap().push(String::from_utf8_lossy(&request[..length]).to_lowercase());
                let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
            }
        });
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["preflight::client", "--exact", "--ignored", "--nocapture"]);
        child.env("AWS_REGION", "eu-west-1").env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "s");
        child.env("AWS_ENDPOINT_URL", "https://aws.skyward.invalid");
        child.env("HTTPS_PROXY", format!("http://ada:secret@{proxy}")).env("NO_PROXY", without);
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("GetCallerIdentity") && !text.contains("secret"), "{text}");
        let asked = asked.lock().unwrap().clone();
        assert_eq!(!asked.is_empty(), is_asked, "{asked:?}: {text}");
        let is_right = |request: &String| {
            request.starts_with("connect aws.skyward.invalid:443 ") && request.contains("proxy-authorization: basic ")
        };
        assert!(asked.iter().all(is_right), "{asked:?}");
    }
}

#[tokio::test]
#[ignore = "a role that another test plays"]
async fn client() {
    let error = Aws::new().addressing(Addressing::Private).identity().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    println!("\n{error:#}");
}
