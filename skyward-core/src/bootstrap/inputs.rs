//! The client's files that an image names, read once per pool before anything starts.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::OFlags;

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
    /// Files for the workers' working folder, as a tar archive; empty when there are none. They are
    /// transferred in one piece, because each file on its own would cost a round trip.
    pub files: Bytes,
}

/// What pins packages, in addition to the image's own list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pins {
    /// A requirements file, with the files that it refers to in their places.
    Text(String),
    /// A lock file (PEP 751).
    Pylock(String),
}

impl Inputs {
    /// Reads the files that the image names. Links are followed. The call blocks on disk reads, so
    /// a runtime runs it as a blocking task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a file that is missing, is not a regular file (a pipe, a
    /// socket, a device), has the wrong format, or is too large.
    pub fn read(image: &Image) -> Result<Self> {
        let mut inputs = Self::default();
        if let Some(path) = &image.requirements {
            inputs.requirements = Some(read_requirements(path)?);
        }
        for path in &image.certificates {
            let pem = read(path)?.0;
            if !pem.windows(PEM.len()).any(|window| window == PEM) {
                return Err(invalid(format!("{} contains no certificate", path.display())).with_hint(
                    "give a file in PEM form; from DER: `openssl x509 -inform der -in ca.der -out ca.pem`",
                ));
            }
            inputs.certificates.extend(pem);
            inputs.certificates.push(b'\n');
        }
        let mut files = Files { archive: tar::Builder::new(Vec::new()), size: 0, any: false };
        for file in &image.files {
            files.add(&file.source, file.target.trim_end_matches('/'), 0)?;
        }
        inputs.files = files.finish()?;
        Ok(inputs)
    }

    /// Whether the image names no files.
    pub(crate) fn are_none(image: &Image) -> bool {
        image.requirements.is_none() && image.certificates.is_empty() && image.files.is_empty()
    }

    /// The text that is part of the image's [content hash](Image::content_hash).
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
            .field("files", &files.len())
            .finish()
    }
}

/// The archive of files for the working folder, while it is built.
struct Files {
    archive: tar::Builder<Vec<u8>>,
    size: u64,
    any: bool,
}

impl Files {
    /// Adds a file, or a folder with its contents.
    fn add(&mut self, source: &Path, target: &str, depth: usize) -> Result<()> {
        if std::fs::metadata(source).map_err(|error| unreadable(source, error))?.is_dir() {
            return self.add_folder(source, target, depth);
        }
        let (bytes, mode) = read(source)?;
        self.size += bytes.len() as u64;
        if self.size > LARGEST {
            return Err(too_large("the image's files have".into()));
        }
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        self.any = true;
        let added = self.archive.append_data(&mut header, target, bytes.as_slice());
        added
            .map_err(|error| invalid(format!("{} cannot be included as {target}", source.display())).with_source(error))
    }

    fn add_folder(&mut self, source: &Path, target: &str, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(invalid(format!("{} is too deep to include", source.display()))
                .with_hint("check for a link in it that leads back to it"));
        }
        let entries = std::fs::read_dir(source).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries: Vec<PathBuf> =
            entries.map_err(|error| unreadable(source, error))?.iter().map(std::fs::DirEntry::path).collect();
        entries.sort();
        for entry in entries {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name != "__pycache__" {
                self.add(&entry, &format!("{target}/{name}"), depth + 1)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Bytes> {
        if !self.any {
            return Ok(Bytes::new());
        }
        let archive = self.archive.into_inner();
        archive
            .map(Bytes::from)
            .map_err(|error| invalid("the image's files cannot be packed".into()).with_source(error))
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

/// A requirements file, with the files that it refers to in their places.
fn written_out(path: &Path, depth: usize) -> Result<String> {
    if depth > DEEPEST {
        return Err(invalid(format!("{} refers to other files too deeply", path.display()))
            .with_hint("check for a file that refers to itself"));
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

fn text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?.0)
        .map_err(|error| invalid(format!("{} is not UTF-8 text", path.display())).with_source(error))
}

/// The content of a regular file, and its permissions.
fn read(path: &Path) -> Result<(Vec<u8>, u32)> {
    // Without this flag, opening a pipe waits for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|error| unreadable(path, error))?;
    // The opened file's metadata: its name may stand for another file meanwhile.
    let metadata = file.metadata().map_err(|error| unreadable(path, error))?;
    if !metadata.is_file() {
        return Err(invalid(format!("the image names {}, which is not a regular file", path.display())).with_hint(
            "a pipe, a socket or a device may never end: copy its content into a file, and name that file",
        ));
    }
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, error))?;
    if read as u64 > LARGEST {
        return Err(too_large(format!("{} has", path.display())));
    }
    Ok((bytes, metadata.permissions().mode() & 0o777))
}

fn too_large(what: String) -> Error {
    invalid(format!("{what} more than {} MiB", LARGEST >> 20))
        .with_hint("keep data where the nodes can read it themselves, and include only code and small files")
}

/// The hint lists the contents of the folder, which says more than that the file is missing.
fn unreadable(path: &Path, error: std::io::Error) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hint = match std::fs::read_dir(folder) {
        Err(_) => {
            format!("the folder {} does not exist either; relative paths start at the working folder", folder.display())
        }
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
    ("a lock file in uv's own format", "export it: `uv export --format pylock.toml -o pylock.toml`");
const DEEPEST: usize = 32;
const SHOWN: usize = 12;
/// The limit of one file and of all files: they are kept in memory and put on every node.
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
    fn folders_are_included_with_their_files_and_modes() {
        let folder =
            Folder::with(&[("pkg/a.py", "a"), ("pkg/sub/run.sh", "b"), ("pkg/__pycache__/a.pyc", "x"), ("one", "1")]);
        std::fs::set_permissions(folder.path("pkg/sub/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let image = Image::new().include(folder.path("pkg")).file(folder.path("one"), "deep/down");
        let files = Inputs::read(&image).unwrap().files;
        let mut archive = tar::Archive::new(&files[..]);
        let shown = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text, entry.header().mode().unwrap() & 0o100)
        });
        let expected = [("pkg/a.py", "a", 0), ("pkg/sub/run.sh", "b", 0o100), ("deep/down", "1", 0)];
        let expected = expected.map(|(path, text, mode)| (path.to_owned(), text.to_owned(), mode));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_file_that_is_not_regular_is_refused_without_waiting() {
        let folder = Folder::with(&[("pkg/a.py", "a")]);
        let (pipe, socket, link) = (folder.path("pkg/pipe"), folder.path("socket"), folder.path("link"));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let images = [
            Image::new().include(folder.path("pkg")),
            Image::new().requirements(&pipe),
            Image::new().certificate(&link),
            Image::new().file(&socket, "socket"),
            Image::new().file("/dev/zero", "zero"),
        ];
        let (done, read) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            images.iter().for_each(|image| drop(done.send(Inputs::read(image))));
        });
        for what in ["a pipe in a folder", "a pipe", "a link to a pipe", "a socket", "a device"] {
            let error = read.recv_timeout(std::time::Duration::from_secs(30)).expect(what).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{what}: {error}");
            // A socket cannot even be opened.
            assert!(error.message().contains("not a regular file") || what == "a socket", "{what}: {error}");
        }
    }

    #[test]
    fn the_error_of_a_missing_file_lists_its_folder() {
        let folder = Folder::with(&[("digits.csv", ""), ("train.py", "")]);
        let error = Inputs::read(&Image::new().include(folder.path("digit.csv"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert!(error.hint().unwrap().ends_with("has: digits.csv, train.py"), "{error}");
        let error = Inputs::read(&Image::new().requirements(folder.path("no/requirements.txt"))).unwrap_err();
        assert!(error.hint().unwrap().contains("not exist either"), "{error}");
    }

    #[test]
    fn requirement_files_include_those_they_refer_to() {
        let folder = Folder::with(&[
            ("a.txt", "numpy==2.0\n-r sub/b.txt\nlast"),
            ("sub/b.txt", "-r c.txt\nb"),
            ("sub/c.txt", "c"),
        ]);
        let inputs = Inputs::read(&Image::new().requirements(folder.path("a.txt"))).unwrap();
        assert_eq!(inputs.requirements, Some(Pins::Text("numpy==2.0\nc\nb\nlast\n".into())));
    }

    #[test]
    fn requirement_files_that_a_machine_cannot_use_are_refused() {
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
            ("uv.lock", "uv's own format"),
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
