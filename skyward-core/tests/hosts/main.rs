//! The provider of SSH hosts, against real OpenSSH servers on this machine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod claims;
mod clocks;
#[path = "../../../tests/common/disk.rs"]
mod disk;
mod faults;
#[path = "../support/hostile.rs"]
mod hostile;
mod identities;
mod keepers;
mod ownership;
mod pool;
#[path = "../support/printed.rs"]
mod printed;
mod scene;
mod settings;
#[path = "../support/sshd.rs"]
mod sshd;
mod users;

use skyward_core::testkit::provider_suite;

use self::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn hosts_meet_the_contract_of_providers() {
    let scene = Scene::new(2);
    provider_suite::all_with(&scene.hosts(2), &scene.hosts(2), &scene).await.unwrap();
}
