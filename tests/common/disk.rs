//! A small disk: a separate file system whose size a test controls.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A disk that stays mounted until the value is dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk of this many bytes at a folder.
    pub(crate) fn mount(folder: &Path, bytes: u64) -> Self {
        mount(&["-t", "tmpfs", "-o", &format!("size={bytes},mode=700"), "tmpfs"], folder);
        Self(folder.to_owned())
    }

    /// Changes the size of the disk.
    pub(crate) fn resize(&self, bytes: u64) {
        mount(&["-o", &format!("remount,size={bytes}")], &self.0);
    }

    /// Fills the disk completely.
    pub(crate) fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: an ending process may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(options: &[&str], folder: &Path) {
    let mounted = Command::new("mount").args(options).arg(folder).stdin(Stdio::null()).output();
    let why = match mounted {
        Ok(output) if output.status.success() => return,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    panic!("cannot mount a file system at {}; run this test as root: {why}", folder.display());
}
