//! Reads the client's files whole, with errors that say what is there instead.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::error::{Error, ErrorKind, Result};

/// The content of a regular file, and its permissions.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, u32)> {
    // Without this flag, opening a pipe waits for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|error| unreadable(path, error))?;
    // The opened file's metadata: its name may stand for another file meanwhile.
    let metadata = file.metadata().map_err(|error| unreadable(path, error))?;
    if !metadata.is_file() {
        return Err(irregular(path));
    }
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, error))?;
    if read as u64 > LARGEST {
        let message = format!("{} has more than {} MiB", path.display(), LARGEST >> 20);
        return Err(invalid(message).with_hint(ADVICE));
    }
    Ok((bytes, metadata.permissions().mode() & 0o777))
}

/// The error of a file that is none, such as a pipe.
pub(super) fn irregular(path: &Path) -> Error {
    invalid(format!("the image names {}, which is not a regular file", path.display()))
        .with_hint("a pipe, a socket or a device may never end: copy its content into a file, and name that file")
}

/// The error of a file that cannot be read. The hint lists the contents of the folder, which says more
/// than that the file is missing.
pub(super) fn unreadable(path: &Path, error: std::io::Error) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hint = match std::fs::read_dir(folder) {
        Err(_) => {
            format!("the folder {} does not exist either; relative paths start at the working folder", folder.display())
        }
        Ok(entries) => {
            let mut names: Vec<_> =
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names.truncate(SHOWN);
            format!("{} has: {}", folder.display(), if names.is_empty() { "nothing".into() } else { names.join(", ") })
        }
    };
    invalid(format!("the image names {}, which cannot be read", path.display())).with_source(error).with_hint(hint)
}

pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidSpec, message)
}

const SHOWN: usize = 12;
/// The limit of one file and of all files: they are kept in memory and put on every node.
pub(super) const LARGEST: u64 = 256 << 20;
pub(super) const ADVICE: &str = "include only code and small files, and leave the others out: `.exclude([\"*.bin\"])`; give the pool a data set \
     instead, which payloads read with `sky.data(\"digits\")`: `.data(\"digits\", Data::folder(\"data/digits\"))`";
