//! Where everything of a name is in the storage.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::storage::ObjectPath;

/// The objects of one name of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    name: String,
    root: ObjectPath,
}

impl Layout {
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a text that is no name.
    pub(super) fn new(name: &str) -> Result<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if (1..=100).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_allowed) {
            return Ok(Self { name: name.to_owned(), root: ObjectPath::new(format!("checkpoints/{name}"))? });
        }
        let shown: String = name.chars().take(100).collect();
        Err(Error::new(ErrorKind::InvalidSpec, format!("`{shown}` is no name of checkpoints")).with_hint(
            "use 1 to 100 letters from A to Z, digits, `.`, `_` and `-`, with no `.` at the beginning: `run-42`",
        ))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The beginning of the names of all objects.
    pub(super) fn root(&self) -> &ObjectPath {
        &self.root
    }

    pub(super) fn commits(&self) -> ObjectPath {
        self.root.with("commits")
    }

    pub(super) fn commit(&self, sequence: u64) -> ObjectPath {
        self.commits().with(format_args!("{sequence:012}"))
    }

    pub(super) fn owners(&self) -> ObjectPath {
        self.root.with("owner")
    }

    pub(super) fn owner(&self, number: u64) -> ObjectPath {
        self.owners().with(format_args!("{number:012}"))
    }

    /// Where objects are created only to read the clock of the store.
    pub(super) fn probes(&self) -> ObjectPath {
        self.root.with("probe")
    }

    pub(super) fn data(&self) -> ObjectPath {
        self.root.with("data")
    }

    pub(super) fn save(&self, save: &SaveId) -> ObjectPath {
        self.data().with(save)
    }

    pub(super) fn part(&self, save: &SaveId, rank: u32, number: u32) -> ObjectPath {
        self.save(save).with(format_args!("{rank}/{number:06}"))
    }

    /// The save whose data an object is.
    pub(super) fn save_of(&self, object: &ObjectPath) -> Option<SaveId> {
        SaveId::parse(object.below(&self.data())?.split('/').next()?)
    }
}

/// The number that an object of 12 digits has; `None` for other names.
pub(super) fn number_of(object: &ObjectPath, folder: &ObjectPath) -> Option<u64> {
    let name = object.below(folder)?;
    let is_number = name.len() == 12 && name.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| name.parse().ok()).flatten()
}

/// The id of a save: 32 hexadecimal digits, random, the same for all ranks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct SaveId(String);

impl SaveId {
    /// A new id.
    pub(crate) fn random() -> Self {
        Self(random())
    }

    /// `None` for a text that is no id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        is_hex(text, 32).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for SaveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SaveId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| "the id of a save is not 32 hexadecimal digits".to_owned())
    }
}

impl From<SaveId> for String {
    fn from(id: SaveId) -> Self {
        id.0
    }
}

/// 32 random hexadecimal digits.
pub(super) fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Whether a text is this many hexadecimal digits.
pub(super) fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The most bytes of a part of the data.
pub(crate) const LARGEST_PART: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let long = "x".repeat(101);
        for name in ["run-42", "a", "A.b_c", &long[1..]] {
            assert_eq!(Layout::new(name).unwrap().name(), name);
        }
        for name in ["", ".", "..", ".a", "a/b", "a b", "ä", &long] {
            assert_eq!(Layout::new(name).unwrap_err().kind(), ErrorKind::InvalidSpec, "{name}");
        }
    }

    #[test]
    fn objects_have_the_names_of_the_documentation() {
        let layout = Layout::new("run-42").unwrap();
        let save = SaveId::parse("0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(layout.commit(17).as_str(), "checkpoints/run-42/commits/000000000017");
        assert_eq!(layout.owner(3).as_str(), "checkpoints/run-42/owner/000000000003");
        let part = layout.part(&save, 2, 5);
        assert_eq!(part.as_str(), "checkpoints/run-42/data/0123456789abcdef0123456789abcdef/2/000005");
        assert_eq!(layout.save_of(&part), Some(save));
        assert_eq!(number_of(&layout.commit(17), &layout.commits()), Some(17));
        for other in ["1", "00000000001x", "0000000000017", "000000000017/a", ".DS_Store"] {
            assert_eq!(number_of(&layout.commits().with(other), &layout.commits()), None, "{other}");
        }
    }
}
