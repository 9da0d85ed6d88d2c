use std::ffi::OsStr;
use std::fs::{File, FileTimes, Permissions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::error::ErrorKind;

struct Folder(PathBuf);

impl Folder {
    fn with(files: &[&str]) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("sky-{:08x}", rand::random::<u32>())));
        for name in files {
            let path = folder.0.join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, *name).unwrap();
            }
        }
        folder
    }

    fn image(&self) -> Image {
        Image::new().include(self.0.join("src"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The targets, where a folder ends in `/`, and a link is followed by its text.
fn targets(image: &Image) -> Vec<String> {
    let shown = |entry: &Entry| match &entry.kind {
        Kind::File(_) => entry.target.display().to_string(),
        Kind::Folder => format!("{}/", entry.target.display()),
        Kind::Link(text) => format!("{} -> {}", entry.target.display(), text.display()),
    };
    Included::find(image).unwrap().0.iter().map(shown).collect()
}

fn refusal(image: &Image) -> Error {
    let error = Included::find(image).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
    assert!(error.hint().is_some(), "{error}");
    error
}

#[test]
fn empty_folders_and_hidden_files_are_included_and_caches_of_python_are_not() {
    let folder = Folder::with(&["src/a.py", "src/empty/", "src/.env", "src/__pycache__/a.pyc", "src/in/none/"]);
    assert_eq!(targets(&folder.image()), ["src/", "src/.env", "src/a.py", "src/empty/", "src/in/", "src/in/none/"]);
    let empty = Image::new().file(folder.0.join("src/empty"), "deep/down/");
    assert_eq!(targets(&empty), ["deep/down/"]);
}

#[test]
fn the_archive_has_the_times_modes_and_bytes_of_names() {
    let folder = Folder::with(&["src/run.sh", "src/locked/"]);
    let strange = folder.0.join("src").join(OsStr::from_bytes(b"caf\xe9\n"));
    fs::write(&strange, "x").unwrap();
    symlink("run.sh", folder.0.join("src/link")).unwrap();
    fs::set_permissions(folder.0.join("src/run.sh"), Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(folder.0.join("src/locked"), Permissions::from_mode(0o555)).unwrap();
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_millis(1_234_567_890_500));
    File::options().append(true).open(folder.0.join("src/run.sh")).unwrap().set_times(times).unwrap();
    File::open(folder.0.join("src/locked")).unwrap().set_times(times).unwrap();

    let packed = Included::find(&folder.image()).unwrap().pack().unwrap();
    let mut archive = tar::Archive::new(&packed[..]);
    let mut found = std::collections::BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let path = entry.path_bytes().into_owned();
        let link = entry.link_name().unwrap().map(|name| name.display().to_string());
        let header = entry.header();
        found.insert(path, (header.mode().unwrap(), header.mtime().unwrap(), link.unwrap_or(text)));
    }
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!(found[&b"src/run.sh"[..]], (0o751, 1_234_567_890, "src/run.sh".to_owned()));
    let locked = found.iter().find(|(path, _)| path.starts_with(b"src/locked")).unwrap();
    assert_eq!((locked.1.0, locked.1.1), (0o755, 1_234_567_890));
    assert_eq!(found[&b"src/caf\xe9\n"[..]].2, "x");
    assert_eq!(found[&b"src/link"[..]].2, "run.sh");
}

#[test]
fn links_within_the_folder_are_kept_and_others_are_refused_by_name() {
    let folder = Folder::with(&["src/a/b/file", "src/data/", "other/file"]);
    let src = folder.0.join("src");
    for (link, text) in [("a/up", "../data"), ("a/b/self", "."), ("broken", "nothing/here"), ("loop", "loop")] {
        symlink(text, src.join(link)).unwrap();
    }
    let expected = [
        "src/",
        "src/a/",
        "src/a/b/",
        "src/a/b/file",
        "src/a/b/self -> .",
        "src/a/up -> ../data",
        "src/broken -> nothing/here",
        "src/data/",
        "src/loop -> loop",
    ];
    assert_eq!(targets(&folder.image()), expected);
    // The image may name a link itself.
    symlink("src", folder.0.join("named")).unwrap();
    assert_eq!(targets(&Image::new().include(folder.0.join("named")))[..2], ["named/", "named/a/"]);
    symlink("src/a/b/file", folder.0.join("one")).unwrap();
    assert_eq!(targets(&Image::new().include(folder.0.join("one"))), ["one"]);

    let absolute = src.join("a/b/file").display().to_string();
    // The last one leads out only by the link on its way.
    for text in ["../other/file", "a/../../other", absolute.as_str(), "a/up/../../other"] {
        let link = src.join("away");
        symlink(text, &link).unwrap();
        let error = refusal(&folder.image());
        assert!(error.message().contains(&format!("{} is a link to {text},", link.display())), "{error}");
        assert!(error.hint().unwrap().contains(".exclude([\"away\"])"), "{error:#}");
        assert_eq!(targets(&folder.image().exclude(["away"])), expected);
        fs::remove_file(link).unwrap();
    }
}

#[test]
fn patterns_leave_out_what_a_gitignore_would() {
    let folder = Folder::with(&[
        "src/.git/config",
        "src/a.lock",
        "src/in/b.lock",
        "src/in/keep.lock",
        "src/data/raw/x",
        "src/in/data/raw/y",
        "src/build/out",
        "src/in/build",
    ]);
    let image = folder.image().exclude(["*.lock", ".git"]).exclude(["!keep.lock", "/data/raw", "build/"]);
    let expected = [
        "src/",
        "src/data/",
        "src/in/",
        "src/in/build",
        "src/in/data/",
        "src/in/data/raw/",
        "src/in/data/raw/y",
        "src/in/keep.lock",
    ];
    assert_eq!(targets(&image), expected);
    // What the image names itself is meant.
    let named = Image::new().include(folder.0.join("src/a.lock")).include(folder.0.join("src/.git"));
    assert_eq!(targets(&named.exclude(["*.lock", ".git"])), ["a.lock", ".git/", ".git/config"]);
}

#[test]
fn gitignore_files_are_read_by_option_with_those_of_the_folders_above() {
    let folder = Folder::with(&[".git/", "src/a.log", "src/b.tmp", "src/c.txt", "src/in/b.tmp", "src/in/d.txt"]);
    fs::write(folder.0.join(".gitignore"), "*.log\n").unwrap();
    fs::write(folder.0.join("src/.gitignore"), "*.tmp\n").unwrap();
    fs::write(folder.0.join("src/in/.gitignore"), "!b.tmp\nd.txt\n").unwrap();
    let expected = ["src/", "src/.gitignore", "src/c.txt", "src/in/", "src/in/.gitignore", "src/in/b.tmp"];
    assert_eq!(targets(&folder.image().gitignore(true)), expected);
    assert_eq!(targets(&folder.image()).len(), 9);
    assert_eq!(targets(&folder.image().gitignore(true).exclude(["in", ".gitignore"])), ["src/", "src/c.txt"]);
}

#[test]
fn the_size_is_known_before_the_files_are_read_and_the_largest_are_named() {
    let folder = Folder::with(&["src/a.py", "src/set/x.bin", "src/set/y.bin"]);
    for (name, size) in [("x.bin", LARGEST - 100), ("y.bin", 200)] {
        File::options().write(true).open(folder.0.join("src/set").join(name)).unwrap().set_len(size).unwrap();
    }
    let error = refusal(&folder.image());
    assert!(error.message().contains("have 257 MiB, more than 256 MiB"), "{error}");
    let first = error.message().find("x.bin (256 MiB)").unwrap();
    assert!(first < error.message().find("y.bin").unwrap(), "{error}");
    assert!(error.hint().unwrap().contains("sky.data"), "{error:#}");
    assert_eq!(targets(&folder.image().exclude(["set"])), ["src/", "src/a.py"]);
}

#[test]
fn a_folder_that_cannot_be_read_is_refused_by_name() {
    let folder = Folder::with(&["src/a/"]);
    fs::create_dir(folder.0.join("src/socket")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(folder.0.join("src/socket/s")).unwrap();
    let error = refusal(&folder.image());
    assert!(error.message().contains("src/socket/s, which is not a regular file"), "{error}");
    assert_eq!(targets(&folder.image().exclude(["socket/"])), ["src/", "src/a/"]);
    let error = refusal(&Image::new().include(folder.0.join("none")));
    assert!(error.message().contains("none, which cannot be read"), "{error}");
}
