//! The keeper with the shells that machines have. Times are short and nothing is asserted about them: what is waited for happens, or the test ends at its deadline.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::*;

/// A keeper, and a process that carries its mark; both are ended with the test.
struct Kept {
    folder: PathBuf,
    keeper: Child,
    marked: Child,
}

impl Kept {
    /// The lease is `looks` looks of 20 ms.
    fn new(shell: &[&str], looks: u32) -> Self {
        Self::of(None, shell, looks)
    }

    /// The same, as another user of this host.
    fn of(user: Option<u32>, shell: &[&str], looks: u32) -> Self {
        let mark = format!("test-{:016x}", rand::random::<u64>());
        let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, user, user).unwrap();
        let id = user.unwrap_or_default().to_string();
        let becomes = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
        let becomes = if user.is_some() { &becomes[..] } else { &[] };
        let marked = [becomes, &["sh", "-c", "trap '' TERM INT; exec sleep 600"]].concat();
        let marked = spawn(marked[0], &marked[1..], Some(&mark));
        let place = folder.to_str().unwrap();
        let looks = looks.to_string();
        let keeper = [becomes, shell, &["-c", KEEPER, "keeper", place, "0.02", &looks, &mark]].concat();
        let keeper = spawn(keeper[0], &keeper[1..], None);
        let kept = Self { folder, keeper, marked };
        kept.wait("the lease is there", |kept| kept.lease().exists());
        kept
    }

    fn lease(&self) -> PathBuf {
        self.folder.join(LEASE_FILE)
    }

    fn renew(&self, time: SystemTime) {
        let lease = std::fs::File::options().write(true).open(self.lease()).unwrap();
        lease.set_modified(time).unwrap();
    }

    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !holds(self) {
            assert!(Instant::now() < end, "it never came that {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn ends(&mut self) {
        self.wait("the keeper ended", |kept| !lives(kept.keeper.id()));
        assert!(!lives(self.marked.id()), "a process of the machine outlived its keeper");
        assert!(!self.folder.exists(), "the machine's folder outlived its keeper");
        assert!(self.keeper.wait().unwrap().success());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for child in [&mut self.keeper, &mut self.marked] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(program: &str, arguments: &[&str], mark: Option<&str>) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.envs(mark.map(|mark| ("SKYWARD_MACHINE", mark)));
    command.spawn().unwrap()
}

fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// The shells of this host that a machine may have for `sh`.
fn shells() -> Vec<Vec<&'static str>> {
    let all = [vec!["dash"], vec!["busybox", "sh"], vec!["bash", "--posix"]];
    let there = |shell: &Vec<&str>| {
        let found = ["/bin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(shell[0]).exists());
        if !found {
            println!("skipped: this host has no {}", shell[0]);
        }
        found
    };
    let shells: Vec<_> = all.into_iter().filter(there).collect();
    assert!(!shells.is_empty());
    shells
}

#[test]
fn a_machine_whose_lease_is_not_renewed_ends_with_all_that_runs_on_it() {
    for shell in shells() {
        let mut kept = Kept::new(&shell, 5);
        // As a payload may leave it.
        let closed = kept.folder.join("work/closed");
        let made = std::fs::create_dir_all(closed.join("more"));
        let _ = std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000));
        drop(made);
        kept.ends();
    }
}

#[test]
fn a_machine_lives_for_as_long_as_its_lease_is_renewed() {
    for shell in shells() {
        let mut kept = Kept::new(&shell, 50);
        let end = Instant::now() + Duration::from_secs(2);
        let mut clock = SystemTime::now();
        while Instant::now() < end {
            // A clock that goes backwards: any change counts.
            clock -= Duration::from_secs(60);
            kept.renew(clock);
            std::thread::sleep(Duration::from_millis(10));
            assert!(lives(kept.keeper.id()) && lives(kept.marked.id()), "{shell:?} ended a machine that was renewed");
        }
        kept.ends();
    }
}

#[test]
fn a_clock_that_is_set_neither_ends_a_machine_nor_keeps_it() {
    for shell in shells() {
        let mut kept = Kept::new(&shell, 10);
        kept.renew(SystemTime::now() + Duration::from_secs(10 * 365 * 86400));
        kept.ends();
    }
}

#[test]
fn a_keeper_that_is_asked_to_end_ends_its_machine_at_once() {
    for shell in shells() {
        let mut kept = Kept::new(&shell, 1_000_000);
        let pid = rustix::process::Pid::from_child(&kept.keeper);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        kept.ends();
    }
}

#[test]
fn a_machine_without_its_lease_ends() {
    for shell in shells() {
        let mut kept = Kept::new(&shell, 1_000_000);
        std::fs::remove_file(kept.lease()).unwrap();
        kept.ends();
    }
}

#[test]
fn the_end_of_a_machine_is_not_that_of_its_neighbours() {
    for shell in shells() {
        let mut kept = Kept::new(&shell, 5);
        let neighbour = Kept::new(&shell, 1_000_000);
        let mut unmarked = spawn("sleep", &["600"], None);
        kept.ends();
        let alive = [neighbour.keeper.id(), neighbour.marked.id(), unmarked.id()].map(lives);
        unmarked.kill().unwrap();
        unmarked.wait().unwrap();
        assert_eq!(alive, [true; 3]);
    }
}

#[test]
fn a_keeper_that_can_start_no_process_goes_on_until_it_can() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root makes a process of a user who has no other");
        return;
    }
    for shell in shells() {
        // A limit of processes holds for all of a user, and not for root.
        let user = (1 << 20) + rand::random::<u32>() % (1 << 20);
        let id = user.to_string();
        let mut kept = Kept::of(Some(user), &shell, 50);
        let keeper = kept.keeper.id().to_string();
        let limit = |count: &str| {
            let mut set = Command::new("setpriv");
            set.args(["--reuid", &id, "--regid", &id, "--clear-groups", "prlimit", "--pid", &keeper]);
            let set = set.arg(format!("--nproc={count}:")).status().unwrap();
            assert!(set.success());
        };
        limit("1");
        // For longer than its lease, which is not renewed.
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            assert!(lives(kept.keeper.id()) && lives(kept.marked.id()), "{shell:?} gave a machine up");
            std::thread::sleep(Duration::from_millis(10));
        }
        limit("1000");
        kept.ends();
    }
}

#[test]
fn a_keeper_touches_what_may_be_cleaned_by_age() {
    for shell in shells() {
        let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        let (record, share) = (folder.join("a record"), folder.join("a share"));
        std::fs::create_dir_all(&share).unwrap();
        std::fs::write(&record, "").unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(86400);
        for path in [&record, &share] {
            std::fs::File::open(path).unwrap().set_modified(old).unwrap();
        }
        let machine = folder.join("machine");
        let paths = [&machine, &record, &share].map(|path| path.to_str().unwrap());
        let arguments = ["-c", KEEPER, "keeper", paths[0], "0.02", "1000000", "test-none", paths[1], paths[2]];
        let mut keeper = spawn(shell[0], &[&shell[1..], &arguments].concat(), None);
        let end = Instant::now() + Duration::from_secs(30);
        let is_old = |path: &PathBuf| path.metadata().unwrap().modified().unwrap() == old;
        while (is_old(&record) || is_old(&share)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let touched = !is_old(&record) && !is_old(&share);
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(touched, "{shell:?}");
    }
}

#[test]
fn a_keeper_looks_more_often_than_the_lease_is_renewed_and_a_little_longer_than_it_lasts() {
    let told = |seconds| arguments("/m", Duration::from_secs_f64(seconds));
    assert_eq!(told(60.0), ["/m", "8", "10"]);
    assert_eq!(told(2.0), ["/m", "0.250", "10"]);
    assert_eq!(told(0.0)[1], "0.013");
}
