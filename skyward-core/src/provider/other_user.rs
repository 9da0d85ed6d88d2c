//! Another user of this host, for tests.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::keeper::MARK;

/// A user of whom there are no processes, and who has no name.
pub(super) struct OtherUser(u32);

impl OtherUser {
    /// Any such user.
    pub(super) fn any() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "only root starts processes of another user: run this test as root");
        Self((1 << 20) + rand::random::<u32>() % (1 << 20))
    }

    pub(super) fn id(&self) -> u32 {
        self.0
    }

    /// The words before a command of this user's.
    pub(super) fn becomes(&self) -> String {
        format!("setpriv --reuid {0} --regid {0} --clear-groups", self.0)
    }

    /// Starts a command of this user's with a mark, in a group of its own.
    pub(super) fn start(&self, words: &[&str], mark: &str) -> Child {
        let becomes = self.becomes();
        let mut all = becomes.split(' ').chain(words.iter().copied());
        let mut command = Command::new(all.next().unwrap());
        command.args(all).process_group(0).env(MARK, mark);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !self.is_of(child.id()) {
            assert!(Instant::now() < end, "never happened: {words:?} is of the other user");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    fn is_of(&self, process: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with(&format!("Uid:\t{}\t", self.0)))
    }
}
