//! Scripts with each shell that may be `sh`, below a user who has changed all that a shell takes from
//! its environment.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::*;

fn run(program: &[String; 3], shell: &str, args: &[&str]) -> Output {
    let shell: &[&str] = if shell == "busybox" { &["busybox", "sh"] } else { &[shell, "--posix"] };
    let shell = if shell[0] == "dash" { &shell[..1] } else { shell };
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args(&program[1..]).args(args).envs(hostile::environment());
    command.env("TMPDIR", "/tmp").stdin(Stdio::null()).output().unwrap()
}

fn a_script_takes_nothing_from_its_users_settings(shell: &str) {
    let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
    std::fs::create_dir_all(folder.join("usr/bin")).unwrap();
    let place = folder.to_str().unwrap();
    let output = run(&script(PROBE), shell, &["the name", place, "second"]);
    let strict = run(&strict("echo begun; false; echo not reached"), shell, &[]);
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, format!("the name {place} second\n{EXPECTED}"), "{shell}: {output:?}");
    assert_eq!(output.status.code(), Some(7), "{shell}: {output:?}");
    assert_eq!((strict.status.code(), &strict.stdout[..]), (Some(1), &b"begun\n"[..]), "{shell}: {strict:?}");
}

#[test]
fn a_script_takes_nothing_from_its_users_settings_in_bash() {
    a_script_takes_nothing_from_its_users_settings("bash");
}

#[test]
#[ignore = "needs dash"]
fn a_script_takes_nothing_from_its_users_settings_in_dash() {
    a_script_takes_nothing_from_its_users_settings("dash");
}

#[test]
#[ignore = "needs busybox"]
fn a_script_takes_nothing_from_its_users_settings_in_busybox() {
    a_script_takes_nothing_from_its_users_settings("busybox");
}

#[test]
fn every_script_begins_with_the_reset() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = vec![src.clone()];
    let mut texts = Vec::new();
    while let Some(path) = sources.pop() {
        if path.is_dir() {
            sources.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            texts.push((path, text));
        }
    }
    let is_test = |path: &Path| path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
    for (path, text) in &texts {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let started: Vec<_> = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .filter(|line| STARTS.iter().any(|start| line.contains(start)))
            .collect();
        let may = path.ends_with("remote/shell.rs") || is_test(path);
        assert!(may || started.is_empty(), "{}: {started:?}: start scripts by `remote::shell`", path.display());
    }
    for script in hostile::scripts(&src) {
        let name = script.file_name().unwrap().to_str().unwrap();
        let included = texts
            .iter()
            .filter(|(_, text)| text.contains(&format!("/{name}\")")) || text.contains(&format!("\"{name}\")")));
        assert!(included.count() > 0, "{} is used by no source", script.display());
    }
}

#[test]
fn messages_show_a_script_without_the_reset() {
    let argv = |program: [String; 3]| shown(&program.map(|word| word.chars().collect::<String>()));
    assert_eq!(argv(strict("echo it")), "sh -c echo it");
    assert_eq!(argv(script("echo it")), "sh -c echo it");
    assert_eq!(shown(&[format!("{}{}", *RESET, "x".repeat(100))]), format!("{}…", "x".repeat(80)));
}

/// What starts a shell.
const STARTS: [&str; 6] = ["\"sh\", \"-", "[\"sh\"", "new(\"sh", "\"-euc\"", "[\"bash\"", "[\"/bin/sh\""];
/// Prints what the settings would change.
const PROBE: &str = r#"
echo "$0" "$1" "$2"
cd "$1" || exit 9
cd usr/bin && echo "went to ${PWD##*/usr/}"
set -- $(echo a1b2/c)
echo "words $#: $1"
case A in a) echo "no case" ;; *) echo "case counts" ;; esac
{ sleep 1.5; echo late; } | { read -r line; echo "read $line"; }
for one in none*; do echo "glob $one"; done
printf 'x\ny\n' | grep x
: >there
echo again >there && cat there
false
true | false | true && echo "pipes end with their last"
echo "unset ${never_set-has no value}"
one() { two; }; two() { three; }; three() { echo nested; }
one
df -Pk / | awk 'NR == 2 { print ($4 ~ /^[0-9]+$/) ? "KiB" : $4 }'
command -v exported_by_nobody || echo "no such command"
env | grep -c -e ^GREP_OPTIONS= -e ^TMOUT= -e ^CDPATH= -e ^BASH_ENV= -e ^TAR_OPTIONS= -e ^POSIXLY_CORRECT=
exit 7
"#;
const EXPECTED: &str = "went to bin
words 1: a1b2/c
case counts
read late
glob none*
x
again
pipes end with their last
unset has no value
nested
KiB
no such command
0
";
