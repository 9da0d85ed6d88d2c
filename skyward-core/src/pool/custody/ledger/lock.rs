//! The lock on the file of a pool.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;

/// A file that this process has locked. The lock ends with this value, also while a process that
/// another thread is just starting has the file open as well.
#[derive(Debug)]
pub(super) struct Locked(File);

impl Locked {
    /// Waits for the lock.
    pub(super) fn wait(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self(file))
    }

    /// Takes the lock, or returns the file if somebody else has it.
    pub(super) fn take(file: File) -> io::Result<Result<Self, File>> {
        match file.try_lock() {
            Ok(()) => Ok(Ok(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(Err(file)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing the file does the same, once no other process has it open.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_a_process_that_is_being_started_has_the_file_open() {
        let path = std::env::temp_dir().join(format!("skyward-lock-{}", crate::ids::PoolId::random()));
        for wait in [false, true] {
            let file = File::create(&path).unwrap();
            let lock = if wait { Locked::wait(file).unwrap() } else { Locked::take(file).unwrap().unwrap() };
            // A process has such a descriptor between its fork and its exec.
            let inherited = lock.try_clone().unwrap();
            assert!(Locked::take(File::open(&path).unwrap()).unwrap().is_err());
            drop(lock);
            assert!(Locked::take(File::open(&path).unwrap()).unwrap().is_ok());
            drop(inherited);
        }
        std::fs::remove_file(path).unwrap();
    }
}
