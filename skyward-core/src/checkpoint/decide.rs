//! What follows from lists of the storage, without I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::brief::{Brief, Content, SavedBrief};
use super::layout::{Layout, SaveId};
use crate::storage::{Object, ObjectPath};

/// The parts that are in a storage.
#[derive(Debug, Default)]
pub(super) struct Data(BTreeMap<ObjectPath, u64>);

impl Data {
    pub(super) fn new(objects: Vec<Object>) -> Self {
        Self(objects.into_iter().map(|object| (object.path, object.size)).collect())
    }

    /// Why a save is not whole; `None` if all its parts are there with their sizes.
    pub(super) fn lacks(&self, layout: &Layout, saved: &SavedBrief) -> Option<String> {
        let parts = saved.ranks.iter().flat_map(|(rank, sizes)| {
            (0..).zip(sizes).map(|(number, size)| (layout.part(&saved.save, *rank, number), *size))
        });
        parts.into_iter().find_map(|(path, size)| match self.0.get(&path) {
            Some(found) if *found == size => None,
            Some(found) => Some(format!("the object {path} has {found} bytes and not {size}")),
            None => Some(format!("the object {path} is missing")),
        })
    }

    /// The parts of saves.
    pub(super) fn of(&self, layout: &Layout, saves: &BTreeSet<SaveId>) -> Vec<ObjectPath> {
        let is_part = |path: &&ObjectPath| layout.save_of(path).is_some_and(|save| saves.contains(&save));
        self.0.keys().filter(is_part).cloned().collect()
    }

    /// The saves that have parts.
    pub(super) fn saves(&self, layout: &Layout) -> BTreeSet<SaveId> {
        self.0.keys().filter_map(|path| layout.save_of(path)).collect()
    }
}

/// The saves that no commit names. Nothing while a commit cannot be read: it may name any of them.
pub(super) fn unnamed<'b>(saves: BTreeSet<SaveId>, commits: impl IntoIterator<Item = &'b Brief>) -> BTreeSet<SaveId> {
    let mut left = saves;
    for commit in commits {
        match &commit.content {
            Content::Commit { saved, .. } => drop(left.remove(&saved.save)),
            Content::Claim { .. } => {}
            Content::Broken => return BTreeSet::new(),
        }
    }
    left
}

/// The commits that are older than the newest `keep` whole ones, torn ones among them. None if there are
/// fewer whole ones; the newest object never expires.
pub(super) fn expired(commits: &[(u64, bool)], keep: u32) -> Vec<u64> {
    let whole = commits.iter().rev().filter(|(_, is_whole)| *is_whole);
    let Some((oldest, _)) = whole.take(keep.max(1) as usize).last() else { return Vec::new() };
    let is_enough = commits.iter().filter(|(_, is_whole)| *is_whole).count() >= keep.max(1) as usize;
    let older = commits.iter().map(|(sequence, _)| *sequence).filter(|sequence| sequence < oldest);
    if is_enough { older.collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::checkpoint::claim::Owner;

    fn save(number: u32) -> SaveId {
        SaveId::parse(&format!("{number:032x}")).unwrap()
    }

    fn commit(sequence: u64, content: Option<u32>) -> Brief {
        let (claim, owner) = (String::new(), Owner { pool: String::new(), host: String::new() });
        let saved = |number| SavedBrief {
            save: save(number),
            step: 0,
            attempt: String::new(),
            meta: String::new(),
            size: 0,
            ranks: vec![(3, vec![10, 4])],
        };
        let content = match content {
            None => Content::Claim { claim, owner },
            Some(0) => Content::Broken,
            Some(number) => Content::Commit { claim, owner, saved: saved(number) },
        };
        Brief { sequence, modified: SystemTime::UNIX_EPOCH, content }
    }

    #[test]
    fn the_newest_whole_commits_stay_and_what_is_older_goes() {
        const WHOLE: bool = true;
        const TORN: bool = false;
        type Case = (&'static [(u64, bool)], u32, &'static [u64]);
        let cases: [Case; 8] = [
            (&[], 1, &[]),
            (&[(1, WHOLE)], 1, &[]),
            (&[(1, WHOLE), (2, WHOLE)], 1, &[1]),
            (&[(1, WHOLE), (2, WHOLE)], 3, &[]),
            (&[(1, TORN), (2, WHOLE), (5, TORN), (6, WHOLE)], 2, &[1]),
            (&[(1, WHOLE), (2, TORN), (3, WHOLE), (4, TORN)], 1, &[1, 2]),
            (&[(1, TORN), (2, TORN)], 1, &[]),
            (&[(1, WHOLE), (2, WHOLE)], 0, &[1]),
        ];
        for (commits, keep, wanted) in cases {
            assert_eq!(expired(commits, keep), wanted, "{commits:?}, keep {keep}");
        }
    }

    #[test]
    fn data_goes_only_if_every_commit_is_known_and_none_names_it() {
        let saves = || BTreeSet::from([save(1), save(2), save(3)]);
        assert_eq!(unnamed(saves(), &[commit(1, Some(1)), commit(2, None), commit(3, Some(3))]), [save(2)].into());
        assert_eq!(unnamed(saves(), &[commit(1, Some(1)), commit(2, Some(0))]), BTreeSet::new());
        assert_eq!(unnamed(saves(), &[]), saves());
    }

    #[test]
    fn a_save_is_whole_if_all_parts_have_their_sizes() {
        let layout = Layout::new("run").unwrap();
        let object = |number, size| Object::new(layout.part(&save(1), 3, number), size, SystemTime::UNIX_EPOCH);
        let commit = commit(1, Some(1));
        let lacks = |objects| Data::new(objects).lacks(&layout, commit.saved().unwrap());
        assert_eq!(lacks(vec![object(0, 10), object(1, 4)]), None);
        assert_eq!(lacks(vec![object(0, 10), object(1, 4), object(2, 9)]), None);
        assert!(lacks(vec![object(0, 10)]).unwrap().ends_with("3/000001 is missing"));
        assert!(lacks(vec![object(0, 10), object(1, 5)]).unwrap().contains("5 bytes and not 4"));
    }
}
