//! Checks folders of Python as the macro would check their files, by the program
//! `tools/python-check`. It is built only when it is asked for: the parser of Python takes half a
//! minute to compile.

use std::ffi::OsString;

use anyhow::{Result, bail};

use crate::context::Context;
use crate::process::Run;

/// Builds the program and runs it with these words, which name folders and files from the current
/// folder; whether it accepted all files.
pub(crate) fn run(words: &[OsString], context: &Context) -> Result<bool> {
    let manifest = context.root.join("Cargo.toml");
    let program = Run::new(crate::context::cargo())
        .args(["run", "--quiet", "--release", "--package", "skyward-python-check", "--manifest-path"])
        .args([manifest])
        .args(["--"])
        .args(words);
    let status = program.finish()?.status;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("{program} ended with {status}"),
    }
}
