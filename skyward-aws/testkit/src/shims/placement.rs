//! Placement groups, which moto does not have.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Backend, Original, refused};
use crate::proxy::{Call, Reply};
use crate::xml::Element;

/// A placement group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacementGroup {
    pub(crate) id: String,
    strategy: String,
    pub(crate) tags: BTreeMap<String, String>,
}

/// AWS documents: a name is unique in a region; a group that contains instances cannot be deleted,
/// and deleting an unknown group fails.
pub(crate) async fn change(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    if let Some(refusal) = refused(backend, original).await? {
        return Ok(refusal);
    }
    let name = call.get("GroupName").to_owned();
    let mut settings = backend.settings();
    let groups = &mut settings.placement_groups;
    let is_there = groups.contains_key(&name);
    match call.action.as_str() {
        "CreatePlacementGroup" if is_there => {
            let message = format!("The placement group '{name}' already exists.");
            Ok(Reply::error(call, 400, "InvalidPlacementGroup.Duplicate", &message))
        }
        "CreatePlacementGroup" => {
            let id = format!("pg-{:017x}", groups.len() + 1);
            let group = PlacementGroup { id, strategy: call.get("Strategy").to_owned(), tags: tags(call) };
            let made = element("placementGroup", &name, &group);
            groups.insert(name, group);
            Ok(Reply::xml(&Element::answer(&call.action).with([Element::leaf("return", "true"), made])))
        }
        _ if !is_there => Ok(unknown(call, &name)),
        _ if backend.records.is_placed(&name) => {
            let message = format!("The placement group '{name}' is in use and may not be deleted.");
            Ok(Reply::error(call, 400, "InvalidPlacementGroup.InUse", &message))
        }
        _ => {
            groups.remove(&name);
            Ok(Reply::xml(&Element::answer(&call.action).with([Element::leaf("return", "true")])))
        }
    }
}

/// The groups with a tag, by the filters `tag:KEY`. Other filters are not supported.
pub(crate) async fn describe(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    if let Some(refusal) = refused(backend, original).await? {
        return Ok(refusal);
    }
    let groups = backend.settings().placement_groups.clone();
    let filters = call.filters();
    let has = |group: &PlacementGroup| {
        filters.iter().all(|(name, values)| {
            let value = name.strip_prefix("tag:").and_then(|key| group.tags.get(key));
            value.is_some_and(|value| values.contains(&value.as_str()))
        })
    };
    let found = groups.iter().filter(|(_, group)| has(group)).map(|(name, group)| element("item", name, group));
    let set = Element::new("placementGroupSet").with(found);
    Ok(Reply::xml(&Element::answer("DescribePlacementGroups").with([set])))
}

/// Whether a launch names an unknown group.
pub(crate) fn missing(backend: &Backend, call: &Call) -> Option<Reply> {
    let name = call.get("Placement.GroupName");
    (!name.is_empty() && !backend.settings().placement_groups.contains_key(name)).then(|| unknown(call, name))
}

fn unknown(call: &Call, name: &str) -> Reply {
    Reply::error(call, 400, "InvalidPlacementGroup.Unknown", &format!("The Placement Group '{name}' is unknown."))
}

/// The tags in a call that makes a resource.
fn tags(call: &Call) -> BTreeMap<String, String> {
    let numbered = (1..).map(|number| {
        let part = |part: &str| call.parameters.get(&format!("TagSpecification.1.Tag.{number}.{part}")).cloned();
        Some((part("Key")?, part("Value").unwrap_or_default()))
    });
    numbered.map_while(|tag| tag).collect()
}

fn element(element: &str, name: &str, group: &PlacementGroup) -> Element {
    let leaf = |(name, text): (&str, &str)| Element::leaf(name, text);
    let tags = group
        .tags
        .iter()
        .map(|(key, value)| Element::new("item").with([("key", key.as_str()), ("value", value.as_str())].map(leaf)));
    let facts = [("groupName", name), ("groupId", &group.id), ("strategy", &group.strategy), ("state", "available")];
    Element::new(element).with(facts.map(leaf)).with([Element::new("tagSet").with(tags)])
}
