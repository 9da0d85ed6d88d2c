//! The errors of checkpoints.

use std::time::Duration;

use super::claim::Owner;
use crate::error::{Error, ErrorKind};
use crate::storage::refused;

/// Another pool uses the name.
pub(super) fn in_use(name: &str, owner: &Owner, left: Duration) -> Error {
    let message = format!("the checkpoints `{name}` are in use by the pool {} on {}", owner.pool, owner.host);
    let seconds = left.as_secs() + 1;
    Error::new(ErrorKind::InUse, message)
        .temporary()
        .with_hint(format!("end that pool, or use another name; if it has died, its hold ends in {seconds} s"))
}

/// Another pool has taken the name.
pub(super) fn superseded(name: &str, by: &Owner) -> Error {
    let message = format!("the pool {} on {} has taken over the checkpoints `{name}`", by.pool, by.host);
    Error::new(ErrorKind::Superseded, message)
        .with_hint("what this pool saves under that name is not kept any more: end it, or use another name")
}

/// Others take or use the name again and again.
pub(super) fn crowded(name: &str) -> Error {
    refused(format!("cannot use the checkpoints `{name}`: other pools take them or commit at the same time"))
        .with_hint("let one pool use the name")
        .temporary()
}

/// All commits of a name are torn.
pub(super) fn all_damaged(name: &str, newest: &str) -> Error {
    let message = format!("none of the checkpoints `{name}` is whole; the newest: {newest}");
    Error::new(ErrorKind::CheckpointDamaged, message).with_hint(
        "restore the missing objects of the storage; to begin anew instead, remove the name with \
         `Checkpoints::remove`, or use another one",
    )
}

/// One checkpoint is not what was saved.
pub(super) fn damaged(name: &str, sequence: u64, why: &str) -> Error {
    Error::new(ErrorKind::CheckpointDamaged, format!("checkpoint {sequence} of `{name}` is damaged: {why}"))
        .with_hint("a pool that commits may have removed it meanwhile: ask for the latest one again")
}

/// A newer version has written something.
pub(super) fn newer(name: &str, version: u64) -> Error {
    let message = format!("the checkpoints `{name}` are of version {version} of their format, and this is version 1");
    refused(message).with_hint("update Skyward, or use another name")
}

/// What a save has is no checkpoint.
pub(super) fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidSpec, what)
}
