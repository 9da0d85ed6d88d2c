//! The contract of `Remote`, over real servers.

use skyward_core::remote::Ssh;
use skyward_core::testkit::remote_suite;

use crate::site::{connect, server, shell, target};
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

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_server_at_an_address_with_a_zone() {
    let table = std::fs::read_to_string("/proc/net/if_inet6").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let local = fields.into_iter().find(|fields| fields[3] == "20").map(|fields| {
        let address = std::net::Ipv6Addr::from(u128::from_str_radix(fields[0], 16).unwrap());
        format!("{address}%{}", fields[5])
    });
    // Without a link-local address, only a number is a zone.
    let address = local.unwrap_or_else(|| "::1%1".to_owned());
    let sshd = server(&Options::new().address(&address));
    let shown = format!("[{address}]:{}", sshd.port());
    for jump in [false, true] {
        let mut target = target(&sshd);
        assert!(target.to_string().ends_with(&shown), "{target}");
        if jump {
            target = target.clone().jump(target);
        }
        let remote = Ssh::connect(target).await.unwrap_or_else(|error| panic!("{error:?}\n{}", sshd.log()));
        assert_eq!(shell(&remote, "echo here").await, "here\n");
        // At which other nodes reach it: also there with its zone.
        let seen = shell(&remote, "echo \"$SSH_CONNECTION\"").await;
        assert_eq!(seen.split(' ').nth(2), Some(address.as_str()), "{seen}");
    }
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
