//! What a host is, by whatever name it is reached: aliases, changes of its own name, clones, boots.

use std::path::Path;

use skyward_core::error::ErrorKind;
use skyward_core::ids::PoolId;
use skyward_core::provider::{Host, Hosts, MachineState, PoolRequest, Provider, Requirements};
use skyward_core::remote::Command;

use crate::scene::{LONG_LEASE, One, Process, Scene, batch, kill, lives, place, start, state, tear_down, wait};
use crate::sshd::Options;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_host_has_the_same_machines_and_slots_by_another_name() {
    let scene = Scene::new(1);
    let (before, after) = (scene.hosts(1), Hosts::new([scene.renamed(0)]));
    let pool = PoolId::random();
    let machine = before.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    let process = start(&before, &machine).await;
    assert_eq!(after.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap(), machine, "the launch is not repeated");
    assert_eq!(after.list(&pool).await.unwrap(), std::slice::from_ref(&machine));
    assert_eq!(Hosts::new([scene.renamed(0)]).inspect(std::slice::from_ref(&machine.id)).await.unwrap().len(), 1);
    let error = after.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap_err();
    assert!(error.message().contains(&format!("slot 0 is taken by pool {pool}")), "{error}");
    assert_eq!(before.identity().await.unwrap(), after.identity().await.unwrap());
    Hosts::new([scene.renamed(0)]).end(&machine.id).await.unwrap();
    assert!(!lives(process));
    assert_eq!(state(&before, &machine).await, MachineState::Gone);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_host_that_is_listed_by_two_names_is_refused_and_the_error_names_both() {
    let scene = Scene::new(1);
    let both = || [scene.host(0), scene.renamed(0)];
    let [first, second] = both().map(|host| host.to_string());
    let error = Hosts::new(both()).offers(&Requirements::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error:#}");
    assert_eq!(error.message(), format!("{first} and {second} are the same host"));
    assert!(error.hint().unwrap().contains("list it once"), "{error:#}");
    // A client that has asked neither before gets one node at most.
    let hosts = Hosts::new(both());
    let pool = PoolId::random();
    hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
    hosts.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    let error = hosts.launch_one(&batch(&pool, 1, LONG_LEASE)).await.unwrap_err();
    assert!(error.message().contains(&format!("{first} and {second} are the same host")), "{error:#}");
    assert!(error.message().contains(&format!("{first}: slot 0 is taken by pool {pool}")), "{error:#}");
    tear_down(&hosts, &pool).await;
    assert_eq!(scene.machines(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, namespaces"]
async fn a_host_whose_own_name_changes_has_the_same_slots() {
    let scene = Scene::with(1, &Options::new().within(&["unshare", "--uts"]));
    let hosts = scene.hosts(1);
    let pool = PoolId::random();
    let machine = hosts.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    let at = place(&hosts, &machine).await;
    let rename = Command::script("echo renamed >/proc/sys/kernel/hostname; uname -n");
    let renamed = hosts.connect(&machine, &at).await.unwrap().run(&rename, &|_| {}).await.unwrap();
    assert_eq!(renamed.stdout, "renamed\n");
    for again in [hosts.clone(), scene.hosts(1)] {
        assert_eq!(state(&again, &machine).await, MachineState::Running);
        let error = again.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap_err();
        assert!(error.is_temporary(), "{error}");
        assert!(error.message().contains(&format!("slot 0 is taken by pool {pool}")), "{error}");
        assert_eq!(again.list(&pool).await.unwrap(), std::slice::from_ref(&machine));
    }
    scene.hosts(1).end(&machine.id).await.unwrap();
    let next = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    hosts.end(&next.id).await.unwrap();
    assert_eq!(scene.machines(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, namespaces"]
async fn machines_of_a_clone_with_the_same_folder_are_left_alone() {
    let (scene, other) = (Scene::new(1), booted(Some("elsewhere")));
    let hosts = |of: &Scene| Hosts::new([shared(&scene, of)]);
    let (here, there) = (hosts(&scene), hosts(&other));
    let machine = there.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    let process = start(&there, &machine).await;
    let at = place(&there, &machine).await.folder;
    // The locks of another host may not be visible here.
    kill("KILL", scene.keeper(0, 0));
    let next = here.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    let is_left = lives(process) && Path::new(&at).exists();
    here.end(&next.id).await.unwrap();
    there.end(&machine.id).await.unwrap();
    assert!(is_left, "the machine of the clone was ended");
    assert!(!lives(process));
    // One list cannot tell them apart, and does not guess.
    let both = Hosts::new([shared(&scene, &scene), shared(&scene, &other)]);
    let error = both.offers(&Requirements::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error:#}");
    assert!(error.message().ends_with("have the same machine id, so one is a clone of the other"), "{error:#}");
    assert!(error.hint().unwrap().contains("systemd-machine-id-setup"), "{error:#}");
    // Another folder distinguishes them.
    let both = Hosts::new([scene.host(0), other.host(0)]);
    assert_eq!(both.offers(&Requirements::default()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, namespaces"]
async fn a_claim_removes_what_an_earlier_boot_of_the_host_left() {
    let (scene, later) = (Scene::new(1), booted(None));
    let before = scene.hosts(1);
    let pool = PoolId::random();
    let machine = before.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    let keeper = Process::of(scene.keeper(0, 0));
    kill("KILL", keeper.id);
    wait("the keeper is gone", || !lives(keeper));
    assert_eq!(scene.machines(0).len(), 1);
    let after = Hosts::new([shared(&scene, &later)]);
    assert_eq!(before.identity().await.unwrap(), after.identity().await.unwrap(), "a boot changes no identity");
    assert_eq!(after.list(&pool).await.unwrap(), []);
    let next = after.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    assert_eq!(state(&after, &machine).await, MachineState::Gone);
    after.end(&next.id).await.unwrap();
    assert_eq!(scene.machines(0).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, namespaces"]
async fn another_host_at_the_same_address_gets_no_command_that_is_not_for_it() {
    let mut scene = Scene::new(1);
    let hosts = scene.hosts(1);
    let pool = PoolId::random();
    hosts.prepare(&PoolRequest::new(pool.clone(), LONG_LEASE)).await.unwrap();
    let machine = hosts.launch_one(&batch(&pool, 0, LONG_LEASE)).await.unwrap();
    // The address is given to a host with another machine id, as DHCP may do.
    let id = scene.servers[0].path("machine-id");
    std::fs::write(&id, "0123456789abcdef0123456789abcdef\n").unwrap();
    let mount = format!("mount --bind {} /etc/machine-id && exec \"$@\"", id.display());
    scene.servers[0].stop();
    scene.servers[0].listen_within(&["unshare", "-m", "sh", "-c", &mount, "sh"]).unwrap();
    assert_eq!(state(&hosts, &machine).await, MachineState::Unknown, "the other host does not say that it is gone");
    assert_eq!(hosts.end(&machine.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    scene.servers[0].stop();
    scene.servers[0].listen_within(&[]).unwrap();
    let again = scene.hosts(1);
    assert_eq!(state(&again, &machine).await, MachineState::Running);
    again.end(&machine.id).await.unwrap();
}

/// A server on a clone of this host: another boot, and another name if one is given.
fn booted(name: Option<&str>) -> Scene {
    let folder = std::env::temp_dir().join(format!("skyward-boot-{}", PoolId::random()));
    let boot = folder.display();
    let name = name.map(|name| format!("echo {name} >/proc/sys/kernel/hostname && ")).unwrap_or_default();
    let script = format!(
        "sed s/./0/ /proc/sys/kernel/random/boot_id >{boot} && mount --bind {boot} /proc/sys/kernel/random/boot_id && \
         rm {boot} && {name}exec \"$@\""
    );
    Scene::with(1, &Options::new().within(&["unshare", "--uts", "-m", "sh", "-c", &script, "sh"]))
}

/// The host of another scene, with the folder of this one.
fn shared(scene: &Scene, of: &Scene) -> Host {
    of.host(0).folder(scene.base(0).to_str().unwrap())
}
