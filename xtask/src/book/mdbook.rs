//! mdBook, compiled once per version into the user's cache.

use std::fs::{self, File};

use anyhow::{Context as _, Result};

use crate::console::say;
use crate::context::Context;
use crate::process::Run;

/// Its program. Nothing but the search is compiled in, and nothing is optimised: that takes a
/// minute, and the book is built in a second all the same.
pub(super) fn program(context: &Context) -> Result<Run> {
    let folder = context.cache.join(format!("mdbook-{VERSION}"));
    let program = folder.join("bin/mdbook");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let lock = File::create(folder.with_extension("lock"))?;
    lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    if !program.exists() {
        say!("installing mdBook {VERSION} into {}", folder.display());
        let install = context.cargo(["install", "--quiet", "--locked", "--debug", "--no-default-features"]);
        let install = install.args(["--features", "search", "--version", VERSION, "mdbook", "--root"]).args([&folder]);
        // A folder of its own for what is compiled, which goes when it is installed.
        install
            .quiet_env("CARGO_TARGET_DIR", folder.join("target"))
            .quiet_env("CARGO_PROFILE_DEV_DEBUG", "0")
            .check()?;
        fs::remove_dir_all(folder.join("target"))?;
    }
    Ok(Run::new(program).dir(&context.root))
}

const VERSION: &str = "0.5.4";
