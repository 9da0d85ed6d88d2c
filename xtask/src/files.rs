//! The files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// All files below a folder, relative to it, in the order of their names.
///
/// # Errors
///
/// The folder cannot be read, or has no file.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inside) = folders.pop() {
        let here = folder.join(&inside);
        for entry in fs::read_dir(&here).with_context(|| format!("cannot read {}", here.display()))? {
            let entry = entry?;
            let path = inside.join(entry.file_name());
            if entry.path().is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    if found.is_empty() {
        bail!("{} is empty", folder.display());
    }
    found.sort();
    Ok(found)
}

/// Whether a file's name ends with this extension.
pub(crate) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|of| of == extension)
}
