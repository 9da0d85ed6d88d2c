//! The names of objects.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// The name of an object in a storage, or the beginning of names: parts of `A-Z`, `a-z`, `0-9`, `.`,
/// `_` and `-`, with `/` between them. No part is `.` or `..`, and the whole has at most 1024 bytes.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::storage::ObjectPath;
///
/// let path = ObjectPath::new("runs/a")?.join("weights-1.pt")?;
/// assert_eq!(path.as_str(), "runs/a/weights-1.pt");
/// assert!(ObjectPath::new("runs/../a").is_err());
/// # Ok::<(), skyward::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectPath(String);

impl ObjectPath {
    /// A name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a text that is none.
    pub fn new(path: impl Into<String>) -> Result<Self> {
        let path = path.into();
        if path.len() <= LONGEST && path.split('/').all(is_part) {
            return Ok(Self(path));
        }
        let shown: String = path.chars().take(100).collect();
        let message = format!("`{shown}` cannot be the name of an object in a storage");
        Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(
            "use letters from A to Z, digits, `.`, `_` and `-`, with `/` between the parts; no part is empty, `.` or \
             `..`, and all of it has at most 1024 bytes",
        ))
    }

    /// The name with these parts after it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn join(&self, below: impl fmt::Display) -> Result<Self> {
        Self::new(format!("{}/{below}", self.0))
    }

    /// The name with parts after it that are known to be such.
    pub(crate) fn with(&self, below: impl fmt::Display) -> Self {
        Self(format!("{}/{below}", self.0))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// What the name has after this beginning of names; `None` for a name that is not below it.
    pub fn below(&self, prefix: &Self) -> Option<&str> {
        self.0.strip_prefix(&prefix.0)?.strip_prefix('/')
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text can be a part of a name.
pub(super) fn is_part(part: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !matches!(part, "" | "." | "..") && part.bytes().all(is_allowed)
}

/// The most bytes of a name.
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_every_storage_can_have_are_paths() {
        for path in ["a", "a/b", ".a", "...", "a..b", "A-_.9/x"] {
            assert_eq!(ObjectPath::new(path).unwrap().as_str(), path);
        }
        let long = "x".repeat(LONGEST + 1);
        for path in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "a b", "ä", "a\\b", "a~", "a\0", &long] {
            assert_eq!(ObjectPath::new(path).unwrap_err().kind(), ErrorKind::InvalidSpec, "{path}");
        }
        assert!(ObjectPath::new(&long[1..]).is_ok() && ObjectPath::new("a").unwrap().join("..").is_err());
    }

    #[test]
    fn a_name_is_below_another_one_by_whole_parts() {
        let path = |text: &str| ObjectPath::new(text).unwrap();
        assert_eq!(path("a/b/c").below(&path("a")), Some("b/c"));
        assert_eq!(path("ab/c").below(&path("a")), None);
        assert_eq!(path("a").below(&path("a")), None);
    }
}
