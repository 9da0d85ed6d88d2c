//! Lists the files of the Python worker package, so that just those are embedded, and a change of
//! one rebuilds the crate.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("python");
    let mut files = Vec::new();
    collect(&root.join("skyward"), &mut files)?;
    files.sort();
    let mut list = String::from("const FILES: &[(&str, &str)] = &[\n");
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        let _ = writeln!(list, "    ({name:?}, include_str!({:?})),", file.display().to_string());
    }
    list.push_str("];\n");
    let output = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(output.join("worker_package.rs"), list)
}

/// Python's own caches are no part of the package.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.is_dir() {
        println!("cargo::rerun-if-changed={}", folder.display());
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let wanted = path.extension().is_some_and(|extension| extension == "py") || path.ends_with("py.typed");
        if path.is_dir() && !path.ends_with("__pycache__") {
            collect(&path, files)?;
        } else if wanted {
            files.push(path);
        }
    }
    Ok(())
}
