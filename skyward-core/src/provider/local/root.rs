//! The folder of all pools of this user on this host: which one it is, and whether it can be used.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::folders::cannot;
use super::marked::user;
use crate::error::{Error, ErrorKind, Result};

/// The folder, which may not exist yet.
#[derive(Debug, Clone)]
pub(super) struct Root {
    path: PathBuf,
    /// The folder in `XDG_RUNTIME_DIR` that it is in, where nothing else was chosen.
    runtime: Option<PathBuf>,
}

impl Root {
    /// The given folder, or else one in the host's folder for short-lived files.
    pub(super) fn new(given: Option<&Path>) -> Self {
        let from = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = given.map(Path::to_owned).or_else(|| from(ROOT)) {
            return Self { path, runtime: None };
        }
        Self::within(from(RUNTIME), user())
    }

    /// A folder with this user's number in the folder of `XDG_RUNTIME_DIR`, or else in the one for
    /// temporary files.
    fn within(runtime: Option<PathBuf>, user: u32) -> Self {
        let runtime = runtime.filter(|folder| folder.is_dir());
        let path = runtime.clone().unwrap_or_else(std::env::temp_dir).join(format!("skyward-{user}"));
        Self { path, runtime }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the folder belongs to this user alone, if it exists: its contents decide which
    /// processes are started and ended.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`], with the folder that cannot be used and its owner.
    pub(super) fn check(&self) -> Result<()> {
        self.check_for(user())
    }

    /// Creates the folder unless it exists.
    pub(super) fn make(&self) -> Result<()> {
        self.check()?;
        make_private(&self.path).map_err(|error| self.unreached(error, user()))?;
        // Another user may have created it meanwhile.
        self.check()
    }

    fn check_for(&self, user: u32) -> Result<()> {
        if let Some(runtime) = &self.runtime {
            let found = std::fs::metadata(runtime).map_err(|error| cannot("read", runtime, error))?;
            if found.uid() != user {
                let why = format!("{RUNTIME} names {}, which {}", runtime.display(), belongs(&found));
                return Err(self.unusable(&why));
            }
        }
        let found = match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| self.unreached(error, user))?,
        };
        if !found.is_dir() {
            Err(self.unusable("it is not a folder"))
        } else if found.uid() != user {
            Err(self.unusable(&format!("it {}", belongs(&found))))
        } else if found.mode() & 0o022 != 0 {
            Err(self.unusable("others may write to it"))
        } else {
            Ok(())
        }
    }

    /// The error of a folder that this user cannot see or create: the nearest folder above it that is
    /// another user's explains it.
    fn unreached(&self, error: io::Error, user: u32) -> Error {
        let above = self.path.ancestors().skip(1).filter_map(|folder| Some((folder, std::fs::metadata(folder).ok()?)));
        match above.map(|(folder, found)| (folder, found.uid() != user, belongs(&found))).next() {
            Some((folder, true, belongs)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unusable(&format!("it would be below {}, which {belongs}", folder.display())).with_source(error)
            }
            _ => cannot("create", &self.path, error),
        }
    }

    fn unusable(&self, why: &str) -> Error {
        let runtime = if self.runtime.is_some() { format!(", or unset {RUNTIME}") } else { String::new() };
        Error::new(ErrorKind::Provider, format!("cannot keep machines in {}: {why}", self.path.display()))
            .with_hint(format!("set {ROOT} to a short path of a folder of your own{runtime}"))
    }
}

fn belongs(found: &Metadata) -> String {
    let id = found.uid();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    match name_of(&users, id) {
        Some(name) => format!("belongs to the user {name} ({id})"),
        None => format!("belongs to the user {id}"),
    }
}

/// The name of a user in the text of `/etc/passwd`.
fn name_of(users: &str, id: u32) -> Option<&str> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.into_iter().find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(id))?.first().copied()
}

pub(super) fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The variable that names the folder of all pools.
pub(super) const ROOT: &str = "SKYWARD_RUNTIME_DIR";
/// The variable that names the folder for short-lived files of the user who has logged in.
const RUNTIME: &str = "XDG_RUNTIME_DIR";

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_runtime_folder_of_another_user_is_refused_and_the_error_names_it_its_owner_and_what_to_set() {
        let folder = Folder::new();
        let shown = folder.0.display();
        let owner = belongs(&std::fs::metadata(&folder.0).unwrap());
        let other = user() + 1;
        let root = Root::within(Some(folder.0.clone()), other);
        let error = root.check_for(other).unwrap_err();
        let said =
            format!("cannot keep machines in {shown}/skyward-{other}: XDG_RUNTIME_DIR names {shown}, which {owner}");
        assert_eq!((error.kind(), error.message()), (ErrorKind::Provider, said.as_str()));
        let hint = "set SKYWARD_RUNTIME_DIR to a short path of a folder of your own, or unset XDG_RUNTIME_DIR";
        assert_eq!(error.hint(), Some(hint));
        assert!(!root.path().exists(), "it is refused before anything is created");
        // A folder that was chosen, and one for temporary files that somebody else has created.
        let root = Root::new(Some(&folder.0));
        let error = root.check_for(other).unwrap_err();
        assert_eq!(error.message(), format!("cannot keep machines in {shown}: it {owner}"));
        assert_eq!(error.hint(), Some("set SKYWARD_RUNTIME_DIR to a short path of a folder of your own"));
        root.check_for(user()).unwrap();
        Root::within(Some(folder.0.clone()), user()).make().unwrap();
        Root::within(Some(folder.0.join("none")), user()).check().unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_created_names_the_owner_of_the_one_above() {
        let folder = Folder::new();
        let root = Root::new(Some(&folder.0.join("own")));
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let owner = belongs(&std::fs::metadata(&folder.0).unwrap());
        let error = root.unreached(denied(), user() + 1);
        assert!(
            error.message().ends_with(&format!("it would be below {}, which {owner}", folder.0.display())),
            "{error}"
        );
        assert!(root.unreached(denied(), user()).message().starts_with("cannot create "));
    }

    #[test]
    fn owners_have_names() {
        let users = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\nbroken\n";
        assert_eq!((name_of(users, 1000), name_of(users, 7)), (Some("ada"), None));
    }
}
