//! The keeper with the shells that machines have. Times are short and nothing is asserted about
//! them: either the awaited state comes, or the test ends at its deadline.

use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::*;
use crate::provider::other_user::OtherUser;
use crate::remote::shell::hostile::{self, SHELLS, Sh};

/// What a keeper counts: checks until it ends a machine, checks until it ends one that was never
/// renewed, and hundredths of a second.
#[derive(Clone, Copy)]
struct Times {
    looks: u32,
    first: u32,
    life: u32,
}

/// A keeper, and a process that carries its mark; both end with the test.
struct Kept {
    mark: String,
    folder: PathBuf,
    keeper: Child,
    marked: Child,
}

impl Kept {
    /// The lease is `looks` checks of 20 ms.
    fn new(shell: &[&str], looks: u32) -> Self {
        Self::of(None, shell, Times { looks, first: looks, life: 0 }, KEEPER)
    }

    /// The same with other times, and as another user of this host.
    fn of(user: Option<&OtherUser>, shell: &[&str], times: Times, script: &str) -> Self {
        let mark = format!("test-{:016x}", rand::random::<u64>());
        let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        let id = user.map(OtherUser::id);
        std::os::unix::fs::chown(&folder, id, id).unwrap();
        let becomes = user.map(OtherUser::becomes).unwrap_or_default();
        let becomes: Vec<_> = becomes.split_whitespace().collect();
        let marked = [&becomes[..], &["sh", "-c", "trap '' TERM INT; exec sleep 600"]].concat();
        let marked = spawn(marked[0], &marked[1..], Some(&mark));
        let place = folder.to_str().unwrap();
        let [looks, first, life] = [times.looks, times.first, times.life].map(|number| number.to_string());
        let arguments = ["-c", script, "keeper", place, "0.02", &looks, &first, &life, "processes", &mark];
        let keeper = [&becomes[..], shell, &arguments].concat();
        let keeper = spawn(keeper[0], &keeper[1..], None);
        let kept = Self { mark, folder, keeper, marked };
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

    fn ask(&self) {
        let pid = rustix::process::Pid::from_child(&self.keeper);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    #[track_caller]
    fn wait(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < end, "never happened: {what}");
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
    command.spawn().unwrap_or_else(|error| panic!("cannot start {program}, which this test needs: {error}"))
}

fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// Makes tests of these checks, for each shell that may be `sh` on a machine.
macro_rules! with_each_shell {
    ($($check:ident),+ $(,)?) => {
        mod bash {
            $(
                #[test]
                fn $check() {
                    super::$check(&super::BASH);
                }
            )+
        }

        mod dash {
            $(
                #[test]
                #[ignore = "needs dash"]
                fn $check() {
                    super::$check(&super::DASH);
                }
            )+
        }

        mod busybox {
            $(
                #[test]
                #[ignore = "needs busybox"]
                fn $check() {
                    super::$check(&super::BUSYBOX);
                }
            )+
        }
    };
}

with_each_shell! {
    a_machine_whose_lease_is_not_renewed_ends_with_all_its_processes,
    a_machine_lives_for_as_long_as_its_lease_is_renewed,
    a_clock_that_is_set_neither_ends_nor_keeps_a_machine,
    a_keeper_that_gets_sigterm_ends_its_machine_at_once,
    a_machine_without_its_lease_ends,
    the_end_of_a_machine_does_not_end_its_neighbours,
    a_keeper_touches_files_that_a_cleaner_removes_by_age,
    a_machine_ends_at_its_time_while_its_lease_is_renewed,
    a_booting_machine_has_its_boot_time_until_the_first_renewal,
    processes_that_only_start_others_end_with_their_machine,
}

mod ending;
mod off;
mod users;

fn a_machine_whose_lease_is_not_renewed_ends_with_all_its_processes(shell: &[&str]) {
    let mut kept = Kept::new(shell, 5);
    // As a payload may leave it.
    let closed = kept.folder.join("work/closed");
    let made = std::fs::create_dir_all(closed.join("more"));
    let _ = std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000));
    drop(made);
    kept.ends();
}

fn a_machine_lives_for_as_long_as_its_lease_is_renewed(shell: &[&str]) {
    let mut kept = Kept::new(shell, 50);
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

fn a_clock_that_is_set_neither_ends_nor_keeps_a_machine(shell: &[&str]) {
    let mut kept = Kept::new(shell, 10);
    kept.renew(SystemTime::now() + Duration::from_secs(10 * 365 * 86400));
    kept.ends();
}

fn a_keeper_that_gets_sigterm_ends_its_machine_at_once(shell: &[&str]) {
    let mut kept = Kept::new(shell, 1_000_000);
    kept.ask();
    kept.ends();
}

fn a_machine_without_its_lease_ends(shell: &[&str]) {
    let mut kept = Kept::new(shell, 1_000_000);
    std::fs::remove_file(kept.lease()).unwrap();
    kept.ends();
}

fn the_end_of_a_machine_does_not_end_its_neighbours(shell: &[&str]) {
    let mut kept = Kept::new(shell, 5);
    let neighbour = Kept::new(shell, 1_000_000);
    let longer = format!("{}-b", kept.mark);
    let mut others = [None, Some(longer.as_str())].map(|mark| spawn("sleep", &["600"], mark));
    kept.ends();
    let alive = [neighbour.keeper.id(), neighbour.marked.id(), others[0].id(), others[1].id()].map(lives);
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    assert_eq!(alive, [true; 4]);
}

/// A pipe with a name, by which a test sees whether a process lives that has opened it.
struct Held {
    path: PathBuf,
    pipe: std::fs::File,
}

impl Held {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        let made = Command::new("mkfifo").args(["-m", "666"]).arg(&path).status().unwrap();
        assert!(made.success());
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let pipe = std::fs::File::options().read(true).custom_flags(flags).open(&path).unwrap();
        Self { path, pipe }
    }

    /// Waits until a process has the pipe open, or until none has.
    #[track_caller]
    fn wait(&mut self, is_open: bool) {
        let end = Instant::now() + DEADLINE;
        // The end of the pipe can be read where nobody can write.
        while self.pipe.read(&mut [0; 16]).is_ok_and(|count| count == 0) == is_open {
            assert!(Instant::now() < end, "processes have the pipe open: {}", !is_open);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn processes_that_only_start_others_end_with_their_machine(shell: &[&str]) {
    // Each starts the next one and ends. A stopped orphan gets HUP and continues.
    // A shell's own chain ends at its limit of nested functions. This one ends when the test is long
    // gone.
    let script = "import os, signal, sys, time\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nend = time.time() + 300\n\
        os.open(sys.argv[1], os.O_WRONLY)\nwhile time.time() < end:\n if os.fork(): os._exit(0)";
    let mut held = Held::new();
    let mut kept = Kept::new(shell, NEVER);
    let path = held.path.to_str().unwrap();
    let mut storms = [(); 2].map(|()| {
        let mut command = Command::new("setsid");
        command.args(["python3", "-c", script, path]).stdin(Stdio::null());
        // A short environment: not every shell reads a long one while such a process lives.
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().envs([("PATH", path), ("SKYWARD_MACHINE", kept.mark.clone().into())]);
        command.spawn().unwrap()
    });
    held.wait(true);
    kept.ask();
    kept.ends();
    held.wait(false);
    for storm in &mut storms {
        storm.wait().unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn a_keeper_in_bash_that_can_start_no_process_continues_until_it_can() {
    a_keeper_that_can_start_no_process_continues_until_it_can(&BASH);
}

#[test]
#[ignore = "needs root, dash"]
fn a_keeper_in_dash_that_can_start_no_process_continues_until_it_can() {
    a_keeper_that_can_start_no_process_continues_until_it_can(&DASH);
}

#[test]
#[ignore = "needs root, busybox"]
fn a_keeper_in_busybox_that_can_start_no_process_continues_until_it_can() {
    a_keeper_that_can_start_no_process_continues_until_it_can(&BUSYBOX);
}

fn a_keeper_that_can_start_no_process_continues_until_it_can(shell: &[&str]) {
    // A limit of processes applies to all processes of a user, but not to root.
    let user = OtherUser::any();
    let mut kept = Kept::of(Some(&user), shell, Times { looks: 50, first: 50, life: 100_000 }, KEEPER);
    let keeper = kept.keeper.id().to_string();
    let limit = |count: &str| {
        let words = format!("{} prlimit --pid {keeper} --nproc={count}:", user.becomes());
        let set = Command::new("setpriv").args(words.split(' ').skip(1)).status().unwrap();
        assert!(set.success());
    };
    limit("1");
    // For longer than its lease, which is not renewed.
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        assert!(lives(kept.keeper.id()) && lives(kept.marked.id()), "{shell:?} gave up a machine");
        std::thread::sleep(Duration::from_millis(10));
    }
    limit("1000");
    kept.ends();
}

fn a_keeper_touches_files_that_a_cleaner_removes_by_age(shell: &[&str]) {
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
    let arguments = [
        "-c",
        KEEPER,
        "keeper",
        paths[0],
        "0.02",
        "1000000",
        "1000000",
        "0",
        "processes",
        "test-none",
        paths[1],
        paths[2],
    ];
    let mut keeper = spawn(shell[0], &[&shell[1..], &arguments].concat(), None);
    let end = Instant::now() + DEADLINE;
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

fn a_machine_ends_at_its_time_while_its_lease_is_renewed(shell: &[&str]) {
    let blind = KEEPER.replace("/proc/uptime", "/proc/none");
    for script in [KEEPER, &blind] {
        let begun = Instant::now();
        let mut kept = Kept::of(None, shell, Times { looks: NEVER, first: NEVER, life: 150 }, script);
        let mut clock = SystemTime::now();
        kept.wait("the machine ended at its time", |kept| {
            clock -= Duration::from_secs(60);
            if let Ok(lease) = std::fs::File::options().write(true).open(kept.lease()) {
                let _ = lease.set_modified(clock);
            }
            !lives(kept.keeper.id())
        });
        assert!(begun.elapsed() >= Duration::from_millis(1500), "{shell:?}: after {:?}", begun.elapsed());
        kept.ends();
    }
}

#[test]
fn a_keeper_that_replaces_another_one_continues_its_count() {
    let counted = "waited=$((waited + step))\n";
    assert_eq!(KEEPER.matches(counted).count(), 1);
    // The script exits after each pause, as where no process can be started. One script uses the
    // clock alone, the other one has no clock.
    let of_clock = KEEPER.replace(counted, ":\n    exit 3\n");
    let blind = KEEPER.replace(counted, &format!("{counted}    exit 3\n")).replace("/proc/uptime", "/proc/none");
    for script in [of_clock, blind] {
        let times = Times { looks: NEVER, first: NEVER, life: 100 };
        Kept::of(None, &["bash", "--norc", "--posix"], times, &script).ends();
    }
}

fn a_booting_machine_has_its_boot_time_until_the_first_renewal(shell: &[&str]) {
    let mut kept = Kept::of(None, shell, Times { looks: 5, first: NEVER, life: 0 }, KEEPER);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        assert!(lives(kept.keeper.id()), "{shell:?} ended a machine that was booting");
        std::thread::sleep(Duration::from_millis(10));
    }
    kept.renew(SystemTime::now() + Duration::from_secs(5));
    kept.ends();
    let mut never_there = Kept::of(None, shell, Times { looks: NEVER, first: 5, life: 0 }, KEEPER);
    never_there.ends();
}

// Not with busybox, whose shell has a `poweroff` of its own.
#[test]
fn a_keeper_is_started_by_its_command() {
    let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>())).join("node");
    let command = Keeper::new(folder.to_str().unwrap(), Duration::from_secs(3600)).ends_in(Duration::from_millis(200));
    let command = command.command();
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let mut keeper = spawn(words[0], &words[1..], None);
    while lives(keeper.id()) && begun.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = !lives(keeper.id());
    keeper.kill().unwrap();
    assert!(keeper.wait().unwrap().success() && ended);
    std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
}

#[test]
#[ignore = "needs dash, busybox"]
fn a_users_settings_do_not_keep_a_keeper_from_ending_its_machine() {
    for name in SHELLS {
        let sh = Sh::new(name).unwrap();
        let mark = format!("test-{:016x}", rand::random::<u64>());
        let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&folder).unwrap();
        let mut marked = spawn("sleep", &["600"], Some(&mark));
        let keeper = Keeper::new(folder.to_str().unwrap(), Duration::from_secs(1));
        let words = keeper.end(KeeperEnd::Processes { mark }).command();
        let mut command = Command::new("sh");
        command.args(&words[1..]).envs(hostile::environment()).env("PATH", sh.path()).stdin(Stdio::null());
        let mut keeper = command.spawn().unwrap();
        let begun = Instant::now();
        while lives(keeper.id()) && begun.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = !lives(keeper.id()) && !lives(marked.id()) && !folder.exists();
        for child in [&mut keeper, &mut marked] {
            let _ = child.kill();
        }
        marked.wait().unwrap();
        assert!(keeper.wait().unwrap().success() && ended, "{name}");
    }
}

#[test]
fn a_keeper_checks_more_often_than_the_lease_is_renewed_and_a_little_longer_than_it_lasts() {
    let of = |seconds| Keeper::new("/m", Duration::from_secs_f64(seconds));
    assert_eq!(of(60.0).arguments(), ["/m", "8", "10", "10", "0", "exit"]);
    assert_eq!(of(2.0).arguments(), ["/m", "0.250", "10", "10", "0", "exit"]);
    assert_eq!(of(0.0).arguments()[1], "0.013");
    let (mark, hour) = ("m".to_owned(), Duration::from_secs(3600));
    let all = of(60.0).boot(hour).ends_in(hour).end(KeeperEnd::Processes { mark });
    assert_eq!(all.arguments(), ["/m", "8", "10", "450", "360000", "processes", "m"]);
    let at_once = of(60.0).ends_in(Duration::ZERO).end(KeeperEnd::PowerOff);
    assert_eq!(at_once.arguments(), ["/m", "8", "10", "10", "1", "off"]);
    let longest = of(60.0).boot(Duration::MAX).ends_in(Duration::MAX).arguments();
    assert_eq!(longest[3..5], ["4294967295", "94608000000"]);
}

/// For what must come, also on a host with much else to do.
const DEADLINE: Duration = Duration::from_secs(120);
/// More checks than happen during a test.
const NEVER: u32 = 1_000_000;
const BASH: [&str; 2] = ["bash", "--posix"];
const DASH: [&str; 1] = ["dash"];
const BUSYBOX: [&str; 2] = ["busybox", "sh"];

#[test]
fn a_machine_outlives_its_lease_by_a_known_time() {
    // The book's page on costs has this figure.
    assert_eq!(super::outlives(Duration::from_secs(60)), Duration::from_secs(208));
    for lease in [Duration::from_millis(100), Duration::from_secs(9), Duration::from_secs(3600)] {
        let arguments = Keeper::new("/node", lease).arguments();
        let [pause, looks]: [f64; 2] = [1, 2].map(|at: usize| arguments[at].parse().unwrap());
        assert!(super::outlives(lease).as_secs_f64() >= pause * (looks + 1.0), "{arguments:?}");
    }
}
