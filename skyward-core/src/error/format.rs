//! The formats of an error: one line, several lines, and the chain of causes.

use std::fmt;

use super::{Error, Listed};

impl Error {
    /// One line: the message and facts of this error, then those of each cause after a `: `, for
    /// a log that shows no [`source`](std::error::Error::source).
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::error::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Io, "cannot read the settings")
    ///     .with_context("path", "/x")
    ///     .with_source(std::io::Error::other("disk on fire"));
    /// assert_eq!(error.to_string(), "cannot read the settings (path: /x)");
    /// assert_eq!(error.summary(), "cannot read the settings (path: /x): disk on fire");
    /// ```
    pub fn summary(&self) -> String {
        let mut text = self.to_string();
        text.extend(self.causes().map(|cause| format!(": {}", cause.to_string().lines().next().unwrap_or_default())));
        text
    }

    /// The facts in brackets, after a space; empty if there are none.
    pub(crate) fn facts(&self) -> String {
        let facts: Vec<_> = self.0.context.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) }
    }

    /// Traceback, last lines, stacks and tries. Each line begins with a line break.
    fn particulars(&self) -> String {
        let mut text = match &self.0.exception {
            Some(exception) if !exception.traceback.is_empty() => format!("\n{}", exception.traceback.trim_end()),
            _ => String::new(),
        };
        if let Some(lines) = self.last_lines() {
            text += "\nlast lines of its standard error:";
            text.extend(lines.lines().map(|line| format!("\n  {line}")));
        }
        text += &Listed(self.stacks()).to_string();
        text.extend(self.0.tries.iter().map(|one| format!("\n{one}")));
        text
    }

    /// The particulars and the chain of causes.
    pub(crate) fn details(&self) -> String {
        let mut text = self.particulars();
        text.extend(self.causes().map(|cause| format!("\ncaused by: {cause:#}")));
        text
    }

    /// The chain of causes, beginning with the source.
    pub(super) fn causes(&self) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
        std::iter::successors(std::error::Error::source(self), |cause| cause.source())
    }
}

/// One line: the message, and the facts in brackets. With `{:#}` also traceback, last lines, stacks, tries
/// and hint, each on lines of its own.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            let line = self.0.message.lines().next().unwrap_or_default();
            return write!(f, "{line}{}", self.facts().replace('\n', " "));
        }
        write!(f, "{}{}{}", self.0.message, self.facts(), self.particulars())?;
        if let Some(hint) = &self.0.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// Like `Display` with `{:#}`, and the chain of causes. `fn main() -> skyward::Result<()>` prints
/// this text.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")?;
        self.causes().try_for_each(|cause| write!(f, "\ncaused by: {cause:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn display_shows_the_first_line_of_a_message_of_several_lines() {
        let error =
            Error::new(ErrorKind::Hook, "entering the hook failed\nTraceback:\n  x").with_context("last", "a\nb");
        assert_eq!(error.to_string(), "entering the hook failed (last: a b)");
        assert_eq!(format!("{error:#}"), "entering the hook failed\nTraceback:\n  x (last: a\nb)");
    }

    #[test]
    fn display_is_one_line_alternate_adds_the_hint_and_debug_the_causes() {
        let error = Error::new(ErrorKind::Io, "cannot read the file")
            .with_context("path", "/x")
            .with_source(std::io::Error::other("disk on fire"))
            .with_hint("put it out");
        assert_eq!(error.to_string(), "cannot read the file (path: /x)");
        assert_eq!(format!("{error:#}"), "cannot read the file (path: /x)\nhint: put it out");
        assert!(format!("{error:?}").ends_with("caused by: disk on fire"));
    }
}
