//! The errors of storages.

use std::io;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The error of a call that the operating system has refused or failed.
pub(super) fn failed(what: &str, store: &str, error: io::Error) -> Error {
    let (hint, is_temporary) = match error.kind() {
        io::ErrorKind::StorageFull => {
            ("the disk of the storage is full: make room there, or keep fewer checkpoints", false)
        }
        io::ErrorKind::QuotaExceeded => ("the quota there is used up: make room, or ask for more", false),
        io::ErrorKind::PermissionDenied => (
            "the user of this process needs the permission to read, write and search this folder and those below it",
            false,
        ),
        io::ErrorKind::ReadOnlyFilesystem => {
            ("its file system is mounted for reading only: mount it for writing", false)
        }
        io::ErrorKind::NotADirectory => {
            ("something that is no folder is in the way: remove it, or name another folder", false)
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            ("a link is in the way, and no link in a storage is followed: replace it by what it leads to", false)
        }
        io::ErrorKind::Unsupported => ("name a folder on a file system with hard links or `RENAME_NOREPLACE`", false),
        _ => ("look at the disk or the server of the storage; this may pass", true),
    };
    let refused = refused(format!("cannot {what} in {store}")).with_source(error).with_hint(hint);
    if is_temporary { refused.temporary() } else { refused }
}

/// The error of a call without an answer.
pub(super) fn silent(what: &str, store: &str, after: Duration) -> Error {
    refused(format!("cannot {what} in {store}: no answer after {after:?}"))
        .with_hint("look whether its disk or server hangs; this may pass")
        .temporary()
}

/// The error of a store that refuses something or fails.
pub(crate) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Storage, message)
}

/// The error of an object that is not there.
pub(crate) fn missing(path: &super::ObjectPath, store: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no object {path} in {store}"))
}
