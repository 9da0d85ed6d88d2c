//! What is kept in memory of each commit: all but its list of files.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::SystemTime;

use super::claim::Owner;
use super::layout::SaveId;
use super::manifest::{Manifest, Saved};
use super::store::{Found, Numbered, Store};
use crate::error::Result;
use crate::files::total_size;

/// A commit or a claim, without the list of files.
#[derive(Debug, Clone)]
pub(super) struct Brief {
    pub(super) sequence: u64,
    pub(super) modified: SystemTime,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Claim {
        claim: String,
        owner: Owner,
    },
    Commit {
        claim: String,
        owner: Owner,
        saved: SavedBrief,
    },
    /// It cannot be read, for this reason.
    Broken,
}

#[derive(Debug, Clone)]
pub(super) struct SavedBrief {
    pub(super) save: SaveId,
    pub(super) step: i64,
    pub(super) attempt: String,
    pub(super) meta: String,
    pub(super) size: u64,
    /// The ranks that have saved, with the sizes of their parts.
    pub(super) ranks: Vec<(u32, Vec<u64>)>,
}

impl Brief {
    /// What was found under this number; `None` if nothing is there.
    pub(super) fn of(listed: &Numbered, found: &Found) -> Option<Self> {
        let Numbered { number: sequence, modified, .. } = *listed;
        match found {
            Found::Manifest(manifest) => Some(Self::new(sequence, modified, manifest)),
            Found::Broken(_) => Some(Self { sequence, modified, content: Content::Broken }),
            Found::Gone => None,
        }
    }

    pub(super) fn new(sequence: u64, modified: SystemTime, manifest: &Manifest) -> Self {
        let (claim, owner) = (manifest.claim.clone(), manifest.owner.clone());
        let content = match &manifest.saved {
            None => Content::Claim { claim, owner },
            Some(saved) => Content::Commit { claim, owner, saved: saved.into() },
        };
        Self { sequence, modified, content }
    }

    pub(super) fn saved(&self) -> Option<&SavedBrief> {
        match &self.content {
            Content::Commit { saved, .. } => Some(saved),
            _ => None,
        }
    }

    pub(super) fn is_claim(&self) -> bool {
        matches!(self.content, Content::Claim { .. })
    }

    /// Under which claim it was created, and by whom; `None` if it cannot be read.
    pub(super) fn made_by(&self) -> Option<(&str, &Owner)> {
        match &self.content {
            Content::Claim { claim, owner } | Content::Commit { claim, owner, .. } => Some((claim, owner)),
            Content::Broken => None,
        }
    }
}

impl From<&Saved> for SavedBrief {
    fn from(saved: &Saved) -> Self {
        let sizes = |rank: &super::RankFiles| (rank.rank, rank.parts.iter().map(|part| part.size).collect());
        Self {
            save: saved.save.clone(),
            step: saved.step,
            attempt: saved.attempt.clone(),
            meta: saved.meta.clone(),
            size: saved.ranks.iter().fold(0, |sum, rank| sum.saturating_add(total_size(&rank.files))),
            ranks: saved.ranks.iter().map(sizes).collect(),
        }
    }
}

/// The commits and claims of a name that have been read.
#[derive(Debug, Clone, Default)]
pub(super) struct Briefs(BTreeMap<u64, Brief>);

impl Briefs {
    /// Reads what is listed and not known, and forgets what is not listed.
    pub(super) async fn update(&mut self, store: &Store, listed: &[Numbered]) -> Result<()> {
        let is_same = |brief: &Brief, it: &Numbered| brief.sequence == it.number && brief.modified == it.modified;
        self.0.retain(|number, brief| {
            listed.binary_search_by_key(number, |it| it.number).is_ok_and(|at| is_same(brief, &listed[at]))
        });
        for it in listed {
            if let Entry::Vacant(place) = self.0.entry(it.number)
                && let Some(brief) = Brief::of(it, &store.manifest(it.number).await?)
            {
                place.insert(brief);
            }
        }
        Ok(())
    }

    /// In their order.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &Brief> {
        self.0.values()
    }
}
