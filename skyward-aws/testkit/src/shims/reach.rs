//! Who reaches the machines: tells the firewall what EC2's interfaces and groups are after each call
//! that may have changed them.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::Backend;
use crate::firewall::{Interface, Permit, Source, View};
use crate::xml::Element;

/// Whether an action may change who reaches a machine.
pub(crate) fn changes(action: &str) -> bool {
    ACTIONS.contains(&action)
}

impl Backend {
    /// Makes the firewall allow what the groups of EC2 allow now.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let Some(firewall) = &self.firewall else { return Ok(()) };
        // One at a time, so that the last one shows the last state.
        let _one = self.refreshing.lock().await;
        let interfaces = self.ask("ec2", "DescribeNetworkInterfaces", &[]).await?;
        let groups = self.ask("ec2", "DescribeSecurityGroups", &[]).await?;
        // Nothing answers at an instance that shuts down.
        let is_over = |id: &str| self.records.get(id).is_some_and(|record| record.is_over());
        let interfaces = interfaces.items("networkInterfaceSet");
        let interfaces = interfaces.filter(|one| !is_over(one.at(&["attachment", "instanceId"]))).map(interface);
        let groups = groups.items("securityGroupInfo");
        let groups = groups.map(|group| (group.at(&["groupId"]).to_owned(), permits(group)));
        firewall.show(View { interfaces: interfaces.collect(), groups: groups.collect() }).await
    }
}

fn interface(one: &Element) -> Interface {
    let address = |path: &[&str]| one.at(path).parse().ok().filter(Ipv4Addr::is_loopback);
    Interface {
        private: address(&["privateIpAddress"]),
        public: address(&["association", "publicIp"]),
        groups: one.items("groupSet").map(|group| group.at(&["groupId"]).to_owned()).collect(),
    }
}

fn permits(group: &Element) -> Vec<Permit> {
    let rules = group.items("ipPermissions").flat_map(|rule| {
        let number = |name: &str| rule.at(&[name]).parse::<u16>().ok();
        let networks = rule.items("ipRanges").map(|range| Source::Network(range.at(&["cidrIp"]).to_owned()));
        let groups = rule.items("groups").map(|group| Source::Group(group.at(&["groupId"]).to_owned()));
        let (protocol, ports) = (rule.at(&["ipProtocol"]).to_owned(), number("fromPort").zip(number("toPort")));
        networks.chain(groups).map(move |from| Permit { protocol: protocol.clone(), ports, from })
    });
    rules.collect()
}

const ACTIONS: [&str; 16] = [
    "AssociateAddress",
    "AttachNetworkInterface",
    "AuthorizeSecurityGroupIngress",
    "CreateNetworkInterface",
    "DeleteNetworkInterface",
    "DetachNetworkInterface",
    "DisassociateAddress",
    "ModifyInstanceAttribute",
    "ModifyNetworkInterfaceAttribute",
    "ModifySecurityGroupRules",
    "RevokeSecurityGroupIngress",
    "RunInstances",
    "StartInstances",
    "StopInstances",
    "TerminateInstances",
    "CreateFleet",
];
