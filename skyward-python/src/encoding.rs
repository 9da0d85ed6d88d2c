//! The encoding of a Python file, as Python finds it: a byte order mark, or a comment in the first
//! two lines.

/// The text of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) text: String,
    /// Whether the text is what the file holds, byte for byte.
    pub(super) is_verbatim: bool,
}

/// Decodes a file. A text of another encoding than UTF-8 gets `utf-8` into the comment that names
/// its own, because the text is sent as UTF-8; no byte order mark is kept. Each line keeps its number.
///
/// # Errors
///
/// If Python refuses the file, or its encoding is not read here: what is wrong, and what to do.
pub(super) fn decode(bytes: Vec<u8>) -> Result<Decoded, String> {
    let marked = bytes.starts_with(BYTE_ORDER_MARK);
    let content = if marked { &bytes[BYTE_ORDER_MARK.len()..] } else { &bytes };
    let named = cookie(content);
    let name = named.map(|(from, to)| String::from_utf8_lossy(&content[from..to]).into_owned());
    let encoding = match &name {
        None => Encoding::Utf8,
        Some(name) => Encoding::named(name).ok_or_else(|| {
            format!("names the encoding `{name}` in a comment at its top, which is not read here: save it as UTF-8, and remove the comment")
        })?,
    };
    if marked && encoding != Encoding::Utf8 {
        let name = name.unwrap_or_default();
        return Err(format!(
            "begins with the byte order mark of UTF-8, and names the encoding `{name}` in a comment, which Python refuses: remove the comment"
        ));
    }
    let text = match encoding {
        Encoding::Utf8 => std::str::from_utf8(content).map(str::to_owned).map_err(|error| error.valid_up_to()),
        Encoding::Ascii => match content.iter().position(|byte| !byte.is_ascii()) {
            None => Ok(content.iter().copied().map(char::from).collect()),
            Some(at) => Err(at),
        },
        Encoding::Latin1 => Ok(content.iter().copied().map(char::from).collect()),
    };
    let mut text: String = text.map_err(|at| {
        let line = content[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let name = encoding.name();
        format!("is not {name}, first in line {line}: save it as UTF-8")
    })?;
    if let Some((from, to)) = named.filter(|_| encoding != Encoding::Utf8) {
        // What stands before is a comment, whose characters other than ASCII are longer in UTF-8.
        let before = |end: usize| content[..end].iter().map(|byte| char::from(*byte).len_utf8()).sum::<usize>();
        text.replace_range(before(from)..before(to), "utf-8");
    }
    let is_verbatim = text.as_bytes() == bytes;
    Ok(Decoded { text, is_verbatim })
}

/// The encodings of Python that are read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Ascii,
    Latin1,
}

impl Encoding {
    /// Python finds its codecs however their names are written.
    fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace(['-', '.'], "_");
        match name.as_str() {
            "utf_8" | "utf8" | "u8" | "utf" | "utf_8_sig" | "cp65001" => Some(Self::Utf8),
            name if name.starts_with("utf_8_") => Some(Self::Utf8),
            "ascii" | "us_ascii" | "646" | "iso646_us" => Some(Self::Ascii),
            "latin_1" | "latin1" | "latin" | "l1" | "iso_8859_1" | "iso8859_1" | "iso8859" | "8859" | "cp819" => {
                Some(Self::Latin1)
            }
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Ascii => "ASCII",
            Self::Latin1 => "Latin-1",
        }
    }
}

/// Where the name of the encoding is, by `coding[:=]\s*([-\w.]+)` in a comment of the first two
/// lines.
fn cookie(content: &[u8]) -> Option<(usize, usize)> {
    let mut start = 0;
    for line in content.split(|byte| *byte == b'\n').take(2) {
        let blank = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\x0c' | b'\r')).count();
        // Behind a line of code there is no such comment.
        if line.get(blank).is_some_and(|first| *first != b'#') {
            return None;
        }
        let mut names = line.windows(CODING.len() + 1).enumerate().filter_map(|(at, part)| {
            let is_key = part.starts_with(CODING) && matches!(part[CODING.len()], b':' | b'=');
            let from = at + part.len();
            let from = from + line[from..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let is_of_name = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            let length = line[from..].iter().take_while(is_of_name).count();
            (is_key && length > 0).then_some((start + from, start + from + length))
        });
        if let Some(found) = names.next() {
            return Some(found);
        }
        start += line.len() + 1;
    }
    None
}

const CODING: &[u8] = b"coding";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> (String, bool) {
        let Decoded { text, is_verbatim } = decode(bytes.to_vec()).unwrap();
        (text, is_verbatim)
    }

    #[test]
    fn what_python_reads_is_read() {
        for (bytes, expected) in [
            (&b"\xef\xbb\xbfa = 1\n"[..], "a = 1\n"),
            (b"\xef\xbb\xbf# coding: utf-8\na = 1\n", "# coding: utf-8\na = 1\n"),
            (b"# -*- coding: latin-1 -*-\nb = '\xfc'\n", "# -*- coding: utf-8 -*-\nb = 'ü'\n"),
            (
                b"#!/usr/bin/python\n# vim: set fileencoding=ISO-8859-1 :\n'\xe9'\n",
                "#!/usr/bin/python\n# vim: set fileencoding=utf-8 :\n'é'\n",
            ),
            (b"# \xe9 coding=latin1\r\n'\xe9'\r\n", "# é coding=utf-8\r\n'é'\r\n"),
            (b"\n# encoding: ascii\nx\n", "\n# encoding: utf-8\nx\n"),
        ] {
            assert_eq!(text(bytes), (expected.to_owned(), false), "{expected}");
        }
        for plain in ["", "a = 'ü'\n", "# coding: utf8\n", "x = 1\n# coding: klingon\n", "\n\n# coding: klingon\n"] {
            assert_eq!(text(plain.as_bytes()), (plain.to_owned(), true), "{plain}");
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for (bytes, words) in [
            (&b"a = 1\nb = '\xfc'\n"[..], "is not UTF-8, first in line 2"),
            (b"# coding: ascii\nb = '\xfc'\n", "is not ASCII, first in line 2"),
            (b"# coding: klingon\n", "`klingon`"),
            (b"\xef\xbb\xbf# coding: latin-1\n", "remove the comment"),
        ] {
            let error = decode(bytes.to_vec()).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
