use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::layout::random;
use super::sim::bytes;
use super::*;
use crate::ErrorKind;
use crate::files::{Check, Part, PartKind};
use crate::storage::{ObjectPath, Storage};
use crate::testkit::FakeStorage;

/// A save of some ranks, each with two files of its own and one that all have.
pub(super) fn draft(save: &SaveId, step: i64, ranks: u32, keep: Option<u32>) -> Draft {
    let file = |path: String, content: &Bytes| {
        let PartInfo { size, sha256 } = PartInfo::of(content);
        Part { path: path.into(), kind: PartKind::File { size, executable: false, check: Check::Digest(sha256) } }
    };
    let folder = |path: &str| Part { path: path.into(), kind: PartKind::Folder };
    let rank = |rank: u32| RankFiles {
        rank,
        files: vec![
            folder(""),
            file("shared".into(), &Bytes::from_static(b"shared")),
            folder("state"),
            file(format!("state/{rank}.0"), &bytes(rank, 0)),
            file(format!("state/{rank}.1"), &bytes(rank, 1)),
        ],
        parts: pieces(rank).iter().map(PartInfo::of).collect(),
    };
    let (attempt, meta) = ("1.1.1".to_owned(), format!("{{\"loss\":{step}}}"));
    Draft { save: save.clone(), step, attempt, meta, ranks: (0..ranks).map(rank).collect(), keep, spared: None }
}

/// The bytes of a rank, cut at a place that is no end of a file.
fn pieces(rank: u32) -> [Bytes; 2] {
    let mut all = Bytes::from([&b"shared"[..], &bytes(rank, 0), &bytes(rank, 1)].concat());
    let first = all.split_to(10);
    [first, all]
}

/// The parts of a draft: rank, number, bytes.
pub(super) fn parts_of(draft: &Draft) -> Vec<(u32, u32, Bytes)> {
    let parts = draft.ranks.iter().flat_map(|it| (0..).zip(pieces(it.rank)).map(|(at, piece)| (it.rank, at, piece)));
    parts.collect()
}

fn owner(pool: &str) -> Owner {
    Owner { pool: pool.to_owned(), host: "a host".to_owned() }
}

async fn take(objects: &FakeStorage, pool: &str) -> crate::Result<Claim> {
    Claim::take(&Storage::of(objects.clone()), "run", owner(pool)).await
}

async fn upload(claim: &Claim, draft: &Draft) {
    for (rank, number, bytes) in parts_of(draft) {
        claim.put_part(&draft.save, rank, number, &bytes).await.unwrap();
    }
}

async fn commit(claim: &Claim, step: i64, keep: Option<u32>) -> crate::Result<Commit> {
    let draft = draft(&SaveId::random(), step, 2, keep);
    upload(claim, &draft).await;
    claim.commit(draft).await
}

fn checkpoints(objects: &FakeStorage) -> Checkpoints {
    Checkpoints::open(&Storage::of(objects.clone()), "run").unwrap()
}

async fn steps(objects: &FakeStorage) -> Vec<i64> {
    checkpoints(objects).list().await.unwrap().iter().map(Checkpoint::step).collect()
}

#[tokio::test(start_paused = true)]
async fn a_commit_has_the_union_of_its_ranks_and_each_file_can_be_read() {
    let objects = FakeStorage::new(1);
    let claim = take(&objects, "one").await.unwrap();
    assert!(claim.latest().await.unwrap().commit.is_none());
    let committed = commit(&claim, 7, None).await.unwrap();
    let latest = claim.latest().await.unwrap().commit.unwrap();
    assert_eq!((latest.step(), latest.sequence(), latest.save()), (7, committed.sequence(), committed.save()));
    assert_eq!(latest.meta(), "{\"loss\":7}");
    let paths: Vec<&str> = latest.union().iter().map(|part| part.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["", "shared", "state", "state/0.0", "state/0.1", "state/1.0", "state/1.1"]);
    assert_eq!(latest.size(), 6 + 4 * 14);
    assert_eq!(latest.files_of(1).unwrap().len(), 5);
    assert!(latest.files_of(2).is_none());
    for (path, wanted) in [("shared", "shared".into()), ("state/1.0", bytes(1, 0)), ("state/0.1", bytes(0, 1))] {
        let mut found = Vec::new();
        for (object, range) in latest.pieces(Path::new(path)) {
            found.extend_from_slice(&claim.read(&object, range).await.unwrap());
        }
        assert_eq!(found, wanted, "{path}");
    }
    assert_eq!(latest.pieces(Path::new("state")).count() + latest.pieces(Path::new("none")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_refused_until_its_owner_is_silent_or_gives_it_back() {
    let objects = FakeStorage::new(1);
    let first = take(&objects, "one").await.unwrap();
    for _ in 0..5 {
        sleep(Duration::from_secs(20)).await;
        first.renew().await.unwrap();
    }
    sleep(Duration::from_secs(50)).await;
    let error = take(&objects, "two").await.unwrap_err();
    assert!(error.kind() == ErrorKind::InUse && error.is_temporary(), "{error:?}");
    assert!(
        error.message().contains("one on a host")
            && error.hint().unwrap().contains("end that pool, or use another name"),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("11 s"), "{error:?}");
    assert_eq!(checkpoints(&objects).remove().await.unwrap_err().kind(), ErrorKind::InUse);
    assert_eq!(objects.objects().len(), 2, "the claim and the owner: {:?}", objects.objects());
    first.renew().await.unwrap();
    // The same pool, as after its client has died.
    let again = take(&objects, "one").await.unwrap();
    assert_eq!(first.renew().await.unwrap_err().kind(), ErrorKind::Superseded);
    sleep(Duration::from_secs(61)).await;
    let second = take(&objects, "two").await.unwrap();
    assert_eq!(again.renew().await.unwrap_err().kind(), ErrorKind::Superseded);
    second.release().await.unwrap();
    take(&objects, "three").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_lost_its_name_commits_nothing_more() {
    let objects = FakeStorage::new(1);
    let first = take(&objects, "one").await.unwrap();
    commit(&first, 1, Some(1)).await.unwrap();
    let storage = Storage::of(objects.clone());
    let second = Claim::take_as(&storage, "run", owner("two"), true, random()).await.unwrap();
    // Also when the number that it would use is free again.
    for step in 10..13 {
        commit(&second, step, Some(1)).await.unwrap();
    }
    let third = Claim::take_as(&storage, "run", owner("three"), true, random()).await.unwrap();
    let error = commit(&first, 2, Some(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded);
    assert!(error.message().contains("three on a host"), "{error:?}");
    assert_eq!(commit(&first, 3, None).await.unwrap_err().kind(), ErrorKind::Superseded);
    assert_eq!(steps(&objects).await, [12]);
    commit(&third, 13, Some(1)).await.unwrap();
    assert_eq!(steps(&objects).await, [13]);
}

#[tokio::test(start_paused = true)]
async fn what_no_commit_names_is_removed_by_the_next_claim() {
    let objects = FakeStorage::new(1);
    let first = take(&objects, "one").await.unwrap();
    commit(&first, 1, None).await.unwrap();
    let before = objects.objects().len();
    let left = draft(&SaveId::random(), 2, 2, None);
    upload(&first, &left).await;
    assert_eq!(objects.objects().len(), before + 4);
    take(&objects, "one").await.unwrap();
    assert_eq!(objects.objects().len(), before, "{:?}", objects.objects());
    assert_eq!(steps(&objects).await, [1]);
    // A manifest that cannot be read may name any data.
    let broken = ObjectPath::new("checkpoints/run/commits/000000000090").unwrap();
    objects.tear(&broken, Some("{".into()));
    let third = take(&objects, "one").await.unwrap();
    upload(&third, &left).await;
    take(&objects, "one").await.unwrap();
    assert_eq!(objects.objects().len(), before + 5, "{:?}", objects.objects());
}

#[tokio::test(start_paused = true)]
async fn a_save_that_is_not_whole_is_not_committed_and_a_discarded_one_is_gone() {
    let objects = FakeStorage::new(1);
    let claim = take(&objects, "one").await.unwrap();
    let before = objects.objects().len();
    let draft = draft(&SaveId::random(), 2, 2, None);
    upload(&claim, &draft).await;
    let part = objects.objects().into_iter().find(|it| it.as_str().ends_with("/1/000001")).unwrap();
    for torn in [None, Some(Bytes::from_static(b"x"))] {
        objects.tear(&part, torn);
        let error = claim.commit(draft.clone()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::CheckpointDamaged && error.message().contains(part.as_str()), "{error:?}");
    }
    claim.discard(&draft.save).await.unwrap();
    assert_eq!(objects.objects().len(), before);
    let committed = commit(&claim, 3, None).await.unwrap();
    claim.discard(committed.save()).await.unwrap();
    assert_eq!(claim.latest().await.unwrap().commit.unwrap().step(), 3);
}

#[tokio::test(start_paused = true)]
async fn torn_commits_are_skipped_and_never_counted_as_kept() {
    let objects = FakeStorage::new(1);
    let claim = take(&objects, "one").await.unwrap();
    let mut saves = Vec::new();
    for step in 1..=3 {
        saves.push(commit(&claim, step, Some(3)).await.unwrap());
    }
    let tear = |commit: &Commit| {
        let (object, _) = commit.pieces(Path::new("shared")).next().unwrap();
        objects.tear(&object, None);
    };
    tear(&saves[2]);
    let latest = claim.latest().await.unwrap();
    assert_eq!(latest.commit.unwrap().step(), 2);
    assert_eq!((latest.skipped[0].step, latest.skipped[0].sequence), (Some(3), saves[2].sequence()));
    assert!(latest.skipped[0].why.contains("missing"), "{:?}", latest.skipped);
    let listed = checkpoints(&objects).list().await.unwrap();
    assert_eq!(listed.iter().map(Checkpoint::is_whole).collect::<Vec<_>>(), [true, true, false]);
    commit(&claim, 4, Some(3)).await.unwrap();
    assert_eq!(steps(&objects).await, [1, 2, 3, 4]);
    commit(&claim, 5, Some(3)).await.unwrap();
    assert_eq!(steps(&objects).await, [2, 3, 4, 5]);
    for checkpoint in checkpoints(&objects).list().await.unwrap() {
        let manifest = format!("checkpoints/run/commits/{:012}", checkpoint.sequence());
        objects.tear(&ObjectPath::new(manifest).unwrap(), Some("{".into()));
    }
    let error = claim.latest().await.unwrap_err();
    assert!(error.kind() == ErrorKind::CheckpointDamaged && error.hint().is_some(), "{error:?}");
    assert_eq!(checkpoints(&objects).latest().await.unwrap_err().kind(), ErrorKind::CheckpointDamaged);
}

#[tokio::test(start_paused = true)]
async fn a_draft_can_be_committed_again_after_any_failure() {
    for seed in 0..100 {
        let objects = FakeStorage::new(seed);
        let claim = take(&objects, "one").await.unwrap();
        let draft = draft(&SaveId::random(), 2, 1, None);
        upload(&claim, &draft).await;
        let slow = Storage::of(objects.clone().slow(Duration::from_millis(100)).losing_replies(3));
        let store = store::Store { storage: slow, ..claim.store.clone() };
        let claim = Claim { store, ..claim };
        let _ = tokio::time::timeout(Duration::from_millis(seed * 10), claim.commit(draft.clone())).await;
        let commit = claim.commit(draft.clone()).await.unwrap();
        let again = claim.commit(draft).await.unwrap();
        assert_eq!(commit.sequence(), again.sequence(), "seed {seed}");
        assert_eq!(steps(&objects).await, [2], "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn different_content_under_one_name_is_an_error_that_names_both_ranks() {
    let objects = FakeStorage::new(1);
    let claim = take(&objects, "one").await.unwrap();
    let mut draft = draft(&SaveId::random(), 2, 3, None);
    draft.ranks[2].files[4].path = "state/0.1".into();
    upload(&claim, &draft).await;
    let error = claim.commit(draft).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec);
    for word in ["rank 0", "rank 2", "state/0.1"] {
        assert!(error.message().contains(word), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn going_back_to_a_step_makes_it_the_latest_and_keeps_its_data() {
    let objects = FakeStorage::new(1);
    let claim = take(&objects, "one").await.unwrap();
    for step in [10, 20, 30] {
        commit(&claim, step, Some(3)).await.unwrap();
    }
    assert_eq!(checkpoints(&objects).rewind_to(10).await.unwrap_err().kind(), ErrorKind::InUse);
    claim.release().await.unwrap();
    let before = objects.objects();
    let error = checkpoints(&objects).rewind_to(11).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.hint().unwrap().contains("10, 20, 30"), "{error:?}");
    assert_eq!(objects.objects(), before);
    checkpoints(&objects).rewind_to(10).await.unwrap();
    let latest = checkpoints(&objects).latest().await.unwrap().unwrap();
    assert_eq!(latest.step(), 10);
    let claim = take(&objects, "two").await.unwrap();
    // The first commit of step 10 goes, and its data stays with the second one.
    commit(&claim, 15, Some(2)).await.unwrap();
    assert_eq!(steps(&objects).await, [10, 15]);
    assert!(checkpoints(&objects).list().await.unwrap().iter().all(Checkpoint::is_whole));
    commit(&claim, 16, Some(1)).await.unwrap();
    claim.release().await.unwrap();
    assert_eq!(objects.objects().iter().filter(|it| it.as_str().contains("/data/")).count(), 4);
    checkpoints(&objects).remove().await.unwrap();
    assert_eq!(objects.objects(), []);
    checkpoints(&objects).remove().await.unwrap();
}

#[tokio::test]
async fn a_checkpoint_is_saved_on_this_host_and_other_bytes_are_refused() {
    let objects = FakeStorage::new(1);
    let claim = take(&objects, "one").await.unwrap();
    let committed = commit(&claim, 7, None).await.unwrap();
    let latest = checkpoints(&objects).latest().await.unwrap().unwrap();
    #[derive(Debug, serde::Deserialize, PartialEq)]
    struct Meta {
        loss: i64,
    }
    assert_eq!(latest.meta::<Meta>().unwrap(), Meta { loss: 7 });
    assert_eq!(latest.meta::<Vec<u8>>().unwrap_err().kind(), ErrorKind::Decode);
    assert_eq!((latest.ranks(), latest.pool(), latest.attempt()), (2, "one", "1.1.1"));
    let folder = std::env::temp_dir().join(format!("skyward-checkpoint-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let target: PathBuf = folder.join("out");
    latest.save_to(&target).await.unwrap();
    assert_eq!(std::fs::read(target.join("state/1.1")).unwrap(), bytes(1, 1));
    assert_eq!(std::fs::read(target.join("shared")).unwrap(), b"shared");
    assert_eq!(std::fs::read_dir(target.join("state")).unwrap().count(), 4);
    let (object, _) = committed.pieces(Path::new("state/1.1")).next().unwrap();
    let mut other = objects.content(&object).unwrap().to_vec();
    *other.last_mut().unwrap() ^= 1;
    for torn in [Some(other.into()), None] {
        objects.tear(&object, torn);
        let error = latest.save_to(folder.join("torn")).await.unwrap_err();
        assert!(error.kind() == ErrorKind::CheckpointDamaged && error.hint().is_some(), "{error:?}");
        assert!(!folder.join("torn").exists());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_is_left_alone() {
    let objects = FakeStorage::new(1);
    commit(&take(&objects, "one").await.unwrap(), 1, None).await.unwrap();
    let newer = ObjectPath::new("checkpoints/run/commits/000000000003").unwrap();
    objects.tear(&newer, Some("{\"version\":2}".into()));
    let before = objects.objects();
    let error = take(&objects, "one").await.unwrap_err();
    assert!(error.message().contains("version 2") && error.hint().unwrap().contains("update"), "{error:?}");
    assert!(checkpoints(&objects).latest().await.is_err() && checkpoints(&objects).list().await.is_err());
    assert_eq!(objects.objects(), before);
}
