use std::fs;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::data::scratch::Scratch;
use crate::event::{Transfer, TransferDirection, TransferState};
use crate::files::{Check, PartKind, of_manifest};
use crate::ids::NodeIndex;
use crate::worker::message::{FromMover, Refused, RefusedKind, ToMover};

/// A machine that keeps files in memory.
#[derive(Default)]
struct Memory {
    machine: Option<MachineId>,
    state: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// By their SHA-256.
    files: HashMap<String, Vec<u8>>,
    filling: Option<Vec<(String, Vec<u8>)>>,
    asked: Vec<&'static str>,
    transfers: Vec<Transfer>,
    /// How many requests to fill are refused, as by another mover.
    forgets: u32,
    /// The error of each request to fill.
    refuses: Option<i32>,
}

impl Memory {
    fn new() -> Self {
        Self { machine: Some(MachineId::new("machine")), ..Self::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().unwrap()
    }

    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.kept().asked)
    }
}

impl Kept {
    fn attached(&self, manifest: &[(String, Vec<u8>)]) -> FromMover {
        let missing = (0..).zip(manifest).filter(|(_, (digest, _))| !digest.is_empty());
        let missing: Vec<u32> =
            missing.filter(|(_, (digest, _))| !self.files.contains_key(digest)).map(|(index, _)| index).collect();
        FromMover::Attached { id: "id".into(), path: "/data/id".into(), complete: missing.is_empty(), missing }
    }
}

#[async_trait]
impl Site for Memory {
    fn node(&self) -> NodeIndex {
        NodeIndex(3)
    }

    fn machine(&self) -> &MachineId {
        self.machine.as_ref().unwrap()
    }

    async fn ask(&self, request: &ToMover) -> Result<FromMover> {
        let mut kept = self.kept();
        let refused = |kind, errno| Refused { kind, words: "refused".into(), errno };
        match request {
            ToMover::Attach { manifest, .. } => {
                kept.asked.push("attach");
                let file = |part: crate::files::Part| match part.kind {
                    PartKind::File { size, check: Check::Digest(digest), .. } => (digest, vec![0; size as usize]),
                    _ => Default::default(),
                };
                let files: Vec<_> = of_manifest(manifest)?.into_iter().map(file).collect();
                let attached = kept.attached(&files);
                kept.filling = Some(files);
                Ok(attached)
            }
            ToMover::Fill { spans, body, .. } => {
                kept.asked.push("fill");
                if let Some(errno) = kept.refuses {
                    return Err(refused(RefusedKind::Io, errno).into());
                }
                if kept.forgets > 0 {
                    kept.forgets -= 1;
                    return Err(refused(RefusedKind::Missing, 0).into());
                }
                let mut body: Bytes = body.clone();
                for (index, offset, length) in spans {
                    let (_, content) = &mut kept.filling.as_mut().unwrap()[*index as usize];
                    let (offset, length) = (*offset as usize, *length as usize);
                    content[offset..offset + length].copy_from_slice(&body.split_to(length));
                }
                assert!(body.is_empty());
                Ok(FromMover::Done)
            }
            ToMover::Publish { .. } => {
                kept.asked.push("publish");
                let filling = kept.filling.take().unwrap();
                kept.files.extend(filling);
                Ok(FromMover::Attached { id: "id".into(), path: "/data/id".into(), complete: true, missing: vec![] })
            }
            other => panic!("{other:?}"),
        }
    }

    fn report(&self, transfer: &Transfer) {
        self.kept().transfers.push(transfer.clone());
    }
}

fn sets(folder: &Scratch) -> DataSets {
    DataSets::new([("digits".to_owned(), Data::folder(folder.path()))])
}

fn write(folder: &Scratch, files: &[(&str, usize)]) {
    for (name, size) in files {
        let content: Vec<u8> = (0..*size).map(|index| (index * 7 + name.len()) as u8).collect();
        fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        fs::write(folder.path().join(name), content).unwrap();
    }
}

#[tokio::test]
async fn a_machine_gets_what_it_lacks_and_nothing_twice() {
    let folder = Scratch::new();
    let files = [("a", 5 << 20), ("b/c", 3), ("b/ddd", 2 << 20), ("empty", 0)];
    write(&folder, &files);
    let machine = Memory::new();
    let data = sets(&folder);
    assert_eq!(data.bring("digits", &machine).await.unwrap(), "/data/id");
    {
        let kept = machine.kept();
        for (name, _) in files {
            let content = fs::read(folder.path().join(name)).unwrap();
            assert!(kept.files.values().any(|kept| *kept == content), "{name}");
        }
        let last = kept.transfers.last().unwrap();
        assert_eq!((last.state, last.direction), (TransferState::Done, TransferDirection::ToNode));
        assert_eq!((last.bytes, last.total_bytes), ((7 << 20) + 3, (7 << 20) + 3));
    }
    assert_eq!(machine.asked().first(), Some(&"attach"));
    data.bring("digits", &machine).await.unwrap();
    assert!(machine.asked().is_empty());
    data.forget(machine.machine());
    data.bring("digits", &machine).await.unwrap();
    assert_eq!(machine.asked(), ["attach"]);

    write(&folder, &[("b/c", 4)]);
    sets(&folder).bring("digits", &machine).await.unwrap();
    assert_eq!(machine.asked(), ["attach", "fill", "publish"]);
}

#[tokio::test(start_paused = true)]
async fn another_mover_gets_the_rest() {
    let folder = Scratch::new();
    write(&folder, &[("a", 9 << 20)]);
    let machine = Memory::new();
    machine.kept().forgets = 3;
    sets(&folder).bring("digits", &machine).await.unwrap();
    assert!(machine.kept().files.values().any(|kept| *kept == fs::read(folder.path().join("a")).unwrap()));
    assert!(machine.asked().iter().filter(|asked| **asked == "attach").count() > 1);
}

#[tokio::test]
async fn a_full_disk_ends_the_transfer_and_lets_others_go_on() {
    let folder = Scratch::new();
    write(&folder, &[("a", 10)]);
    let machine = Memory::new();
    machine.kept().refuses = Some(28);
    let error = sets(&folder).bring("digits", &machine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("digits"), "{error}");
    assert_eq!(machine.asked(), ["attach", "fill", "publish"]);
    assert_eq!(machine.kept().transfers.last().unwrap().state, TransferState::Failed);
}

#[tokio::test]
async fn a_folder_that_changes_while_it_is_used_is_refused() {
    let folder = Scratch::new();
    write(&folder, &[("a", 10), ("b", 10)]);
    let data = sets(&folder);
    data.read().await;
    fs::write(folder.path().join("b"), "other").unwrap();
    let machine = Memory::new();
    let error = data.bring("digits", &machine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert!(error.message().contains("/b "), "{error}");
    assert_eq!(machine.asked().last(), Some(&"publish"));
}

#[tokio::test]
async fn what_cannot_be_brought_is_said_before_anything_starts() {
    let folder = Scratch::new();
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("out")).unwrap();
    let error = sets(&folder).check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
    let error = sets(&folder).bring("letters", &Memory::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("letters") && error.message().contains("digits"), "{error}");
}
