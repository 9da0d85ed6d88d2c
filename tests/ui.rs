//! The declarations that `#[skyward::compute]` accepts and refuses, with its messages.

use std::fs;
use std::io;
use std::path::Path;

/// The accepted declarations are modules of this program, which compiles with all of them. Each has a
/// test of what it declares.
macro_rules! accepted {
    ($($name:ident)*) => {
        #[path = "ui/pass"]
        #[allow(dead_code, reason = "a declaration is accepted whether or not its test calls it")]
        mod pass {
            $(mod $name;)*
        }

        const ACCEPTED: &[&str] = &[$(stringify!($name)),*];
    };
}

accepted! {
    arguments
    asynchronous
    file
    folder
    hygiene
    inline
    items
    macro_rules
    names
    rust_body
    scripts
    streaming
    unchecked
}

#[test]
fn all_accepted_declarations_are_modules_of_this_program() {
    let files = fs::read_dir("tests/ui/pass").unwrap().map(|file| file.unwrap().path());
    let mut names: Vec<_> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, ACCEPTED);
}

#[test]
fn refused_declarations_have_the_recorded_messages() {
    // The cases are compiled as a separate package, and payload paths are relative to a package's
    // manifest.
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tests/trybuild/skyward/payloads");
    copy(Path::new("tests/ui/payloads"), &package).expect("the payloads can be copied");

    let cases = trybuild::TestCases::new();
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
