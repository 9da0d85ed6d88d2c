//! Files that are made of others and checked in: whoever reads the repository sees them, and they
//! must not be older than their sources.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::step::Checks;

/// What a file should hold.
pub(super) struct Generated {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Generated {
    /// Writes the file, or checks that it holds this already.
    pub(super) fn settle(&self, write: bool, context: &Context, checks: &mut Checks) -> Result<()> {
        let name = self.path.strip_prefix(&context.root).unwrap_or(&self.path).display();
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            return Ok(());
        }
        if write {
            fs::write(&self.path, &self.text).with_context(|| format!("cannot write {name}"))?;
            println!("wrote {name}");
        } else {
            checks.fail(format!("{name} is out of date; `cargo xtask docs --write` generates it again"));
        }
        Ok(())
    }
}
