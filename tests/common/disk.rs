//! A small disk: a file system of its own, of which a test says how much fits.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Mounted until it is dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Puts a disk of this many bytes at a folder. None, said once more in the output, where that is not allowed.
    pub(crate) fn mount(folder: &Path, bytes: u64) -> Option<Self> {
        let mounted = mount(&["-t", "tmpfs", "-o", &format!("size={bytes},mode=700"), "tmpfs"], folder);
        if !mounted {
            println!("skipped: a file system of its own cannot be mounted here");
        }
        mounted.then(|| Self(folder.to_owned()))
    }

    /// Changes its size.
    pub(crate) fn resize(&self, bytes: u64) {
        assert!(mount(&["-o", &format!("remount,size={bytes}")], &self.0));
    }

    /// Leaves no byte free.
    pub(crate) fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that is just ending may still have a file there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(options: &[&str], folder: &Path) -> bool {
    let mut mount = Command::new("mount");
    mount.args(options).arg(folder).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
