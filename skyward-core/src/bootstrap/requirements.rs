//! Requirements files and lock files, carried to the machine for uv to read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::reading::{invalid, read};
use crate::error::{Error, Result};

/// A requirements file with the files that it names, or a lock file.
///
/// uv reads them on the machine; here only the names of further files are looked up.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequirementFiles {
    /// The path of the file that the image names, among `files`.
    pub first: String,
    /// The texts of all files by their paths relative to each other.
    pub files: BTreeMap<String, String>,
    archive: Bytes,
}

impl RequirementFiles {
    /// Reads the file and those that it names.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let wrong = |what: &str, hint: &str| Err(invalid(format!("{} is {what}", path.display())).with_hint(hint));
        match name.as_str() {
            "uv.lock" => wrong(UV_LOCK.0, UV_LOCK.1),
            "poetry.lock" | "Pipfile.lock" | "pdm.lock" => {
                wrong("a lock file of another tool", "export it as requirements.txt or pylock.toml")
            }
            "pyproject.toml" => wrong(
                "a project, not a list of packages",
                "lock it: `uv export --format requirements-txt -o requirements.txt`",
            ),
            name if name.ends_with(".py") => wrong(
                "Python code, not a list of packages",
                "declare it as a payload, whose metadata joins the image: `.payload::<Train>()`",
            ),
            name if name.ends_with(".toml") => {
                let text = text(path)?;
                if text.contains("lock-version") {
                    Self::new(PYLOCK.into(), BTreeMap::from([(PYLOCK.into(), text)]))
                } else {
                    wrong(
                        "not a lock file",
                        "a lock file in TOML is a pylock.toml: `uv export --format pylock.toml -o pylock.toml`",
                    )
                }
            }
            _ => Self::with_named(path),
        }
    }

    /// Reads a requirements file and, recursively, the files that it names, each once.
    fn with_named(path: &Path) -> Result<Self> {
        let first = plain(path)?;
        let mut texts = BTreeMap::new();
        let mut waiting = vec![first.clone()];
        while let Some(path) = waiting.pop() {
            if texts.contains_key(&path) {
                continue;
            }
            if texts.len() == MOST {
                return Err(invalid(format!("{} names more than {MOST} files, one by another", first.display()))
                    .with_hint("write them as one file: `uv pip compile -o all.txt requirements.txt`"));
            }
            let text = text(&path)?;
            let folder = path.parent().unwrap_or(Path::new("/"));
            for named in names(&path, &text)? {
                waiting.push(plain(&folder.join(named))?);
            }
            texts.insert(path, text);
        }
        let mut root = first.parent().unwrap_or(Path::new("/"));
        while !texts.keys().all(|path| path.starts_with(root)) {
            root = root.parent().unwrap_or(Path::new("/"));
        }
        let relative = |path: &Path| format!("{FOLDER}/{}", path.strip_prefix(root).unwrap_or(path).display());
        let files = texts.iter().map(|(path, text)| (relative(path), text.clone())).collect();
        Self::new(relative(&first), files)
    }

    /// The file that the image names, and the texts of all files by their paths on the machine.
    pub(super) fn new(first: String, files: BTreeMap<String, String>) -> Result<Self> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, text) in &files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o600);
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, path, text.as_bytes()).map_err(|error| unpacked(path, error))?;
        }
        let archive = archive.into_inner().map_err(|error| unpacked(&first, error))?.into();
        Ok(Self { first, files, archive })
    }

    /// The files as a tar archive.
    pub(super) fn archive(&self) -> Bytes {
        self.archive.clone()
    }

    /// The text that is part of the image's content hash.
    pub(super) fn hashed_text(&self) -> String {
        match self.files.len() {
            1 => self.files.values().cloned().collect(),
            _ => format!("{:?}\n{:?}", self.first, self.files),
        }
    }
}

/// The content may hold a password.
impl fmt::Debug for RequirementFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequirementFiles").field("files", &self.files.keys()).finish_non_exhaustive()
    }
}

/// The files that a requirements file names, as uv finds them. What uv finds elsewhere it reports as
/// missing on the machine.
fn names(path: &Path, text: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let refused = |why: &str, hint: &str| {
            Err(invalid(format!("{}, line {}: {why}", path.display(), number + 1)).with_hint(hint))
        };
        let line = line.trim();
        let is_path = |value: &str| value.starts_with(['.', '/']) || !value.contains(':');
        if let Some(named) = option(line, &["-r", "--requirement", "-c", "--constraint"]) {
            if named.contains("://") {
                continue;
            } else if named.contains("${") {
                return refused("the name of a file has a variable", "write the path of the file");
            } else if Path::new(&named).is_absolute() {
                return refused(
                    "an absolute path names another file on the machine",
                    "write the path of the file relative to this one",
                );
            }
            names.push(named);
        } else if option(line, &["-e", "--editable"]).is_some_and(|value| is_path(&value))
            || line.starts_with("./")
            || line.starts_with("../")
        {
            return refused(
                "a folder of this host is not on the machine",
                "include it: `.include(\"folder\")`, or build a wheel and put it on an index",
            );
        }
    }
    Ok(names)
}

/// The value of an option, without a comment, quotes and escapes.
fn option(line: &str, options: &[&str]) -> Option<String> {
    let rest = options.iter().find_map(|option| line.strip_prefix(option))?;
    let value = rest.strip_prefix('=').or_else(|| rest.strip_prefix([' ', '\t']))?.trim_start();
    let value = value.split('#').next()?.trim_end();
    let quote = value.chars().next().filter(|first| "'\"".contains(*first));
    let value = quote.and_then(|quote| value.strip_prefix(quote)?.strip_suffix(quote)).unwrap_or(value);
    Some(value.replace('\\', ""))
}

/// A text in UTF-8, or in UTF-16 with a byte order mark.
fn text(path: &Path) -> Result<String> {
    let bytes = read(path)?.0;
    let wide = |of: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        char::decode_utf16(units).collect::<std::result::Result<String, _>>().ok().filter(|_| bytes.len() % 2 == 0)
    };
    let text = match bytes.as_slice() {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => std::str::from_utf8(rest).ok().map(str::to_owned),
        bytes => std::str::from_utf8(bytes).ok().map(str::to_owned),
    };
    text.ok_or_else(|| {
        invalid(format!("{} is not text in UTF-8 or UTF-16", path.display()))
            .with_hint("save it in UTF-8: `iconv -t UTF-8`")
    })
}

/// The absolute path without `.` and `..`.
fn plain(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)
        .map_err(|error| invalid(format!("{} is no path", path.display())).with_source(error))?;
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    Ok(plain)
}

fn unpacked(path: &str, error: std::io::Error) -> Error {
    invalid(format!("{path} cannot be packed")).with_source(error)
}

const UV_LOCK: (&str, &str) =
    ("a lock file in uv's own format", "export it: `uv export --format pylock.toml -o pylock.toml`");
/// uv knows a lock file by its name.
const PYLOCK: &str = "pylock.toml";
/// The folder of requirements files on the machine.
const FOLDER: &str = "requirements";
const MOST: usize = 200;

#[cfg(test)]
mod tests;
