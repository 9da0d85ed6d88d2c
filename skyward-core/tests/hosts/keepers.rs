//! A keeper, a shell that it has forked, or a program that it has started is stopped or killed: the
//! slot is released all the same. Each test runs with bash and without.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use skyward_core::ids::PoolId;
use skyward_core::provider::{MachineState, Provider, Reason, Requirements};

use crate::scene::{
    LONG_LEASE, One, Process, Scene, Tool, batch, kill, lives, place, renew, report, start, state, wait,
};
use crate::sshd::Options;

/// Options of hosts with bash and of hosts without; both have these tools.
fn hosts_of_both_shells(tools: &Tool) -> [(&'static str, Options); 2] {
    [("with bash", tools.options()), ("without bash", tools.options_without_bash())]
}

fn arguments(process: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{process}/cmdline")).ok().filter(|arguments| !arguments.is_empty())
}

/// Whether a process is stopped or has ended.
fn stands(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['T', 'Z', 'X']))
}

/// The shells that a live keeper has forked, and the programs that it has started.
fn started_by(keeper: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap_or_default();
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    children.flat_map(|child| started_by(child).into_iter().chain([child])).collect()
}

fn has_open(process: u32, file: &Path) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok()).any(|open| open == file)
}

/// Stops a process, unless it is gone.
fn stop(process: u32) -> bool {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), Signal::STOP).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_keeper_with_a_stopped_child_ends_the_machine_and_releases_the_slot() {
    let tools = Tool::new("nothing", "exit 0");
    for (shell, options) in hosts_of_both_shells(&tools) {
        let scene = Scene::with(1, &options);
        let hosts = scene.hosts(1);
        for _ in 0..4 {
            let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
            let process = start(&hosts, &machine).await;
            let keeper = scene.keeper(0, 0);
            let (client, id) = (hosts.clone(), machine.id.clone());
            let ended = tokio::spawn(async move { client.end(&id).await });
            // Stops a shell or a program, at a random one of the moments at which a new one
            // appears.
            let moment = rand::random::<u32>() as usize % 6;
            let mut seen = BTreeSet::new();
            let mut caught = None;
            while caught.is_none() && !ended.is_finished() {
                for found in started_by(keeper) {
                    if seen.insert(found) && seen.len() > moment && stop(found) {
                        caught = Some((found, arguments(found).unwrap_or_default()));
                        break;
                    }
                }
                tokio::task::yield_now().await;
            }
            let caught = caught.map(|(id, arguments)| {
                let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
                format!("process {id}, the new one number {moment}: {}", text.chars().take(40).collect::<String>())
            });
            println!("{shell}: stopped {caught:?}");
            ended.await.unwrap().unwrap_or_else(|error| panic!("{shell}: {caught:?} was stopped: {error}"));
            assert!(!lives(process), "{shell}: {caught:?} was stopped");
            assert_eq!(state(&hosts, &machine).await, MachineState::Gone);
            assert_eq!(hosts.offers(&Requirements::default()).await.unwrap().len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_shell_that_a_killed_keeper_leaves_stopped_is_ended_with_the_machine() {
    // The keeper's shells wait for `grep` while this file exists.
    let tools = Tool::new("grep", "[ ! -e \"${0%/*}/slow\" ] || sleep 5\nexec /bin/grep \"$@\"");
    let slow = tools.path("slow");
    for (shell, options) in hosts_of_both_shells(&tools) {
        let scene = Scene::with(1, &options);
        let hosts = scene.hosts(1);
        // The keeper ends the machine, because its lease is not renewed, and looks for its
        // processes in a shell of its own.
        let machine = hosts.launch_one(&batch(&PoolId::random(), 0, Duration::from_secs(2))).await.unwrap();
        let (keeper, claim) = (scene.keeper(0, 0), scene.claim(0, 0));
        std::fs::write(&slow, "").unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        let stopped = loop {
            assert!(Instant::now() < end, "{shell}: the keeper forks no shell");
            // Read again each time: the process may not have become the keeper yet.
            let own = arguments(keeper);
            let forked = started_by(keeper).into_iter().find(|found| own.is_some() && arguments(*found) == own);
            let Some(forked) = forked.filter(|forked| stop(*forked)) else { continue };
            wait("the shell is stopped", || stands(forked));
            // A shell that has become a program in the meantime, or is about to, holds no lock.
            if arguments(forked) == own && has_open(forked, &claim) {
                break forked;
            }
            if lives(Process::of(forked)) {
                kill("CONT", forked);
            }
        };
        std::fs::remove_file(&slow).unwrap();
        let (keeper, stopped) = (Process::of(keeper), Process::of(stopped));
        kill("KILL", keeper.id);
        wait("the keeper is gone", || !lives(keeper));
        hosts.end(&machine.id).await.unwrap_or_else(|error| panic!("{shell}: {error}"));
        assert!(!lives(stopped), "{shell}");
        assert_eq!(state(&hosts, &machine).await, MachineState::Gone);
        assert_eq!(hosts.offers(&Requirements::default()).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_program_that_a_keeper_has_started_does_not_hold_its_slot() {
    // The programs are selected by their arguments, because a claim starts the same programs.
    let programs = [("mkfifo", "*/pause"), ("rm", "*/pause"), ("stat", "*'%y %Y '*"), ("touch", "'-c -- '*")];
    for (program, of_keeper) in programs {
        let stuck = format!("case $* in {of_keeper}) exec sleep 60 ;; esac\nexec /bin/{program} \"$@\"");
        let tools = Tool::new(program, &stuck);
        for (shell, options) in hosts_of_both_shells(&tools) {
            let scene = Scene::with(1, &options);
            let hosts = scene.hosts(1);
            let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
            let keeper = scene.keeper(0, 0);
            let is_stuck = |found: &u32| arguments(*found).is_some_and(|words| words == b"sleep\x0060\0");
            wait("the program is started", || started_by(keeper).iter().any(is_stuck));
            let left = started_by(keeper).into_iter().find(is_stuck).unwrap();
            let (keeper, left) = (Process::of(keeper), Process::of(left));
            kill("KILL", keeper.id);
            wait("the keeper is gone", || !lives(keeper));
            let ending = state(&hosts, &machine).await;
            let outlived = lives(left);
            kill("KILL", left.id);
            assert_eq!(ending, MachineState::Ending, "{program}, {shell}");
            assert!(outlived, "{program}, {shell}");
            hosts.end(&machine.id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_keeper_runs_none_of_its_users_startup_files() {
    let home = Tool::new("nothing", "exit 0");
    let (file, ran) = (home.path(".bashrc"), home.path("ran"));
    // The process that holds the lock of a slot as descriptor 9 is a keeper.
    let script =
        format!("[ ! -e /proc/$$/fd/9 ] || {{ : >'{}'; sleep 60 >/dev/null 2>&1 </dev/null & }}\n", ran.display());
    std::fs::write(&file, script).unwrap();
    for (name, value) in [("HOME", file.parent().unwrap()), ("BASH_ENV", &file)] {
        let scene = Scene::with(1, &Options::new().env(name, value.to_str().unwrap()));
        let hosts = scene.hosts(1);
        let machine = hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
        let process = start(&hosts, &machine).await;
        hosts.end(&machine.id).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!lives(process), "{name}");
        assert!(!ran.exists(), "{name}: the keeper ran the file");
        assert_eq!(hosts.offers(&Requirements::default()).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_machine_ends_at_its_time_despite_a_renewed_lease_and_is_reported_as_expired() {
    let tools = Tool::new("nothing", "exit 0");
    for (shell, options) in hosts_of_both_shells(&tools) {
        let scene = Scene::with(1, &options);
        let hosts = scene.hosts(1);
        let life = Duration::from_secs(4);
        let mut batch = batch(&PoolId::random(), 0, LONG_LEASE);
        batch.requests[0].ends_in = Some(life);
        let begun = Instant::now();
        let machine = hosts.launch_one(&batch).await.unwrap();
        let running = report(&hosts, &machine).await;
        let left = running.ends_in.unwrap();
        assert!(left > Duration::ZERO && left <= life, "{shell}: {left:?}");
        let lease = Path::new(&running.place.unwrap().folder).join("lease");
        let process = start(&hosts, &machine).await;
        // The same launch again does not extend the machine's life.
        assert_eq!(hosts.launch_one(&batch).await.unwrap(), machine);
        let gone = loop {
            if let Ok(file) = std::fs::File::options().write(true).open(&lease) {
                file.set_modified(std::time::SystemTime::now()).unwrap();
            }
            let report = report(&hosts, &machine).await;
            if report.state == MachineState::Gone {
                break report;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{shell}: {report}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(begun.elapsed() >= life, "{shell}: after {:?}", begun.elapsed());
        assert_eq!(gone.reason, Some(Reason::Expired), "{shell}");
        assert!(!lives(process), "{shell}");
        assert_eq!(hosts.offers(&Requirements::default()).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd"]
async fn a_machine_whose_keeper_was_killed_is_over_at_its_time() {
    let scene = Scene::new(1);
    let hosts = scene.hosts(1);
    let mut first = batch(&PoolId::random(), 0, LONG_LEASE);
    first.requests[0].ends_in = Some(Duration::from_secs(3));
    let machine = hosts.launch_one(&first).await.unwrap();
    let process = start(&hosts, &machine).await;
    renew(&place(&hosts, &machine).await.folder, Duration::ZERO);
    let keeper = Process::of(scene.keeper(0, 0));
    kill("KILL", keeper.id);
    wait("the keeper is gone", || !lives(keeper));
    assert_eq!(state(&hosts, &machine).await, MachineState::Running, "its lease is renewed");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(state(&hosts, &machine).await, MachineState::Ending);
    // The next claim ends the machine, and takes its slot.
    hosts.launch_one(&batch(&PoolId::random(), 0, LONG_LEASE)).await.unwrap();
    assert!(!lives(process));
}
