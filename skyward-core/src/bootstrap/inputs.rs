//! The client's files that an image names, read once per pool before anything starts.

use std::fmt;

use bytes::Bytes;

use super::included::Included;
use super::reading::{invalid, read};
use super::requirements::RequirementFiles;
use crate::error::Result;
use crate::spec::Image;

/// The client's files that an image names: requirements, certificate authorities, files to include.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Inputs {
    /// The requirements file with the files that it names, or the lock file.
    pub requirements: Option<RequirementFiles>,
    /// Certificate authorities, PEM.
    pub certificates: Vec<u8>,
    /// Files for the workers' working folder, as a tar archive; empty when there are none. They are
    /// transferred in one piece, because each file on its own would cost a round trip.
    pub files: Bytes,
}

impl Inputs {
    /// Reads the files that the image names. The call blocks on disk reads, so a runtime runs it as
    /// a blocking task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a file that is missing, is not a regular file (a pipe, a
    /// socket, a device), has the wrong format, or is too large, and for a link that leads out of
    /// the folder that is included.
    pub fn read(image: &Image) -> Result<Self> {
        let mut inputs = Self::default();
        if let Some(path) = &image.requirements {
            inputs.requirements = Some(RequirementFiles::read(path)?);
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
        inputs.files = Included::find(image)?.pack()?;
        Ok(inputs)
    }

    /// Whether the image names no files.
    pub(crate) fn are_none(image: &Image) -> bool {
        image.requirements.is_none() && image.certificates.is_empty() && image.files.is_empty()
    }

    /// The text that is part of the image's [content hash](Image::content_hash).
    pub fn hashed_text(&self) -> Option<String> {
        self.requirements.as_ref().map(RequirementFiles::hashed_text)
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requirements, certificates, files } = self;
        f.debug_struct("Inputs")
            .field("requirements", requirements)
            .field("certificates", &certificates.len())
            .field("files", &files.len())
            .finish()
    }
}

const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::error::ErrorKind;

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
