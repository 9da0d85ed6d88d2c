use std::path::PathBuf;

use super::*;
use crate::error::ErrorKind;

struct Folder(PathBuf);

impl Folder {
    fn with(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("sky-{:08x}", rand::random::<u32>())));
        for (name, text) in files {
            let path = folder.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn read(&self, name: &str) -> Result<RequirementFiles> {
        RequirementFiles::read(&self.0.join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_files_that_a_file_names_are_carried_with_it_as_they_are() {
    let main = "numpy==2.0 --hash=sha256:00 # why\n-r sub/b.txt # a comment\n  --constraint=\"../c d.txt\"#x\n\
                -e git+https://git.example/x\n-r https://example.com/r.txt\n--index-url https://example.com\n-r a.txt\n";
    let folder = Folder::with(&[
        ("in/a.txt", main.as_bytes()),
        ("in/sub/b.txt", b"-r c\\ c.txt\n-c ../../c d.txt\nb"),
        ("in/sub/c c.txt", b"c"),
        ("c d.txt", b"d<2"),
        ("other.txt", b"x"),
    ]);
    let read = folder.read("in/a.txt").unwrap();
    assert_eq!(read.first, "requirements/in/a.txt");
    let paths: Vec<_> = read.files.keys().map(|path| path.trim_start_matches("requirements/")).collect();
    assert_eq!(paths, ["c d.txt", "in/a.txt", "in/sub/b.txt", "in/sub/c c.txt"]);
    assert_eq!(read.files["requirements/in/a.txt"], main);
    let archive = read.archive();
    let mut archive = tar::Archive::new(&archive[..]);
    let paths: Vec<_> = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
    assert_eq!(paths, read.files.keys().map(PathBuf::from).collect::<Vec<_>>());
}

#[test]
fn texts_have_the_encodings_that_uv_reads() {
    let wide = |text: &str, of: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(of).collect::<Vec<u8>>();
    let text = "-r b.txt\n# \u{e9}\u{1f600}\n";
    for bytes in [
        text.as_bytes().to_vec(),
        format!("\u{feff}{text}").into_bytes(),
        wide(&format!("\u{feff}{text}"), u16::to_le_bytes),
        wide(&format!("\u{feff}{text}"), u16::to_be_bytes),
    ] {
        let folder = Folder::with(&[("a.txt", &bytes), ("b.txt", b"b")]);
        let read = folder.read("a.txt").unwrap();
        assert_eq!(read.files["requirements/a.txt"], text);
        assert_eq!(read.files["requirements/b.txt"], "b");
    }
    for bytes in [&b"\xe9"[..], b"\xff\xfea", b"\xff\xfe\x00\xd8"] {
        let error = Folder::with(&[("a.txt", bytes)]).read("a.txt").unwrap_err();
        assert!(error.message().contains("not text in UTF-8 or UTF-16") && error.hint().is_some(), "{error}");
    }
}

#[test]
fn each_file_counts_in_the_hash_of_an_image() {
    let hash = |files: &[(&str, &[u8])]| Folder::with(files).read("a.txt").unwrap().hashed_text();
    let alone = hash(&[("a.txt", b"x")]);
    assert_eq!(alone, "x");
    let base = hash(&[("a.txt", b"-r b.txt"), ("b.txt", b"x")]);
    assert_ne!(base, hash(&[("a.txt", b"-r b.txt"), ("b.txt", b"y")]));
    assert_ne!(base, hash(&[("a.txt", b"-c b.txt"), ("b.txt", b"x")]));
    assert_eq!(base, hash(&[("a.txt", b"-r b.txt"), ("b.txt", b"x"), ("c.txt", b"z")]));
}

#[test]
fn files_that_a_machine_cannot_use_are_refused() {
    let folder = Folder::with(&[
        ("edit.txt", b"a\n-e ."),
        ("edit-named.txt", b"--editable=mine # here"),
        ("path.txt", b"./a.whl"),
        ("absolute.txt", b"-r /etc/a.txt"),
        ("variable.txt", b"\n-c ${HOME}/a.txt"),
        ("missing.txt", b"-r missing/b.txt"),
        ("uv.lock", b""),
        ("pyproject.toml", b""),
        ("train.py", b""),
        ("x.toml", b"a = 1"),
    ]);
    for (name, words) in [
        ("edit.txt", "line 2: a folder of this host"),
        ("edit-named.txt", "line 1: a folder of this host"),
        ("path.txt", "line 1: a folder of this host"),
        ("absolute.txt", "line 1: an absolute path"),
        ("variable.txt", "line 2: the name of a file has a variable"),
        ("missing.txt", "missing/b.txt, which cannot be read"),
        ("uv.lock", "uv's own format"),
        ("pyproject.toml", "a project"),
        ("train.py", "Python code"),
        ("x.toml", "not a lock file"),
    ] {
        let error = folder.read(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{name}");
        assert!(error.message().contains(words) && error.hint().is_some(), "{error}");
    }
}

#[test]
fn a_file_that_names_itself_or_another_one_often_is_read_once() {
    let folder = Folder::with(&[("a.txt", b"-r b.txt\n-r b.txt\n-r a.txt"), ("b.txt", b"-r a.txt\n-r b.txt")]);
    assert_eq!(folder.read("a.txt").unwrap().files.len(), 2);
    let files: Vec<(String, String)> =
        (0..=MOST).map(|at| (format!("{at}.txt"), format!("-r {}.txt", at + 1))).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    assert!(Folder::with(&files).read("0.txt").unwrap_err().message().contains("more than 200 files"));
}
