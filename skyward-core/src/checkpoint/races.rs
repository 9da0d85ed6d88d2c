//! What another pool does between two calls of a claim.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;

use super::layout::{Layout, random};
use super::manifest::{Manifest, Saved};
use super::tests::{draft, parts_of};
use super::*;
use crate::ErrorKind;
use crate::error::Result;
use crate::storage::{Created, Object, ObjectPath, Storage, StoredObjects};
use crate::testkit::FakeStorage;

type Deed = Box<dyn FnOnce() + Send>;

/// A storage whose users are interrupted: before the first call of this kind and name, something happens.
#[derive(Clone)]
struct Interrupted(FakeStorage, Arc<Mutex<BTreeMap<(&'static str, String), Deed>>>);

impl Interrupted {
    fn new() -> Self {
        Self(FakeStorage::new(1), Arc::default())
    }

    fn before(&self, call: &'static str, path: &ObjectPath, deed: impl FnOnce() + Send + 'static) {
        self.1.lock().unwrap().insert((call, path.to_string()), Box::new(deed));
    }

    fn act(&self, call: &'static str, path: &ObjectPath) {
        let deed = self.1.lock().unwrap().remove(&(call, path.to_string()));
        if let Some(deed) = deed {
            deed();
        }
    }
}

#[async_trait]
impl StoredObjects for Interrupted {
    fn name(&self) -> String {
        self.0.name()
    }

    async fn create(&self, path: &ObjectPath, bytes: Bytes) -> Result<Created> {
        self.act("create", path);
        self.0.create(path, bytes).await
    }

    async fn read(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        self.0.read(path, range).await
    }

    async fn list(&self, prefix: &ObjectPath) -> Result<Vec<Object>> {
        self.act("list", prefix);
        self.0.list(prefix).await
    }

    async fn remove(&self, path: &ObjectPath) -> Result<()> {
        self.act("remove", path);
        self.0.remove(path).await
    }
}

fn layout() -> Layout {
    Layout::new("run").unwrap()
}

/// What another pool writes under a number: a claim, or a commit of this draft with its data.
fn other(objects: &FakeStorage, sequence: u64, draft: Option<&Draft>) {
    let owner = Owner { pool: "other".into(), host: "a host".into() };
    let manifest = Manifest::new("other", &owner, draft.map(Saved::from));
    objects.tear(&layout().commit(sequence), Some(manifest.encode().unwrap()));
    for (rank, number, bytes) in draft.map(parts_of).unwrap_or_default() {
        objects.tear(&layout().part(&draft.unwrap().save, rank, number), Some(bytes));
    }
}

async fn take(objects: &Interrupted) -> Result<Claim> {
    let owner = Owner { pool: "one".into(), host: "a host".into() };
    Claim::take_as(&Storage::of(objects.clone()), "run", owner, true, random()).await
}

async fn commit(claim: &Claim, step: i64, keep: Option<u32>) -> Commit {
    let draft = draft(&SaveId::random(), step, 1, keep);
    for (rank, number, bytes) in parts_of(&draft) {
        claim.put_part(&draft.save, rank, number, &bytes).await.unwrap();
    }
    claim.commit(draft).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_newer_than_what_was_committed_while_it_was_made() {
    let objects = Interrupted::new();
    other(&objects.0, 5, None);
    let store = objects.0.clone();
    objects.before("create", &layout().commit(6), move || {
        // It has committed 6 to 8, and keeps one.
        store.tear(&layout().commit(5), None);
        other(&store, 8, Some(&draft(&SaveId::random(), 1, 1, None)));
    });
    let claim = take(&objects).await.unwrap();
    assert_eq!(claim.turn.lock().await.last, 9);
    assert!(objects.0.content(&layout().commit(6)).is_none());
    assert_eq!(claim.latest().await.unwrap().commit.unwrap().sequence(), 8);
}

#[tokio::test(start_paused = true)]
async fn data_of_a_pool_that_takes_the_name_meanwhile_is_left_alone() {
    let objects = Interrupted::new();
    let (store, save) = (objects.0.clone(), SaveId::random());
    let part = layout().part(&save, 0, 0);
    let uploaded = part.clone();
    objects.before("list", &layout().data(), move || {
        other(&store, 2, None);
        store.tear(&uploaded, Some("x".into()));
    });
    assert_eq!(take(&objects).await.unwrap_err().kind(), ErrorKind::Superseded);
    assert!(objects.0.content(&part).is_some());
}

#[tokio::test(start_paused = true)]
async fn data_that_a_pool_may_commit_anew_is_left_alone() {
    let objects = Interrupted::new();
    let claim = take(&objects).await.unwrap();
    let first = commit(&claim, 1, Some(1)).await;
    let store = objects.0.clone();
    objects.before("remove", &layout().commit(first.sequence()), move || other(&store, 4, None));
    commit(&claim, 2, Some(1)).await;
    let (part, _) = first.pieces(&PathBuf::from("shared")).next().unwrap();
    assert!(objects.0.content(&part).is_some());
}

#[tokio::test(start_paused = true)]
async fn what_a_pool_without_the_name_creates_late_does_not_count() {
    let objects = Interrupted::new();
    other(&objects.0, 7, None);
    let claim = take(&objects).await.unwrap();
    let late = draft(&SaveId::random(), 1, 1, None);
    other(&objects.0, 5, Some(&late));
    let latest = claim.latest().await.unwrap();
    assert!(latest.commit.is_none() && latest.skipped.is_empty());
    commit(&claim, 2, Some(2)).await;
    objects.0.tear(&layout().commit(6), objects.0.content(&layout().commit(5)));
    commit(&claim, 3, Some(2)).await;
    let all = claim.store.all().await.unwrap();
    assert_eq!(all.iter().map(|(brief, _)| brief.saved().unwrap().step).collect::<Vec<_>>(), [2, 3]);
    assert!(objects.0.objects().iter().all(|it| layout().save_of(it) != Some(late.save.clone())));
}
