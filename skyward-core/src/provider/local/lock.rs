//! Waits for locks that other processes hold.

use std::fs::TryLockError;
use std::io;
use std::path::Path;

use tokio::time::{Instant, sleep};

use super::timing::{LOCK, LOCK_PAUSE};

/// Tries to lock the file at this path until that works. Other processes hold such locks only for a
/// few file operations, and the kernel unlocks the file when a process dies, but not while a
/// process is stopped.
///
/// # Errors
///
/// [`TimedOut`](io::ErrorKind::TimedOut) when another process keeps the lock, or the error of
/// `try_lock`.
pub(super) async fn wait_for(path: &Path, try_lock: impl Fn() -> Result<(), TryLockError>) -> io::Result<()> {
    let end = Instant::now() + LOCK;
    loop {
        match try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(LOCK_PAUSE).await,
            Err(TryLockError::WouldBlock) => {
                let what = format!("another process has kept {} locked for {LOCK:?}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::ids::PoolId;

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_lock_ends_when_the_lock_is_free_or_after_some_time() {
        let path = std::env::temp_dir().join(format!("skyward-wait-{}", PoolId::random()));
        let (holder, file) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        holder.lock().unwrap();
        let error = wait_for(&path, || file.try_lock()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        let unlock = async {
            sleep(LOCK / 2).await;
            holder.unlock().unwrap();
        };
        let (locked, ()) = tokio::join!(wait_for(&path, || file.try_lock_shared()), unlock);
        locked.unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
