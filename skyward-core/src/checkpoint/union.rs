//! The files of all ranks as one tree, and where the bytes of each are.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::draft::RankFiles;
use super::error::invalid;
use super::layout::{LARGEST_PART, is_hex};
use crate::error::Result;
use crate::files::{Check, MOST_ENTRIES, Part, PartKind, checked};

/// All files of a checkpoint: the root folder first, then by the bytes of their paths.
#[derive(Debug, PartialEq)]
pub(super) struct Union {
    parts: Vec<Part>,
    places: Vec<Place>,
}

/// Where the bytes of a file begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The index of the rank in the list of ranks.
    pub(super) rank: usize,
    /// The offset in the rank's bytes.
    pub(super) offset: u64,
}

impl Union {
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::ErrorKind::InvalidSpec) if the list of a rank is none, or two
    /// ranks have one path with different content.
    pub(super) fn of(ranks: &[RankFiles]) -> Result<Self> {
        let count: usize = ranks.iter().map(|rank| rank.files.len()).sum();
        if ranks.is_empty() || count > MOST_ENTRIES {
            return Err(invalid(format!(
                "a checkpoint has the files of at least one rank and at most {MOST_ENTRIES} files"
            )));
        }
        let mut numbers: Vec<u32> = ranks.iter().map(|rank| rank.rank).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|two| two[0] == two[1]) {
            return Err(invalid("a checkpoint has each rank once"));
        }
        let mut merged: BTreeMap<&[u8], (Part, Place)> = BTreeMap::new();
        for (index, rank) in ranks.iter().enumerate() {
            check(rank)?;
            let mut offset = 0;
            for part in &rank.files {
                let place = Place { rank: index, offset };
                offset += part.size();
                let bytes = part.path.as_os_str().as_bytes();
                match merged.get_mut(bytes) {
                    None => drop(merged.insert(bytes, (part.clone(), place))),
                    Some((known, _)) if is_same(known, part) => unite(known, part),
                    Some((_, known)) => return Err(conflict(&part.path, ranks[known.rank].rank, rank.rank)),
                }
            }
        }
        let (parts, places) = merged.into_values().unzip();
        Ok(Self { parts, places })
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// A file and where its bytes are; `None` if there is no such file.
    pub(super) fn find(&self, path: &Path) -> Option<(&Part, Place)> {
        let bytes = path.as_os_str().as_bytes();
        let index = self.parts.binary_search_by(|part| part.path.as_os_str().as_bytes().cmp(bytes)).ok()?;
        Some((&self.parts[index], self.places[index]))
    }
}

/// Whether two ranks mean the same by a path. Whether a file may be executed is not its content.
fn is_same(one: &Part, other: &Part) -> bool {
    match (&one.kind, &other.kind) {
        (PartKind::File { size, check, .. }, PartKind::File { size: other_size, check: other_check, .. }) => {
            (size, check) == (other_size, other_check)
        }
        (one, other) => one == other,
    }
}

/// A file that one of the ranks may execute can be executed.
fn unite(known: &mut Part, part: &Part) {
    if let (PartKind::File { executable, .. }, PartKind::File { executable: true, .. }) = (&mut known.kind, &part.kind)
    {
        *executable = true;
    }
}

fn conflict(path: &Path, one: u32, other: u32) -> crate::Error {
    invalid(format!("rank {one} and rank {other} have saved different content as `{}`", path.display())).with_hint(
        "put the rank into the names of files that differ: `folder / f\"rank{rank}.pt\"`; or let only rank 0 save, \
         with `writers=\"head\"`",
    )
}

/// Checks the list of one rank: nothing leads out of its folder, and the parts have all of its bytes.
fn check(RankFiles { rank, files, parts }: &RankFiles) -> Result<()> {
    let wrong = |what: &str| invalid(format!("the list of files of rank {rank} is none: {what}"));
    // The list itself is part of the message, so it is copied and not moved.
    checked(files.clone()).map_err(|error| wrong(error.message()))?;
    let mut seen = std::collections::BTreeSet::new();
    let mut folders = std::collections::BTreeSet::new();
    for part in files {
        let shown = part.path.display();
        if !seen.insert(&part.path) {
            return Err(wrong(&format!("`{shown}` is in it twice")));
        }
        if part.path.parent().is_some_and(|parent| !folders.contains(parent)) {
            return Err(wrong(&format!("the folder of `{shown}` is not before it")));
        }
        match &part.kind {
            PartKind::Folder => drop(folders.insert(&*part.path)),
            PartKind::Link(_) => {}
            PartKind::File { check: Check::Digest(digest), .. } if is_hex(digest, 64) => {}
            PartKind::File { .. } => return Err(wrong(&format!("`{shown}` has no SHA-256"))),
        }
    }
    if !folders.contains(Path::new("")) {
        return Err(wrong("it does not begin with a folder"));
    }
    if parts.iter().any(|part| part.size == 0 || part.size > LARGEST_PART || !is_hex(&part.sha256, 64)) {
        return Err(wrong("its parts have no sizes or no SHA-256"));
    }
    let files = files.iter().map(Part::size).try_fold(0_u64, u64::checked_add);
    let uploaded = parts.iter().map(|part| part.size).try_fold(0_u64, u64::checked_add);
    match files.is_some() && files == uploaded {
        true => Ok(()),
        false => Err(wrong("its parts do not have the bytes of its files")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::checkpoint::tests::draft;
    use crate::checkpoint::{PartInfo, SaveId};

    fn ranks() -> Vec<RankFiles> {
        draft(&SaveId::random(), 1, 2, None).ranks
    }

    fn link(path: &str, target: &str) -> Part {
        Part { path: path.into(), kind: PartKind::Link(target.into()) }
    }

    fn edit(part: &mut Part, change: impl FnOnce(&mut u64, &mut bool, &mut Check)) {
        if let PartKind::File { size, executable, check } = &mut part.kind {
            change(size, executable, check);
        }
    }

    #[test]
    fn lists_that_lead_out_of_the_folder_or_do_not_fit_are_refused() {
        type Change = fn(&mut Vec<RankFiles>);
        let changes: [(&str, Change); 17] = [
            ("no rank", |ranks| ranks.clear()),
            ("a rank twice", |ranks| ranks[1].rank = 0),
            ("no files", |ranks| ranks[0].files.clear()),
            ("outside", |ranks| ranks[0].files[1].path = "../shared".into()),
            ("absolute", |ranks| ranks[0].files[1].path = "/etc/passwd".into()),
            ("a link outside", |ranks| ranks[0].files.push(link("l", "../x"))),
            ("an absolute link", |ranks| ranks[0].files.push(link("l", "/etc"))),
            ("twice", |ranks| ranks[0].files[4].path = "state/0.0".into()),
            ("no parent", |ranks| ranks[0].files[4].path = "other/0.1".into()),
            ("a link as parent", |ranks| ranks[0].files.extend([link("l", "state"), link("l/x", "y")])),
            ("a file as parent", |ranks| ranks[0].files[4].path = "shared/x".into()),
            ("parent later", |ranks| ranks[0].files.swap(2, 3)),
            ("no digest", |ranks| edit(&mut ranks[0].files[1], |_, _, check| *check = Check::Digest("x".into()))),
            ("more bytes", |ranks| edit(&mut ranks[0].files[1], |size, _, _| *size += 1)),
            ("an overflow", |ranks| edit(&mut ranks[0].files[1], |size, _, _| *size = u64::MAX)),
            ("an empty part", |ranks| ranks[0].parts.push(PartInfo::of(&bytes::Bytes::new()))),
            ("a large part", |ranks| {
                ranks[0].parts[0].size = LARGEST_PART + 1;
                edit(&mut ranks[0].files[1], |size, _, _| *size += LARGEST_PART + 1 - 10);
            }),
        ];
        assert!(Union::of(&ranks()).is_ok());
        for (what, change) in changes {
            let mut ranks = ranks();
            change(&mut ranks);
            let error = Union::of(&ranks).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{what}");
        }
    }

    #[test]
    fn one_name_of_two_ranks_is_one_file_if_its_content_is_the_same() {
        let mut same = ranks();
        edit(&mut same[1].files[1], |_, executable, _| *executable = true);
        let union = Union::of(&same).unwrap();
        let (shared, place) = union.find(Path::new("shared")).unwrap();
        assert!(matches!(shared.kind, PartKind::File { executable: true, .. }));
        assert_eq!(place, Place { rank: 0, offset: 0 });
        assert_eq!(union.find(Path::new("state/1.1")).unwrap().1, Place { rank: 1, offset: 20 });
        assert!(union.find(Path::new("state/2.1")).is_none());
        let other = "0".repeat(64);
        let mut digest = ranks();
        edit(&mut digest[1].files[1], |_, _, check| *check = Check::Digest(other));
        let mut kind = ranks();
        kind[1].files.push(link("state/0.0", "1.0"));
        for (ranks, name) in [(digest, "shared"), (kind, "state/0.0")] {
            let error = Union::of(&ranks).map(drop).unwrap_err();
            assert!(error.message().contains(name) && error.hint().is_some(), "{error:?}");
        }
    }
}
