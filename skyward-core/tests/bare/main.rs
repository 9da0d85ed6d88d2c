//! Bootstrap of bare Debian machines: containers without Python, and with further faults.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too, may fail the test")]

mod container;
#[path = "../support/docker.rs"]
mod docker;

use std::time::Duration;

use skyward_core::bootstrap::StepEvent;
use skyward_core::error::ErrorKind;
use skyward_core::spec::{Image, Limits};

use crate::container::Container;
use crate::docker::{bare_image, node_image};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker"]
async fn root_gets_python_by_apt_and_the_next_start_needs_no_network() {
    // A small `/tmp` that allows no programs must not matter: bootstrap keeps nothing large there,
    // and runs nothing from it.
    let machine = Container::start(&bare_image(), &["--tmpfs", "/tmp:noexec,size=24m"]);
    let image = Image::new().pip(["iniconfig==2.0.0"]);
    let (ready, events) = machine.make_ready(&image).await;
    let ready = ready.unwrap();
    assert_eq!(steps(&events), ["agent", "python", "uv", "environment", "worker", "agent"]);
    assert!(said(&events, "Setting up python3"), "the output of apt is reported");
    assert!(ready.python.starts_with("/root/.cache/skyward/envs/"), "{ready:?}");
    let import = format!("PYTHONPATH={} {} -c 'import iniconfig, msgspec, skyward'", ready.python_path, ready.python);
    machine.sh(&import);

    machine.cut_off();
    let (ready, events) = machine.make_ready(&image).await;
    ready.unwrap();
    assert_eq!(steps(&events), vec!["agent"]);
    assert_eq!(machine.calls(), vec!["run"]);
    // The machine cannot build another environment without a network, and the error says why.
    let error = machine.make_ready(&Image::new().pip(["iniconfig==1.1.1"])).await.0.unwrap_err();
    assert!(error.message().contains("cannot be reached: its name cannot be resolved"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Environment);
    assert!(error.is_temporary());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker"]
async fn a_user_with_sudo_gets_packages_once_apt_is_free() {
    let machine = Container::start(&node_image(), &[]);
    machine.sh("apt-get -qq update && apt-get -qq -y install --no-install-recommends sudo >/dev/null 2>&1");
    let machine = machine.used_by_sky();
    machine.sh("echo 'sky ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/sky");
    machine.sh(&hold_lock("/var/lib/dpkg/lock-frontend"));
    let release = |event: &StepEvent| {
        if matches!(event, StepEvent::Line { line, .. } if line.contains("waiting for it")) {
            machine.sh("kill $(cat /tmp/holder)");
        }
    };
    let (ready, events) = machine.make_ready_in(&Image::new().apt(["ed"]), Limits::default(), &release).await;
    let ready = ready.unwrap();
    assert_eq!(steps(&events), ["agent", "packages", "python", "uv", "environment", "worker", "agent"]);
    assert!(ready.python.starts_with("/home/sky/.cache/skyward/envs/"), "{ready:?}");
    assert!(said(&events, "apt is locked by process"));
    machine.sh("test -x /usr/bin/ed");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker"]
async fn a_user_without_sudo_gets_uv_from_the_client_and_an_error_that_says_what_to_install() {
    let machine = Container::start(&bare_image(), &[]).used_by_sky();
    let (ready, events) = machine.make_ready(&Image::new()).await;
    let error = ready.unwrap_err();
    assert_eq!(steps(&events), ["agent", "python", "uv", "uv", "environment"]);
    assert!(said(&events, "uv 0."), "uv runs: {events:?}");
    assert_eq!(error.kind(), ErrorKind::Environment);
    assert!(error.message().contains("the machine has no working Python"), "{error}");
    assert!(error.message().contains("because the user sky is not root, and there is no sudo"), "{error}");
    assert!(error.hint().unwrap().contains("`sudo apt-get install -y python3`"), "{error}");

    let error = machine.make_ready(&Image::new().apt(["git"])).await.0.unwrap_err();
    assert!(error.message().contains("Debian packages are missing, and the user sky is not root"), "{error}");
    assert_eq!(error.hint(), Some("install them on the machine: `sudo apt-get install -y git`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker"]
async fn an_apt_lock_that_is_not_released_is_reported_with_its_holder() {
    let machine = Container::start(&bare_image(), &[]);
    machine.sh(&hold_lock("/var/lib/apt/lists/lock"));
    let mut limits = Limits::default();
    limits.environment = Duration::from_secs(30);
    let error = machine.make_ready_in(&Image::new(), limits, &|_| {}).await.0.unwrap_err();
    assert!(error.message().contains("apt is locked by process"), "{error}");
    assert!(error.message().contains("(perl)"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Environment);
    assert!(error.is_temporary());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker"]
async fn the_error_of_a_machine_without_a_network_names_the_host_it_cannot_reach() {
    let machine = Container::start(&bare_image(), &["--network", "none"]);
    let error = machine.make_ready(&Image::new()).await.0.unwrap_err();
    assert!(error.message().contains("cannot be reached: its name cannot be resolved"), "{error}");
    assert!(error.context().contains(&("step", "python".into())), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs docker"]
async fn an_unusable_cache_folder_is_reported_or_another_one_is_used() {
    let disks = ["--tmpfs", "/home/sky/.cache:noexec,mode=777", "--tmpfs", "/small:size=40m,mode=777,exec"];
    let machine = Container::start(&bare_image(), &disks).used_by_sky();
    let error = machine.make_ready(&Image::new()).await.0.unwrap_err();
    assert!(error.message().contains("no working Python"), "{error}");
    assert!(machine.sh("ls /var/tmp/skyward-*/uv").starts_with("0."), "uv runs from another folder");
    // The other folder is not used if it belongs to another user.
    machine.sh("rm -r /var/tmp/skyward-*; mkdir -m 777 /var/tmp/skyward-$(id -u sky)");
    let error = machine.make_ready(&Image::new()).await.0.unwrap_err();
    assert!(error.message().contains("no program may be run from /home/sky/.cache/skyward"), "{error}");
    // Nor if others could write there.
    machine.sh("chown sky /var/tmp/skyward-*");
    let error = machine.make_ready(&Image::new()).await.0.unwrap_err();
    assert!(error.message().contains("no program may be run from /home/sky/.cache/skyward"), "{error}");

    let machine = machine.with_env("SKYWARD_CACHE_DIR", "/home/sky/.cache/skyward");
    let error = machine.make_ready(&Image::new()).await.0.unwrap_err();
    assert!(error.message().contains("no program may be run from /home/sky/.cache/skyward"), "{error}");

    let machine = machine.with_env("SKYWARD_CACHE_DIR", "/small/cache");
    let error = machine.make_ready(&Image::new()).await.0.unwrap_err();
    assert!(error.message().contains("the disk is full"), "{error}");
    let free = error.context().iter().find(|(key, _)| *key == "disk").map(|(_, value)| value.as_str());
    assert!(free.is_some_and(|free| free.ends_with("MiB free at /small/cache")), "{error}");
}

/// The names of the steps that began, in order.
fn steps(events: &[StepEvent]) -> Vec<&'static str> {
    let started = |event: &StepEvent| match event {
        StepEvent::Started { step } => Some(*step),
        _ => None,
    };
    events.iter().filter_map(started).collect()
}

fn said(events: &[StepEvent], text: &str) -> bool {
    events.iter().any(|event| matches!(event, StepEvent::Line { line, .. } if line.contains(text)))
}

/// A script that holds a lock as apt and dpkg do. The id of the process that holds it is in a file.
fn hold_lock(file: &str) -> String {
    format!(
        "mkfifo /tmp/held; perl -e '
            use Fcntl; open(my $f, \">>\", \"{file}\") or die;
            my $lock = pack(\"s s x4 q q i x4\", F_WRLCK, 0, 0, 0, 0); fcntl($f, F_SETLK, $lock) or die;
            open(my $id, \">\", \"/tmp/holder\"); print $id $$; close $id; open(my $held, \">\", \"/tmp/held\"); close $held; sleep 600;
        ' </dev/null >/dev/null 2>&1 & cat /tmp/held"
    )
}
