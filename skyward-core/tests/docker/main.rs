//! The Docker provider on a real engine: the contracts of the provider and of the connection to a
//! container.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod pools;
#[path = "../support/docker.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skyward_core::error::ErrorKind;
use skyward_core::provider::{Architecture, Checked, Docker, Market, Requirements};
use skyward_core::remote::{Command, Container, Remote};
use skyward_core::testkit::provider_suite;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn an_engine_reports_its_architecture_and_names_requirements_it_cannot_meet() {
    let image = support::node_image();
    let docker = Checked::new(Arc::new(Docker::new(image)));
    let offer = docker.candidates(&Requirements::default()).await.unwrap().remove(0);
    assert_eq!(offer.architecture, Architecture::of_client());
    let wanted = Requirements::default().disk_gib(1).market(Market::Spot);
    let hint = docker.candidates(&wanted).await.unwrap_err().hint().unwrap().to_owned();
    assert!(hint.ends_with("does not have: 1 GiB of disk, a spot price"), "{hint}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn the_docker_provider_meets_its_contract() {
    let image = support::node_image();
    let docker = || Docker::new(&image);
    provider_suite::all(&docker(), &docker()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_given_up_command_ends_though_it_reads_none_of_its_input() {
    let name = format!("skyward-test-{:08x}", rand::random::<u32>());
    let image = support::node_image();
    support::ask(&["run", "--detach", "--rm", "--init", "--name", &name, &image, "sleep", "600"]).unwrap();
    let container = Container::new(&name);
    let script = "sleep 601 & echo begun; wait";
    let command = Command::script(script).stdin(vec![b'\n'; 3 << 20]).deadline(Duration::from_secs(5));
    let begun = AtomicBool::new(false);
    let error = container.run(&command, &|line| begun.store(line == "begun", Ordering::SeqCst)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(begun.load(Ordering::SeqCst), "{error}");
    let left = || support::inside(&name, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while left().contains("sleep 601") {
        assert!(Instant::now() < end, "{}", left());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    support::ask(&["rm", "--force", &name]).unwrap();
}
