//! Hosts that are the machine, and are powered off.

use super::*;

#[test]
fn a_host_that_is_the_machine_is_powered_off_by_bash() {
    a_host_that_is_the_machine_is_powered_off(&BASH);
}

#[test]
#[ignore = "needs dash"]
fn a_host_that_is_the_machine_is_powered_off_by_dash() {
    a_host_that_is_the_machine_is_powered_off(&DASH);
}

fn a_host_that_is_the_machine_is_powered_off(shell: &[&str]) {
    // The orderly way is missing, as on a host without systemd.
    let host = Host::new(shell, [("systemctl", 1), ("shutdown", 1), ("poweroff", 0)], "90", own_namespace());
    host.wait("the last orderly way", |host| host.asked().ends_with("\npoweroff\n"));
    assert_eq!(host.asked(), "systemctl poweroff --no-wall\nshutdown -P now\npoweroff\n", "{shell:?}");
    assert!(lives(host.keeper.id()) && host.folder().is_dir(), "{shell:?}: it waits until the power is off");
}

#[test]
fn a_host_whose_orderly_end_hangs_is_ended_by_force_by_bash() {
    a_host_whose_orderly_end_hangs_is_ended_by_force(&BASH);
}

#[test]
#[ignore = "needs dash"]
fn a_host_whose_orderly_end_hangs_is_ended_by_force_by_dash() {
    a_host_whose_orderly_end_hangs_is_ended_by_force(&DASH);
}

fn a_host_whose_orderly_end_hangs_is_ended_by_force(shell: &[&str]) {
    for (namespace, is_own) in [(own_namespace(), true), (own_namespace() + 1, false)] {
        let mut host = Host::new(shell, [("systemctl", 0), ("shutdown", 0), ("poweroff", 0)], "1", namespace);
        host.wait("the orderly way", |host| host.asked().starts_with("systemctl poweroff --no-wall\n"));
        // As systemd does when the host goes down.
        host.keeper.kill().unwrap();
        host.wait("the way by force", |host| host.asked().contains("\npoweroff -f -f -n\n"));
        host.wait("it goes on", |host| host.asked().ends_with("\npoweroff -f -f -n\npoweroff -f -f -n\n"));
        let asked = std::fs::read_to_string(host.scratch.join("sysrq")).unwrap_or_default();
        assert_eq!(asked, if is_own { "o\n" } else { "" }, "{shell:?}: a kernel is asked only by its host");
    }
}

/// A keeper that powers a host off, whose programs and kernel are files of the test.
struct Host {
    scratch: PathBuf,
    keeper: Child,
}

impl Host {
    /// Starts the keeper of a lease that is over. The programs exit with these codes; the first
    /// namespace of the host has this number.
    fn new(shell: &[&str], programs: [(&str, u8); 3], forced: &str, namespace: u64) -> Self {
        let scratch = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        let bin = scratch.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for (program, status) in programs {
            let file = bin.join(program);
            let script =
                format!("#!/bin/sh\necho {program}\"${{*:+ }}$*\" >>'{}/asked'\nexit {status}\n", scratch.display());
            std::fs::write(&file, script).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        // Nothing of this test reaches the host that it runs on: of its programs only these are found.
        let path = std::env::var_os("PATH").unwrap();
        for program in ["mkdir", "mkfifo", "rm", "sleep", "stat", "touch", shell[0]] {
            let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file());
            let found = found.unwrap_or_else(|| panic!("there is no {program}"));
            std::os::unix::fs::symlink(found, bin.join(program)).unwrap();
        }
        let mut script = KEEPER.to_owned();
        for (real, of_test) in [
            ("PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin", ":".to_owned()),
            ("/proc/sysrq-trigger", scratch.join("sysrq").display().to_string()),
            ("4026531836", namespace.to_string()),
        ] {
            assert_eq!(script.matches(real).count(), 1, "{real}");
            script = script.replace(real, &of_test);
        }
        let folder = scratch.join("node");
        let arguments = Keeper::new(folder.to_str().unwrap(), Duration::ZERO).end(KeeperEnd::PowerOff).arguments();
        let mut command = Command::new(bin.join(shell[0]));
        command.args(&shell[1..]).args(["-c", &script, "keeper"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("PATH", &bin).env("SKYWARD_KEEPER_FORCED", forced);
        // What it starts ends with its process group.
        let keeper = command.process_group(0).spawn().unwrap();
        Self { scratch, keeper }
    }

    fn folder(&self) -> PathBuf {
        self.scratch.join("node")
    }

    /// The commands that the host got.
    fn asked(&self) -> String {
        std::fs::read_to_string(self.scratch.join("asked")).unwrap_or_default()
    }

    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < end, "never happened: {what}; the host got: {}", self.asked());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.keeper);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.keeper.wait();
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// The number of this process's namespace of processes.
fn own_namespace() -> u64 {
    std::os::unix::fs::MetadataExt::ino(&std::fs::metadata("/proc/self/ns/pid").unwrap())
}
