//! Keys of dicts that occur twice: of their two entries, one would be lost.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;

use super::reader::{Reader, Token};

/// A key as its reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key<'de> {
    Text(Cow<'de, [u8]>),
    Number(i128),
    /// Neither a text nor an int; most types refuse it.
    Other(&'de [u8]),
}

impl<'de> Key<'de> {
    /// The key that begins at the reader and has this many bytes. An int is read as a text where
    /// it may be the name of a field.
    pub(super) fn read(mut reader: Reader<'de>, length: usize, as_name: bool) -> Self {
        let bytes = reader.rest().get(..length).unwrap_or_default();
        let number = match reader.token() {
            Ok(Token::Str(text)) => return Self::Text(text.into()),
            Ok(Token::Unsigned(number)) => i128::from(number),
            Ok(Token::Signed(number)) => i128::from(number),
            _ => return Self::Other(bytes),
        };
        if as_name { Self::Text(number.to_string().into_bytes().into()) } else { Self::Number(number) }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Text(text) => super::describe::string(&String::from_utf8_lossy(text)),
            Self::Number(number) => format!("the int {number}"),
            Self::Other(_) => "a key".to_owned(),
        }
    }
}

/// A key that occurs twice.
pub(super) fn repeated<K: Hash + Eq>(keys: &[K]) -> Option<&K> {
    if keys.len() <= FEW {
        return keys.iter().enumerate().find(|(at, key)| keys[..*at].contains(key)).map(|(_, key)| key);
    }
    let mut seen = HashSet::with_capacity(keys.len());
    keys.iter().find(|key| !seen.insert(*key))
}

/// The most keys that are compared with each other.
const FEW: usize = 8;
