use std::sync::Arc;

use super::open::{Open, PoolLedger};
use super::owner::Owner;
pub(in crate::pool) use super::record::Record;
use super::record::{Head, Intent, VERSION, now};
use super::*;
use crate::ids::{Attempt, LaunchId, MachineId, MachineNumber, OfferId};
use crate::provider::{Facts, Local, Machine};

/// A ledger in a folder of its own.
pub(in crate::pool) struct Scratch(pub(in crate::pool) Ledger);

impl Scratch {
    pub(in crate::pool) fn new() -> Self {
        Self(Ledger::at(std::env::temp_dir().join(format!("sky-ledger-{:016x}", rand::random::<u64>()))))
    }

    /// Writes the file of a dead owner with these records.
    pub(in crate::pool) fn write(&self, pool: &PoolId, bytes: &[u8]) {
        self.0.make().unwrap();
        std::fs::write(self.0.path(pool), bytes).unwrap();
    }

    /// The bytes of a pool's file.
    pub(in crate::pool) fn read(&self, pool: &PoolId) -> Vec<u8> {
        std::fs::read(self.0.path(pool)).unwrap()
    }

    pub(in crate::pool) fn path(&self, pool: &PoolId) -> PathBuf {
        self.0.path(pool)
    }

    fn orphan(&self) -> Orphan {
        match self.0.pools().unwrap().pop() {
            Some(Found::Orphan(orphan)) => orphan,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::pool) fn files(&self) -> usize {
        std::fs::read_dir(&self.0.folder).map_or(0, Iterator::count)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0.folder);
    }
}

pub(in crate::pool) fn machine(pool: &PoolId, number: u32) -> Machine {
    let (id, number) = (MachineId::new(format!("{pool}.n{number}")), MachineNumber(number));
    let (launch, offer) = (LaunchId::of(pool, number, Attempt(1)), OfferId::new("host"));
    Machine { id, launch, pool: pool.clone(), number, offer, facts: Facts::new() }
}

pub(in crate::pool) fn head(pool: &PoolId, provider: &str, identity: Option<&str>) -> Record {
    Record::Pool(Head {
        version: VERSION,
        pool: pool.clone(),
        provider: provider.into(),
        identity: identity.map(str::to_owned),
        parts: Vec::new(),
        owner: Owner::this(),
        at: now(),
    })
}

pub(in crate::pool) fn intent(machine: &Machine, at: u64) -> Record {
    Record::Intent(Intent { launch: machine.launch.clone(), number: machine.number, at })
}

pub(in crate::pool) fn fact(machine: &Machine) -> Record {
    Record::Fact { machine: machine.clone(), at: now() }
}

pub(in crate::pool) fn lines(records: Vec<Record>) -> Vec<u8> {
    let mut lines = Vec::new();
    records.into_iter().for_each(|record| record.write_line(&mut lines).unwrap());
    lines
}

async fn opened(scratch: &Scratch, pool: &PoolId) -> PoolLedger {
    let ledger = PoolLedger::default();
    ledger.open(scratch.0.clone(), pool, &Local::new()).await.unwrap();
    ledger
}

#[tokio::test]
async fn a_pool_is_held_while_its_owner_lives_and_an_orphan_after_that() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let ledger = opened(&scratch, &pool).await;
    let machine = machine(&pool, 0);
    ledger.intend(vec![(machine.launch.clone(), machine.number)]).await.unwrap();
    ledger.fact(machine.clone()).await.unwrap();
    match &scratch.0.pools().unwrap()[..] {
        [Found::Held { pool: held, page }] => {
            assert_eq!(held, &pool);
            assert!(page.head.as_ref().unwrap().owner.is_alive());
        }
        other => panic!("{other:?}"),
    }
    drop(ledger);
    let orphan = scratch.orphan();
    let head = orphan.page.head.as_ref().unwrap();
    assert_eq!(head.provider.as_str(), "local");
    assert_eq!(&head.identity, &Some(crate::provider::Provider::identity(&Local::new()).await.unwrap()));
    assert_eq!(&orphan.page.machines[..], &[machine][..]);
    assert_eq!(orphan.page.damaged, 0);
    // A process that holds an orphan keeps other processes from it.
    assert!(matches!(scratch.0.pools().unwrap()[..], [Found::Held { .. }]));
    orphan.forget().unwrap();
    assert_eq!(scratch.files(), 0);
}

#[tokio::test]
async fn a_machine_that_is_gone_is_off_the_record_and_its_replacement_is_on_record() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let ledger = opened(&scratch, &pool).await;
    let lost = machine(&pool, 0);
    let mut next = machine(&pool, 0);
    next.id = MachineId::new("next");
    next.launch = LaunchId::of(&pool, MachineNumber(0), Attempt(2));
    ledger.intend(vec![(lost.launch.clone(), lost.number)]).await.unwrap();
    ledger.fact(lost.clone()).await.unwrap();
    ledger.gone(vec![lost.id, MachineId::new("never known")]).await.unwrap();
    ledger.intend(vec![(next.launch.clone(), next.number)]).await.unwrap();
    ledger.fact(next.clone()).await.unwrap();
    drop(ledger);
    let orphan = scratch.orphan();
    assert_eq!(&orphan.page.machines[..], &[next.clone()][..]);
    assert_eq!(orphan.page.damaged, 0);
    let launches: Vec<_> = orphan.page.intents.iter().map(|intent| &intent.launch).collect();
    assert_eq!(launches, [&next.launch]);
}

#[tokio::test]
async fn a_pool_that_is_gone_leaves_no_file_even_if_it_was_never_started() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let ledger = opened(&scratch, &pool).await;
    ledger.forget().await;
    assert_eq!(scratch.files(), 0);
    let error = ledger.intend(Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    // An `open` that was dropped and runs after the pool's end.
    let late = PoolLedger::default();
    late.forget().await;
    assert_eq!(late.open(scratch.0.clone(), &pool, &Local::new()).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(scratch.files(), 0);
}

#[test]
fn a_record_that_is_cut_off_at_any_byte_hides_no_other() {
    let pool = PoolId::random();
    let first = machine(&pool, 0);
    let whole = lines(vec![head(&pool, "local", None), intent(&first, 7)]);
    let last = lines(vec![Record::Fact { machine: first, at: 8 }]);
    for cut in 0..=last.len() {
        let page = Page::read(&[&whole[..], &last[..cut]].concat());
        assert!(page.head.is_some() && page.intents.len() == 1, "cut at {cut}");
        let (machines, damaged) = match cut {
            0 => (0, 0),
            cut if cut == last.len() => (1, 0),
            _ => (0, 1),
        };
        assert_eq!(page.machines.len(), machines, "cut at {cut}");
        assert_eq!(page.damaged, damaged, "cut at {cut}");
    }
}

#[test]
fn a_damaged_byte_spoils_its_own_record_only() {
    let pool = PoolId::random();
    let bytes = lines(vec![head(&pool, "local", None), intent(&machine(&pool, 0), 1), intent(&machine(&pool, 1), 1)]);
    for place in 0..bytes.len() {
        let mut bytes = bytes.clone();
        let intact = bytes[place] != b'\n';
        bytes[place] ^= 1;
        let page = Page::read(&bytes);
        let whole = usize::from(page.head.is_some()) + page.intents.len();
        // A damaged line break joins two lines.
        let expected = if intact { 2 } else { 1 };
        assert!(whole >= expected && page.damaged >= 1, "byte {place}: {page:?}");
    }
    // Reading ends for any input.
    assert_eq!(Page::read(b"\n\n\xff\xff").damaged, 1);
}

#[test]
fn a_ledger_of_a_newer_version_is_read_but_not_removed() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let newer = format!(
        r#"{{"record":"pool","version":{},"pool":"{pool}","provider":"local","identity":null,"owner":{{"pid":1,"started":1,"boot":"x","more":[]}},"at":1,"more":1}}"#,
        VERSION + 1
    );
    let unknown = r#"{"record":"handover","to":"somebody"}"#;
    let line =
        |json: &str| format!("{} {json}\n", crate::spec::hex(&<sha2::Sha256 as sha2::Digest>::digest(json)[..8]));
    let mut bytes = (line(&newer) + &line(unknown)).into_bytes();
    bytes.extend(lines(vec![intent(&machine(&pool, 0), 1)]));
    scratch.write(&pool, &bytes);
    let orphan = scratch.orphan();
    assert_eq!(orphan.page.newer(), Some(VERSION + 1));
    assert_eq!(orphan.page.intents.len(), 1);
    assert_eq!(orphan.page.damaged, 0);
    let error = orphan.forget().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    assert!(format!("{error:#}").contains("newer version: 4, but this client knows 3"), "{error}");
    assert_eq!(scratch.files(), 1);
}

#[test]
fn a_ledger_of_each_version_is_read_to_the_same_machines() {
    for (version, bytes, offer) in [
        (2, &include_bytes!("formats/version-2.ledger")[..], ""),
        (3, include_bytes!("formats/version-3.ledger"), "container"),
        (4, include_bytes!("formats/version-4.ledger"), "container"),
    ] {
        let mut page = Page::read(bytes);
        assert_eq!(page.damaged, 0, "version {version}");
        let expected = Machine {
            id: MachineId::new("p-x.n0-a1"),
            launch: LaunchId::new("p-x-n0-a1"),
            pool: PoolId::new("p-x"),
            number: MachineNumber(0),
            offer: OfferId::new(offer),
            facts: Facts::new(),
        };
        assert_eq!(page.machines, std::slice::from_ref(&expected), "version {version}");
        assert_eq!(page.intents, [Intent { launch: expected.launch, number: MachineNumber(0), at: 1 }]);
        let head = page.head.take().unwrap();
        assert_eq!(head.version, version);
        assert_eq!(head.whereabouts()[0].identity.as_deref(), Some("engine-1"));
        assert_eq!(head.owner.other_machine().is_some(), version > 2, "an older owner has no machine");
    }
}

#[test]
fn this_version_writes_the_ledger_of_its_fixture() {
    let bytes = include_bytes!("formats/version-3.ledger");
    let page = Page::read(bytes);
    let intents = page.intents.into_iter().map(Record::Intent);
    let facts = page.machines.into_iter().map(|machine| Record::Fact { machine, at: 2 });
    let written = lines(page.head.into_iter().map(Record::Pool).chain(intents).chain(facts).collect());
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(bytes));
}

#[test]
fn after_a_failed_write_the_next_record_is_whole() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let Record::Pool(first) = head(&pool, "local", None) else { unreachable!() };
    let mut open = Open::create(&scratch.0, first).unwrap();
    let full = File::options().append(true).open("/dev/full").unwrap();
    let file = std::mem::replace(&mut open.file, Locked::wait(full).unwrap());
    let error = open.append(vec![intent(&machine(&pool, 0), 1)], true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    open.file = file;
    io::Write::write_all(&mut &*open.file, b"half of a reco").unwrap();
    open.append(vec![intent(&machine(&pool, 1), 1)], true).unwrap();
    let page = Page::read(&std::fs::read(scratch.0.path(&pool)).unwrap());
    assert_eq!(page.intents.len(), 1);
    assert_eq!(page.damaged, 1);
    assert_eq!(page.intents[0].number, MachineNumber(1));
}

#[tokio::test]
async fn a_folder_that_cannot_be_created_is_an_error_with_a_hint() {
    let ledger = PoolLedger::default();
    let error = ledger.open(Ledger::at("/proc/no/ledger".into()), &PoolId::random(), &Local::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Ledger);
    assert!(format!("{error:#}").contains("/proc/no/ledger") && error.hint().unwrap().contains(VARIABLE), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_pools_at_once_do_not_disturb_each_other() {
    let scratch = Arc::new(Scratch::new());
    let pools = (0..16).map(|_| {
        let scratch = Arc::clone(&scratch);
        tokio::spawn(async move {
            let pool = PoolId::random();
            let ledger = opened(&scratch, &pool).await;
            let machines: Vec<_> = (0..8).map(|node| machine(&pool, node)).collect();
            ledger
                .intend(machines.iter().map(|machine| (machine.launch.clone(), machine.number)).collect())
                .await
                .unwrap();
            let facts = machines.into_iter().map(|machine| ledger.fact(machine));
            futures_util::future::try_join_all(facts).await.unwrap();
            // A process that looks meanwhile sees only pools with an owner.
            assert!(
                scratch
                    .0
                    .pools()
                    .unwrap()
                    .iter()
                    .all(|found| matches!(found, Found::Held { page, .. } if page.head.is_some()))
            );
            ledger
        })
    });
    let held: Vec<_> = futures_util::future::try_join_all(pools).await.unwrap();
    let found = scratch.0.pools().unwrap();
    assert_eq!(found.len(), 16);
    for found in found {
        let Found::Held { page, .. } = found else { panic!("{found:?}") };
        assert_eq!(page.intents.len(), 8);
        assert_eq!(page.machines.len(), 8);
        assert_eq!(page.damaged, 0);
    }
    drop(held);
}

#[test]
fn the_facts_that_a_provider_keeps_about_a_machine_are_not_recorded() {
    let mut machine = machine(&PoolId::random(), 0);
    machine.facts.insert("key".into(), "-----BEGIN PRIVATE KEY-----".into());
    let line = lines(vec![Record::Fact { machine, at: 1 }]);
    assert!(!String::from_utf8(line).unwrap().contains("PRIVATE"));
}

#[test]
fn an_old_file_that_was_never_renamed_is_removed() {
    let scratch = Scratch::new();
    scratch.0.make().unwrap();
    let [fresh, old] = ["a.new", "b.new"].map(|name| scratch.0.folder.join(name));
    for path in [&fresh, &old] {
        std::fs::write(path, "").unwrap();
    }
    let long_ago = SystemTime::now() - 2 * ABANDONED;
    File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    assert!(scratch.0.pools().unwrap().is_empty());
    assert!(fresh.exists());
    assert!(!old.exists());
}

#[test]
fn a_later_process_with_the_same_id_is_not_the_owner() {
    let this = Owner::this();
    assert!(this.is_alive());
    let later = serde_json::to_string(&this).unwrap().replace("\"started\":", "\"started\":1");
    assert!(!serde_json::from_str::<Owner>(&later).unwrap().is_alive());
}

#[test]
fn the_client_of_another_machine_is_known_as_such_and_a_name_alone_does_not_matter() {
    let this = Owner::this();
    assert_eq!(this.other_machine(), None);
    let json = serde_json::to_value(&this).unwrap();
    let with = |field: &str, value: &str| {
        let mut json = json.clone();
        json[field] = value.into();
        serde_json::from_value::<Owner>(json).unwrap()
    };
    assert_eq!(with("host", "renamed").other_machine(), None);
    assert_eq!(with("boot", "earlier").other_machine(), None);
    let other = serde_json::from_value::<Owner>({
        let mut json = json.clone();
        (json["machine"], json["host"]) = ("machine 0".into(), "desk".into());
        json
    });
    assert_eq!(other.unwrap().other_machine(), Some("desk"));
    let clone = serde_json::from_value::<Owner>({
        let mut json = json.clone();
        (json["boot"], json["host"]) = ("its own".into(), "node7".into());
        json
    });
    assert_eq!(clone.unwrap().other_machine(), Some("node7"), "a clone has this machine's id");
    // As an older version wrote it.
    let older = serde_json::from_str::<Owner>(r#"{"pid":1,"started":1,"boot":"x"}"#).unwrap();
    assert_eq!(older.other_machine(), None);
}

#[test]
fn an_orphan_of_another_machine_is_ended_only_where_all_locks_are_visible() {
    let (scratch, pool) = (Scratch::new(), PoolId::random());
    let Record::Pool(mut first) = head(&pool, "local", None) else { unreachable!() };
    let mut json = serde_json::to_value(&first.owner).unwrap();
    (json["machine"], json["host"]) = ("machine 0".into(), "desk".into());
    first.owner = serde_json::from_value(json).unwrap();
    scratch.write(&pool, &lines(vec![Record::Pool(first)]));
    // A folder for temporary files is on a disk of this machine.
    assert!(scratch.orphan().lives_elsewhere().is_none());
    // proc stands for a file system that several machines may have.
    let page = std::mem::take(&mut scratch.orphan().page);
    let file = File::open("/proc/self/stat").unwrap();
    let error =
        Orphan::new(pool, "/shared/p.ledger".into(), Locked::wait(file).unwrap(), page).lives_elsewhere().unwrap();
    assert_eq!(error.kind(), ErrorKind::Identity);
    assert!(
        format!("{error:#}").contains("`desk`") && error.hint().unwrap().contains("the record is kept"),
        "{error:#}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_answer_is_an_error_after_some_time() {
    let (answer, answered) = std::sync::mpsc::channel::<()>();
    let read = tokio::spawn(blocking(move || Ok(answered.recv().is_ok())));
    // By hand: the paused clock waits for work on other threads.
    tokio::task::yield_now().await;
    tokio::time::advance(DISK_ANSWER).await;
    let error = read.await.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Ledger && error.hint().is_some(), "{error}");
    drop(answer);
}
