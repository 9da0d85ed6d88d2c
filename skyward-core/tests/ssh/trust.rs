//! A host other than the expected one is refused, however the expected host is specified.

use std::fs;

use skyward_core::error::{Error, ErrorKind};
use skyward_core::remote::ssh::{HostKeys, Target};
use skyward_core::remote::{Command, Remote, Ssh};

use crate::site::{server, target};
use crate::sshd::{Options, Sshd};

async fn refused(target: Target) -> Error {
    let error = Ssh::connect(target).await.expect_err("the host was trusted");
    assert_eq!(error.kind(), ErrorKind::HostKey, "{error}");
    assert!(!error.is_temporary(), "{error}");
    error
}

async fn trusted(target: Target) {
    let remote = Ssh::connect(target).await.unwrap();
    assert!(remote.run(&Command::new(["true"]), &|_| {}).await.unwrap().success());
}

/// The fingerprint of a public key's file, as OpenSSH itself prints it.
fn fingerprint(sshd: &Sshd, name: &str) -> String {
    sshd.keygen(&["-l", "-f"], name).unwrap().split(' ').nth(1).unwrap().to_owned()
}

/// The server's name in a file of known hosts.
fn name(sshd: &Sshd) -> String {
    format!("[{}]:{}", sshd.address(), sshd.port())
}

fn known(sshd: &Sshd, text: &str) -> HostKeys {
    let path = sshd.path("known");
    fs::write(&path, text).unwrap();
    HostKeys::known_hosts(path)
}

/// A public key that the server does not have.
fn other_key(sshd: &Sshd) -> String {
    if !sshd.path("other").exists() {
        sshd.make_key("other", "ed25519").unwrap();
    }
    fs::read_to_string(sshd.path("other.pub")).unwrap().trim().to_owned()
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_key_other_than_the_pinned_one_is_refused_with_both_fingerprints() {
    let sshd = server(&Options::new());
    let other = other_key(&sshd);
    let (own, wrong) = (fingerprint(&sshd, "host.pub"), fingerprint(&sshd, "other.pub"));
    for pin in [other.clone(), wrong.clone()] {
        let error = refused(target(&sshd).host_keys(HostKeys::pinned(pin))).await;
        let text = format!("{error:#}");
        assert!(text.contains(&own) && text.contains(&wrong) && text.contains("[pinned]"), "{text}");
        assert!(text.contains(&format!("{}:{}", sshd.address(), sshd.port())), "{text}");
    }
    trusted(target(&sshd).host_keys(HostKeys::pinned(own))).await;
    trusted(target(&sshd).host_keys(HostKeys::pinned(other).or_pinned(sshd.host_key()))).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn known_hosts_may_have_plain_pattern_and_hashed_names() {
    let sshd = server(&Options::new());
    let (host, own, other) = (name(&sshd), sshd.host_key(), other_key(&sshd));
    let (presented, expected) = (fingerprint(&sshd, "host.pub"), fingerprint(&sshd, "other.pub"));
    let hashed = |key: &str| {
        fs::write(sshd.path("to_hash"), format!("{host} {key}\n")).unwrap();
        sshd.keygen(&["-q", "-H", "-f"], "to_hash").unwrap();
        let text = fs::read_to_string(sshd.path("to_hash")).unwrap();
        assert!(text.starts_with("|1|"), "{text}");
        text
    };
    let pattern = format!("[127.*]:{}", sshd.port());
    for text in [
        format!("# of the lab\n{host} {own}\n"),
        format!("{pattern} {own}\n"),
        hashed(&own),
        format!("{host} {other}\n{host} {own}\n"),
        format!("@revoked * {other}\n{host} {own}\n"),
    ] {
        trusted(target(&sshd).host_keys(known(&sshd, &text))).await;
    }
    for text in
        [format!("# of the lab\n{host} {other}\n"), format!("\n{pattern} {other}\n"), format!("\n{}", hashed(&other))]
    {
        let error = refused(target(&sshd).host_keys(known(&sshd, &text))).await.to_string();
        let origin = format!("{} line 2", sshd.path("known").display());
        assert!([&presented, &expected, &origin].into_iter().all(|part| error.contains(part)), "{error}");
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn an_unknown_host_is_refused_with_its_fingerprint_and_the_files_that_were_read() {
    let sshd = server(&Options::new());
    let own = sshd.host_key();
    let negated = format!("*,!{} {own}\n", name(&sshd));
    // The same address at the default port is another host.
    for text in ["".to_owned(), format!("{} {own}\n", sshd.address()), format!("{}0 {own}\n", name(&sshd)), negated] {
        let error = refused(target(&sshd).host_keys(known(&sshd, &text))).await.to_string();
        let looked = sshd.path("known").display().to_string();
        assert!(error.contains(&fingerprint(&sshd, "host.pub")) && error.contains(&looked), "{error}");
    }
    let error = Ssh::connect(target(&sshd).host_keys(HostKeys::known_hosts("/no/such/file"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_revoked_key_is_refused_although_it_is_known() {
    let sshd = server(&Options::new());
    let (host, own) = (name(&sshd), sshd.host_key());
    let text = format!("{host} {own}\n@revoked * {own}\n");
    let error = refused(target(&sshd).host_keys(known(&sshd, &text))).await.to_string();
    assert!(
        error.contains("revoked") && error.contains("line 2") && error.contains(&fingerprint(&sshd, "host.pub")),
        "{error}"
    );
    refused(target(&sshd).host_keys(known(&sshd, &text).or_pinned(own))).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn the_client_asks_for_the_type_of_the_known_key() {
    let sshd = server(&Options::new());
    let folder = sshd.path("second");
    sshd.make_key("second", "ecdsa").unwrap();
    let second = fs::read_to_string(sshd.path("second.pub")).unwrap();
    let both = server(&Options::new().line(format!("HostKey {}", folder.display())));
    trusted(target(&both).host_keys(HostKeys::pinned(second.clone()))).await;
    trusted(target(&both).host_keys(HostKeys::pinned(both.host_key()))).await;
    // If the server has no key of the type, it presents another key, which is compared and refused.
    refused(target(&sshd).host_keys(HostKeys::pinned(second))).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_fingerprint_of_any_key_of_the_host_is_enough() {
    let maker = server(&Options::new());
    let mut options = Options::new();
    for key_type in ["ecdsa", "rsa"] {
        let path = maker.make_key(key_type, key_type).unwrap();
        options = options.line(format!("HostKey {}", path.display()));
    }
    let sshd = server(&options);
    let own = [fingerprint(&sshd, "host.pub"), fingerprint(&maker, "ecdsa.pub"), fingerprint(&maker, "rsa.pub")];
    for pin in &own {
        trusted(target(&sshd).host_keys(HostKeys::pinned(pin.clone()))).await;
    }
    other_key(&sshd);
    let other = fingerprint(&sshd, "other.pub");
    let error = refused(target(&sshd).host_keys(HostKeys::pinned(other.clone()))).await.to_string();
    assert!(own.iter().chain([&other]).all(|key| error.contains(key)), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_host_with_only_an_rsa_key_is_trusted_by_it() {
    let sshd = server(&Options::new().key_type("rsa"));
    let key = sshd.host_key();
    assert!(key.starts_with("ssh-rsa "), "{key}");
    trusted(target(&sshd).host_keys(HostKeys::pinned(key.clone()))).await;
    trusted(target(&sshd).host_keys(HostKeys::pinned(fingerprint(&sshd, "host.pub")))).await;
    trusted(target(&sshd).host_keys(known(&sshd, &format!("{} {key}\n", name(&sshd))))).await;
    let other = sshd.make_key("other_rsa", "rsa").unwrap().with_extension("pub");
    refused(target(&sshd).host_keys(HostKeys::pinned(fs::read_to_string(other).unwrap()))).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn an_rsa_authority_is_trusted_unless_it_signs_with_sha_1() {
    let maker = server(&Options::new());
    maker.make_key("ca", "rsa").unwrap();
    let authority = fs::read_to_string(maker.path("ca.pub")).unwrap();
    let ca = maker.path("ca").display().to_string();
    let address = format!("127.78.{}.1", 1 + std::process::id() % 250);
    for (algorithm, is_trusted) in [("rsa-sha2-512", true), ("rsa-sha2-256", true), ("ssh-rsa", false)] {
        for key_type in ["ed25519", "rsa"] {
            let file = format!("{algorithm}-{key_type}");
            let at = maker.make_key(&file, key_type).unwrap().display().to_string();
            let sign = ["-q", "-s", &ca, "-t", algorithm, "-I", "a host", "-h", "-n", &address];
            maker.keygen(&sign, &format!("{file}.pub")).unwrap();
            let options = Options::new().address(&address).line(format!("HostKey {at}"));
            let sshd = server(&options.line(format!("HostCertificate {at}-cert.pub")));
            let target = target(&sshd).host_keys(known(&sshd, &format!("@cert-authority * {authority}")));
            match is_trusted {
                true => trusted(target).await,
                false => {
                    let error = refused(target).await.to_string();
                    assert!(error.contains("its signature is wrong"), "{error}");
                }
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_host_certificate_is_trusted_by_its_authority_and_for_its_names_alone() {
    let maker = server(&Options::new());
    maker.make_key("ca", "ed25519").unwrap();
    maker.make_key("own", "ed25519").unwrap();
    let authority = fs::read_to_string(maker.path("ca.pub")).unwrap();
    let ca = maker.path("ca").display().to_string();
    // The name in the certificate must be the address that the client connects to.
    let address = format!("127.77.{}.1", 1 + std::process::id() % 250);
    let sign = |file: &str, extra: &[&str]| {
        fs::copy(maker.path("own"), maker.path(file)).unwrap();
        fs::copy(maker.path("own.pub"), maker.path(&format!("{file}.pub"))).unwrap();
        let arguments = [&["-q", "-s", &ca, "-I", "a host"], extra].concat();
        maker.keygen(&arguments, &format!("{file}.pub")).unwrap();
        let at = maker.path(file).display().to_string();
        let options = Options::new().address(&address).line(format!("HostKey {at}"));
        server(&options.line(format!("HostCertificate {at}-cert.pub")))
    };
    let by_authority = |sshd: &Sshd| {
        let text = format!("@cert-authority [{}]:* {authority}", sshd.address());
        target(sshd).host_keys(known(sshd, &text))
    };
    let any = sign("good", &["-h", "-n", &format!("gpu1,{address}")]);
    trusted(by_authority(&any)).await;
    for (file, extra, why) in [
        ("other", &["-h", "-n", "gpu1,gpu2"][..], "it is for gpu1, gpu2"),
        ("none", &["-h"], "it names no host"),
        ("old", &["-h", "-n", &address, "-V", "20200101:20200102"], "not valid now"),
    ] {
        let error = refused(by_authority(&sign(file, extra))).await.to_string();
        assert!(error.contains(why), "{error}");
    }
    let text = format!("@cert-authority * {}", other_key(&any));
    let error = refused(target(&any).host_keys(known(&any, &text))).await.to_string();
    assert!(
        error.contains(&fingerprint(&maker, "ca.pub")) && error.contains(&fingerprint(&any, "other.pub")),
        "{error}"
    );
    let text = format!("@cert-authority * {authority}@revoked * {authority}");
    let error = refused(target(&any).host_keys(known(&any, &text))).await.to_string();
    assert!(error.contains("revoked"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_bastion_is_checked_like_any_host_with_its_own_keys() {
    let (gate, sshd) = (server(&Options::new()), server(&Options::new()));
    let wrong = target(&gate).host_keys(HostKeys::pinned(sshd.host_key()));
    let error = refused(target(&sshd).jump(wrong)).await.to_string();
    assert!(error.contains(&format!("{}:{}", gate.address(), gate.port())), "{error}");
    let wrong = target(&sshd).host_keys(HostKeys::pinned(gate.host_key()));
    let error = refused(wrong.jump(target(&gate))).await.to_string();
    assert!(error.contains(&format!("{}:{}", sshd.address(), sshd.port())), "{error}");
    trusted(target(&sshd).jump(target(&gate))).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_changed_host_key_is_refused_on_reconnection() {
    let mut sshd = server(&Options::new());
    let expected = fingerprint(&sshd, "host.pub");
    let remote = Ssh::connect(target(&sshd)).await.unwrap();
    sshd.change_host_key().unwrap();
    assert!(
        remote.run(&Command::new(["true"]), &|_| {}).await.unwrap().success(),
        "a live session is not checked again"
    );
    sshd.signal_sessions("KILL");
    let error = loop {
        // Until the client notices the loss, a command is lost with the connection.
        match remote.run(&Command::new(["true"]), &|_| {}).await {
            Err(error) if error.kind() == ErrorKind::Io => {}
            answer => break answer.expect_err("the new key was trusted"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::HostKey, "{error}");
    assert!(!error.is_temporary(), "{error}");
    assert!(
        error.message().contains(&expected) && error.message().contains(&fingerprint(&sshd, "host.pub")),
        "{error}"
    );
}
