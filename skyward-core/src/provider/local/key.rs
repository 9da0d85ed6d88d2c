//! The key of a machine: a secret in its folder, which all of its processes have in their
//! environment.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The key of the machine with this folder, if it has one.
pub(super) fn read(folder: &Path) -> Option<String> {
    std::fs::read_to_string(folder.join(FILE)).ok().filter(|key| !key.is_empty())
}

/// The key of the machine with this folder; it is made if there is none.
pub(super) fn make(folder: &Path) -> io::Result<String> {
    if let Some(key) = read(folder) {
        return Ok(key);
    }
    let key = format!("{:032x}", rand::random::<u128>());
    let new = folder.join(format!(".new-{:016x}", rand::random::<u64>()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    // The first of several wins, and nobody reads half of it.
    let made = file.write_all(key.as_bytes()).and_then(|()| std::fs::hard_link(&new, folder.join(FILE)));
    std::fs::remove_file(&new)?;
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(folder).ok_or_else(|| io::ErrorKind::NotFound.into()),
    }
}

/// The file with the key, in the folder of a machine.
const FILE: &str = "key";
