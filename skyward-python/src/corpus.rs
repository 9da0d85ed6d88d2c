//! Python's own library, of which nothing may be refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use indoc::formatdoc;

use super::body::{Body, Literal};
use super::finding::Kind;
use super::module::{Lines, Module};
use super::version::Target;

#[test]
fn nothing_of_the_standard_library_is_refused() {
    let (folder, target) = library();
    let mut paths = Vec::new();
    collect(&folder, &mut paths);
    let mut refused = Vec::new();
    let mut bodies = 0;
    for path in &paths {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let module = Module::parse(path.display().to_string(), text.clone(), Lines::Own, target.clone());
        refused.extend_from_slice(module.syntax_errors());
        refused.extend(module.undefined_names(None));
        // What only a module may say cannot be said in a body.
        if module.is_valid()
            && !["global ", "from __future__", "import *", "__debug__"].iter().any(|it| text.contains(it))
        {
            let height = text.split('\n').count();
            let literal = Literal { path: path.display().to_string(), line: 2, column: 1, height };
            let body = Body::new("payload", &["some", "names"], &format!("\n{text}"), literal);
            refused.extend(body.findings().into_iter().filter(|finding| finding.kind() == Kind::Undefined));
            bodies += 1;
        }
    }
    assert_eq!(refused, []);
    assert!(bodies > 100, "{bodies} bodies of {} files", paths.len());
}

/// Where the library lies, and the version that it is for.
fn library() -> (PathBuf, Target) {
    let script = "import sys, sysconfig; print(sysconfig.get_path('stdlib')); print('%d.%d' % sys.version_info[:2])";
    let output = Command::new("python3").args(["-c", script]).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let (folder, version) = output.trim().split_once('\n').unwrap();
    let metadata = formatdoc! {"
        # /// script
        # requires-python = '=={version}.*'
        # ///
    "};
    (PathBuf::from(folder), Target::of(&metadata, |line| line.to_string()))
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            // Tests hold what is wrong on purpose.
            if !["test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"].contains(&&*name) {
                collect(&path, paths);
            }
        } else if name.ends_with(".py") {
            paths.push(path);
        }
    }
}
