//! Paths in a value, such as `.losses[3].x`.

use std::fmt;

use super::reader::{Reader, Token};

/// A path, which is assembled from its end while an error is passed up through the value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Path(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    Index(u64),
    Key(String),
    /// A dict key that is an int.
    Number(i128),
}

impl Path {
    pub(super) fn prepend(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl Segment {
    /// The dict key that begins at the reader, or `?` if it is neither a str nor an int.
    pub(super) fn key(mut reader: Reader<'_>) -> Self {
        match reader.token() {
            Ok(Token::Str(text)) => Self::Key(shorten(&String::from_utf8_lossy(text))),
            Ok(Token::Unsigned(number)) => Self::Number(number.into()),
            Ok(Token::Signed(number)) => Self::Number(number.into()),
            _ => Self::Key("?".to_owned()),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in self.0.iter().rev() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Number(number) => write!(f, "[{number}]")?,
                Segment::Key(key) if is_identifier(key) => write!(f, ".{key}")?,
                Segment::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

/// Cuts a text to at most 60 characters, for a message.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_identifier(key: &str) -> bool {
    let mut letters = key.chars();
    letters.next().is_some_and(|first| first == '_' || first.is_alphabetic())
        && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
}

const MAX_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_displayed_like_python() {
        let mut path = Path::default();
        for segment in [Segment::Key("x y".into()), Segment::Number(-1), Segment::Index(3), Segment::Key("loss".into())]
        {
            path.prepend(segment);
        }
        assert_eq!(path.to_string(), r#".loss[3][-1]["x y"]"#);
    }
}
