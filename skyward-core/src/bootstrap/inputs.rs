//! The client's files that an image names, read once per pool before anything starts.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::spec::Image;

/// The client's files that an image names: requirements, certificate authorities, files to include.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Inputs {
    /// The content of the requirements or lock file.
    pub requirements: Option<Pins>,
    /// Certificate authorities, PEM.
    pub certificates: Vec<u8>,
    /// Files for the workers' working folder.
    pub files: Vec<InputFile>,
}

/// What pins packages beside the image's own list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pins {
    /// A requirements file, those that it refers to written out in it.
    Text(String),
    /// A lock file (PEP 751).
    Pylock(String),
}

/// A file for the workers' working folder.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputFile {
    /// Where it goes, relative to the working folder.
    pub target: String,
    /// Its permissions.
    pub mode: u32,
    /// Its content.
    pub bytes: Arc<[u8]>,
}

impl Inputs {
    /// Reads what the image names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a file that is missing, of the wrong sort, or too large.
    pub fn read(image: &Image) -> Result<Self> {
        let mut inputs = Self::default();
        if let Some(path) = &image.requirements {
            inputs.requirements = Some(read_requirements(path)?);
        }
        for path in &image.certificates {
            let pem = read(path)?;
            if !pem.windows(PEM.len()).any(|window| window == PEM) {
                return Err(invalid(format!("{} holds no certificate", path.display())).with_hint(
                    "give a file in PEM form; from DER: `openssl x509 -inform der -in ca.der -out ca.pem`",
                ));
            }
            inputs.certificates.extend(pem);
            inputs.certificates.push(b'\n');
        }
        let mut size = 0;
        for file in &image.files {
            add(&file.source, file.target.trim_end_matches('/'), &mut inputs.files, &mut size, 0)?;
        }
        Ok(inputs)
    }

    /// The text that enters the image's [content hash](Image::content_hash).
    pub fn hashed_text(&self) -> Option<&str> {
        self.requirements.as_ref().map(|(Pins::Text(text) | Pins::Pylock(text))| text.as_str())
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requirements, certificates, files } = self;
        let requirements = requirements.as_ref().map(|_| "…");
        f.debug_struct("Inputs")
            .field("requirements", &requirements)
            .field("certificates", &certificates.len())
            .field("files", files)
            .finish()
    }
}

impl fmt::Debug for InputFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes, {:o})", self.target, self.bytes.len(), self.mode)
    }
}

fn read_requirements(path: &Path) -> Result<Pins> {
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
        name if name.ends_with(".toml") => {
            let text = text(path)?;
            if text.contains("lock-version") {
                Ok(Pins::Pylock(text))
            } else {
                wrong(
                    "not a lock file",
                    "a lock file in TOML is a pylock.toml: `uv export --format pylock.toml -o pylock.toml`",
                )
            }
        }
        _ => written_out(path, 0).map(Pins::Text),
    }
}

/// A requirements file with the files that it refers to in their places.
fn written_out(path: &Path, depth: usize) -> Result<String> {
    if depth > DEEPEST {
        return Err(invalid(format!("{} refers to other files too deeply", path.display()))
            .with_hint("does one refer to itself?"));
    }
    let mut out = String::new();
    for (number, line) in text(path)?.lines().enumerate() {
        let option = |names: [&str; 2]| {
            let rest = names.iter().find_map(|name| line.trim().strip_prefix(name))?;
            rest.starts_with([' ', '=', '\t']).then(|| rest.trim_start_matches([' ', '=', '\t']).trim())
        };
        let refused = |why: &str, hint: &str| {
            Err(invalid(format!("{}, line {}: {why}", path.display(), number + 1)).with_hint(hint))
        };
        let trimmed = line.trim();
        if let Some(other) = option(["-r", "--requirement"]) {
            out.push_str(&written_out(&path.parent().unwrap_or(Path::new("")).join(other), depth + 1)?);
        } else if option(["-c", "--constraint"]).is_some() {
            return refused("constraints of another file are not read", "write the versions into the file itself");
        } else if option(["-e", "--editable"]).is_some() || trimmed.starts_with("./") || trimmed.starts_with("../") {
            return refused(
                "a folder of this host is not on the machine",
                "include it: `.include(\"folder\")`, or build a wheel and put it on an index",
            );
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

fn add(source: &Path, target: &str, files: &mut Vec<InputFile>, size: &mut u64, depth: usize) -> Result<()> {
    let metadata = std::fs::metadata(source).map_err(|error| unreadable(source, error))?;
    if metadata.is_dir() {
        if depth > DEEPEST {
            return Err(invalid(format!("{} is too deep to include", source.display()))
                .with_hint("does a link in it lead back to it?"));
        }
        let entries = std::fs::read_dir(source).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut entries: Vec<PathBuf> =
            entries.map_err(|error| unreadable(source, error))?.iter().map(std::fs::DirEntry::path).collect();
        entries.sort();
        for entry in entries {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name != "__pycache__" {
                add(&entry, &format!("{target}/{name}"), files, size, depth + 1)?;
            }
        }
        return Ok(());
    }
    *size += metadata.len();
    if *size > LARGEST {
        return Err(invalid(format!("the image's files have more than {} MiB in total", LARGEST >> 20))
            .with_hint("keep data where the nodes can read it themselves, and include only code and small files"));
    }
    let bytes = read(source)?.into();
    files.push(InputFile { target: target.to_owned(), mode: metadata.permissions().mode() & 0o777, bytes });
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| invalid(format!("{} is not UTF-8 text", path.display())).with_source(error))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| unreadable(path, error))
}

/// What is in the folder says more than that the file is not.
fn unreadable(path: &Path, error: std::io::Error) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hint = match std::fs::read_dir(folder) {
        Err(_) => format!(
            "the folder {} is not there either; relative paths are relative to the working folder",
            folder.display()
        ),
        Ok(entries) => {
            let mut names: Vec<_> =
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names.truncate(SHOWN);
            format!("{} has: {}", folder.display(), if names.is_empty() { "nothing".into() } else { names.join(", ") })
        }
    };
    invalid(format!("the image names {}, which cannot be read", path.display())).with_source(error).with_hint(hint)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidSpec, message)
}

const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";
const UV_LOCK: (&str, &str) =
    ("a lock file of uv's own form", "export it: `uv export --format pylock.toml -o pylock.toml`");
const DEEPEST: usize = 32;
const SHOWN: usize = 12;
/// Files are held in memory and put on every node.
const LARGEST: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn with(files: &[(&str, &str)]) -> Self {
            let folder = Self(std::env::temp_dir().join(format!("sky-{:08x}", rand::random::<u32>())));
            for (name, text) in files {
                let path = folder.path(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            folder
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn folders_are_taken_whole_with_their_modes() {
        let folder =
            Folder::with(&[("pkg/a.py", "a"), ("pkg/sub/run.sh", "b"), ("pkg/__pycache__/a.pyc", "x"), ("one", "1")]);
        std::fs::set_permissions(folder.path("pkg/sub/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let image = Image::new().include(folder.path("pkg")).file(folder.path("one"), "deep/down");
        let files = Inputs::read(&image).unwrap().files;
        let shown: Vec<_> =
            files.iter().map(|file| (file.target.as_str(), &file.bytes[..], file.mode & 0o100)).collect();
        assert_eq!(shown, [("pkg/a.py", &b"a"[..], 0), ("pkg/sub/run.sh", b"b", 0o100), ("deep/down", b"1", 0)]);
    }

    #[test]
    fn a_missing_file_shows_what_is_there() {
        let folder = Folder::with(&[("digits.csv", ""), ("train.py", "")]);
        let error = Inputs::read(&Image::new().include(folder.path("digit.csv"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert!(error.hint().unwrap().ends_with("has: digits.csv, train.py"), "{error}");
        let error = Inputs::read(&Image::new().requirements(folder.path("no/requirements.txt"))).unwrap_err();
        assert!(error.hint().unwrap().contains("not there either"), "{error}");
    }

    #[test]
    fn requirement_files_are_written_out() {
        let folder = Folder::with(&[
            ("a.txt", "numpy==2.0\n-r sub/b.txt\nlast"),
            ("sub/b.txt", "-r c.txt\nb"),
            ("sub/c.txt", "c"),
        ]);
        let inputs = Inputs::read(&Image::new().requirements(folder.path("a.txt"))).unwrap();
        assert_eq!(inputs.requirements, Some(Pins::Text("numpy==2.0\nc\nb\nlast\n".into())));
    }

    #[test]
    fn requirement_files_that_cannot_travel_are_refused() {
        let folder = Folder::with(&[
            ("loop.txt", "-r loop.txt"),
            ("edit.txt", "a\n-e ."),
            ("path.txt", "./a.whl"),
            ("cons.txt", "-c x.txt"),
            ("uv.lock", ""),
            ("pyproject.toml", ""),
            ("x.toml", "a = 1"),
        ]);
        for (name, words) in [
            ("loop.txt", "too deeply"),
            ("edit.txt", "line 2: a folder of this host"),
            ("path.txt", "line 1: a folder of this host"),
            ("cons.txt", "constraints"),
            ("uv.lock", "uv's own form"),
            ("pyproject.toml", "a project"),
            ("x.toml", "not a lock file"),
        ] {
            let error = Inputs::read(&Image::new().requirements(folder.path(name))).unwrap_err();
            assert!(error.message().contains(words) && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn certificates_are_checked_and_joined() {
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let folder = Folder::with(&[("a.pem", pem), ("b.der", "\u{1}")]);
        let inputs =
            Inputs::read(&Image::new().certificate(folder.path("a.pem")).certificate(folder.path("a.pem"))).unwrap();
        assert_eq!(String::from_utf8(inputs.certificates).unwrap().matches("BEGIN").count(), 2);
        let error = Inputs::read(&Image::new().certificate(folder.path("b.der"))).unwrap_err();
        assert!(error.message().contains("no certificate"), "{error}");
    }
}
