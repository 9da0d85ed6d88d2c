//! Checks folders of Python as the macro would check their files, by the program
//! `tools/python-check`. It is built only when it is asked for: the parser of Python takes half a
//! minute to compile.

use std::ffi::OsString;

use anyhow::Result;

use crate::context::Context;
use crate::process::Run;

/// Builds the program and becomes it, with these words on its command line, which name folders and
/// files from the current folder. Returns only an error.
pub(crate) fn run(words: &[OsString], context: &Context) -> Result<bool> {
    // Nothing is shown of the build, so that the output is the program's alone.
    context.cargo(["build", "--quiet", "--release", "--package=skyward-python-check"]).read()?;
    let program = context.workspace.target_directory.join("release/skyward-python-check");
    Err(Run::new(program).args(words).replace())
}
