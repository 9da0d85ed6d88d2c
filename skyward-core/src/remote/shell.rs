//! Scripts that this library starts with `sh`, and words of the shell.
//!
//! No other file starts `sh`, so that each script begins with the same reset.

use std::sync::LazyLock;

/// Quotes a text as one word of the shell, also for a shell that expands braces.
pub(crate) fn quoted(text: &str) -> String {
    // Only a text with a zero byte cannot be quoted, and zero bytes are allowed here.
    shlex::Quoter::new().allow_nul(true).quote(text).unwrap_or_default().into_owned()
}

/// The program that runs a script, whose own arguments follow: the first of them is `$0`.
pub(crate) fn script(text: &str) -> [String; 3] {
    ["sh".to_owned(), "-c".to_owned(), format!("{}{text}", *RESET)]
}

/// The same for a script that ends at the first command that fails, and at a variable that is not
/// set.
pub(crate) fn strict(text: &str) -> [String; 3] {
    script(&format!("{STRICT}{text}"))
}

/// A script without its comments, for where its size matters.
pub(crate) fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !is_comment(line)).flat_map(|line| [line, "\n"]).collect()
}

/// A script in one line that any shell of a user accepts, and which that shell becomes. The script
/// has no single quotes and no exclamation marks, and its lines can be joined.
#[cfg(feature = "ssh")]
pub(super) fn launched(text: &str) -> String {
    let lines: Vec<_> = RESET.lines().chain(text.lines()).map(str::trim).filter(|line| !is_comment(line)).collect();
    format!("exec sh -c '{}'", lines.join(" "))
}

/// The command for a message, shortened: the text of a script is long.
pub(super) fn shown(argv: &[String]) -> String {
    let words: Vec<_> = argv.iter().map(|word| word.strip_prefix(RESET.as_str()).unwrap_or(word)).collect();
    let text = words.iter().map(|word| word.strip_prefix(STRICT).unwrap_or(word)).collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// What each script begins with.
static RESET: LazyLock<String> = LazyLock::new(|| without_comments(include_str!("shell/reset.sh")));
const STRICT: &str = "set -eu\n";

#[cfg(test)]
#[path = "../../tests/support/hostile.rs"]
pub(crate) mod hostile;
#[cfg(test)]
mod tests;
