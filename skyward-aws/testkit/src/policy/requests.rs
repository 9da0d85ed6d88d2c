//! What a call of EC2 wants of which resources, as IAM looks at it.

use std::collections::BTreeMap;

use anyhow::Result;

use super::document::Request;
use crate::proxy::Call;
use crate::shims::Backend;

impl Backend {
    /// What a call that changes something wants; none for other calls, of which moto checks the
    /// action alone.
    ///
    /// AWS documents the resources of each action in
    /// <https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html>.
    pub(super) async fn wanted(&self, call: &Call) -> Result<Option<Vec<Request>>> {
        let list = |name: &str| call.list(name).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let one = |name: &str| vec![call.get(name).to_owned()];
        // Resources that are there already.
        let there = match call.action.as_str() {
            "TerminateInstances" => list("InstanceId"),
            "GetConsoleOutput" => one("InstanceId"),
            "DeleteSecurityGroup" | "AuthorizeSecurityGroupIngress" | "RevokeSecurityGroupIngress" => one("GroupId"),
            "ModifyNetworkInterfaceAttribute" => [one("NetworkInterfaceId"), list("SecurityGroupId")].concat(),
            "CreateTags" => list("ResourceId"),
            "DeletePlacementGroup" => one("GroupName"),
            "CreateSecurityGroup" => one("VpcId"),
            "CreatePlacementGroup" => Vec::new(),
            "RunInstances" => launched_with(call),
            _ => return Ok(None),
        };
        let given = match call.action.as_str() {
            "CreateTags" => numbered_tags(call, "Tag"),
            _ => BTreeMap::new(),
        };
        let action = format!("ec2:{}", call.action);
        let mut wanted = Vec::new();
        let known = self.tags_of(&there).await?;
        for id in &there {
            let resource_tags = known.get(id).cloned().unwrap_or_default();
            let (action, resource, request_tags) = (action.clone(), self.arn(call, id), given.clone());
            wanted.push(Request { action, resource, request_tags, resource_tags, create_action: None });
        }
        // Resources that the call makes, each with its tags. A tag needs a permission of its own.
        let tags = made_tags(call);
        for kind in made(call) {
            let resource = format!("arn:aws:ec2:{}:{ACCOUNT}:{kind}/*", self.region);
            let request_tags = tags.get(kind).cloned().unwrap_or_default();
            let make = Request { action: action.clone(), resource, request_tags, ..Request::default() };
            if !make.request_tags.is_empty() {
                let create_action = Some(call.action.clone());
                wanted.push(Request { action: "ec2:CreateTags".to_owned(), create_action, ..make.clone() });
            }
            wanted.push(make);
        }
        Ok(Some(wanted))
    }

    /// The tags of resources by their ids, and of placement groups by their names.
    async fn tags_of(&self, ids: &[String]) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        let mut tags: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (name, group) in &self.settings().placement_groups {
            tags.insert(name.clone(), group.tags.clone());
            tags.insert(group.id.clone(), group.tags.clone());
        }
        let names: Vec<String> = (1..=ids.len()).map(|number| format!("Filter.1.Value.{number}")).collect();
        let mut filter = vec![("Filter.1.Name", "resource-id")];
        filter.extend(names.iter().zip(ids).map(|(name, id)| (name.as_str(), id.as_str())));
        if ids.is_empty() {
            return Ok(tags);
        }
        let answer = self.ask("ec2", "DescribeTags", &filter).await?;
        for tag in answer.items("tagSet") {
            let (key, value) = (tag.at(&["key"]).to_owned(), tag.at(&["value"]).to_owned());
            tags.entry(tag.at(&["resourceId"]).to_owned()).or_default().insert(key, value);
        }
        Ok(tags)
    }

    /// The name of a resource in AWS.
    fn arn(&self, call: &Call, id: &str) -> String {
        let kind = KINDS.iter().find(|(prefix, _)| id.starts_with(prefix)).map_or("placement-group", |(_, kind)| kind);
        let is_named = !call.get("KeyName").is_empty() && call.get("KeyName") == id;
        let kind = if is_named { "key-pair" } else { kind };
        // Images belong to no account.
        let account = if kind == "image" { "" } else { ACCOUNT };
        format!("arn:aws:ec2:{}:{account}:{kind}/{id}", self.region)
    }
}

/// What a launch names.
fn launched_with(call: &Call) -> Vec<String> {
    let single = [
        "ImageId",
        "SubnetId",
        "NetworkInterface.1.SubnetId",
        "KeyName",
        "Placement.GroupName",
        "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
    ];
    let lists = ["SecurityGroupId", "NetworkInterface.1.SecurityGroupId"];
    let single = single.into_iter().map(|name| call.get(name)).filter(|value| !value.is_empty());
    single.chain(lists.into_iter().flat_map(|name| call.list(name))).map(str::to_owned).collect()
}

/// The kinds of resources that a call makes.
fn made(call: &Call) -> Vec<&'static str> {
    match call.action.as_str() {
        "RunInstances" => {
            let is_spot = call.get("InstanceMarketOptions.MarketType") == "spot";
            let request = is_spot.then_some("spot-instances-request");
            ["instance", "network-interface", "volume"].into_iter().chain(request).collect()
        }
        "CreateSecurityGroup" => vec!["security-group"],
        "CreatePlacementGroup" => vec!["placement-group"],
        _ => Vec::new(),
    }
}

/// The tags that a call gives to what it makes, by kinds of resources.
fn made_tags(call: &Call) -> BTreeMap<String, BTreeMap<String, String>> {
    let specifications = (1..).map_while(|number| {
        let kind = call.parameters.get(&format!("TagSpecification.{number}.ResourceType"))?;
        Some((kind.clone(), numbered_tags(call, &format!("TagSpecification.{number}.Tag"))))
    });
    specifications.collect()
}

fn numbered_tags(call: &Call, name: &str) -> BTreeMap<String, String> {
    let tags = (1..).map_while(|number| {
        let part = |part: &str| call.parameters.get(&format!("{name}.{number}.{part}")).cloned();
        Some((part("Key")?, part("Value").unwrap_or_default()))
    });
    tags.collect()
}

const ACCOUNT: &str = "123456789012";
const KINDS: [(&str, &str); 10] = [
    ("i-", "instance"),
    ("ami-", "image"),
    ("cr-", "capacity-reservation"),
    ("eni-", "network-interface"),
    ("pg-", "placement-group"),
    ("sg-", "security-group"),
    ("sir-", "spot-instances-request"),
    ("subnet-", "subnet"),
    ("vol-", "volume"),
    ("vpc-", "vpc"),
];
