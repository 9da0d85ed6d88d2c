//! Processes for tests: a marked one, and two that only their kinship shows to be of its machine.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::keeper::MARK;

/// Starts the leader of a session with this mark, and two processes without environment: its child
/// in a session of its own, and an orphan in its session. Returns the leader, and the ids of the two.
pub(super) fn start(mark: &str) -> (Child, Vec<u32>) {
    // Each in a group of its own, which no signal to the leader's group reaches.
    let script = "import os
def start(orphan, leave):
    if os.fork() == 0:
        if orphan and os.fork():
            os._exit(0)
        leave()
        os.write(1, f'{os.getpid()}\\n'.encode())
        os.execve('/bin/sleep', ['sleep', '600'], {})
start(False, os.setsid)
start(True, lambda: os.setpgid(0, 0))
os.execvp('sleep', ['sleep', '600'])";
    let mut command = Command::new("setsid");
    let mut leader = command.args(["python3", "-c", script]).env(MARK, mark).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(leader.stdout.take().unwrap()).lines().take(2);
    let ids = lines.map(|line| line.unwrap().parse().unwrap()).collect();
    (leader, ids)
}
