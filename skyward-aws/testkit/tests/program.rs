//! The program `ec2-on-loopback`: it says how the cloud is reached, and leaves nothing, however it
//! ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Program {
    child: Child,
    told: serde_json::Value,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ec2-on-loopback"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, told: serde_json::from_str(&line).unwrap() }
    }

    fn endpoint(&self) -> SocketAddr {
        self.told["endpoint"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// Processes below it, moto among them.
    fn children(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
            parent == Some(self.child.id())
        })
        .collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "it never came that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lives(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
#[ignore = "needs moto"]
fn it_says_how_it_is_reached_and_ends_with_its_input() {
    let mut program = Program::start(&["--without-machines", "--region", "eu-west-1"]);
    assert_eq!(program.told["region"], "eu-west-1");
    assert_eq!(program.told["environment"]["AWS_REGION"], "eu-west-1");
    assert_eq!(program.told["subnets"].as_object().unwrap().len(), 3);
    assert!(program.told["ssh_port"].as_u64().is_some());
    assert!(program.endpoint().ip().is_loopback());
    let children = program.children();
    assert!(!children.is_empty());
    TcpStream::connect(program.endpoint()).unwrap().write_all(b"GET / HTTP/1.1\r\n").unwrap();
    drop(program.child.stdin.take());
    assert!(program.child.wait().unwrap().success());
    assert!(children.iter().all(|id| !lives(*id)));
    assert!(TcpStream::connect(program.endpoint()).is_err());
}

#[test]
#[ignore = "needs moto"]
fn it_ends_with_a_signal_and_leaves_nothing_when_it_is_killed() {
    let mut program = Program::start(&["--without-machines"]);
    let children = program.children();
    assert!(Command::new("kill").args(["-TERM", &program.child.id().to_string()]).status().unwrap().success());
    assert!(program.child.wait().unwrap().success());
    assert!(children.iter().all(|id| !lives(*id)));
    let mut program = Program::start(&["--without-machines"]);
    let children = program.children();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    wait("what it started has ended", || children.iter().all(|id| !lives(*id)));
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn machines_end_with_a_program_that_is_killed() {
    let mut program = Program::start(&[]);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let config = aws_sdk_ec2::Config::builder()
        .behavior_version(aws_sdk_ec2::config::BehaviorVersion::latest())
        .region(aws_sdk_ec2::config::Region::new(text(&program.told["region"])))
        .endpoint_url(text(&program.told["endpoint"]))
        .credentials_provider(aws_sdk_ec2::config::Credentials::new("AKIA", "secret", None, None, "test"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    let client = aws_sdk_ec2::Client::from_conf(config);
    support::open(&client).await;
    let subnet = program.told["subnets"].as_object().unwrap().values().next().map(text).unwrap();
    let run = client.run_instances().image_id(support::IMAGE).subnet_id(subnet).min_count(1).max_count(1);
    let run = run.instance_type(aws_sdk_ec2::types::InstanceType::M7iLarge).send().await.unwrap();
    let address = run.instances()[0].private_ip_address().unwrap().to_owned();
    let port = u16::try_from(program.told["ssh_port"].as_u64().unwrap()).unwrap();
    let address = SocketAddr::new(address.parse().unwrap(), port);
    // What no rule allows is dropped: nobody says that the machine is not there.
    let is_reached = || TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok();
    wait("the machine is reached", is_reached);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    wait("the machine has ended", || !is_reached());
}
