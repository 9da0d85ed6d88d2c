//! Processes of machines that this process inherits.
//!
//! The first process of a container inherits the processes whose parent ends, as every sub-reaper
//! does: each agent, which is started in the background, and the workers of an agent that was killed.
//! Each of them remains as a zombie until its parent takes its exit status. This module never takes the
//! status of a child that other code of this process has started: that code waits for it.

use std::io::Read;

use rustix::process::{Pid, WaitOptions, child_subreaper, waitpid};

use super::marked::MARK;

/// A child of this process, with the fields of proc_pid_stat(5) that this module reads.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Child {
    id: i32,
    parent: u32,
    session: i32,
    /// In clock ticks since the host started: another process may get the same id.
    since: u64,
    is_zombie: bool,
}

/// The children of this process that lead a session of their own and have this mark. Nothing but
/// their mark shows later that this process has not started them.
pub(super) fn marked(mark: &str) -> Vec<Child> {
    let entry = format!("{MARK}={mark}");
    let has_mark = |child: &Child| {
        let environment = std::fs::read(format!("/proc/{}/environ", child.id)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    children().into_iter().filter(|child| child.session == child.id && has_mark(child)).collect()
}

/// Takes the exit statuses of inherited processes that have ended: these, and all that cannot be a
/// process that this one has started.
pub(super) fn collect(marked: &[Child]) {
    let own = own_session();
    for child in children().into_iter().filter(|child| child.is_zombie) {
        // A process has the session of its parent, or leads one.
        let is_foreign = ![own, child.id, OUTSIDE].contains(&child.session);
        if (is_foreign || marked.iter().any(|one| (one.id, one.since) == (child.id, child.since)))
            && let Some(id) = Pid::from_raw(child.id)
        {
            // Nobody else can have taken it.
            let _ = waitpid(Some(id), WaitOptions::NOHANG);
        }
    }
}

/// The session of this process; `OUTSIDE` where the kernel does not say.
fn own_session() -> i32 {
    // `getsid` of rustix has no value for `OUTSIDE`.
    process("self").map_or(OUTSIDE, |own| own.session)
}

/// The session of a process whose leader this process cannot see, as in a container that joins the
/// session of the host that started it; credentials(7), pid_namespaces(7).
const OUTSIDE: i32 = 0;

/// The children of this process, if it can inherit any.
fn children() -> Vec<Child> {
    let own = std::process::id();
    if own != 1 && !child_subreaper().is_ok_and(|is_reaper| is_reaper.is_some()) {
        return Vec::new();
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| child(id, own)).collect()
}

/// The process with this id, if it is a child of this parent.
fn child(id: i32, parent: u32) -> Option<Child> {
    process(&id.to_string()).filter(|found| found.parent == parent)
}

/// What `/proc` says of the process with this name there.
fn process(process: &str) -> Option<Child> {
    let mut text = Vec::new();
    std::fs::File::open(format!("/proc/{process}/stat")).ok()?.read_to_end(&mut text).ok()?;
    // The name of the program may have any bytes.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    // From the third field of proc_pid_stat(5) on.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Child {
        id: std::str::from_utf8(text.split(|byte| *byte == b' ').next()?).ok()?.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        since: fields.get(19)?.parse().ok()?,
        is_zombie: *fields.first()? == "Z",
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn inherited_processes_are_collected_and_own_children_are_left_to_their_parent() {
        in_own_process(&[], "inherited_processes_are_collected_and_own_children_are_left_to_their_parent", collects);
    }

    /// As in a container whose first process joins the session of its runtime.
    #[test]
    #[ignore = "needs namespaces"]
    fn inherited_processes_are_collected_where_the_session_has_no_leader() {
        in_own_process(
            &["unshare", "--pid", "--fork", "--mount-proc"],
            "inherited_processes_are_collected_where_the_session_has_no_leader",
            || {
                assert_eq!(own_session(), OUTSIDE);
                collects();
            },
        );
    }

    /// Runs this test in a process of its own, which inherits orphans.
    fn in_own_process(within: &[&str], name: &str, test: fn()) {
        if std::env::var_os(ROLE).is_some() {
            return test();
        }
        let program = std::env::current_exe().unwrap().into_os_string();
        let name = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
        let test = [program, "--exact".into(), name.into(), "--include-ignored".into(), "--nocapture".into()];
        let words: Vec<_> = within.iter().map(Into::into).chain(test).collect();
        let output = Command::new(&words[0]).args(&words[1..]).env(ROLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    fn collects() {
        rustix::process::set_child_subreaper(Pid::from_raw(1)).unwrap();
        // An orphan in the session of its parent, as an agent is; and one that leads a session.
        let foreign = orphan("setsid sh -c 'sleep 600 >/dev/null & echo $!'", None);
        let leader = orphan("setsid sleep 600 >/dev/null & echo $!", Some("m.n0"));
        let other = orphan("setsid sleep 600 >/dev/null & echo $!", Some("m.n1"));
        // Children of this process: in its session, and with one of their own.
        let mut own = [["sh", "-c", "exit 3"], ["setsid", "sh", "-c"]].map(|words| {
            let mut command = Command::new(words[0]);
            command
                .args(&words[1..])
                .args((words[0] == "setsid").then_some("exit 3"))
                .env(MARK, "m.n1")
                .spawn()
                .unwrap()
        });
        let noted = marked("m.n0");
        assert_eq!(noted.iter().map(|child| child.id).collect::<Vec<_>>(), [leader]);
        for id in [foreign, leader, other] {
            rustix::process::kill_process(Pid::from_raw(id).unwrap(), rustix::process::Signal::KILL).unwrap();
        }
        let all = [foreign, leader, other].into_iter().chain(own.iter().map(|child| child.id().cast_signed()));
        let end = Instant::now() + Duration::from_secs(60);
        for id in all {
            while !child(id, std::process::id()).is_some_and(|child| child.is_zombie) {
                assert!(Instant::now() < end, "{id} is no zombie of this process");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        collect(&noted);
        let left = |id| child(id, std::process::id()).is_some();
        assert_eq!([foreign, leader, other].map(left), [false, false, true]);
        for child in &mut own {
            assert_eq!(child.wait().unwrap().code(), Some(3), "its status was taken");
        }
    }

    /// The id of a process that a shell has started and left.
    fn orphan(script: &str, mark: Option<&str>) -> i32 {
        let mut command = Command::new("sh");
        command.args(["-c", script]).envs(mark.map(|mark| (MARK, mark))).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        shell.wait().unwrap();
        let id = line.trim().parse().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let own = own_session();
        while child(id, std::process::id()).is_none_or(|child| child.session == own) {
            assert!(Instant::now() < end, "{id} is no child of this process in another session");
            std::thread::sleep(Duration::from_millis(2));
        }
        id
    }

    const ROLE: &str = "SKYWARD_TEST_REAPER";
}
