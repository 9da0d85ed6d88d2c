//! Puts files on a host.

use std::collections::BTreeMap;
use std::time::Duration;

use super::exec::Program;
use crate::error::{Error, ErrorKind};
use crate::remote::CommandOutput;
use crate::remote::digest::digest;
use crate::remote::shell;
use crate::remote::timing::LEAST_PUT;

/// A program that puts these bytes at `path`, unless the file has them already.
pub(super) async fn program<'a>(path: &str, bytes: &'a [u8], mode: u32) -> Result<Program<'a>, String> {
    if !path.starts_with('/') || path.ends_with('/') {
        return Err("it is not an absolute path of a file".into());
    }
    let env: BTreeMap<String, String> = [
        ("path", path.to_owned()),
        ("mode", format!("{mode:o}")),
        ("digest", digest(bytes).await),
        ("size", bytes.len().to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    Ok(Program::new(&shell::strict(SCRIPT), &env, bytes)?.gated("skyward-send"))
}

/// The error of a file that was not put.
pub(super) fn failed(path: &str, host: &str, output: &CommandOutput) -> Error {
    let last = output.stderr.lines().last().unwrap_or_default().trim();
    let lower = output.stderr.to_lowercase();
    let error = |why: &str| Error::new(ErrorKind::Bootstrap, format!("cannot write {path} on {host}: {why}"));
    if lower.contains("no space left") || lower.contains("quota exceeded") {
        return error("the disk is full").with_context("message", last).with_hint("free some space there: `df -h`");
    }
    if lower.contains("permission denied") || lower.contains("read-only file system") {
        let folder = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
        return error("the folder cannot be written to")
            .with_context("message", last)
            .with_hint(format!("check the owner and the mode of the folder on the host: `ls -ld {folder}`"));
    }
    if lower.contains("shasum") && lower.contains("not found") {
        return error("the host has no `sha256sum` to check it with").with_hint("install coreutils there");
    }
    error(if last.is_empty() { "the host's shell failed without a message" } else { last })
        .with_context("exit", output.status)
}

/// How long a file of this size may take on a slow line.
pub(super) fn deadline(size: usize) -> Duration {
    LEAST_PUT + Duration::from_secs(size as u64 / SLOW)
}

const SCRIPT: &str = include_str!("scripts/put.sh");
/// Bytes per second.
const SLOW: u64 = 128 << 10;
