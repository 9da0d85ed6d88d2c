//! The resources that a client has left in an account, which cost money or block the next client.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use aws_sdk_ec2::types::Tag;

use crate::hypervisor::Ec2;
use crate::shims::Backend;

/// A resource that is still there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// `instance`, `volume`, `network interface`, `address`, `security group`, `key pair`,
    /// `placement group`.
    pub kind: &'static str,
    /// Its id in EC2.
    pub id: String,
    /// Keys and values.
    pub tags: Vec<(String, String)>,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.kind, self.id, self.tags)
    }
}

/// All resources that are left, or those that have a tag.
pub(crate) async fn find(ec2: &Ec2, backend: &Backend, tag_key: Option<&str>) -> Result<Vec<Left>> {
    let client = &ec2.client;
    let mut found = Vec::new();
    let mut closed = BTreeSet::new();
    let mut add = |kind, id: Option<&str>, tags: &[Tag]| {
        let tags: Vec<_> = tags.iter().map(|tag| (text(tag.key()), text(tag.value()))).collect();
        found.push(Left { kind, id: text(id), tags });
    };
    // EC2 deletes them with the instance.
    let ends = |instance: Option<&str>, is_deleted: Option<bool>| {
        is_deleted != Some(false)
            && instance.and_then(|id| backend.records.get(id)).is_some_and(|record| record.is_over())
    };
    let instances = client.describe_instances().send().await?;
    for instance in instances.reservations().iter().flat_map(|reservation| reservation.instances()) {
        let state = instance.state().and_then(|state| state.name()).map(|name| name.as_str());
        if state != Some("terminated") && !ends(instance.instance_id(), None) {
            add("instance", instance.instance_id(), instance.tags());
        }
    }
    for volume in client.describe_volumes().send().await?.volumes() {
        let mut uses = volume.attachments().iter();
        if !uses.any(|used| ends(used.instance_id(), used.delete_on_termination())) {
            add("volume", volume.volume_id(), volume.tags());
        }
    }
    for interface in client.describe_network_interfaces().send().await?.network_interfaces() {
        let used = interface.attachment();
        if !used.is_some_and(|used| ends(used.instance_id(), used.delete_on_termination())) {
            add("network interface", interface.network_interface_id(), interface.tag_set());
        }
    }
    for address in client.describe_addresses().send().await?.addresses() {
        add("address", address.allocation_id(), address.tags());
    }
    for group in client.describe_security_groups().send().await?.security_groups() {
        // A group without rules opens nothing, and nothing waits for it: one in each network may stay.
        let is_closed = group.ip_permissions().is_empty() && group.ip_permissions_egress().is_empty();
        if is_closed && closed.insert(text(group.vpc_id())) {
            continue;
        }
        if group.group_name() != Some("default") {
            add("security group", group.group_id(), group.tags());
        }
    }
    for pair in client.describe_key_pairs().send().await?.key_pairs() {
        add("key pair", pair.key_name(), pair.tags());
    }
    found.extend(backend.settings().placement_groups.values().map(|group| {
        let tags = group.tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Left { kind: "placement group", id: group.id.clone(), tags }
    }));
    found.retain(|left| tag_key.is_none_or(|wanted| left.tags.iter().any(|(key, _)| key == wanted)));
    found.sort();
    Ok(found)
}

fn text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}
