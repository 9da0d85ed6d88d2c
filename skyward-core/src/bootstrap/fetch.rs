//! Downloads uv on the client's host, for machines that cannot.

use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::cause::words;
use super::plan::{Plan, UV_REQUIREMENT};
use super::run::marked;
use crate::error::{Error, ErrorKind, Result};
use crate::remote::{Command, OnLine, Process, Remote};
use crate::spec::hex;

/// The wheel of uv for machines of this architecture. It is kept in the client's cache folder, and
/// must have one of the pinned digests.
pub(super) async fn fetch(plan: &Plan, arch: &str, on_line: OnLine<'_>) -> Result<Vec<u8>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if arch.is_empty() || !arch.bytes().all(plain) {
        return Err(failed(arch, "there is no such architecture"));
    }
    // All nodes of a pool ask at the same time, and one download is enough.
    let _alone = FETCHING.lock().await;
    let step = &plan.fetch;
    let script = format!("arch={arch}\n{}", step.script);
    let mut command = Command::script(script).deadline(step.deadline);
    for (key, value) in &step.secrets {
        command = command.env(key, value.expose());
    }
    let output = Process::new().run(&command, on_line).await.map_err(|error| failed(arch, &error.summary()))?;
    let path = match (output.success(), marked(&output.stdout, "wheel")) {
        (true, Some(path)) => path,
        _ => return Err(failed(arch, &words(&output))),
    };
    let bytes = tokio::fs::read(path).await.map_err(|error| failed(arch, &format!("{path}: {error}")))?;
    if UV_REQUIREMENT.contains(&hex(&Sha256::digest(&bytes))) {
        return Ok(bytes);
    }
    // So that the next try downloads it again.
    let _ = tokio::fs::remove_file(path).await;
    Err(failed(arch, "the index returned another file than the pinned one: hash mismatch"))
}

fn failed(arch: &str, why: &str) -> Error {
    let message = format!("the machine cannot download uv, and this host cannot download it for {arch}: {why}");
    Error::new(ErrorKind::Environment, message)
        .with_hint("install one of these on the machine: python3, curl, wget, or uv 0.7 or newer; or let this host reach the package index")
}

static FETCHING: Mutex<()> = Mutex::const_new(());
