//! `cargo xtask bench`. The package `skyward-bench` measures.

use std::ffi::OsString;

use anyhow::Result;

use crate::context::Context;
use crate::process::Run;

/// Builds the program and becomes it, with these words on its command line. Returns only an error.
pub(crate) fn run(words: &[OsString], context: &Context) -> Result<bool> {
    // It builds the measured programs itself, in release and with the features of each.
    context.cargo(["build", "--quiet", "--package=skyward-bench", "--bin=bench"]).check()?;
    Err(Run::new(context.workspace.target_directory.join("debug/bench")).args(words).replace())
}
