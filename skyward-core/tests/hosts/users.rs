//! Hosts shared by several users, one of them hostile. The test makes two real users as root, and
//! removes them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use skyward_core::ids::PoolId;
use skyward_core::provider::{Host, Hosts, MachineState, Provider, Requirements};
use skyward_core::remote::ssh::{HostKeys, Key, Target};
use skyward_core::remote::{Command, Remote, Ssh};
use skyward_core::spec::Accelerator;

use crate::scene::{self, LONG_LEASE, One, Scene, Tool, batch, kill, lives, start, state, wait};
use crate::sshd::Options;

/// A user of this machine. Dropping the value ends the user's processes, and removes the user with
/// all files.
struct User {
    name: String,
    id: u32,
}

impl User {
    fn new() -> Self {
        let name = format!("sky{:08x}", rand::random::<u32>());
        // Another test may be writing the list of users.
        wait("a user was made", || {
            let mut useradd = Process::new("useradd");
            useradd
                .args(["-m", "-s", "/bin/sh", "-p", "*", &name])
                .stderr(Stdio::null())
                .status()
                .expect("useradd starts")
                .success()
        });
        let id = std::fs::metadata(format!("/home/{name}")).unwrap().uid();
        Self { name, id }
    }

    fn home(&self) -> PathBuf {
        Path::new("/home").join(&self.name)
    }

    /// The folder of the user's claims and machines.
    fn base(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/skyward-{}", self.id))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let quiet = |program: &str, arguments: &[&str]| {
            Process::new(program).args(arguments).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        quiet("pkill", &["-KILL", "-U", &self.id.to_string()]);
        let _ = std::fs::remove_dir_all(self.base());
        wait("the user was removed", || quiet("userdel", &["-r", &self.name]) || !self.home().exists());
    }
}

/// A host with two users, and a folder of locks that is private to the test.
struct Shared {
    alice: User,
    mallory: User,
    scene: Scene,
}

impl Shared {
    fn new() -> Self {
        Self::with(Options::new())
    }

    fn with(options: Options) -> Self {
        assert!(rustix::process::geteuid().is_root(), "only root can make two users: run this test as root");
        let own = "mount -t tmpfs -o mode=1777 none /run/lock && exec \"$@\"";
        let scene = Scene::with(1, &options.within(&["unshare", "-m", "sh", "-c", own, "sh"]));
        Self { alice: User::new(), mallory: User::new(), scene }
    }

    fn host(&self, user: &User) -> Host {
        let sshd = &self.scene.servers[0];
        let host = Host::new(sshd.address()).port(sshd.port()).user(&user.name).key(Key::file(sshd.client_key()));
        host.host_keys(HostKeys::pinned(sshd.host_key()))
    }

    fn hosts(&self, user: &User) -> Hosts {
        Hosts::new([self.host(user)])
    }

    /// Runs a script as a user.
    async fn run(&self, user: &User, script: &str) -> String {
        let sshd = &self.scene.servers[0];
        let target = Target::new(sshd.address()).port(sshd.port()).user(&user.name).key(Key::file(sshd.client_key()));
        let ssh = Ssh::new(target.host_keys(HostKeys::pinned(sshd.host_key())));
        let output = ssh.run(&Command::script(script), &|_| {}).await.unwrap();
        assert!(output.success(), "{script}: {}", output.stderr);
        output.stdout.trim().to_owned()
    }

    /// Checks that a launch for a user on the only slot fails with this message.
    async fn is_refused(&self, user: &User, why: &str) {
        let error = self.hosts(user).launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap_err();
        assert!(error.message().contains(why), "{error}");
        assert!(error.is_temporary(), "{error}");
    }

    /// Launches a machine for a user on the only slot, and ends it.
    async fn is_served(&self, user: &User) {
        let hosts = self.hosts(user);
        let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
        hosts.end(&machine.id).await.unwrap();
        assert_eq!(state(&hosts, &machine).await, MachineState::Gone);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn users_of_a_host_share_its_slots_and_its_accelerators() {
    let shared = Shared::new();
    let (alice, mallory) = (&shared.alice, &shared.mallory);
    let hosts = shared.hosts(mallory);
    let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    shared.is_refused(alice, &format!("slot 0 is taken by the user {}", mallory.name)).await;
    hosts.end(&machine.id).await.unwrap();
    shared.is_served(alice).await;

    let mut given = Vec::new();
    let mut launched = Vec::new();
    for (node, user) in [alice, mallory].into_iter().enumerate() {
        let hosts = Hosts::new([shared.host(user).slots(2).accelerator(Accelerator::new("H100", 4))]);
        let mut request = batch(&PoolId::random(), 0, LONG_LEASE);
        request.offer.accelerator = Some(Accelerator::new("H100", 2));
        let machine = hosts.launch_one(&request).await.unwrap();
        assert_eq!(machine.facts["slot"], node.to_string());
        given.push(machine.facts["CUDA_VISIBLE_DEVICES"].clone());
        launched.push((hosts, machine));
    }
    assert_eq!(given, ["0,1", "2,3"]);
    for (hosts, machine) in launched {
        hosts.end(&machine.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn files_planted_by_another_user_are_never_read_and_cost_at_most_a_slot() {
    let shared = Shared::new();
    let (alice, mallory) = (&shared.alice, &shared.mallory);
    std::fs::set_permissions(alice.home(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(alice.home().join("precious"), "").unwrap();
    let process = shared.run(alice, "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!").await;
    let witness = scene::Process::of(process.parse().unwrap());
    let unharmed = |after: &str| {
        assert!(alice.home().join("precious").exists(), "{after}: a file is gone");
        assert!(lives(witness), "{after}: a process is gone");
    };
    let slot = format!("/run/lock/skyward-slot-0.{}", alice.id);
    let home = alice.home().display().to_string();
    let record = format!("machine x@h\nlaunch x\npool p\nnode 0\nfolder {home}\nslot 0\ndevices \nkeeper {process}\n");
    let taken = format!("slot 0 is taken by the user {}", mallory.name);

    // A folder of records for all users, made by the first user that came.
    let claims = format!(
        "umask 0; for at in /run/lock /tmp; do mkdir -p $at/skyward-claims; printf '{record}' >$at/skyward-claims/slot-0.{}; done",
        alice.id
    );
    shared.run(mallory, &claims).await;
    shared.is_served(alice).await;
    unharmed("a folder of records");
    shared.run(mallory, "rm -r /run/lock/skyward-claims /tmp/skyward-claims").await;

    let plants = [
        ("a record", format!("printf '{record}' >{slot}")),
        ("a link to a home", format!("ln -s {home} {slot}")),
        ("a link to a file", format!("ln -s {home}/precious {slot}")),
        ("a link to nothing", format!("ln -s {home}/new {slot}")),
        ("a pipe", format!("mkfifo {slot}")),
        ("a folder", format!("mkdir {slot}; touch {slot}/x")),
        ("a name for devices", format!("ln -s {home} {slot}.0,1")),
        ("names with spaces and lines", format!("mkdir {slot}.0 '/run/lock/skyward-slot-0.$(touch new) x\ny z'")),
    ];
    for (what, plant) in plants {
        shared.run(mallory, &plant).await;
        shared.is_refused(alice, &taken).await;
        unharmed(what);
        assert!(!alice.home().join("new").exists(), "{what}: a file was made");
        shared.run(mallory, "rm -rf /run/lock/skyward-slot-*").await;
        shared.is_served(alice).await;
    }

    // Under another user's own name, only a locked entry takes the slot, and a link or a pipe never
    // does.
    let own = format!("/run/lock/skyward-slot-0.{}", mallory.id);
    for plant in [format!("ln -s {home} {own}"), format!("mkfifo {own}"), format!("mkdir {own}")] {
        shared.run(mallory, &plant).await;
        shared.is_served(alice).await;
        shared.run(mallory, &format!("rm -r {own}")).await;
    }
    let hold = format!("mkdir {own}; setsid flock {own} sleep 600 >/dev/null 2>&1 </dev/null & echo $!");
    shared.run(mallory, &hold).await;
    let held = format!("until ! flock -n {own} true; do sleep 0.01; done");
    shared.run(mallory, &held).await;
    shared.is_refused(alice, &taken).await;
    unharmed("a lock that is held");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn a_name_that_another_user_chose_adds_nothing_to_the_facts_of_a_host() {
    let shared = Shared::new();
    let (alice, mallory) = (&shared.alice, &shared.mallory);
    // Some shells' `echo` turns two backslashes into one, and `\n` into a new line.
    let name = format!(r"skyward-slot-0.{}. \\nskyward-cpus 4321\\nx", mallory.id);
    shared.run(mallory, &format!("mkdir -m 0 '/run/lock/{name}'")).await;
    let hosts = Hosts::new([shared.host(alice).slots(2)]);
    let offers = hosts.offers(&Requirements::default()).await.unwrap();
    assert!(offers[0].cpus < 2000, "{offers:?}");
    // The second line of a name is no entry of its own, whatever owner it names.
    let name = format!("skyward-slot-9.{}\n0 41ed root 0.0", mallory.id);
    shared.run(mallory, &format!("mkdir '/run/lock/{name}'")).await;
    shared.is_served(alice).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn a_claim_fails_if_the_slots_of_other_users_cannot_be_read() {
    // As when a limit of processes is reached.
    let tool = Tool::new("xargs", "exit 1");
    let shared = Shared::with(tool.options());
    shared.is_refused(&shared.alice, "cannot see what other users of this host have: /run/lock").await;
    std::fs::remove_file(tool.path("xargs")).unwrap();
    shared.is_served(&shared.alice).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn a_folder_that_a_group_can_replace_is_refused() {
    let shared = Shared::new();
    let (alice, mallory) = (&shared.alice, &shared.mallory);
    let above = alice.home().join("team");
    shared.run(alice, "mkdir -m 775 team").await;
    let hosts = || Hosts::new([shared.host(alice).folder(above.join("s").display().to_string())]);
    // A group whose only member is this user.
    let machine = hosts().launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    hosts().end(&machine.id).await.unwrap();
    std::os::unix::fs::chown(&above, None, Some(mallory.id)).unwrap();
    let error = hosts().launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap_err();
    let why = format!("the group {} may write to the folder above it, which is not sticky", mallory.name);
    assert!(error.message().contains(&why), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn a_claim_locked_by_another_user_does_not_keep_the_machine_from_ending() {
    let shared = Shared::new();
    let (alice, mallory) = (&shared.alice, &shared.mallory);
    let hosts = shared.hosts(alice);
    let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    let process = start(&hosts, &machine).await;
    let entry = format!("/run/lock/skyward-slot-0.{}", alice.id);
    for locked in [entry.as_str(), "/run/lock"] {
        shared.run(mallory, &format!("setsid flock {locked} sleep 600 >/dev/null 2>&1 </dev/null &")).await;
    }
    shared.run(mallory, "until ! flock -n /run/lock true; do sleep 0.01; done").await;
    kill("KILL", process.id);
    hosts.end(&machine.id).await.unwrap();
    assert_eq!(state(&hosts, &machine).await, MachineState::Gone);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn a_keeper_number_that_means_all_processes_ends_none() {
    let shared = Shared::new();
    let alice = &shared.alice;
    let bystander = shared.run(alice, "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!").await;
    let bystander = scene::Process::of(bystander.parse().unwrap());
    let hosts = shared.hosts(alice);
    for number in ["-1", "--", "1 -1"] {
        let machine = hosts.launch_one(&batch(&PoolId::random(), 0, Duration::from_secs(8))).await.unwrap();
        let script = format!("sed -i 's/^keeper .*/keeper {number}/' {}/claims/*/slot-0", alice.base().display());
        shared.run(alice, &script).await;
        hosts.end(&machine.id).await.unwrap();
        assert!(lives(bystander), "{number}: another process got a signal");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, root, namespaces"]
async fn a_folder_of_another_user_is_refused_and_ones_own_is_made_private() {
    let shared = Shared::new();
    let (alice, mallory) = (&shared.alice, &shared.mallory);
    let base = alice.base().display().to_string();
    let home = alice.home().display().to_string();
    for plant in [format!("mkdir -m 777 {base}"), format!("ln -s {home} {base}"), format!("touch {base}")] {
        shared.run(mallory, &plant).await;
        shared
            .is_refused(alice, &format!("machines cannot be kept in {base}: it belongs to the user {}", mallory.name))
            .await;
        assert!(!alice.home().join("claims").exists());
        shared.run(mallory, &format!("rm -r {base}")).await;
    }
    // As a claim leaves the folder when it is killed too early.
    for mode in ["755", "0", "777"] {
        shared.run(alice, &format!("mkdir -m {mode} {base}")).await;
        shared.is_served(alice).await;
        assert_eq!(alice.base().metadata().unwrap().mode() & 0o7777, 0o700, "{mode}");
        shared.run(alice, &format!("rm -r {base}")).await;
    }
    // A record must be a regular file.
    shared.is_served(alice).await;
    shared.run(alice, &format!("cd {base}/claims/*; rm slot-0; ln -s {home}/other slot-0")).await;
    shared.is_refused(alice, "slot-0 is not a file").await;
    assert!(!alice.home().join("other").exists());
}
