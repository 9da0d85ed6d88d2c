//! One try of a training, as far as its checkpoints go: its ranks, their saves, and who waits for a
//! commit.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::messages::{Opening, Writers};
use crate::error::{Error, ErrorKind};
use crate::ids::{Generation, MachineId, NodeIndex, Rank};

/// The connection of a worker to the mover of its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Channel {
    pub(super) node: NodeIndex,
    pub(super) machine: MachineId,
    /// No other connection on the machine has this number.
    pub(super) number: u64,
}

/// A rank that uses the name.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: String,
    /// The number of its request.
    pub(super) n: u64,
    pub(super) own: bool,
    /// The worker that the rank is.
    pub(super) worker: (Rank, Generation),
    /// Its latest connection. If the mover has ended, the worker has another one when it has
    /// something to say.
    pub(super) at: Channel,
    has_ended: bool,
}

/// A rank's files of one step, which wait on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Saved {
    /// The id under which the mover has it.
    pub(super) id: String,
    pub(super) node: NodeIndex,
    pub(super) machine: MachineId,
    /// The folder on the node.
    pub(super) path: PathBuf,
    pub(super) rank: u32,
    /// JSON.
    pub(super) meta: String,
}

/// The saves of one step, by rank.
pub(super) type Saves = BTreeMap<u32, Saved>;

/// A rank waits for the commit of a step or of a later one.
#[derive(Debug)]
struct Wait {
    open: String,
    n: u64,
    step: i64,
}

/// How a rank that says that it uses the name is taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    New,
    /// It was known, and has another connection.
    Known,
    /// Another task uses this rank of the try.
    Taken,
    /// The try is over.
    Late,
}

/// One try of a training.
#[derive(Debug)]
pub(super) struct Attempt {
    key: String,
    ranks: u32,
    writers: Writers,
    keep: Option<u32>,
    opens: BTreeMap<u32, Open>,
    /// The saves without a commit, by step.
    saves: BTreeMap<i64, Saves>,
    /// The newest step of this try that is committed.
    newest: Option<i64>,
    waits: Vec<Wait>,
    is_sealed: bool,
}

impl Attempt {
    /// The try of a rank that is the first to use the name.
    pub(super) fn of(first: &Opening) -> Self {
        Self {
            key: first.key.clone(),
            ranks: first.ranks.max(1),
            writers: first.writers,
            keep: first.keep,
            opens: BTreeMap::new(),
            saves: BTreeMap::new(),
            newest: None,
            waits: Vec::new(),
            is_sealed: false,
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Whether the rank with this id uses the name over this connection.
    pub(super) fn is_at(&self, id: &str, channel: &Channel) -> bool {
        self.open(id).is_some_and(|(_, open)| open.at == *channel)
    }

    pub(super) fn keep(&self) -> Option<u32> {
        self.keep
    }

    /// A rank says that it uses the name.
    pub(super) fn join(&mut self, opening: &Opening, at: Channel) -> Joined {
        let open = Open {
            id: opening.open.clone(),
            n: opening.n,
            own: opening.own,
            worker: (Rank(opening.worker_rank), Generation(opening.generation)),
            at,
            has_ended: false,
        };
        let joined = match self.opens.get(&opening.rank) {
            Some(known) if known.id == opening.open && known.at.machine == open.at.machine && !known.has_ended => {
                Joined::Known
            }
            Some(_) => return Joined::Taken,
            None if self.is_sealed || opening.rank >= self.ranks => return Joined::Late,
            None => Joined::New,
        };
        self.opens.insert(opening.rank, open);
        joined
    }

    /// The ranks that use the name now.
    pub(super) fn living(&self) -> impl Iterator<Item = (u32, &Open)> {
        self.opens.iter().map(|(rank, open)| (*rank, open)).filter(|(_, open)| !open.has_ended)
    }

    /// The rank with this id, if it uses the name now.
    pub(super) fn open(&self, id: &str) -> Option<(u32, &Open)> {
        self.living().find(|(_, open)| open.id == id)
    }

    /// Whether all ranks use the name now.
    pub(super) fn is_whole(&self) -> bool {
        self.living().count() as u64 == u64::from(self.ranks)
    }

    /// Whether no rank uses the name any more, of those that have begun.
    pub(super) fn is_left(&self) -> bool {
        self.living().next().is_none()
    }

    /// Whether all ranks have begun and ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_left() && self.opens.len() as u64 == u64::from(self.ranks)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// The ranks for which this holds end. Returns whether there is one.
    pub(super) fn end(&mut self, ends: impl Fn(&Open) -> bool) -> bool {
        let ended = self.opens.values_mut().filter(|open| !open.has_ended && ends(open));
        ended.map(|open| open.has_ended = true).count() > 0
    }

    /// A machine is gone, with the ranks and the saves on it. Returns the steps that lack a save now.
    pub(super) fn on_machine_gone(&mut self, machine: &MachineId) -> Vec<i64> {
        self.end(|open| open.at.machine == *machine);
        let mut lost = Vec::new();
        for (step, saves) in &mut self.saves {
            let before = saves.len();
            saves.retain(|_, saved| saved.machine != *machine);
            if saves.len() < before {
                lost.push(*step);
            }
        }
        lost
    }

    /// A save is complete on its node.
    ///
    /// # Errors
    ///
    /// Gives the save back if nothing will come of it: the rank is on another machine, the try is over, its step is committed or older
    /// than what is, or the rank has saved the step already.
    pub(super) fn save(&mut self, step: i64, saved: Saved) -> std::result::Result<(), Saved> {
        // No machine has saves of a rank that is on another one.
        let is_foreign = self.opens.get(&saved.rank).is_none_or(|open| open.at.machine != saved.machine);
        let is_late = is_foreign
            || self.is_sealed
            || saved.rank >= self.ranks
            || self.newest.is_some_and(|newest| step <= newest);
        if is_late {
            return Err(saved);
        }
        match self.saves.entry(step).or_default().entry(saved.rank) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(saved);
                Ok(())
            }
            // A mover reports a save again to a new connection.
            std::collections::btree_map::Entry::Occupied(known) if known.get().id == saved.id => Ok(()),
            std::collections::btree_map::Entry::Occupied(_) => Err(saved),
        }
    }

    /// The newest step that all ranks have saved.
    pub(super) fn complete(&self) -> Option<(i64, &Saves)> {
        self.saves.iter().rev().find(|(_, saves)| self.has_all(saves)).map(|(step, saves)| (*step, saves))
    }

    fn has_all(&self, saves: &Saves) -> bool {
        match self.writers {
            Writers::All => saves.len() as u64 == u64::from(self.ranks),
            Writers::Head => saves.contains_key(&0),
        }
    }

    /// Removes the saves of steps before this one that all ranks have, but the one that is under way: a
    /// newer one takes their place.
    pub(super) fn drop_before(&mut self, step: i64, under_way: Option<i64>) -> Vec<(i64, Saves)> {
        let older = self.saves.range(..step).map(|(older, _)| *older).filter(|older| Some(*older) != under_way);
        let older: Vec<i64> = older.collect();
        let complete = older.into_iter().filter(|older| self.has_all(&self.saves[older])).collect::<Vec<_>>();
        complete.into_iter().filter_map(|older| self.saves.remove_entry(&older)).collect()
    }

    /// A step is committed. Returns its saves, and those of older steps, which nobody needs.
    pub(super) fn on_committed(&mut self, step: i64) -> Vec<Saved> {
        self.newest = self.newest.max(Some(step));
        let newer = self.saves.split_off(&(step + 1));
        let done = std::mem::replace(&mut self.saves, newer);
        done.into_values().flat_map(Saves::into_values).collect()
    }

    /// No further save of this try is committed. Returns those that were not.
    pub(super) fn seal(&mut self) -> Vec<(i64, Saves)> {
        self.is_sealed = true;
        std::mem::take(&mut self.saves).into_iter().collect()
    }

    /// A rank waits until its saves up to this step are committed.
    pub(super) fn wait(&mut self, open: String, n: u64, step: i64) {
        self.waits.retain(|wait| wait.open != open || wait.n != n);
        self.waits.push(Wait { open, n, step });
    }

    /// The ranks whose wait is over: where they are, the number of the request, and the answer.
    pub(super) fn answers(&mut self, failed: Option<&Error>) -> Vec<(Channel, u64, Option<Error>)> {
        let waits = std::mem::take(&mut self.waits);
        let mut answers = Vec::new();
        for wait in waits {
            let Some((_, open)) = self.open(&wait.open) else { continue };
            let answer = match failed {
                _ if self.newest.is_some_and(|newest| wait.step <= newest) => Some(None),
                Some(error) => Some(Some(error.clone())),
                None => self.missing(wait.step).map(Some),
            };
            match answer {
                Some(answer) => answers.push((open.at.clone(), wait.n, answer)),
                None => self.waits.push(wait),
            }
        }
        answers
    }

    /// Why a step can never be committed: a rank that has ended has not saved it, nor a later one.
    fn missing(&self, step: i64) -> Option<Error> {
        let is_needed = |rank: u32| self.writers == Writers::All || rank == 0;
        let (rank, _) = self.opens.iter().find(|(rank, open)| {
            let has_saved = |(_, saves): (&i64, &Saves)| saves.contains_key(rank);
            open.has_ended && is_needed(**rank) && !self.saves.range(step..).any(has_saved)
        })?;
        let message = format!("step {step} is not committed: rank {rank} has left without a save of it");
        Some(Error::new(ErrorKind::NotFound, message).with_hint(
            "every rank must call `save` for the same steps; `due` agrees on them, if all ranks pass it the same settings",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(rank: u32, ranks: u32, writers: Writers) -> Opening {
        Opening {
            n: 1,
            open: format!("open-{rank}"),
            name: "run".into(),
            keep: None,
            writers,
            own: false,
            key: "1.1.1".into(),
            rank,
            ranks,
            worker_rank: rank,
            generation: 1,
        }
    }

    fn channel(rank: u32) -> Channel {
        Channel { node: NodeIndex(rank), machine: MachineId::new(format!("m{rank}")), number: 1 }
    }

    fn saved(rank: u32, id: &str) -> Saved {
        let Channel { node, machine, .. } = channel(rank);
        Saved { id: id.into(), node, machine, path: "/saves".into(), rank, meta: "{}".into() }
    }

    fn attempt(ranks: u32, writers: Writers) -> Attempt {
        let mut attempt = Attempt::of(&opening(0, ranks, writers));
        for rank in 0..ranks {
            assert_eq!(attempt.join(&opening(rank, ranks, writers), channel(rank)), Joined::New);
        }
        attempt
    }

    #[test]
    fn a_step_is_complete_when_all_writers_have_saved_it() {
        let mut all = attempt(2, Writers::All);
        all.save(10, saved(0, "a")).unwrap();
        assert!(all.complete().is_none());
        all.save(10, saved(1, "b")).unwrap();
        assert_eq!(all.complete().unwrap().0, 10);
        let mut head = attempt(2, Writers::Head);
        head.save(10, saved(0, "a")).unwrap();
        assert_eq!(head.complete().unwrap().0, 10);
    }

    #[test]
    fn the_newest_complete_step_takes_the_place_of_older_ones() {
        let mut attempt = attempt(2, Writers::All);
        for (step, rank, id) in [(10, 0, "a"), (10, 1, "b"), (20, 0, "c"), (30, 0, "d"), (30, 1, "e"), (40, 1, "f")] {
            attempt.save(step, saved(rank, id)).unwrap();
        }
        assert_eq!(attempt.complete().unwrap().0, 30);
        let dropped: Vec<i64> = attempt.drop_before(30, None).into_iter().map(|(step, _)| step).collect();
        assert_eq!(dropped, [10], "a rank may still save step 20");
        let done: Vec<String> = attempt.on_committed(30).into_iter().map(|saved| saved.id).collect();
        assert_eq!(done, ["c", "d", "e"]);
        assert!(attempt.save(20, saved(1, "late")).is_err() && attempt.save(40, saved(0, "g")).is_ok());
    }

    #[test]
    fn no_machine_has_saves_of_a_rank_on_another_one() {
        let mut attempt = attempt(2, Writers::All);
        let forged = Saved { rank: 0, ..saved(1, "forged") };
        assert_eq!(attempt.save(10, forged.clone()), Err(forged));
        attempt.save(10, saved(0, "a")).unwrap();
    }

    #[test]
    fn a_sealed_try_takes_no_saves_and_no_ranks() {
        let mut attempt = attempt(2, Writers::All);
        attempt.save(10, saved(0, "a")).unwrap();
        attempt.end(|_| true);
        assert!(attempt.is_over());
        assert_eq!(attempt.seal().len(), 1);
        assert!(attempt.save(10, saved(1, "b")).is_err());
        assert_eq!(attempt.join(&opening(0, 2, Writers::All), channel(0)), Joined::Taken);
    }

    #[test]
    fn a_rank_stays_itself_over_movers_and_is_nobody_elses() {
        let mut attempt = attempt(1, Writers::All);
        let again = Channel { number: 2, ..channel(0) };
        assert_eq!(attempt.join(&opening(0, 1, Writers::All), again.clone()), Joined::Known);
        assert_eq!(attempt.open("open-0").unwrap().1.at, again);
        assert!(!attempt.end(|open| open.at == channel(0)), "the end of the first connection is old news");
        let other = Opening { open: "other".into(), ..opening(0, 1, Writers::All) };
        assert_eq!(attempt.join(&other, channel(0)), Joined::Taken);
    }

    #[test]
    fn the_saves_of_a_machine_are_gone_with_it() {
        let mut attempt = attempt(2, Writers::All);
        for rank in 0..2 {
            attempt.save(10, saved(rank, "a")).unwrap();
        }
        attempt.wait("open-0".into(), 2, 10);
        assert!(attempt.answers(None).is_empty());
        assert_eq!(attempt.on_machine_gone(&channel(1).machine), [10]);
        assert!(attempt.complete().is_none());
        let answers = attempt.answers(None);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].2.as_ref().unwrap().message().contains("rank 1"), "{answers:?}");
    }

    #[test]
    fn waits_are_answered_by_commits_of_their_step_or_a_later_one() {
        let mut attempt = attempt(1, Writers::All);
        for step in [10, 20] {
            attempt.save(step, saved(0, &step.to_string())).unwrap();
            attempt.wait("open-0".into(), step as u64, step);
        }
        attempt.on_committed(10);
        let numbers =
            |answers: Vec<(Channel, u64, Option<Error>)>| answers.iter().map(|each| each.1).collect::<Vec<_>>();
        assert_eq!(numbers(attempt.answers(None)), [10]);
        let error = Error::new(ErrorKind::NotFound, "taken");
        let answers = attempt.answers(Some(&error));
        assert!(answers[0].2.is_some());
        assert_eq!(numbers(answers), [20]);
    }
}
