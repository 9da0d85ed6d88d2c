//! The program as a shell runs it: its output and its exit codes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
        let path = std::env::temp_dir().join(format!("skyward-python-check-{}-{name}", std::process::id()));
        for (file, text) in files {
            let at = path.join(file);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the program writes, without its errors, and its exit code.
fn run(folder: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let program = env!("CARGO_BIN_EXE_skyward-python-check");
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// The verdicts: the lines that are not below another.
fn verdicts(output: &str) -> Vec<&str> {
    output.lines().filter(|line| line.starts_with("accepted ") || line.starts_with("refused  ")).collect()
}

#[test]
fn every_file_of_a_folder_has_a_verdict_in_a_fixed_order() {
    let folder = Folder::new(
        "order",
        &[
            ("p/b.py", b"import skyward as sky\nx = sky.shrad(1)\ny = sky.shrad(2)\n"),
            ("p/a/z.py", b"def f(a): return a\n"),
            ("p/a/latin.py", b"x = '\xfc'\n"),
            ("p/c.py", b"def f(:\n"),
            ("p/d.py", b"def f(a, /): return b\n"),
            ("p/e.py", b"x = 1\n"),
            ("p/.hidden/x.py", b"def f(:\n"),
            ("p/__pycache__/x.py", b"def f(:\n"),
            ("p/notes.txt", b"def f(:\n"),
        ],
    );
    let (output, code) = run(&folder.0, &["p"]);
    assert_eq!(code, Some(1));
    let expected = [
        "refused  p/a/latin.py",
        "accepted p/a/z.py",
        "refused  p/b.py",
        "refused  p/c.py",
        "refused  p/d.py",
        "accepted p/e.py",
    ];
    assert_eq!(verdicts(&output), expected, "{output}");
    for reason in [
        "    p/a/latin.py: `p/a/latin.py` is not UTF-8, first in line 1: save it as UTF-8\n",
        "    p/b.py:2:9: `skyward` has no `shrad`; did you mean `shard`?\n    2 | x = sky.shrad(1)\n      |         ^^^^^\n",
        "    p/c.py:1:7: ",
        "    p/d.py:1:5: `f` requires `a`, which is positional-only",
        "    p/d.py:1:21: `b` is not defined",
        "       6 files\n       2 accepted\n       4 refused\n",
        "       1 syntax\n",
        "       1 name of `skyward`\n",
    ] {
        assert!(output.contains(reason), "{reason}\n{output}");
    }
    assert_eq!(run(&folder.0, &["p"]).0, output, "the order is the same each time");
}

#[test]
fn accepted_files_give_no_error() {
    let folder = Folder::new("accepted", &[("a.py", b"def f(a): return a\n"), ("b.txt", b"x = 1\n")]);
    assert_eq!(
        run(&folder.0, &["."]),
        ("accepted ./a.py\n\n       1 files\n       1 accepted\n       0 refused\n".into(), Some(0))
    );
    let (output, code) = run(&folder.0, &["b.txt", "a.py"]);
    assert_eq!(verdicts(&output), vec!["accepted b.txt", "accepted a.py"], "files have any name");
    assert_eq!(code, Some(0), "files have any name");
    let (output, code) = run(&folder.0, &["a.py", "./a.py", ".", "b.txt", "b.txt"]);
    assert_eq!(verdicts(&output), vec!["accepted a.py", "accepted b.txt"], "each counts once");
    assert_eq!(code, Some(0), "each counts once");
    assert!(output.contains("       2 files\n"), "{output}");
}

#[test]
fn a_wrong_command_line_has_its_own_code() {
    let folder = Folder::new("wrong", &[("a/b.txt", b"")]);
    for arguments in [&[][..], &["--all"], &["missing"], &["a"]] {
        let (output, code) = run(&folder.0, arguments);
        assert_eq!(output.as_str(), "", "{arguments:?}");
        assert_eq!(code, Some(2), "{arguments:?}");
    }
    let (output, code) = run(&folder.0, &["--help"]);
    assert!(output.contains("exit code") && code == Some(0), "{output}");
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_or_back_are_no_trap() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new("links", &[("p/a/x.py", b"x = 1\n")]);
    symlink("..", folder.0.join("p/a/back")).unwrap();
    symlink("a", folder.0.join("p/b")).unwrap();
    symlink("gone.py", folder.0.join("p/c.py")).unwrap();
    symlink("gone", folder.0.join("p/d")).unwrap();
    let (output, code) = run(&folder.0, &["p"]);
    assert_eq!(verdicts(&output), ["accepted p/a/x.py", "refused  p/c.py"], "{output}");
    assert_eq!(code, Some(1));
}

#[cfg(unix)]
#[test]
fn names_and_texts_of_files_cannot_forge_the_report() {
    let files: [(&str, &[u8]); 2] = [("a\naccepted x\x1b.py", b"x = '\x1b[2J' +\n"), ("b.py", b"\x1b = 1\n")];
    let folder = Folder::new("forged", &files);
    let (output, code) = run(&folder.0, &["."]);
    assert_eq!(verdicts(&output), ["refused  ./a\\naccepted x\\u{1b}.py", "refused  ./b.py"], "{output}");
    assert!(!output.contains('\x1b') && output.contains("'\\u{1b}[2J' +"), "{output}");
    assert_eq!(code, Some(1));
}

#[test]
fn generated_files_may_be_deep_and_long() {
    let sum = format!("x = {}1\n", "1 + ".repeat(1_000_000));
    let lists = format!("x = {}{}\n", "[".repeat(5_000), "]".repeat(5_000));
    let functions: String = (0..2_000).map(|n| format!("@skyward.compute\ndef f{n}(a: int): return a\n")).collect();
    let functions = format!("import skyward\n{functions}");
    let files = [("a.py", sum.as_bytes()), ("b.py", lists.as_bytes()), ("c.py", functions.as_bytes())];
    let folder = Folder::new("deep", &files);
    let (output, code) = run(&folder.0, &["."]);
    assert_eq!(verdicts(&output), ["refused  ./a.py", "refused  ./b.py", "accepted ./c.py"], "{output}");
    assert!(
        output.contains("./a.py:1:1: in this statement, something is nested more than 3000 levels deep")
            && code == Some(1),
        "{output}"
    );
}

#[test]
fn the_payloads_of_this_repository_are_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (output, code) = run(&root, &["examples/payloads", "docs/payloads", "tests/payloads"]);
    assert_eq!(code, Some(0), "{output}");
}
