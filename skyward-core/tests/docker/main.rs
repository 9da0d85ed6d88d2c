//! The Docker provider on a real engine: the contracts of the provider and of the connection to a
//! container.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod pools;
#[path = "../support/docker.rs"]
mod support;

use std::sync::Arc;

use skyward_core::provider::{Architecture, Checked, Docker, Market, Requirements};
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
