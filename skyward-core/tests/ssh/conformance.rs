//! The contract of `Remote`, over real servers.

use skyward_core::remote::Ssh;
use skyward_core::testkit::remote_suite;

use crate::site::{connect, server, target};
use crate::sshd::{Options, Sshd};

async fn suite(remote: &Ssh, sshd: &Sshd) {
    let mut broken = Vec::new();
    remote_suite::all(remote, sshd.folder().to_str().unwrap(), &mut broken).await;
    assert!(broken.is_empty(), "{broken:?}\n{}", sshd.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd"]
async fn a_server_that_allows_everything() {
    let sshd = server(&Options::new());
    suite(&connect(&sshd).await, &sshd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd"]
async fn a_server_that_forwards_nothing() {
    let sshd = server(&Options::new().without_forwarding());
    suite(&connect(&sshd).await, &sshd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd"]
async fn a_host_behind_two_bastions() {
    let (first, second, sshd) = (server(&Options::new()), server(&Options::new()), server(&Options::new()));
    let target = target(&sshd).jump(target(&first)).jump(target(&second));
    let remote = Ssh::connect(target).await.unwrap();
    suite(&remote, &sshd).await;
}
