//! Whether a storage does what its users rely on.

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::error::{refused, silent};
use super::handle::Storage;
use super::objects::Created;
use super::path::ObjectPath;
use super::timing::{CHECK_PAUSE, CHECK_REMOVAL, STORAGE_CHECK};
use crate::error::Result;

impl Storage {
    /// Checks that objects can be created, listed, read and removed, and that a second creation of
    /// one does not replace it. It leaves nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) with what the store does not do.
    ///
    /// # Cancel safety
    ///
    /// An object whose name begins with `check-` may be left.
    pub(crate) async fn check(&self) -> Result<()> {
        let (began, mut tries) = (Instant::now(), 1);
        loop {
            match self.check_once().await {
                // An answer may be lost on its way, and the next object has another name.
                Err(error) if error.is_temporary() && tries < CHECKS && began.elapsed() < STORAGE_CHECK / 2 => {
                    sleep(CHECK_PAUSE * tries).await
                }
                checked => return checked,
            }
            tries += 1;
        }
    }

    async fn check_once(&self) -> Result<()> {
        let folder = ObjectPath::new(format!("check-{:032x}", rand::random::<u128>()))?;
        let path = folder.join("object")?;
        let checked = timeout(STORAGE_CHECK, self.check_at(&folder, &path)).await;
        let checked = checked.unwrap_or_else(|_| Err(silent("check what can be done", &self.name(), STORAGE_CHECK)));
        if checked.is_err() {
            // The error of the check counts, not that of the attempt to clean up.
            let _ = timeout(CHECK_REMOVAL, self.remove(&path)).await;
        }
        checked
    }

    async fn check_at(&self, folder: &ObjectPath, path: &ObjectPath) -> Result<()> {
        let store = self.name();
        let wrong = |what: &str| refused(format!("{store} cannot keep checkpoints: {what}"));
        let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second, and longer"));
        if self.create(path, first.clone()).await? != Created::New {
            return Err(wrong("it says that an object with a random name exists"));
        }
        let is_listed = |size| move |objects: Vec<super::Object>| objects.iter().map(|it| it.size).eq(size);
        if !is_listed(Some(first.len() as u64))(self.list(folder).await?) {
            return Err(wrong("its list does not have the object that was just created"));
        }
        let again = self.create(path, second).await?;
        let content = self.read(path, 0..1024).await?;
        if again != Created::Exists || content != first {
            return Err(wrong(
                "it replaces an object that exists, so two pools can overwrite each other's checkpoints",
            )
            .with_hint("use a store with conditional writes (`If-None-Match: *`)"));
        }
        self.remove(path).await?;
        if !is_listed(None)(self.list(folder).await?) {
            return Err(wrong("its list still has the object that was just removed"));
        }
        Ok(())
    }
}

/// How often a storage that fails for now is checked.
const CHECKS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::testkit::FakeStorage;

    #[tokio::test(start_paused = true)]
    async fn a_storage_that_works_passes_and_has_nothing_after_it() {
        let objects = FakeStorage::new(1);
        Storage::of(objects.clone()).check().await.unwrap();
        assert_eq!(objects.objects(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_storage_that_ignores_conditions_is_refused_and_has_nothing_after_it() {
        let objects = FakeStorage::new(1).ignoring_conditions();
        let error = Storage::of(objects.clone()).check().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Storage && !error.is_temporary(), "{error:?}");
        assert!(error.message().contains("replaces") && error.hint().is_some(), "{error:?}");
        assert_eq!(objects.objects(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_storage_that_hangs_ends_no_call_later_than_its_deadline() {
        let began = tokio::time::Instant::now();
        let storage = Storage::of(FakeStorage::new(1).stalled());
        let error = storage.check().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Storage && error.is_temporary(), "{error:?}");
        assert_eq!(began.elapsed(), STORAGE_CHECK + CHECK_REMOVAL);
        let error = storage.list(&ObjectPath::new("a").unwrap()).await.unwrap_err();
        assert!(error.is_temporary() && error.message().contains("no answer"), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_leaves_nothing_either() {
        for seed in 0..50 {
            let objects = FakeStorage::new(seed).losing_replies(5);
            let checked = Storage::of(objects.clone()).check().await;
            if let Err(error) = checked {
                assert!(error.is_temporary(), "{error:?}");
            }
            assert_eq!(objects.objects(), [], "seed {seed}");
        }
    }
}
