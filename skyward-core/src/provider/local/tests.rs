use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::{Child, Stdio};
use std::sync::Mutex;

use super::*;
use crate::ids::{Attempt, LaunchId, MachineNumber};
use crate::provider::Market;
use crate::provider::other_user::OtherUser;
use crate::provider::uptime::Moment;
use crate::remote::Command;
use crate::spec::Accelerator;

/// A provider with a root of its own. The end of the test removes the root and all processes.
struct Host {
    local: Local,
    root: PathBuf,
    pools: Mutex<Vec<PoolId>>,
}

impl Host {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        Self { local: Local::new().runtime_dir(&root), root, pools: Mutex::default() }
    }

    fn batch(&self, pool: &PoolId, number: u32) -> LaunchBatch {
        self.pools.lock().unwrap().push(pool.clone());
        let number = MachineNumber(number);
        let request = LaunchRequest::new(LaunchId::of(pool, number, Attempt(1)), pool.clone(), number, Duration::ZERO);
        LaunchBatch::one(Offer::new("host", "here", 1, 1), request)
    }

    async fn launch(&self, pool: &PoolId, number: u32) -> Machine {
        launch(&self.local, &self.batch(pool, number)).await.unwrap()
    }

    async fn report(&self, machine: &Machine) -> MachineReport {
        self.local.inspect(std::slice::from_ref(&machine.id)).await.unwrap().remove(0)
    }

    async fn state(&self, machine: &Machine) -> MachineState {
        self.report(machine).await.state
    }

    async fn place(&self, machine: &Machine) -> Place {
        self.report(machine).await.place.unwrap()
    }

    async fn connect(&self, machine: &Machine) -> Result<Box<dyn Remote>> {
        self.local.connect(machine, &Place::new("", "")).await
    }

    async fn terminate(&self, machine: &MachineId) -> Result<()> {
        self.local.terminate(std::slice::from_ref(machine)).await.remove(0)
    }

    /// Runs a script on a machine.
    async fn run(&self, machine: &Machine, script: &str) -> String {
        let remote = self.connect(machine).await.unwrap();
        let output = remote.run(&Command::script(script), &|_| {}).await.unwrap();
        assert!(output.success(), "{output:?}");
        output.stdout
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for mark in marked::marks().unwrap() {
            if self.pools.lock().unwrap().iter().any(|pool| mark.starts_with(&format!("{pool}."))) {
                let _ = Marks::of(&MachineId::new(mark), &self.root).end(KILLED_GONE);
            }
        }
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Launches the only machine of a batch.
async fn launch(local: &Local, batch: &LaunchBatch) -> Result<Machine> {
    local.launch(batch).await.remove(0)
}

fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// A process of this user that belongs to no machine.
struct Bystander(Child);

impl Bystander {
    fn new(mark: Option<&str>) -> Self {
        let mut command = std::process::Command::new("sleep");
        command.arg("600").stdin(Stdio::null());
        if let Some(mark) = mark {
            command.env(marked::MARK, mark);
        }
        Self(command.spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn a_machine_is_a_private_folder_with_an_address_that_can_be_bound() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 3).await;
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = host.place(&machine).await;
    assert_eq!(mode(&place.folder), 0o700);
    assert_eq!(mode(host.root.to_str().unwrap()), 0o700);
    assert!(place.on_client_host && place.folder.len() <= 60, "{place:?}");
    std::net::TcpListener::bind((place.address.as_str(), 0)).unwrap();
    assert_eq!(host.state(&machine).await, MachineState::Running);
}

#[tokio::test]
async fn the_same_launch_returns_the_same_machine_also_concurrently_and_in_another_process() {
    let host = Host::new();
    let pool = PoolId::random();
    let batch = host.batch(&pool, 0);
    let other = Local::new().runtime_dir(&host.root);
    let (a, b) = tokio::join!(launch(&host.local, &batch), launch(&other, &batch));
    let again = launch(&host.local, &batch).await.unwrap();
    assert_eq!(a.unwrap(), again);
    assert_eq!(b.unwrap(), again);
    assert_eq!(host.local.list(&pool).await.unwrap(), [again]);
}

#[tokio::test]
async fn another_attempt_for_the_same_node_is_another_machine() {
    let host = Host::new();
    let pool = PoolId::random();
    let first = host.launch(&pool, 0).await;
    let mut batch = host.batch(&pool, 0);
    batch.requests[0].launch = LaunchId::of(&pool, MachineNumber(0), Attempt(2));
    let second = launch(&host.local, &batch).await.unwrap();
    let (one, two) = (host.place(&first).await, host.place(&second).await);
    assert!(first.id != second.id && one.folder != two.folder && one.address != two.address);
    batch.requests[0].launch = LaunchId::new("some/../thing else");
    let third = launch(&host.local, &batch).await.unwrap();
    assert_eq!(launch(&host.local, &batch).await.unwrap(), third);
    assert_eq!(host.local.list(&pool).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_dropped_launch_leaves_at_most_machines_that_list_finds() {
    let host = Host::new();
    let pool = PoolId::random();
    let batch = host.batch(&pool, 0);
    let launch = host.local.launch(&batch);
    tokio::pin!(launch);
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(launch.as_mut().poll(context))).await;
    let listed = host.local.list(&pool).await.unwrap();
    assert_eq!(listed.len(), usize::from(polled.is_ready()));
    host.local.teardown(&pool).await.unwrap();
    assert_eq!(host.local.list(&pool).await.unwrap(), []);
}

#[tokio::test]
async fn list_finds_by_folder_and_by_process_and_only_its_own_pool() {
    let host = Host::new();
    let pool = PoolId::random();
    let (a, b) = (host.launch(&pool, 0).await, host.launch(&pool, 1).await);
    host.launch(&PoolId::random(), 0).await;
    host.run(&b, "setsid sleep 600 >/dev/null 2>&1 &").await;
    let (at_a, at_b) = (host.place(&a).await.folder, host.place(&b).await.folder);
    std::fs::remove_dir_all(at_b).unwrap();
    std::fs::remove_file(std::path::Path::new(&at_a).join("machine.json")).unwrap();
    let listed = Local::new().runtime_dir(&host.root).list(&pool).await.unwrap();
    let known: Vec<_> = listed.iter().map(|machine| (&machine.id, &machine.launch, machine.number)).collect();
    assert_eq!(known, [(&a.id, &a.launch, a.number), (&b.id, &b.launch, b.number)]);
    assert_eq!(host.state(&b).await, MachineState::Ending);
    host.local.teardown(&pool).await.unwrap();
    assert_eq!(host.local.list(&pool).await.unwrap(), []);
    assert_eq!(host.state(&b).await, MachineState::Gone);
}

#[tokio::test]
async fn terminate_ends_the_whole_process_tree_and_nothing_else() {
    let host = Host::new();
    let pool = PoolId::random();
    let (machine, neighbour) = (host.launch(&pool, 1).await, host.launch(&pool, 11).await);
    let folder = host.place(&machine).await.folder;
    let mut unmarked = Bystander::new(None);
    let mut similar = Bystander::new(Some(&format!("{}1x", machine.id)));
    let script = "
        (trap '' TERM INT; sleep 600; sleep 600) >/dev/null 2>&1 & echo $!
        setsid sh -c 'echo $$; exec >/dev/null 2>&1; sleep 600 & sleep 600' &
        setsid env -i sh -c 'echo $$; exec sleep 600' &
        exec sleep 600";
    let remote = host.connect(&machine).await.unwrap();
    let pids = Mutex::new(Vec::new());
    let command = Command::script(script);
    let on_line = |line: &str| pids.lock().unwrap().push(line.to_owned());
    let neighbours = host.run(&neighbour, "setsid sleep 600 >/dev/null 2>&1 & echo $!").await;
    let terminate = async {
        let started = async {
            while pids.lock().unwrap().len() < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(KILLED_GONE, started).await.unwrap();
        host.terminate(&machine.id).await.unwrap();
    };
    let (output, ()) = tokio::join!(remote.run(&command, &on_line), terminate);
    assert_eq!(output.unwrap().status, 137);
    for pid in pids.lock().unwrap().iter() {
        assert!(!lives(pid), "{pid} lives on");
    }
    assert!(unmarked.lives() && similar.lives() && lives(neighbours.trim()));
    assert_eq!(host.state(&machine).await, MachineState::Gone);
    assert_eq!(host.state(&neighbour).await, MachineState::Running);
    assert!(!std::path::Path::new(&folder).exists());
    host.terminate(&neighbour.id).await.unwrap();
    assert!(!lives(neighbours.trim()));
}

#[tokio::test]
async fn terminate_succeeds_for_unknown_and_for_ended_machines() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 0).await;
    host.terminate(&MachineId::new("p-unknown.n0-a1")).await.unwrap();
    host.terminate(&machine.id).await.unwrap();
    host.terminate(&machine.id).await.unwrap();
    host.local.teardown(&machine.pool).await.unwrap();
    host.local.teardown(&machine.pool).await.unwrap();
    host.local.teardown(&PoolId::random()).await.unwrap();
}

#[tokio::test]
async fn files_without_write_permission_are_removed() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 0).await;
    let folder = host.place(&machine).await.folder;
    host.run(&machine, "mkdir -p a/b; touch a/b/c; chmod 500 a/b; chmod 000 a").await;
    host.terminate(&machine.id).await.unwrap();
    assert!(!std::path::Path::new(&folder).exists());
}

#[tokio::test]
async fn nothing_is_started_on_a_machine_that_is_gone() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 0).await;
    let remote = host.connect(&machine).await.unwrap();
    host.terminate(&machine.id).await.unwrap();
    let error = remote.run(&Command::script("true"), &|_| {}).await.unwrap_err();
    assert!(error.message().contains("is gone"), "{error}");
    assert!(host.connect(&machine).await.unwrap_err().message().contains("is gone"));
}

#[tokio::test]
async fn a_machine_outlives_the_provider_value_and_its_commands_carry_the_mark() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 0).await;
    let output = host.run(&machine, "echo $SKYWARD_MACHINE; pwd").await;
    let folder = std::path::PathBuf::from(host.place(&machine).await.folder).canonicalize().unwrap();
    assert_eq!(output, format!("{}\n{}\n", machine.id, folder.display()));
}

#[tokio::test]
async fn pools_share_no_address() {
    let host = Host::new();
    let mut addresses = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let pool = PoolId::random();
        for node in 0..4 {
            let machine = host.launch(&pool, node).await;
            addresses.insert(host.place(&machine).await.address);
        }
    }
    assert_eq!(addresses.len(), 32);
}

#[tokio::test]
async fn the_error_of_a_path_that_is_too_long_for_sockets_names_the_variable() {
    let long = std::env::temp_dir().join("a-path-that-is-far-too-long-for-the-sockets-of-the-workers");
    let host = Host { local: Local::new().runtime_dir(&long), root: long, pools: Mutex::default() };
    let error = launch(&host.local, &host.batch(&PoolId::random(), 0)).await.unwrap_err();
    assert!(error.message().contains("at most 60"), "{error}");
    assert!(error.hint().unwrap().contains("SKYWARD_RUNTIME_DIR"));
    assert!(!host.root.exists());
}

#[tokio::test]
async fn a_folder_that_others_may_write_to_is_refused() {
    let host = Host::new();
    std::fs::create_dir(&host.root).unwrap();
    std::fs::set_permissions(&host.root, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = launch(&host.local, &host.batch(&PoolId::random(), 0)).await.unwrap_err();
    assert!(error.message().ends_with("others may write to it"), "{error}");
}

#[tokio::test]
async fn ids_that_lead_out_of_the_folder_are_refused() {
    let host = Host::new();
    for id in ["../x.n0", "/etc.n0", "p.n0/../..", "..", "", "x"] {
        let error = host.terminate(&MachineId::new(id)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider, "{id}");
    }
    launch(&host.local, &host.batch(&PoolId::new("../x"), 0)).await.unwrap_err();
}

#[test]
fn an_offer_is_reduced_to_what_a_node_asks_for() {
    let offer = Offer::new("host", "here", 8, 64).accelerator(Accelerator::new("H200", 4).memory_gib(140));
    let wants = |accelerator: Accelerator| Requirements::default().accelerator(accelerator);
    let fits = |requirements: &Requirements| fitted(offer.clone(), requirements);
    assert_eq!(fits(&wants(Accelerator::new("h200", 2))).unwrap().accelerator.unwrap().count, 2);
    assert_eq!(fits(&wants(Accelerator::new("NVIDIA H200-SXM", 2))).unwrap().accelerator.unwrap().kind, "H200");
    assert_eq!(fits(&wants(Accelerator::new("H200", 5))), None);
    assert_eq!(fits(&wants(Accelerator::new("H100", 1))), None);
    assert_eq!(fits(&wants(Accelerator::new("H200", 1).memory_gib(200))), None);
    assert_eq!(fits(&Requirements::default().cpus(9)), None);
    assert_eq!(fits(&Requirements::default().memory_gib(65)), None);
    assert_eq!(fitted(Offer::new("host", "here", 8, 64), &wants(Accelerator::new("H200", 1))), None);
}

#[tokio::test]
async fn requirements_that_this_host_cannot_meet_are_named() {
    let host = Host::new();
    let offer = host.local.offers(&Requirements::default()).await.unwrap().remove(0);
    assert_eq!(offer.architecture, Architecture::of_client());
    // Its root may not exist yet.
    let disk = offer.disk_gib.unwrap();
    let checked = crate::provider::Checked::new(Arc::new(host.local.clone()));
    checked.candidates(&Requirements::default().disk_gib(disk / 2)).await.unwrap();
    let spot = Requirements::default().market(Market::Spot);
    let zone = Requirements::default().zones(["eu-west-1a"]);
    let large = Requirements::default().disk_gib(u32::MAX);
    for (wanted, lacks) in [
        (spot, "a spot price".to_owned()),
        (zone, "a zone among eu-west-1a".to_owned()),
        (large, format!("{} GiB of disk", u32::MAX)),
    ] {
        assert_eq!(host.local.offers(&wanted).await.unwrap(), []);
        let error = checked.candidates(&wanted).await.unwrap_err();
        assert_eq!(error.message(), format!("the provider local has no offer with {lacks}"));
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("host in this host (") && hint.contains(&format!("does not have: {lacks}")), "{hint}");
    }
    assert!(!host.root.exists(), "listing offers creates nothing");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_another_process_keeps_is_an_error_that_names_it() {
    let (host, pool) = (Host::new(), PoolId::random());
    let request = PoolRequest::new(pool.clone(), Duration::from_secs(60));
    Local::new().runtime_dir(&host.root).prepare(&request).await.unwrap();
    let of_pool = host.root.join(pool.as_str()).join("pool.json");
    let of_all = host.root.join(".lock");
    for path in [&of_all, &of_pool] {
        let kept = File::options().create(true).truncate(false).write(true).open(path).unwrap();
        kept.lock().unwrap();
        let error = launch(&host.local, &host.batch(&pool, 0)).await.unwrap_err();
        let text = format!("{error:#}");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{text}");
        assert!(text.contains(path.to_str().unwrap()) && error.hint().unwrap().contains("lslocks"), "{text}");
    }
    host.launch(&pool, 0).await;
}

#[tokio::test]
async fn a_pool_lives_as_long_as_its_client_or_one_of_its_processes() {
    let host = Host::new();
    let pool = PoolId::random();
    let client = Local::new().runtime_dir(&host.root);
    let request = PoolRequest::new(pool.clone(), Duration::from_secs(60)).owner("ada");
    client.prepare(&request).await.unwrap();
    let lives = async || {
        let record = host.local.pools().await.unwrap().into_iter().find(|record| record.pool == pool).unwrap();
        assert_eq!(record.owner, "ada");
        record.expires > SystemTime::now()
    };
    let long_ago = || {
        let folder = host.root.join(pool.as_str());
        std::fs::write(folder.join(".created"), r#"{"boot":"another","up_ms":0}"#).unwrap();
    };
    // The clock that somebody may set decides nothing: neither a jump forward nor one back.
    let set_clock = |time: SystemTime| {
        let folder = host.root.join(pool.as_str());
        let machines = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path().join("machine.json"));
        for path in machines.chain([folder.join("pool.json"), folder.join(".created"), folder.clone()]) {
            if let Ok(file) = std::fs::File::open(path) {
                file.set_modified(time).unwrap();
            }
        }
    };
    let hours = Duration::from_secs(5 * 3600);
    long_ago();
    assert!(lives().await, "its client lives, and has no machine");
    let machine = host.launch(&pool, 0).await;
    host.run(&machine, "setsid sleep 600 >/dev/null 2>&1 &").await;
    // As when the client's process ends.
    drop(client);
    long_ago();
    assert!(lives().await, "a process of its machine runs");
    assert!(Marks::of(&machine.id, &host.root).end(KILLED_GONE).unwrap().is_empty());
    set_clock(SystemTime::now() + hours);
    assert!(!lives().await, "nothing of it lives, and it was created before this boot");
    // Another machine was just created, and has no process yet.
    host.launch(&pool, 1).await;
    set_clock(SystemTime::now() - hours);
    assert!(lives().await, "it was created a moment ago");
    host.local.teardown(&pool).await.unwrap();
    assert!(host.local.pools().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_node_sees_only_its_own_accelerators() {
    let host = Host::new();
    let pool = PoolId::random();
    let plain = host.launch(&pool, 0).await;
    assert_eq!(host.run(&plain, "echo ${CUDA_VISIBLE_DEVICES-all}").await, "\n");
    let mut given = host.launch(&pool, 1).await;
    given.facts.insert(DEVICES.into(), "2,3".into());
    assert_eq!(host.run(&given, "echo ${CUDA_VISIBLE_DEVICES-all}").await, "2,3\n");
}

#[tokio::test]
async fn a_resource_tracker_may_remove_what_the_other_processes_have_left() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 0).await;
    let removed = host.root.join("removed");
    // As Python's tracker does, it waits until no other process has its pipe.
    let script = format!("read line; true >{} # resource_tracker import main", removed.display());
    let (reader, writer) = std::io::pipe().unwrap();
    let mark = machine.id.as_str();
    let start = |words: [&str; 3], stdin: Stdio, stdout: Stdio| {
        // The command has the pipe too, until it is dropped here.
        std::process::Command::new(words[0])
            .args(&words[1..])
            .env(marked::MARK, mark)
            .stdin(stdin)
            .stdout(stdout)
            .spawn()
            .unwrap()
    };
    let mut tracker = start(["sh", "-c", &script], reader.into(), Stdio::null());
    let mut other = start(["sleep", "600", "0"], Stdio::null(), writer.into());
    assert!(Marks::of(&machine.id, &host.root).end(KILLED_GONE).unwrap().is_empty());
    assert!(removed.exists());
    assert!(tracker.wait().unwrap().success());
    assert!(!other.wait().unwrap().success());
}

/// Waits until a file has a line, and returns the line.
fn line_of(path: &std::path::Path) -> String {
    let end = std::time::Instant::now() + Duration::from_secs(120);
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') {
            return text.trim().to_owned();
        }
        assert!(std::time::Instant::now() < end, "nobody has written {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_mark_that_another_user_copies_keeps_no_machine_and_no_pool_and_ends_nothing() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 0).await;
    let user = OtherUser::any();
    let program = host.root.with_extension("setuid");
    std::fs::copy("/bin/sleep", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mark = machine.id.as_str();
    let mut others = [
        user.start(&["sleep", "600"], mark),
        // It starts the next one when one is ended.
        user.start(&["sh", "-c", "while :; do sleep 600; done"], mark),
        // It runs as root, as `su` does.
        user.start(&[program.to_str().unwrap(), "600"], mark),
    ];
    host.terminate(&machine.id).await.unwrap();
    let state = host.state(&machine).await;
    let listed = host.local.list(&machine.pool).await.unwrap();
    host.local.teardown(&machine.pool).await.unwrap();
    let pools = host.local.pools().await.unwrap();
    let alive = others.each_mut().map(|other| other.try_wait().unwrap().is_none());
    for other in &mut others {
        let group = rustix::process::Pid::from_child(other);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        other.wait().unwrap();
    }
    std::fs::remove_file(&program).unwrap();
    assert_eq!(alive, [true; 3], "a process of another user was ended");
    assert_eq!(state, MachineState::Gone);
    assert_eq!(listed.len(), 0);
    assert_eq!(pools.len(), 0);
}

#[tokio::test]
#[ignore = "needs root"]
async fn processes_that_became_another_user_end_with_their_machine() {
    let host = Host::new();
    let becomes = OtherUser::any().becomes();
    for script in [
        // An orphan; one in a session of its own; one without its environment, whose parent lives.
        format!("{becomes} sleep 600 >/dev/null 2>&1 & echo $! >pid"),
        format!("setsid {becomes} sh -c 'echo $$ >&3; exec sleep 600' 3>pid >/dev/null 2>&1 &"),
        format!("setsid sh -c 'env -i {becomes} sleep 600 & echo $! >pid; wait' >/dev/null 2>&1 &"),
    ] {
        let machine = host.launch(&PoolId::random(), 0).await;
        let folder = PathBuf::from(host.place(&machine).await.folder);
        host.run(&machine, &script).await;
        let pid = line_of(&folder.join("pid"));
        assert!(lives(&pid), "{script}");
        host.terminate(&machine.id).await.unwrap();
        assert!(!lives(&pid), "{script}");
    }
}

#[tokio::test]
async fn processes_that_only_start_others_end_with_their_machine() {
    let host = Host::new();
    for session in ["pass", "os.setsid()"] {
        let machine = host.launch(&PoolId::random(), 0).await;
        let folder = PathBuf::from(host.place(&machine).await.folder);
        let pipe = host.root.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut held = std::fs::File::options().read(true).custom_flags(flags).open(&pipe).unwrap();
        // Each starts the next one and ends. A stopped orphan gets HUP and continues. The chain ends
        // when the test is long gone.
        let chain = format!(
            "import os, signal, time\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nend = time.time() + 300\n\
             os.open('{}', os.O_WRONLY)\nif os.fork(): os._exit(0)\nprint(file=open('pid', 'w'))\n\
             while time.time() < end:\n if os.fork(): os._exit(0)\n {session}",
            pipe.display()
        );
        host.run(&machine, &format!("for _ in 1 2; do python3 -c \"{chain}\" >/dev/null 2>&1; done")).await;
        line_of(&folder.join("pid"));
        host.terminate(&machine.id).await.unwrap();
        let end = std::time::Instant::now() + Duration::from_secs(120);
        // The end of the pipe can be read when nobody can write.
        while std::io::Read::read(&mut held, &mut [0; 16]).is_err() {
            assert!(std::time::Instant::now() < end, "{session}: a process outlived its machine");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(&pipe).unwrap();
    }
}

#[tokio::test]
async fn a_key_is_made_once_and_is_private() {
    let host = Host::new();
    let machine = host.launch(&PoolId::random(), 0).await;
    let say = "echo $SKYWARD_MACHINE_KEY";
    let key = host.run(&machine, say).await;
    assert_eq!(key.trim().len(), 32);
    assert_eq!(host.run(&machine, say).await, key);
    let file = PathBuf::from(host.place(&machine).await.folder).join("key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_ne!(host.run(&host.launch(&PoolId::random(), 0).await, say).await, key);
}

#[tokio::test]
async fn records_of_machines_of_each_version_are_read() {
    for (record, offer) in [
        (include_str!("formats/machine.json"), "host"),
        (include_str!("formats/machine-older.json"), ""),
        (include_str!("formats/machine-newer.json"), "host"),
    ] {
        let host = Host::new();
        let folder = host.root.join("p-x/n0-a1");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("machine.json"), record).unwrap();
        let machines = host.local.list(&PoolId::new("p-x")).await.unwrap();
        let [machine] = &machines[..] else { panic!("{machines:?}") };
        let expected = (LaunchId::new("p-x-n0-a1"), MachineNumber(0), offer);
        assert_eq!((machine.launch.clone(), machine.number, machine.offer.as_str()), expected, "{record}");
        assert_eq!(host.place(machine).await.address, "127.0.0.9", "{record}");
    }
    let machine: Machine = serde_json::from_str(include_str!("formats/machine.json")).unwrap();
    assert_eq!(serde_json::to_string_pretty(&machine).unwrap() + "\n", include_str!("formats/machine.json"));
}

#[test]
fn records_of_pools_of_each_version_are_read_and_may_be_missing() {
    // A moment that is later than any look has age 0.
    let noted = format!(r#"{{"boot":"{}","up_ms":{}}}"#, crate::provider::uptime::boot().unwrap(), u64::MAX);
    for (record, owner, lease) in [
        (Some(include_str!("formats/pool.json")), "ada", 60),
        (Some(include_str!("formats/pool-newer.json")), "ada", 60),
        (Some("not JSON"), "", 3600),
        (None, "", 3600),
    ] {
        let host = Host::new();
        let folder = host.root.join("p-x");
        std::fs::create_dir_all(&folder).unwrap();
        if let Some(record) = record {
            std::fs::write(folder.join("pool.json"), record).unwrap();
        }
        let now = SystemTime::now();
        let pool = || Folders::new(Some(&host.root)).pools(&BTreeSet::new(), now).unwrap().remove(0);
        let end = now + Duration::from_secs(lease);
        let booted = Moment::of_another_boot().age(&Moment::now().unwrap());
        assert!(pool().expires <= end - booted, "without `.created`, it is of an earlier boot: {record:?}");
        std::fs::write(folder.join(".created"), &noted).unwrap();
        assert_eq!(pool().owner.as_str(), owner, "{record:?}");
        assert_eq!(pool().expires, end, "{record:?}");
    }
}

#[tokio::test]
async fn a_pool_is_adopted_when_the_process_that_held_it_has_ended() {
    let (host, pool) = (Host::new(), PoolId::random());
    let request = PoolRequest::new(pool.clone(), Duration::from_secs(60)).owner("ada");
    host.local.prepare(&request).await.unwrap();
    let machine = host.launch(&pool, 0).await;
    // Another value of this process is the same client.
    let second = Local::new().runtime_dir(&host.root);
    second.adopt(&request).await.unwrap();
    drop(second);
    let record = host.root.join(pool.as_str()).join("pool.json");
    assert!(held::is_held(record.parent().unwrap()), "the first value still holds it");

    // A client in another process: it holds the record until its input ends.
    host.local.held().clear();
    let hold_script = "exec 9<\"$1\" && flock --shared 9 && echo held && exec cat";
    let mut hold = std::process::Command::new("sh");
    let hold = hold.args(["-c", hold_script, "sh"]).arg(&record).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = hold.spawn().unwrap();
    let mut answer = [0; 5];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut answer).unwrap();
    for _ in 0..2 {
        let error = host.local.adopt(&request).await.unwrap_err();
        assert_eq!(error.refusal(), Some(&crate::error::Refusal::Denied));
        assert!(!error.is_temporary());
        assert!(error.message().contains("its client lives") && error.hint().unwrap().contains("lslocks"), "{error}");
    }
    assert_eq!(host.state(&machine).await, MachineState::Running, "nothing has ended");
    other.kill().unwrap();
    other.wait().unwrap();
    drop(other);
    let third = Local::new().runtime_dir(&host.root);
    third.adopt(&request).await.unwrap();
    assert!(held::is_held(record.parent().unwrap()));
    assert_eq!(third.list(&pool).await.unwrap(), std::slice::from_ref(&machine));
    launch(&third, &host.batch(&pool, 1)).await.unwrap();
    third.teardown(&pool).await.unwrap();
    assert_eq!(host.state(&machine).await, MachineState::Gone);
}
