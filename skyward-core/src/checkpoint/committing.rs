//! How a save becomes a commit.

use super::brief::Brief;
use super::claim::{Claim, Turn};
use super::commit::Commit;
use super::decide::{Data, unnamed};
use super::draft::Draft;
use super::layout::SaveId;
use super::manifest::{Manifest, Saved};
use super::store::Found;
use crate::error::Result;
use crate::storage::{Created, refused};

impl Claim {
    /// Commits a save: it is whole or not there, and then older commits are removed as its `keep` says.
    ///
    /// After an error that is [temporary](crate::Error::is_temporary) the same draft may be committed
    /// again, whether the first call took effect or not.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Superseded`](crate::ErrorKind::Superseded): another pool has taken the name. All
    ///   later commits fail with it.
    /// - [`ErrorKind::InvalidSpec`](crate::ErrorKind::InvalidSpec): two ranks have saved different content
    ///   under one path, or the lists of files are none.
    /// - [`ErrorKind::CheckpointDamaged`](crate::ErrorKind::CheckpointDamaged): not all parts are in the
    ///   storage.
    /// - [`ErrorKind::Storage`](crate::ErrorKind::Storage): the storage fails.
    ///
    /// # Cancel safety
    ///
    /// The save is committed or not; commit the same draft again to know.
    pub(crate) async fn commit(&self, draft: Draft) -> Result<Commit> {
        let (keep, spared) = (draft.keep, draft.spared.clone());
        let saved = Saved::from(&draft);
        drop(draft);
        self.commit_saved(saved, keep, spared).await
    }

    pub(super) async fn commit_saved(&self, saved: Saved, keep: Option<u32>, spared: Option<SaveId>) -> Result<Commit> {
        let mut turn = self.turn.lock().await;
        if let Some(error) = &turn.superseded {
            return Err(error.clone());
        }
        let manifest = Manifest::new(&self.id, &self.owner, Some(saved.clone()));
        let brief = Brief::new(0, std::time::SystemTime::UNIX_EPOCH, &manifest);
        let layout = &self.store.layout;
        // The number and the time come later; this checks the lists of files.
        Commit::new(layout, 0, saved.clone())?;
        if let Some(saved) = brief.saved() {
            let data = Data::new(self.store.list(&layout.save(&saved.save)).await?);
            if let Some(why) = data.lacks(layout, saved) {
                let message = format!("cannot commit step {} of `{}`: {why}", saved.step, self.name());
                return Err(crate::Error::new(crate::ErrorKind::CheckpointDamaged, message)
                    .with_hint("something has removed what was uploaded: look who else uses the storage"));
            }
        }
        let sequence = self.create(&mut turn, &manifest, &saved.save).await?;
        let listed = self.store.commits().await?;
        turn.known.update(&self.store, &listed).await?;
        let newest = turn.known.all().next_back();
        if newest.and_then(Brief::made_by).is_none_or(|(claim, _)| claim != self.id) {
            // Older objects were removed meanwhile, so the number was free.
            let newest = listed.last().map_or(sequence, |it| it.number);
            let error = self.by(&mut turn, newest);
            self.store.remove(&layout.commit(sequence)).await?;
            return Err(error);
        }
        if !listed.iter().any(|it| it.number == sequence) {
            return Err(refused(format!("checkpoint {sequence} of `{}` was removed at once", self.name()))
                .with_hint("look who else uses the storage"));
        }
        turn.last = turn.last.max(sequence);
        let commit = Commit::new(layout, sequence, saved)?;
        // The commit counts, and the next one tries again what fails here.
        let _ = self.keep(&mut turn, &listed, keep, spared.as_ref()).await;
        Ok(commit)
    }

    /// Creates the manifest under the next number, which it returns.
    async fn create(&self, turn: &mut Turn, manifest: &Manifest, save: &SaveId) -> Result<u64> {
        let is_this = |brief: &&Brief| {
            let is_own = brief.made_by().is_some_and(|(claim, _)| claim == self.id);
            is_own && brief.saved().is_some_and(|saved| saved.save == *save)
        };
        if let Some(known) = turn.known.all().find(is_this) {
            // The call before was dropped after it had created the manifest.
            return Ok(known.sequence);
        }
        let bytes = manifest.encode()?;
        loop {
            let next = turn.last + 1;
            if self.store.create(&self.store.layout.commit(next), &bytes).await? == Created::New {
                return Ok(next);
            }
            match self.store.manifest(next).await? {
                // The answer to the creation was lost.
                Found::Manifest(found) if found.claim == self.id => match found.saved {
                    Some(found) if found.save == *save => return Ok(next),
                    // That of a call that was dropped.
                    _ => turn.last = next,
                },
                _ => {
                    let listed = self.store.commits().await?;
                    turn.known.update(&self.store, &listed).await?;
                    let newest = listed.last().map_or(next, |it| it.number);
                    return Err(self.by(turn, newest));
                }
            }
        }
    }

    /// Removes the data of a save that will not be committed. One that is committed stays.
    ///
    /// # Errors
    ///
    /// Those of the storage. What is left is removed by the next claim of the name.
    ///
    /// # Cancel safety
    ///
    /// Data may be left, which the next claim of the name removes.
    pub(crate) async fn discard(&self, save: &SaveId) -> Result<()> {
        let mut turn = self.turn.lock().await;
        let listed = self.store.commits().await?;
        turn.known.update(&self.store, &listed).await?;
        let left = unnamed([save.clone()].into(), turn.known.all());
        if left.is_empty() {
            return Ok(());
        }
        let parts = self.store.list(&self.store.layout.save(save)).await?;
        self.store.remove_all(parts.into_iter().map(|part| part.path)).await
    }
}
