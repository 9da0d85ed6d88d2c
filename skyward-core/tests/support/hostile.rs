//! Settings of a user's shell that change what scripts do, and the shells that may be `sh`.
//!
//! The file uses the standard library alone, so that any program of the project can include it with
//! `#[path]`.

// Each program uses a part of the file, and a library makes it public.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Variables that change what shells and their tools do; functions that bash exports, one for each
/// command that a script may use; and all variables that a script of the library sets.
pub fn environment() -> Vec<(String, String)> {
    let settings = [
        ("BASHOPTS", "failglob:nocasematch:nullglob:xpg_echo"),
        ("BASH_COMPAT", "3.1"),
        ("BASH_ENV", "/dev/fd/99"),
        ("BLOCK_SIZE", "human-readable"),
        ("CDPATH", "/usr:/proc"),
        ("ENV", "/dev/fd/99"),
        ("FORCE_COLOR", "1"),
        ("FUNCNEST", "1"),
        ("GLOBIGNORE", "*"),
        ("GREP_COLOR", "01;31"),
        ("GREP_OPTIONS", "--color=always -v"),
        ("IFS", "0123456789abcdef/"),
        ("POSIXLY_CORRECT", "1"),
        ("QUOTING_STYLE", "c"),
        ("SHELLOPTS", "errexit:noclobber:noglob:nounset:pipefail"),
        ("TAR_OPTIONS", "--no-such-option"),
        ("TMOUT", "1"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let functions = COMMANDS.iter().map(|name| (format!("BASH_FUNC_{name}%%"), "() { return 3; }".to_owned()));
    let variables = variables().into_iter().map(|name| (name, "-n * $(false) '".to_owned()));
    settings.into_iter().chain(functions).chain(variables).collect()
}

/// The names of the variables that scripts of the library set.
fn variables() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for script in scripts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = std::fs::read_to_string(script).unwrap_or_default();
        for word in text.split(|c: char| c.is_whitespace() || ";({$\"'`:".contains(c)) {
            let Some((name, _)) = word.split_once('=') else { continue };
            if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// All scripts below a folder.
pub fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(scripts(&path));
        } else if path.extension().is_some_and(|extension| extension == "sh") {
            found.push(path);
        }
    }
    found
}

/// A folder in which one shell is `sh`, for the beginning of a search path; without bash unless that
/// is the shell. Dropping the value removes it.
#[derive(Debug)]
pub struct Sh(PathBuf);

impl Sh {
    /// Links a shell of this host, and every other program but bash.
    pub fn new(shell: &str) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("skyward-sh-{}-{shell}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder)?;
        let sh = Self(folder);
        let found = ["/usr/local/bin", "/usr/bin", "/bin"].map(|folder| Path::new(folder).join(shell));
        let found = found.into_iter().find(|path| path.exists());
        let program = found.ok_or_else(|| io::Error::other(format!("this test needs {shell}")))?;
        symlink(program, sh.0.join("sh"))?;
        for folder in ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if shell == "bash" || !["bash", "rbash"].iter().any(|one| name == *one) {
                    // The first of two programs with one name counts.
                    let _ = symlink(entry.path(), sh.0.join(name));
                }
            }
        }
        Ok(sh)
    }

    /// The search path: this folder alone.
    pub fn path(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

impl Drop for Sh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The shells that are `sh` on machines.
pub const SHELLS: [&str; 3] = ["bash", "dash", "busybox"];
/// The names by which scripts call functions of the shell and programs, as far as they are names of
/// functions.
const COMMANDS: [&str; 57] = [
    "awk",
    "builtin",
    "cat",
    "cd",
    "chmod",
    "chown",
    "cmp",
    "command",
    "compgen",
    "cp",
    "cut",
    "date",
    "declare",
    "df",
    "echo",
    "env",
    "false",
    "find",
    "flock",
    "getent",
    "grep",
    "gzip",
    "head",
    "id",
    "kill",
    "ls",
    "mkdir",
    "mkfifo",
    "mktemp",
    "mv",
    "nproc",
    "od",
    "printf",
    "read",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "setsid",
    "sh",
    "sha256sum",
    "shopt",
    "sleep",
    "sort",
    "stat",
    "tail",
    "tar",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "umask",
    "uname",
    "uniq",
    "wait",
    "wc",
];
