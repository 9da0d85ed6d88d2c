//! Data sets with real Python: folders of this host that nodes get once, and that payloads read.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use crate::common::scene::Folder;
use crate::common::{pool, python, signal, until};
use crate::files::mover_of;
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::data::Data;
use skyward::error::ErrorKind;
use skyward::event::{EventItem, Events, PoolEvent, TransferDirection, TransferState};
use skyward::pool::PoolBuilder;
use skyward::provider::Local;
use skyward::testkit::cuttable::Cuttable;

/// A data set of one test. What the nodes' cache keeps of it ends with the value.
struct DataSet {
    folder: Folder,
    kept: Vec<PathBuf>,
}

impl DataSet {
    /// Files whose content no earlier test run has had.
    fn new(files: &[(&str, usize)]) -> Self {
        let set = Self { folder: Folder::new(), kept: Vec::new() };
        files.iter().for_each(|(name, size)| set.write(name, *size));
        set
    }

    fn write(&self, name: &str, size: usize) {
        let path = self.folder.path.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Another seed each time.
        let mut state = RandomState::new().hash_one(name) | 1;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        std::fs::write(path, (0..size).map(|_| random()).collect::<Vec<u8>>()).unwrap();
    }

    fn data(&self) -> Data {
        Data::folder(&self.folder.path)
    }

    /// Checks that nodes have seen what is in the folder.
    fn check(&mut self, seen: &[Seen]) {
        let mut files = BTreeMap::new();
        walk(&self.folder.path, &self.folder.path, &mut files);
        for (path, found) in seen {
            assert!(*found == files, "{path} differs from the folder");
            self.kept.push(Path::new(path).parent().unwrap().to_owned());
        }
    }
}

impl Drop for DataSet {
    fn drop(&mut self) {
        for folder in &self.kept {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn walk(root: &Path, folder: &Path, files: &mut BTreeMap<String, (u64, u64)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(root, &path, files);
        } else {
            let content = std::fs::read(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.insert(name, (content.len() as u64, sum(&content)));
        }
    }
}

/// A checksum that Python computes too: Adler-32.
fn sum(content: &[u8]) -> u64 {
    let (mut low, mut high) = (1_u64, 0_u64);
    for byte in content {
        low = (low + u64::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    high << 16 | low
}

/// The path of the folder on a node, and each file with its length and its checksum.
type Seen = (String, BTreeMap<String, (u64, u64)>);

/// Reads the whole data set.
fn look(name: &'static str) -> PendingCompute<Seen> {
    let text = indoc! {"
        import zlib
        import skyward as sky

        def f(name):
            folder = sky.data(name)
            files = {}
            for path in folder.rglob('*'):
                if path.is_file():
                    content = path.read_bytes()
                    files[str(path.relative_to(folder))] = (len(content), zlib.adler32(content))
            return str(folder), files
    "};
    python(text).arg("name", name).into()
}

/// How many files and bytes have gone to nodes.
async fn sent(mut events: Events) -> (u64, u64) {
    let mut sent = (0, 0);
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item
            && let PoolEvent::Transfer(transfer) = &*event
            && transfer.direction == TransferDirection::ToNode
            && transfer.state == TransferState::Done
        {
            sent = (sent.0 + transfer.files, sent.1 + transfer.bytes);
        }
    }
    sent
}

async fn seen_in(builder: PoolBuilder, name: &'static str) -> skyward::Result<(Vec<Seen>, (u64, u64))> {
    let events = builder.events();
    let seen = builder.scope(async |pool| look(name).broadcast(pool).await).await?;
    Ok((seen, sent(events).await))
}

#[tokio::test]
async fn the_nodes_of_a_host_get_a_data_set_once_and_later_pools_what_has_changed() {
    let mut set = DataSet::new(&[("a.bin", 5_000_001), ("b/c.bin", 3), ("b/.hidden", 9), ("empty", 0)]);
    let (seen, first) = seen_in(pool(2).data("set", set.data()), "set").await.unwrap();
    assert_eq!(seen.len(), 2);
    set.check(&seen);
    assert_eq!(first, (3, 5_000_013), "one node gets the files, and the other finds them");
    let (seen, again) = seen_in(pool(2).data("set", set.data()), "set").await.unwrap();
    set.check(&seen);
    assert_eq!(again, (0, 0));
    set.write("b/c.bin", 4);
    let (seen, changed) = seen_in(pool(1).data("set", set.data()), "set").await.unwrap();
    set.check(&seen);
    assert_eq!(changed, (1, 4));
}

#[tokio::test]
async fn a_lazy_data_set_comes_when_a_payload_asks_for_it() {
    let mut set = DataSet::new(&[("a.bin", 100_000)]);
    let builder = pool(1).data("set", set.data().lazily());
    let mut events = builder.events();
    let seen = builder
        .scope(async |pool| {
            // Until the pool is ready, nothing is sent.
            while let Some(EventItem::Event(event)) = events.next().await {
                assert!(!matches!(*event, PoolEvent::Transfer(_)));
                if matches!(*event, PoolEvent::PoolReady { .. }) {
                    break;
                }
            }
            let error = look("other").run(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Raised);
            let exception = error.exception().unwrap();
            assert!(exception.message.contains("other") && exception.message.contains("set"), "{error}");
            look("set").run(pool).await
        })
        .await
        .unwrap();
    set.check(&[seen]);
    assert_eq!(sent(events).await, (1, 100_000));
}

#[tokio::test]
async fn a_data_set_arrives_through_cuts_and_the_death_of_its_mover() {
    let mut set = DataSet::new(&[("a.bin", 96 << 20), ("b.bin", 1 << 20)]);
    let provider = Cuttable::new(Local::default());
    let builder = pool(1).provider(provider.clone()).data("set", set.data().lazily());
    let seen = builder
        .scope(async |pool| {
            let part = || {
                let cache = cache();
                let sizes = std::fs::read_dir(&cache).into_iter().flatten().flatten();
                sizes.map(|entry| size_of_hidden(&entry.path())).max().unwrap_or(0)
            };
            let disturb = async {
                for reached in 1..=2_u64 {
                    until("a further part has arrived", || part() >= reached * (16 << 20)).await;
                    assert!(provider.cut() > 0);
                }
                until("a further part has arrived", || part() >= 48 << 20).await;
                signal("KILL", mover_of(pool)).await;
            };
            let (seen, ()) = tokio::join!(look("set").run(pool), disturb);
            seen
        })
        .await
        .unwrap();
    set.check(&[seen]);
}

#[tokio::test]
async fn what_is_wrong_with_a_folder_is_said_before_anything_starts() {
    let error = pool(1).data("set", Data::folder("/nothing/here")).check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for name in ["", ".set", "a/b", "über"] {
        let error = pool(1).data(name, Data::folder("/")).check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{name}: {error}");
    }
    let set = DataSet::new(&[("a", 1)]);
    let twice = pool(1).data("set", set.data()).data("set", set.data()).check().unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::InvalidSpec, "{twice}");
    std::os::unix::fs::symlink("/etc", set.folder.path.join("outside")).unwrap();
    let builder = pool(1).data("set", set.data());
    let mut events = builder.events();
    let error = builder.start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
    assert!(error.message().contains("outside"), "{error}");
    while let Some(EventItem::Event(event)) = events.next().await {
        assert!(!matches!(*event, PoolEvent::NodeLaunching { .. }), "nothing was launched");
    }
}

/// The folder of data sets in this user's cache.
fn cache() -> PathBuf {
    let from = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let standard = || from("XDG_CACHE_HOME").unwrap_or_else(|| std::env::home_dir().unwrap().join(".cache"));
    from("SKYWARD_CACHE_DIR").unwrap_or_else(|| standard().join("skyward")).join("data")
}

/// The bytes of the files that are not in their place yet.
fn size_of_hidden(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_name() == "files" {
            true => 0,
            false => match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => size_of_hidden(&entry.path()),
                Ok(metadata) => metadata.len(),
                Err(_) => 0,
            },
        })
        .sum()
}

#[tokio::test]
async fn a_node_that_would_get_other_files_does_not_join() {
    let mut set = DataSet::new(&[("a.bin", 100)]);
    pool(1)
        .data("set", set.data())
        .scope(async |pool| {
            let seen = look("set").run(pool).await?;
            set.check(std::slice::from_ref(&seen));
            set.write("a.bin", 100);
            // Nodes of one host share a cache.
            std::fs::remove_dir_all(set.kept.pop().unwrap()).unwrap();
            let error = pool.resize(2).await.unwrap_err();
            let causes = format!("{error:?} {error}");
            assert!(causes.contains("a.bin is not the file any more"), "{causes}");
            Ok(())
        })
        .await
        .unwrap();
}
