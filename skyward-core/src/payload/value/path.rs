//! Paths in a value, such as `.losses[3].x`.

use std::fmt;

use super::reader::{Reader, Token};

/// A path, which is displayed without its middle if it is long. It is assembled from its end while an
/// error is passed up through the value.
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
        let long = self.0.len() > 2 * MAX_END;
        for (at, segment) in self.0.iter().rev().enumerate() {
            if long && at == MAX_END {
                f.write_str("…")?;
            }
            if !long || at < MAX_END || at >= self.0.len() - MAX_END {
                segment.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Number(number) => write!(f, "[{number}]"),
            Self::Key(key) if is_identifier(key) => write!(f, ".{key}"),
            Self::Key(key) => write!(f, "[{key:?}]"),
        }
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
/// The number of segments of a long path that are displayed at its start and at its end.
const MAX_END: usize = 8;

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

    #[test]
    fn the_middle_of_a_long_path_is_left_out() {
        let mut path = Path::default();
        for index in (0..100).rev() {
            path.prepend(Segment::Index(index));
        }
        assert_eq!(path.to_string(), "[0][1][2][3][4][5][6][7]…[92][93][94][95][96][97][98][99]");
    }
}
