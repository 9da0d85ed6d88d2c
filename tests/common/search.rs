//! Searches a machine for a text: in files, and in the command lines and environments of processes.

use skyward::remote::{Command, Remote};

/// Where a text was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) files: Vec<String>,
    /// Processes, with their command lines.
    pub(crate) commands: Vec<String>,
    /// Process ids.
    pub(crate) environments: Vec<u32>,
}

/// Searches all files below these folders that changed after the file `since` (all files if it is
/// empty), and all processes that this user sees. The text itself is in no command line during the
/// search.
pub(crate) async fn search(remote: &dyn Remote, text: &str, folders: &[&str], since: &str) -> Found {
    let command = Command::script(SCRIPT).env("folders", folders.join("\n")).env("since", since).stdin(text);
    let output = remote.run(&command, &|_| ()).await.unwrap();
    assert!(output.success(), "the search failed: {output:?}");
    let mut found = Found::default();
    let mut looked = 0;
    for line in output.stdout.lines() {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "file" => found.files.push(rest.to_owned()),
            "command" => found.commands.push(rest.to_owned()),
            "environment" => found.environments.push(rest.parse().unwrap()),
            "looked" => looked += rest.parse::<usize>().unwrap(),
            _ => panic!("the search printed {line:?}"),
        }
    }
    assert!(looked > 0, "there was nothing to search: {folders:?}");
    found.environments.sort_unstable();
    found
}

/// `grep` reads the text from its standard input, and the shell keeps the text in a variable that
/// it does not export.
const SCRIPT: &str = r#"
text=$(cat)
has() { printf '%s' "$text" | LC_ALL=C grep -qaF -f - "$1" 2>/dev/null; }
newline='
'
IFS=$newline
for folder in $folders; do
    count=0
    for file in $(find "$folder" -xdev -type f ${since:+-newer} ${since:+"$since"} 2>/dev/null); do
        count=$((count + 1))
        if has "$file"; then echo "file $file"; fi
    done
    echo "looked $count"
done
for process in /proc/[0-9]*; do
    if has "$process/cmdline"; then echo "command ${process#/proc/} $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)"; fi
    if has "$process/environ"; then echo "environment ${process#/proc/}"; fi
done
"#;
