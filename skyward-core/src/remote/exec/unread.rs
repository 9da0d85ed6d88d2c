//! The end of a command that may have left much of its input unread.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Exec;
use super::courier::Courier;

/// Kills such a command when dropped, by a program of its own: its courier cannot.
pub(super) struct Unread<E: Exec> {
    exec: Arc<E>,
    kill: Option<Vec<String>>,
}

impl<E: Exec> Unread<E> {
    /// The guard of a command whose input has this length.
    pub(super) fn new(exec: &Arc<E>, courier: &Courier, length: usize) -> Self {
        Self { exec: Arc::clone(exec), kill: (length > PIPE).then(|| courier.kill()) }
    }

    /// The command has ended.
    pub(super) fn ended(mut self) {
        self.kill = None;
    }
}

impl<E: Exec> Drop for Unread<E> {
    fn drop(&mut self) {
        let Some(kill) = self.kill.take() else { return };
        // Without a runtime there are no streams either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let exec = Arc::clone(&self.exec);
        runtime.spawn(async move {
            let killed = async {
                let mut streams = exec.start(&kill, KILL).await?;
                // It writes nothing, so this is its end.
                let _ = tokio::io::copy(&mut streams.stdout, &mut tokio::io::sink()).await;
                crate::Result::<()>::Ok(())
            };
            if let Ok(Err(error)) = timeout(KILL, killed).await {
                tracing::warn!(machine = exec.describe(), %error, "a command that was given up may still run");
            }
        });
    }
}

/// How much the smallest pipe of Linux holds. The courier has passed on what is not longer.
const PIPE: usize = 4 << 10;
/// How long a try to kill a command may take.
const KILL: Duration = Duration::from_secs(30);
