//! The declarations that `#[skyward::compute]` accepts and refuses, with its messages.

use std::fs;
use std::io;
use std::path::Path;

#[test]
fn ui() {
    // The cases are compiled as a separate package, and payload paths are relative to a package's
    // manifest.
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tests/trybuild/skyward/payloads");
    copy(Path::new("tests/ui/payloads"), &package).expect("the payloads can be copied");

    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}

/// Copies changed files, and removes files that no longer exist.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            if entry.path().is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else if fs::read(entry.path()).ok() != fs::read(&target).ok() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
