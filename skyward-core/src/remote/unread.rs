//! The end of a command that may have left much of its input unread.

use super::timing::KILL;
use super::{Command, Remote};

/// Kills such a command when dropped, by another command. What watches the command on its machine
/// passes on the input first, so it does not see that the client has gone.
pub(super) struct Unread<R: Remote + Clone> {
    remote: R,
    kill: Option<Command>,
}

impl<R: Remote + Clone> Unread<R> {
    /// The guard of a command whose input has this length, and which the arguments `kill` end.
    pub(super) fn new(remote: &R, kill: impl FnOnce() -> Vec<String>, length: usize) -> Self {
        let kill = (length > PIPE).then(|| Command::new(kill()).deadline(KILL));
        Self { remote: remote.clone(), kill }
    }

    /// The command has ended.
    pub(super) fn ended(mut self) {
        self.kill = None;
    }
}

impl<R: Remote + Clone> Drop for Unread<R> {
    fn drop(&mut self) {
        let Some(kill) = self.kill.take() else { return };
        // Without a runtime, nothing runs the command either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let remote = self.remote.clone();
        runtime.spawn(async move {
            if let Err(error) = remote.run(&kill, &|_| {}).await {
                tracing::warn!(machine = remote.describe(), %error, "a command that was given up may still run");
            }
        });
    }
}

/// How much the smallest pipe of Linux holds. No more can be left unread without being noticed.
const PIPE: usize = 4 << 10;
