//! The known kinds that a misspelled name may mean.

use strsim::levenshtein;

use super::kinds::KINDS;
use super::name::{join, words};

/// The plain names of the known kinds that are most similar to a name, the most similar first.
pub(super) fn to(name: &str) -> Vec<&'static str> {
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).clamp(1, 3);
    let mut near: Vec<_> = KINDS
        .iter()
        .filter_map(|kind| {
            let spelled = kind.spellings.iter().chain([&kind.name]).map(|name| join(&words(name)).to_lowercase());
            let distance = spelled.map(|spelling| levenshtein(&name, &spelling)).min()?;
            (distance <= limit).then_some((distance, kind.name))
        })
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(MOST).map(|(_, kind)| kind).collect()
}

/// The most names that an error lists.
const MOST: usize = 4;
