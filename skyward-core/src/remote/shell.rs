//! Words of the shell.

/// Quotes a text as one word of the shell, also for a shell that expands braces.
pub(crate) fn quoted(text: &str) -> String {
    // Only a text with a zero byte cannot be quoted, and zero bytes are allowed here.
    shlex::Quoter::new().allow_nul(true).quote(text).unwrap_or_default().into_owned()
}
