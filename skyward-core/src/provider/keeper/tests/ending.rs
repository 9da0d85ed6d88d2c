//! The functions that end a machine, one by one.

use std::io::{BufRead, BufReader};
use std::process::Output;

use super::*;
use crate::provider::kin;

with_each_shell! {
    only_processes_with_the_whole_mark_are_chased,
    no_thread_is_chased,
    processes_end_in_a_strict_shell,
    a_list_of_processes_that_cannot_be_read_ends_no_machine,
    processes_without_the_mark_end_with_their_parent_or_with_the_leader_of_their_session,
}

/// Runs a script after these functions, with `$1` as argument.
fn run(shell: &[&str], functions: &str, script: &str, argument: &str) -> Output {
    let script = format!("{functions}\n{script}");
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(["-c", &script, "test", argument]).output().unwrap()
}

/// The functions, on a host whose youngest process is this one.
fn with_youngest(id: u32) -> String {
    ENDING.replace("</proc/loadavg", &format!("<<END\n0 0 0 1/1 {id}\nEND\n")).replace("|| return \"$hit\"\n", "\n")
}

/// Runs a chase, and returns its exit status and its output.
fn chase(shell: &[&str], functions: &str, mark: &str) -> (Option<i32>, String) {
    let script = "while read -r key real others; do
        [ \"$key\" != Uid: ] || break
    done </proc/self/status
    own=\"$key $real\"
    chase \"$1\"";
    let output = run(shell, functions, script, mark);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn state(id: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().unwrap_or_default().chars().take(1).collect()
}

fn only_processes_with_the_whole_mark_are_chased(shell: &[&str]) {
    let mark = format!("test-{:016x}", rand::random::<u64>());
    let cases = [
        ("SKYWARD_MACHINE", mark.clone(), true),
        ("SKYWARD_MACHINE", format!("{mark}-b"), false),
        ("SKYWARD_MACHINE", format!("{mark}B"), false),
        ("MY_SKYWARD_MACHINE", mark.clone(), false),
        ("SCRIPT", format!("env SKYWARD_MACHINE={mark} run"), false),
    ];
    for (name, value, ends) in cases {
        let mut process = Command::new("sleep").arg("600").env(name, &value).spawn().unwrap();
        let (status, _) = chase(shell, &with_youngest(process.id()), &mark);
        // A signal has its effect a moment later.
        let end = Instant::now() + Duration::from_secs(10);
        let mut is_right = false;
        while !is_right && Instant::now() < end {
            is_right = state(process.id()) == if ends { "Z" } else { "S" };
        }
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(status, Some(i32::from(ends)), "{name}={value}");
        assert!(is_right, "{name}={value}: it is neither ended nor goes on as it should");
    }
}

#[test]
#[ignore = "needs root"]
fn what_another_user_has_in_its_environment_is_not_read() {
    let mark = format!("test-{:016x}", rand::random::<u64>());
    let functions = |id| with_youngest(id).replace("{ read -r variables ", "{ echo read; read -r variables ");
    let mut other = OtherUser::any().start(&["sleep", "600"], &mark);
    let read = chase(&["sh"], &functions(other.id()), &mark);
    other.kill().unwrap();
    other.wait().unwrap();
    let own = chase(&["sh"], &functions(std::process::id()), &mark);
    assert_eq!(read, (Some(0), String::new()));
    assert_eq!(own, (Some(0), "read\n".repeat(15)));
}

fn no_thread_is_chased(shell: &[&str]) {
    let mark = format!("test-{:016x}", rand::random::<u64>());
    let script = "import threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print(threading.enumerate()[1].native_id, flush=True)";
    let mut command = Command::new("python3");
    let mut process = command.args(["-c", script]).env(MARK, &mark).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (status, _) = chase(shell, &with_youngest(line.trim().parse().unwrap()), &mark);
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(status, Some(0));
}

fn processes_end_in_a_strict_shell(shell: &[&str]) {
    let mark = format!("test-{:016x}", rand::random::<u64>());
    let mut marked = spawn("sleep", &["600"], Some(&mark));
    let output = run(shell, ENDING, "set -eu; end_members \"$1\" ''", &mark);
    assert!(output.status.success() && !lives(marked.id()), "{output:?}");
    marked.wait().unwrap();
}

fn a_list_of_processes_that_cannot_be_read_ends_no_machine(shell: &[&str]) {
    let mark = format!("test-{:016x}", rand::random::<u64>());
    let mut marked = spawn("sleep", &["600"], Some(&mark));
    for part in ["environ", "status"] {
        // As where the kernel kills a process in the middle because memory is short.
        let all = "command grep \"$@\"";
        let killed = format!("grep() {{ case \"$*\" in */{part}*) {all} | head -n 5; return 137 ;; esac; {all}; }}");
        let output = run(shell, &format!("{ENDING}\n{killed}"), "end_members \"$1\" ''", &mark);
        assert!(!output.status.success() && lives(marked.id()), "{part}: {output:?}");
    }
    let output = run(shell, ENDING, "end_members \"$1\" ''", &mark);
    assert!(output.status.success() && !lives(marked.id()), "{output:?}");
    marked.wait().unwrap();
}

fn processes_without_the_mark_end_with_their_parent_or_with_the_leader_of_their_session(shell: &[&str]) {
    let mark = format!("test-{:016x}", rand::random::<u64>());
    let (mut leader, ids) = kin::start(&mark);
    assert!(ids.iter().copied().all(lives));
    let output = run(shell, ENDING, "end_members \"$1\" ''", &mark);
    assert!(output.status.success() && !ids.iter().copied().any(lives), "{output:?}");
    leader.wait().unwrap();
}
