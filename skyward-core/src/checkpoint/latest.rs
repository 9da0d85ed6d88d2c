//! The newest checkpoint that is whole.

use super::brief::{Brief, Briefs};
use super::claim::Claim;
use super::commit::Commit;
use super::decide::Data;
use super::error::{all_damaged, crowded, damaged, invalid};
use super::manifest::Manifest;
use super::store::{Found, Numbered, Store};
use crate::error::Result;

/// The newest whole commit, and what is newer and torn.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) commit: Option<Commit>,
    /// What is known of the commit.
    pub(super) brief: Option<Brief>,
    /// The newest first.
    pub(crate) skipped: Vec<Skipped>,
}

/// A commit that is not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) sequence: u64,
    /// `None` if its manifest cannot be read.
    pub(crate) step: Option<i64>,
    pub(crate) why: String,
}

impl Claim {
    /// The newest whole commit; without any commit, none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::CheckpointDamaged`](crate::ErrorKind::CheckpointDamaged) if there are commits and none
    /// is whole; [`ErrorKind::Storage`](crate::ErrorKind::Storage) if the storage fails.
    ///
    /// # Cancel safety
    ///
    /// Reads only.
    pub(crate) async fn latest(&self) -> Result<Latest> {
        let inherited = self.turn.lock().await.inherited.clone();
        self.store.latest(|brief| self.counts(&inherited, brief)).await
    }
}

impl Store {
    /// The newest whole one of the commits that count.
    pub(super) async fn latest(&self, counts: impl Fn(&Brief) -> bool) -> Result<Latest> {
        let mut seen: Option<Vec<Numbered>> = None;
        for _ in 0..MOST_LOOKS {
            let listed = self.commits().await?;
            let latest = self.newest_of(&listed, &counts).await?;
            if latest.commit.is_some() {
                return Ok(latest);
            }
            // What a pool has removed since the list was read looks torn.
            if seen.as_ref() == Some(&listed) {
                return match latest.skipped.first() {
                    None => Ok(latest),
                    Some(newest) => Err(all_damaged(self.layout.name(), &newest.why)),
                };
            }
            seen = Some(listed);
        }
        Err(crowded(self.layout.name()))
    }

    async fn newest_of(&self, listed: &[Numbered], counts: impl Fn(&Brief) -> bool) -> Result<Latest> {
        let mut latest = Latest { commit: None, brief: None, skipped: Vec::new() };
        if listed.is_empty() {
            return Ok(latest);
        }
        // After the list of commits: their data was there before them.
        let data = Data::new(self.data().await?);
        for it in listed.iter().rev() {
            let found = self.manifest(it.number).await?;
            let Some(brief) = Brief::of(it, &found).filter(&counts) else { continue };
            let whole = brief.saved().map(|saved| data.lacks(&self.layout, saved));
            let (step, why) = match (found, whole) {
                (Found::Manifest(Manifest { saved: Some(saved), .. }), Some(lack)) => {
                    let step = saved.step;
                    match lack.map_or_else(|| Commit::new(&self.layout, it.number, saved), |why| Err(invalid(why))) {
                        Ok(commit) => {
                            (latest.commit, latest.brief) = (Some(commit), Some(brief));
                            return Ok(latest);
                        }
                        Err(error) => (Some(step), error.message().to_owned()),
                    }
                }
                (Found::Broken(why), _) => (None, why),
                _ => continue,
            };
            latest.skipped.push(Skipped { sequence: it.number, step, why });
        }
        Ok(latest)
    }

    /// All that is known of the name: the commits, each with whether it is whole.
    pub(super) async fn all(&self) -> Result<Vec<(Brief, bool)>> {
        let mut briefs = Briefs::default();
        briefs.update(self, &self.commits().await?).await?;
        let data = Data::new(self.data().await?);
        let whole = |brief: &Brief| brief.saved().is_some_and(|saved| data.lacks(&self.layout, saved).is_none());
        Ok(briefs.all().filter(|brief| !brief.is_claim()).map(|brief| (brief.clone(), whole(brief))).collect())
    }

    /// The commit with this number.
    pub(super) async fn commit(&self, listed: &Numbered) -> Result<Commit> {
        let wrong = |why: &str| damaged(self.layout.name(), listed.number, why);
        match self.manifest(listed.number).await? {
            Found::Manifest(manifest) => match manifest.saved {
                Some(saved) => Commit::new(&self.layout, listed.number, saved).map_err(|error| wrong(error.message())),
                None => Err(wrong("it has no files")),
            },
            Found::Broken(why) => Err(wrong(&why)),
            Found::Gone => Err(wrong("it is gone")),
        }
    }
}

/// How often the list is read anew while others change it.
const MOST_LOOKS: usize = 10;
