use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::*;
use crate::event::{Transfer, TransferState};
use crate::files::NodePath;
use crate::files::memory::MemoryFiles;
use crate::ids::NodeIndex;

/// A folder of this test, which is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("skyward-save-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(path: &str) -> Part {
    Part { path: path.into(), kind: PartKind::Folder }
}

fn link(path: &str, to: &str) -> Part {
    Part { path: path.into(), kind: PartKind::Link(to.into()) }
}

fn source<'f>(files: &'f MemoryFiles, base: &str, parts: Vec<Part>) -> Source<'f> {
    Source { files, node: NodeIndex(0), name: "run".into(), base: NodePath::new(base), parts }
}

async fn save(source: Source<'_>, target: &Path) -> Result<()> {
    receive(source, target).await?.save().await
}

/// The file at a path, as the only part.
fn alone<'f>(files: &'f MemoryFiles, path: &str) -> Source<'f> {
    source(files, path, vec![Part { path: "".into(), kind: files.part(path, false).kind }])
}

#[tokio::test]
async fn a_tree_is_saved_as_it_is() {
    let (files, here) = (MemoryFiles::default(), Folder::new("tree"));
    let large: Vec<u8> = (0..=250).cycle().take((5 << 20) + 3).collect();
    for (path, content) in [("a", &large[..]), ("empty", b""), ("sub/run.sh", b"#!/bin/sh\n")] {
        files.write(path, 1, content.to_vec());
    }
    let [a, empty, run] = ["a", "empty", "sub/run.sh"].map(|path| files.part(path, path.ends_with(".sh")));
    let parts = vec![folder(""), a, empty, link("l", "sub/run.sh"), folder("none"), folder("sub"), run];
    let target = here.0.join("new/out");
    save(source(&files, "", parts), &target).await.unwrap();
    assert!(std::fs::read(target.join("a")).unwrap() == large);
    assert_eq!(std::fs::metadata(target.join("empty")).unwrap().len(), 0);
    assert_eq!(std::fs::read_dir(target.join("none")).unwrap().count(), 0);
    assert_eq!(std::fs::read_link(target.join("l")).unwrap(), Path::new("sub/run.sh"));
    assert_eq!(std::fs::metadata(target.join("sub/run.sh")).unwrap().mode() & 0o100, 0o100);
    assert_eq!(std::fs::metadata(target.join("a")).unwrap().mode() & 0o111, 0);
    assert_eq!(here.names(), ["new"]);
}

#[tokio::test]
async fn other_bytes_leave_the_target_as_it_was() {
    let (files, here) = (MemoryFiles::default(), Folder::new("damaged"));
    let target = here.0.join("model");
    std::fs::write(&target, "before").unwrap();
    files.write("a", 1, vec![1; 3 << 20]);
    let kind = files.part("a", false).kind;
    let good = || source(&files, "a", vec![Part { path: "".into(), kind: kind.clone() }]);
    let mut content = vec![1; 3 << 20];
    content[2_500_000] = 2;
    files.write("a", 1, content);
    let error = save(good(), &target).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    files.write("a", 1, vec![1; 100]);
    assert_eq!(save(good(), &target).await.unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!((std::fs::read_to_string(&target).unwrap(), here.names()), ("before".into(), vec!["model".into()]));
    files.write("a", 1, vec![1; 3 << 20]);
    save(good(), &target).await.unwrap();
    assert_eq!(std::fs::metadata(&target).unwrap().len(), 3 << 20);
}

#[tokio::test]
async fn a_save_that_is_dropped_leaves_nothing() {
    let (files, here) = (MemoryFiles::default(), Folder::new("dropped"));
    files.write("d/a", 1, vec![1; 40 << 20]);
    files.hang_at(3);
    let parts = vec![folder(""), folder("d"), files.part("d/a", false)];
    for (source, target) in [(alone(&files, "d/a"), "file"), (source(&files, "", parts), "folder")] {
        let target = here.0.join(target);
        let saved = tokio::time::timeout(Duration::from_millis(300), save(source, &target));
        assert!(saved.await.is_err());
    }
    assert!(files.reads() >= 3);
    // A write that was under way ends first.
    for _ in 0..100 {
        if here.names().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("left: {:?}", here.names());
}

#[tokio::test]
async fn what_is_at_the_target_is_never_lost() {
    let (files, here) = (MemoryFiles::default(), Folder::new("taken"));
    files.write("a", 1, &b"new"[..]);
    let tree = || source(&files, "", vec![folder(""), files.part("a", false)]);
    let [full, empty, file] = ["full", "empty", "file"].map(|name| here.0.join(name));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("kept"), "").unwrap();
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, "").unwrap();
    for (source, target) in
        [(tree(), &full), (tree(), &file), (alone(&files, "a"), &full), (alone(&files, "a"), &empty)]
    {
        let before = files.reads();
        let error = save(source, target).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
        assert!(error.message().contains(&target.display().to_string()), "{error}");
        assert_eq!(files.reads(), before, "it is refused before anything is read");
    }
    save(tree(), &empty).await.unwrap();
    assert_eq!(std::fs::read_to_string(empty.join("a")).unwrap(), "new");
    let error = save(alone(&files, "a"), Path::new("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
    assert_eq!(here.names().len(), 3);
}

#[tokio::test]
async fn a_device_or_a_pipe_at_the_target_stays() {
    let (files, here) = (MemoryFiles::default(), Folder::new("device"));
    files.write("a", 1, &b"new"[..]);
    let pipe = here.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for target in [pipe.as_path(), Path::new("/dev/null")] {
        let error = save(alone(&files, "a"), target).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
    }
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&std::fs::metadata(&pipe).unwrap().file_type()));
}

/// In a folder where others may write, the name of what is being saved can be another file's.
#[tokio::test]
async fn files_arrive_where_they_were_created_whatever_gets_the_name() {
    let (files, here) = (MemoryFiles::default(), Folder::new("swapped"));
    let large: Vec<u8> = (0..=250).cycle().take(6 << 20).collect();
    for path in ["a", "b"] {
        files.write(path, 1, large.clone());
    }
    let victim = here.0.join("victim");
    for is_folder in [false, true] {
        std::fs::create_dir(&victim).unwrap();
        std::fs::write(victim.join("secret"), "kept").unwrap();
        let tree = source(&files, "", vec![folder(""), files.part("a", false), files.part("b", false)]);
        let (source, decoy) =
            if is_folder { (tree, victim.clone()) } else { (alone(&files, "a"), victim.join("secret")) };
        let target = here.0.join("out");
        let swap = async {
            let part = loop {
                if let Some(name) = here.names().into_iter().find(|name| name.ends_with(".part")) {
                    break here.0.join(name);
                }
                tokio::task::yield_now().await;
            };
            std::fs::rename(&part, here.0.join("moved")).unwrap();
            std::os::unix::fs::symlink(&decoy, &part).unwrap();
        };
        let (saved, ()) = tokio::join!(save(source, &target), swap);
        let error = saved.unwrap_err();
        assert!(error.kind() == ErrorKind::Damaged && error.message().contains("replaced"), "{error}");
        assert_eq!(std::fs::read_to_string(victim.join("secret")).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 1);
        assert!(!target.exists());
        for name in here.names() {
            let path = here.0.join(name);
            let is_folder = path.symlink_metadata().unwrap().is_dir();
            if is_folder { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
        }
    }
}

#[tokio::test]
async fn a_name_may_be_as_long_as_a_system_allows_and_end_in_a_slash() {
    let (files, here) = (MemoryFiles::default(), Folder::new("names"));
    files.write("a", 1, &b"new"[..]);
    let long = here.0.join("n".repeat(255));
    save(alone(&files, "a"), &long).await.unwrap();
    assert_eq!(std::fs::read_to_string(&long).unwrap(), "new");
    save(alone(&files, "a"), &here.0.join("slash/")).await.unwrap();
    assert_eq!(std::fs::read_to_string(here.0.join("slash")).unwrap(), "new");
    let tree = source(&files, "", vec![folder(""), files.part("a", false)]);
    save(tree, &here.0.join("tree/")).await.unwrap();
    assert_eq!(std::fs::read_to_string(here.0.join("tree/a")).unwrap(), "new");
    assert_eq!(here.names().len(), 3);
}

#[tokio::test]
async fn no_file_is_written_through_a_link_or_over_another_part() {
    let (files, here) = (MemoryFiles::default(), Folder::new("through"));
    let outside = here.0.join("outside");
    std::fs::create_dir(&outside).unwrap();
    for path in ["l/a", "b"] {
        files.write(path, 1, &b"new"[..]);
    }
    let through = vec![folder(""), link("l", outside.to_str().unwrap()), files.part("l/a", false)];
    let twice = vec![folder(""), files.part("b", false), files.part("b", false)];
    for parts in [through, twice] {
        let error = save(source(&files, "", parts), &here.0.join("out")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
    assert_eq!(here.names(), ["outside"]);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn more_than_the_disk_has_is_refused_before_anything_is_read() {
    let (files, here) = (MemoryFiles::default(), Folder::new("room"));
    let kind = PartKind::File { size: u64::MAX / 4, executable: false, check: Check::Digest(String::new()) };
    let error = save(source(&files, "a", vec![Part { path: "".into(), kind }]), &here.0.join("a")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.message().contains("room"), "{error}");
    assert_eq!((files.reads(), here.names().len()), (0, 0));
}

#[tokio::test]
async fn each_copy_reports_its_end_and_what_has_arrived() {
    let (files, here) = (MemoryFiles::default(), Folder::new("progress"));
    files.write("a", 1, vec![1; 3 << 20]);
    files.write("b", 1, &b""[..]);
    let tree = || source(&files, "", vec![folder(""), files.part("a", false), files.part("b", false)]);
    save(tree(), &here.0.join("out")).await.unwrap();
    files.write("a", 1, vec![2; 3 << 20]);
    let parts = tree().parts;
    files.write("a", 1, vec![1; 3 << 20]);
    save(source(&files, "", parts), &here.0.join("other")).await.unwrap_err();
    let [done, failed] = files.transfers().try_into().unwrap();
    let all = |it: &Transfer| (it.name.clone(), it.bytes, it.total_bytes, it.files, it.total_files, it.state);
    assert_eq!(all(&done), ("run".into(), 3 << 20, 3 << 20, 2, 2, TransferState::Done));
    assert_eq!((failed.state, failed.files), (TransferState::Failed, 0));
    assert_ne!(done.number, failed.number);
}
