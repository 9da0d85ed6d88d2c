//! Containers of a real engine: the contracts of the provider and of the way to a container.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

#[path = "../support/docker.rs"]
mod support;

use skyward_core::provider::Docker;
use skyward_core::testkit::provider_suite;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_docker_provider_holds_its_contract() {
    let Some(image) = support::node_image() else { return };
    let docker = || Docker::new(&image);
    provider_suite::all(&docker(), &docker()).await.unwrap();
}
