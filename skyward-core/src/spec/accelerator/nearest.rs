//! The known kinds that a mistyped name may mean.

use super::kinds::KINDS;
use super::name::{join, words};

/// The plain names of known kinds that are nearest to a name, the nearest first.
pub(super) fn to(name: &str) -> Vec<&'static str> {
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).clamp(1, 3);
    let mut near: Vec<_> = KINDS
        .iter()
        .filter_map(|kind| {
            let spelled = kind.spellings.iter().chain([&kind.name]).map(|name| join(&words(name)).to_lowercase());
            let distance = spelled.map(|spelling| distance(&name, &spelling)).min()?;
            (distance <= limit).then_some((distance, kind.name))
        })
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(MOST).map(|(_, kind)| kind).collect()
}

/// Insertions, deletions and replacements between two words.
pub(crate) fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// How many names are told.
const MOST: usize = 4;
