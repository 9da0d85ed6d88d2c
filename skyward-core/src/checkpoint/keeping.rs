//! Which commits stay.

use std::collections::BTreeSet;

use super::brief::Brief;
use super::claim::{Claim, Turn};
use super::decide::{Data, expired, unnamed};
use super::layout::SaveId;
use super::store::Numbered;
use crate::error::Result;

impl Claim {
    /// Removes commits that are not kept: first their manifests, then the data that no other one names.
    pub(super) async fn keep(
        &self,
        turn: &mut Turn,
        listed: &[Numbered],
        keep: Option<u32>,
        spared: Option<&SaveId>,
    ) -> Result<()> {
        let layout = &self.store.layout;
        turn.known.update(&self.store, listed).await?;
        let Some(keep) = keep else { return Ok(()) };
        let data = Data::new(self.store.data().await?);
        let counts = |brief: &Brief| self.counts(&turn.inherited, brief);
        let is_whole = |brief: &Brief| brief.saved().is_some_and(|saved| data.lacks(layout, saved).is_none());
        let commits = turn.known.all().filter(|brief| !brief.is_claim());
        let commits = commits.map(|brief| (brief.sequence, counts(brief) && is_whole(brief))).collect::<Vec<_>>();
        let is_spared = |sequence: &u64| {
            let spares = |brief: &Brief| brief.saved().is_some_and(|saved| Some(&saved.save) == spared);
            turn.known.all().any(|brief| brief.sequence == *sequence && spares(brief))
        };
        let expired: Vec<u64> = expired(&commits, keep).into_iter().filter(|it| !is_spared(it)).collect();
        let saves = turn.known.all().filter(|brief| expired.contains(&brief.sequence));
        let saves: BTreeSet<SaveId> = saves.filter_map(|brief| Some(brief.saved()?.save.clone())).collect();
        turn.dead.extend(saves);
        // One after another, the oldest first: whoever reads meanwhile finds the newer ones.
        for sequence in expired {
            self.store.remove(&layout.commit(sequence)).await?;
            turn.inherited.remove(&sequence);
        }
        if turn.dead.is_empty() {
            return Ok(());
        }
        // A pool that has taken the name may have made a commit of the same data.
        let listed = self.store.commits().await?;
        turn.known.update(&self.store, &listed).await?;
        if listed.last().is_some_and(|newest| newest.number > turn.last) {
            return Ok(());
        }
        let left = unnamed(turn.dead.clone(), turn.known.all());
        self.store.remove_all(data.of(layout, &left)).await?;
        turn.dead.clear();
        Ok(())
    }

    /// Whether a commit is this claim's own, or was there when the name was taken.
    pub(super) fn counts(&self, inherited: &BTreeSet<u64>, brief: &Brief) -> bool {
        // What cannot be read is not one of those that are removed again.
        brief.made_by().is_none_or(|(claim, _)| claim == self.id) || inherited.contains(&brief.sequence)
    }
}
