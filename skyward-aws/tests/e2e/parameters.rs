//! The parameters of calls that cost money or open something, compared with a table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skyward_aws::{Addressing, Aws};
use skyward_aws_testkit::{Call, CloudOptions, Phases, Reservation, Rule};
use skyward_core::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::{LaunchBatch, LaunchRequest, Offer, PoolRequest, Provider};

use crate::scene::{Scene, torn_down};
use crate::trust::user_data;

/// A launch, and the sections of the table that hold for it beside those of all launches.
struct Case {
    aws: Aws,
    batch: LaunchBatch,
    sections: &'static [&'static str],
}

#[tokio::test]
#[ignore = "needs moto"]
async fn what_a_call_costs_or_opens_is_in_the_table_and_all_of_the_table_is_sent() {
    let scene = Scene::of(CloudOptions::new().without_machines().phases(Phases::NONE)).await;
    let profile = scene.cloud.make_instance_profile("training").await.unwrap();
    let (zone, subnet) = scene.cloud.subnets().first_key_value().unwrap();
    let mut table = Table::read(include_str!("parameters.txt"));
    let mut known = BTreeMap::from([
        ("subnet", subnet.clone()),
        ("vpc", scene.cloud.vpc().to_owned()),
        ("port", scene.cloud.ssh_port().to_string()),
        ("profile", profile.clone()),
    ]);
    // Its group is named by another pool.
    let named = PoolId::new("p-named");
    scene.aws().prepare(&PoolRequest::new(named.clone(), LEASE)).await.unwrap();
    let named_group = group_of(&scene, &named).await.unwrap();
    for Case { aws, batch, sections } in cases(&scene, &profile, &named_group) {
        let reserved = Reservation::new(RESERVATION, "g5.xlarge", zone, 1);
        let is_block = sections.contains(&"RunInstances, capacity block");
        let reserved = if is_block { reserved.block(SystemTime::now() + 24 * HOUR) } else { reserved };
        scene.cloud.set_reservations([reserved]);
        scene.cloud.rules().clear();
        if sections.contains(&"RunInstances, two disks") {
            scene.cloud.rules().add(Rule::rewrite("DescribeImages", with_second_disk));
        }
        scene.cloud.calls().forget();
        let pool = batch.requests[0].pool.clone();
        let answers = aws.launch(&batch).await;
        let machines: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().id).collect();
        let group = group_of(&scene, &pool).await.unwrap_or_else(|| named_group.clone());
        known.extend(["first", "second", "third"].into_iter().zip(machines.iter().map(MachineId::to_string)));
        known.extend([("pool", pool.to_string()), ("offer", batch.offer.id.to_string()), ("group", group.clone())]);
        let check = |table: &mut Table, action: &str, cases: &[&[&'static str]]| {
            let calls = scene.cloud.calls().of(action);
            assert_eq!(calls.len(), cases.len(), "{pool}: {calls:#?}");
            for (call, more) in calls.iter().zip(cases) {
                let of_call = sections.iter().filter(|section| section.starts_with(action));
                let sections: Vec<&'static str> = more.iter().chain(of_call).copied().collect();
                table.compare(&format!("{pool}, {}", sections.join(" + ")), call, &sections, &known);
            }
        };
        check(&mut table, "RunInstances", &[&["RunInstances", "RunInstances, dry run"], &["RunInstances"]]);
        let is_named = sections.contains(&NAMED);
        check(&mut table, "CreateSecurityGroup", if is_named { &[] } else { &[&["CreateSecurityGroup"]] });
        let rules: &[&[&'static str]] =
            &[&["AuthorizeSecurityGroupIngress, among the machines"], &["AuthorizeSecurityGroupIngress, SSH"]];
        check(&mut table, "AuthorizeSecurityGroupIngress", if is_named { &[] } else { rules });
        let is_placed = sections.contains(&"RunInstances, placement group");
        check(&mut table, "CreatePlacementGroup", if is_placed { &[&["CreatePlacementGroup"]] } else { &[] });
        if sections.is_empty() {
            pass(HOUR).await;
            aws.inspect(&machines).await.unwrap();
            check(&mut table, "CreateTags", &[&["CreateTags, instances"], &["CreateTags, security group"]]);
        }
        assert!(aws.terminate(&machines).await.iter().all(Result::is_ok));
        check(&mut table, "TerminateInstances", &[&["TerminateInstances"]]);
        torn_down(&aws, &pool).await;
    }
    torn_down(&scene.aws(), &named).await;
    table.assert_same();
    scene.assert_nothing_left().await;
}

fn cases(scene: &Scene, profile: &str, group: &str) -> Vec<Case> {
    let zone = scene.cloud.subnets().keys().next().unwrap();
    let offer = Offer::new("g5.xlarge", zone, 4, 16);
    let aws = || scene.aws().ssh_from(["203.0.113.7"]);
    let mut number = 0;
    let mut case = |aws, offer: &Offer, count, sections, change: fn(&mut LaunchBatch)| {
        number += 1;
        let pool = PoolId::new(format!("p-{number}"));
        let request = |number| {
            let launch = LaunchId::of(&pool, MachineNumber(number), Attempt(1));
            LaunchRequest::new(launch, pool.clone(), MachineNumber(number), LEASE).owner("ada")
        };
        let mut batch = LaunchBatch::new(offer.clone(), (0..count).map(request).collect());
        change(&mut batch);
        Case { aws, batch, sections }
    };
    let as_it_is: fn(&mut LaunchBatch) = |_| {};
    let larger = Offer::new("g5.2xlarge", zone, 8, 32).disk_gib(250);
    let with_options = aws().tag("project", "x");
    vec![
        case(aws(), &offer, 1, &[], as_it_is),
        case(aws(), &offer.clone().spot(true), 1, &["RunInstances, spot"], as_it_is),
        case(aws(), &offer, 3, &THREE, as_it_is),
        case(aws(), &offer, 3, &[THREE[0], THREE[1], "RunInstances, all or none"], |batch| {
            batch.all_or_none = true;
        }),
        case(aws(), &offer, 1, &["RunInstances, budget"], |batch| batch.requests[0].ends_in = Some(HOUR)),
        case(aws().capacity_reservation(RESERVATION), &offer, 1, &["RunInstances, reservation"], as_it_is),
        case(
            aws().capacity_block(RESERVATION),
            &offer,
            1,
            &["RunInstances, reservation", "RunInstances, capacity block"],
            as_it_is,
        ),
        case(aws().placement_group(true), &offer, 1, &["RunInstances, placement group"], as_it_is),
        case(aws().instance_profile("training"), &offer, 1, &["RunInstances, profile by name"], as_it_is),
        case(aws().instance_profile(profile), &offer, 1, &["RunInstances, profile by ARN"], as_it_is),
        case(aws().addressing(Addressing::Public), &offer, 1, &["RunInstances, public address"], as_it_is),
        case(aws().security_group(group), &offer, 1, &[NAMED], as_it_is),
        case(aws(), &offer, 1, &["RunInstances, two disks"], as_it_is),
        case(with_options, &larger, 1, &["RunInstances, options", "CreateSecurityGroup, options"], |batch| {
            batch.requests[0].labels = [("team".to_owned(), "vision".to_owned())].into();
        }),
    ]
}

/// The security group that was made for a pool.
async fn group_of(scene: &Scene, pool: &PoolId) -> Option<String> {
    let tag = ("skyward:pool".to_owned(), pool.to_string());
    let left = scene.left().await;
    left.into_iter().find(|left| left.kind == "security group" && left.tags.contains(&tag)).map(|left| left.id)
}

/// Images as they are described, each with a second disk.
fn with_second_disk(body: &str) -> String {
    let disk = "<item><deviceName>/dev/sdf</deviceName><ebs><volumeSize>8</volumeSize></ebs></item>";
    body.replace("</blockDeviceMapping>", &format!("{disk}</blockDeviceMapping>"))
}

/// Lets time pass, for this test's runtime alone.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// The rows of each section, and what was found in calls.
struct Table {
    sections: BTreeMap<&'static str, Vec<(&'static str, &'static str)>>,
    used: BTreeSet<&'static str>,
    differences: Vec<String>,
}

impl Table {
    fn read(text: &'static str) -> Self {
        let mut sections: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        let mut section = "";
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
                assert!(sections.insert(section, Vec::new()).is_none(), "the section {section:?} is there twice");
            } else {
                let row = line.split_once(" = ").unwrap_or_else(|| panic!("{line:?} is no row"));
                sections.get_mut(section).unwrap().push(row);
            }
        }
        Self { sections, used: BTreeSet::new(), differences: Vec::new() }
    }

    /// Compares a call with the rows of these sections.
    fn compare(&mut self, what: &str, call: &Call, sections: &[&'static str], known: &BTreeMap<&str, String>) {
        let mut rows: BTreeMap<&str, &str> = BTreeMap::new();
        for section in sections {
            let of_section = self.sections.get(section).unwrap_or_else(|| panic!("the table has no section {section}"));
            self.used.insert(section);
            rows.extend(of_section.iter().copied());
        }
        let sent = named_tags(call);
        for (name, value) in &sent {
            match rows.get(name.as_str()) {
                None => self.differences.push(format!("{what}: {name} = {value} is sent, and not in the table")),
                Some(row) if !is_of(row, value, known) => {
                    self.differences.push(format!("{what}: {name} = {value} is sent, and the table has {row}"));
                }
                Some(_) => {}
            }
        }
        let missing = rows.iter().filter(|(name, _)| !sent.contains_key(**name));
        let missing = missing.map(|(name, row)| format!("{what}: {name} = {row} is in the table, and not sent"));
        self.differences.extend(missing);
    }

    fn assert_same(self) {
        assert!(self.differences.is_empty(), "{}", self.differences.join("\n"));
        let unused: Vec<_> = self.sections.keys().filter(|name| !self.used.contains(*name)).collect();
        assert!(unused.is_empty(), "no case has these sections: {unused:?}");
    }
}

/// The parameters of a call, with tags by their resources and keys in place of their numbers.
fn named_tags(call: &Call) -> BTreeMap<String, String> {
    let mut named = BTreeMap::new();
    for (name, value) in &call.parameters {
        let (of_resource, tag) = match name.strip_prefix("TagSpecification.").and_then(|rest| rest.split_once('.')) {
            Some((_, "ResourceType")) => continue,
            Some((number, tag)) => {
                let kind = call.get(&format!("TagSpecification.{number}.ResourceType"));
                (format!("TagSpecification({kind})."), tag)
            }
            None => (String::new(), name.as_str()),
        };
        let name = match tag.strip_prefix("Tag.").and_then(|rest| rest.split_once('.')) {
            Some((_, "Key")) => continue,
            Some((_, "Value")) => {
                let key = format!("{}Key", name.strip_suffix("Value").unwrap());
                format!("{of_resource}Tag({})", call.get(&key))
            }
            _ => format!("{of_resource}{tag}"),
        };
        assert!(named.insert(name.clone(), value.clone()).is_none(), "{name} is sent twice");
    }
    named
}

/// Whether a value is what a row says.
fn is_of(row: &str, value: &str, known: &BTreeMap<&str, String>) -> bool {
    let soon = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    match row {
        "{64 letters}" => value.len() == 64 && value.bytes().all(|letter| letter.is_ascii_hexdigit()),
        "{UUID}" => value.len() == 36 && value.split('-').count() == 5,
        "{seconds}" => value.parse::<u64>().is_ok_and(|seconds| (soon()..soon() + 2 * 3600).contains(&seconds)),
        "{user data}" => user_data(value).starts_with("#cloud-config\n"),
        _ => {
            known.iter().fold(row.to_owned(), |row, (name, known)| row.replace(&format!("{{{name}}}"), known)) == value
        }
    }
}

/// The case of a group that the user names: it sends what all launches send, and makes no group.
const NAMED: &str = "a group that the user names";
const THREE: [&str; 2] = ["RunInstances, three machines", "TerminateInstances, three machines"];
const RESERVATION: &str = "cr-0123456789abcdef0";
const LEASE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);
