//! Explains why there is no offer, with what EC2 sells instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use skyward_core::provider::Requirements;
use skyward_core::spec::Accelerator;

use super::Setting;
use super::fit::{Obstacle, Stage};
use crate::catalog::Listing;
use crate::catalog::instance_type::InstanceType;

/// Why there is no offer, and what EC2 sells instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nothing {
    pub(crate) words: String,
}

impl Nothing {
    /// The hint for the checks that the nearest types fail.
    pub(super) fn of(
        obstacles: &[Obstacle],
        listing: &Listing,
        requirements: &Requirements,
        setting: &Setting,
    ) -> Self {
        let furthest = obstacles.iter().map(|obstacle| obstacle.stage).max();
        let words = match (furthest, &requirements.accelerator) {
            (None, Some(wanted)) => unknown(wanted, listing, setting),
            (None, None) => format!("EC2 sells no instance type for {requirements} in {}", setting.region),
            (Some(Stage::Count), Some(wanted)) => {
                let sizes = by(wanted, listing, |has| Some(has.count));
                format!("{} comes in {}", wanted.plain_kind(), listed(&sizes, ""))
            }
            (Some(Stage::DeviceMemory), Some(wanted)) => {
                let enough = |has: &Accelerator| has.memory_gib.filter(|_| has.count >= wanted.count);
                let sizes = by(wanted, listing, enough);
                format!("{} comes with {}", wanted.plain_kind(), listed(&sizes, " GiB"))
            }
            (Some(stage), _) => {
                let mut nearest: Vec<&Obstacle> = obstacles.iter().filter(|one| one.stage == stage).collect();
                nearest.sort_by_key(|one| one.distance);
                nearest_of(&nearest, requirements, setting)
            }
        };
        Self { words }
    }
}

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// The message where no type in the region has the kind, which is mistyped or sold elsewhere.
fn unknown(wanted: &Accelerator, listing: &Listing, setting: &Setting) -> String {
    let kinds: BTreeSet<&str> =
        listing.types.iter().filter_map(InstanceType::accelerator).map(|one| &*one.kind).collect();
    let mut near = wanted.nearest_kinds();
    // A known name is not mistyped, and similar names are other kinds.
    if near.first().is_some_and(|first| *first == wanted.plain_kind()) {
        near.clear();
    }
    near.retain(|kind| kinds.contains(kind));
    let has = match (near.is_empty(), kinds.is_empty()) {
        (false, _) => format!("nearest to that is {}", near.join(", ")),
        (true, false) => format!("it has {}", Vec::from_iter(kinds).join(", ")),
        (true, true) => "it has none at all".to_owned(),
    };
    format!("no instance type of {} has {}; {has}", setting.region, wanted.kind)
}

/// The types with this kind, by a number that each has.
fn by(
    wanted: &Accelerator,
    listing: &Listing,
    number: impl Fn(&Accelerator) -> Option<u32>,
) -> BTreeMap<u32, Vec<String>> {
    let mut by: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for one in &listing.types {
        let number = one.accelerator().filter(|has| has.is_same_kind(wanted)).and_then(&number);
        if let Some(number) = number {
            by.entry(number).or_default().push(one.name.clone());
        }
    }
    by
}

fn listed(sizes: &BTreeMap<u32, Vec<String>>, unit: &str) -> String {
    let one = |(size, names): (&u32, &Vec<String>)| format!("{size}{unit}: {}", some(names));
    sizes.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", "))
}

fn nearest_of(nearest: &[&Obstacle], requirements: &Requirements, setting: &Setting) -> String {
    let more = nearest.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let all = nearest.iter().take(MOST_NAMED).map(|one| format!("{} {}", one.instance_type, one.words));
    let all = all.collect::<Vec<_>>().join("; ");
    format!("EC2 has nothing with {requirements} in {}: {all}{more}", setting.region)
}

const MOST_NAMED: usize = 4;

#[cfg(test)]
mod tests;
