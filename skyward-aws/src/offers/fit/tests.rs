//! The types are some of those that EC2 has, with their numbers.

use std::collections::BTreeMap;

use skyward_core::spec::Accelerator;

use super::*;

const ZONES: [&str; 3] = ["eu-west-1a", "eu-west-1b", "eu-west-1c"];

pub(in crate::offers) fn plain(name: &str, cpus: u32, memory_gib: u32) -> InstanceType {
    InstanceType {
        name: name.to_owned(),
        cpus,
        memory_gib,
        architecture: Architecture::X86_64,
        devices: Devices::Nothing,
        on_demand: true,
        spot: true,
        capacity_block: false,
        efa_interfaces: 0,
        current_generation: true,
        bare_metal: false,
        burstable: false,
        instance_storage_gib: 0,
    }
}

pub(in crate::offers) fn with(kind: &str, count: u32, gib: u32, on: InstanceType) -> InstanceType {
    InstanceType { devices: Devices::Accelerators(Accelerator::new(kind, count).memory_gib(gib)), ..on }
}

/// All in three zones, but for g5.48xlarge, which is in one.
pub(in crate::offers) fn listing(types: Vec<InstanceType>) -> Listing {
    let zones = |name: &str| match name {
        "g5.48xlarge" => vec!["eu-west-1c".to_owned()],
        _ => ZONES.map(str::to_owned).to_vec(),
    };
    let zones: BTreeMap<_, _> =
        types.iter().map(|one| (one.name.clone(), zones(&one.name).into_iter().collect())).collect();
    Listing::new(types, zones)
}

pub(in crate::offers) fn gpus() -> Listing {
    let unserved = |name: &str| {
        let why = "which has no driver in the images that machines start from".to_owned();
        Devices::Unserved(crate::catalog::instance_type::Unserved { name: name.to_owned(), why })
    };
    listing(vec![
        InstanceType { devices: unserved("Radeon Pro V520"), ..plain("g4ad.xlarge", 4, 16) },
        with("T4", 1, 16, plain("g4dn.xlarge", 4, 16)),
        with("T4", 4, 16, plain("g4dn.12xlarge", 48, 192)),
        with("A10G", 1, 22, plain("g5.xlarge", 4, 16)),
        with("A10G", 1, 22, plain("g5.2xlarge", 8, 32)),
        with("A10G", 4, 22, plain("g5.12xlarge", 48, 192)),
        with("A10G", 8, 22, plain("g5.48xlarge", 192, 768)),
        with("V100", 8, 32, plain("p3dn.24xlarge", 96, 768)),
        with("A100", 8, 40, plain("p4d.24xlarge", 96, 1152)),
        with("A100", 8, 80, plain("p4de.24xlarge", 96, 1152)),
        InstanceType {
            spot: false,
            on_demand: false,
            capacity_block: true,
            ..with("H200", 8, 141, plain("p5e.48xlarge", 192, 2048))
        },
        with("Trainium", 16, 32, plain("trn1.32xlarge", 128, 512)),
        with("Inferentia", 1, 8, plain("inf1.xlarge", 4, 8)),
    ])
}

/// Subnets in two of the three zones.
pub(in crate::offers) fn setting() -> Setting {
    let zones = ["eu-west-1a", "eu-west-1b"].map(str::to_owned).into();
    Setting { region: "eu-west-1".into(), zones, disk_gib: 100, own_image: false }
}

pub(in crate::offers) fn wanting(kind: &str, count: u32) -> Requirements {
    Requirements::default().accelerator(Accelerator::new(kind, count))
}

fn names<'a>(fit: &Fit<'a>) -> Vec<&'a str> {
    fit.fitting.iter().map(|one| &*one.instance_type.name).collect()
}

#[track_caller]
fn assert_fits(requirements: &Requirements, expected: &[&str]) {
    assert_eq!(names(&fit(&gpus(), requirements, &setting())), expected, "{requirements}");
}

#[test]
fn types_have_at_least_what_is_asked_for() {
    assert_fits(&wanting("A10G", 1), &["g5.xlarge", "g5.2xlarge", "g5.12xlarge"]);
    assert_fits(&wanting("NVIDIA A10G", 2), &["g5.12xlarge"]);
    assert_fits(&wanting("A100", 1), &["p4d.24xlarge", "p4de.24xlarge"]);
    assert_fits(&wanting("A100-80GB", 8), &["p4de.24xlarge"]);
    assert_fits(&wanting("Trn1", 16), &["trn1.32xlarge"]);
    let large = wanting("A10G", 1).cpus(8);
    assert_fits(&large, &["g5.2xlarge", "g5.12xlarge"]);
    let large = large.memory_gib(64);
    assert_fits(&large, &["g5.12xlarge"]);
    assert_fits(&large.architecture(Architecture::Aarch64), &[]);
}

#[test]
fn zones_are_those_with_subnets_and_of_them_the_wanted() {
    let (gpus, setting) = (gpus(), setting());
    let wanted = wanting("T4", 1);
    let zones = |wanted: &Requirements| fit(&gpus, wanted, &setting).fitting.first().map(|one| one.zones.clone());
    assert_eq!(zones(&wanted), Some(vec!["eu-west-1a", "eu-west-1b"]));
    let wanted = wanted.zones(["eu-west-1b", "eu-west-1c"]);
    assert_eq!(zones(&wanted), Some(vec!["eu-west-1b"]));
    assert_eq!(zones(&wanted.zones(["eu-west-1c"])), None);
}

#[track_caller]
fn assert_stopped(requirements: &Requirements, name: &str, stage: Stage) {
    let gpus = gpus();
    let fit = fit(&gpus, requirements, &setting());
    let stopped = fit.obstacles.iter().find(|obstacle| obstacle.instance_type == name);
    assert_eq!(stopped.map(|obstacle| obstacle.stage), Some(stage), "{requirements}");
    assert!(!names(&fit).contains(&name));
}

#[test]
fn each_type_is_stopped_by_the_first_thing_that_it_lacks() {
    assert_stopped(&wanting("V520", 1), "g4ad.xlarge", Stage::Driver);
    assert_stopped(&wanting("V100", 8), "p3dn.24xlarge", Stage::Driver);
    assert_stopped(&wanting("Inferentia", 1), "inf1.xlarge", Stage::Driver);
    assert_stopped(&wanting("A100", 16), "p4d.24xlarge", Stage::Count);
    assert_stopped(&wanting("A100-80GB", 8), "p4d.24xlarge", Stage::DeviceMemory);
    assert_stopped(&wanting("H200", 8), "p5e.48xlarge", Stage::Market);
    assert_stopped(&wanting("A10G", 8), "g5.48xlarge", Stage::Subnet);
    assert_stopped(&wanting("A100", 8).disk_gib(MOST_DISK_GIB + 1), "p4d.24xlarge", Stage::Machine);
    assert_stopped(&wanting("A100", 8).zones(["eu-west-1c"]), "p4d.24xlarge", Stage::Zone);
}

#[test]
fn whoever_names_the_image_says_what_drivers_it_has() {
    let own = Setting { own_image: true, ..setting() };
    assert_eq!(names(&fit(&gpus(), &wanting("V100", 8), &own)), ["p3dn.24xlarge"]);
}

#[test]
fn only_the_market_that_is_asked_for_counts() {
    let types = vec![InstanceType { spot: false, ..with("T4", 1, 16, plain("g4dn.xlarge", 4, 16)) }];
    let listing = listing(types);
    for (market, fits) in
        [(Market::OnDemand, true), (Market::Spot, false), (Market::SpotOrOnDemand, true), (Market::Cheapest, true)]
    {
        let wanted = wanting("T4", 1).market(market);
        assert_eq!(!fit(&listing, &wanted, &setting()).fitting.is_empty(), fits, "{market:?}");
    }
}

fn processors() -> Listing {
    let mut types = vec![
        with("A10G", 1, 22, plain("g5.xlarge", 4, 16)),
        InstanceType { burstable: true, ..plain("t3.large", 2, 8) },
        InstanceType { current_generation: false, ..plain("m4.large", 2, 8) },
        InstanceType { bare_metal: true, ..plain("m7i.metal-24xl", 96, 384) },
        InstanceType { architecture: Architecture::Aarch64, ..plain("m7g.large", 2, 8) },
        plain("x2idn.16xlarge", 64, 1024),
    ];
    for (size, cpus) in [("large", 2), ("xlarge", 4), ("8xlarge", 32)] {
        for (family, ratio) in [("c6i", 2), ("c7i", 2), ("c7i-flex", 2), ("m7i", 4), ("m7id", 4), ("r7i", 8)] {
            types.push(plain(&format!("{family}.{size}"), cpus, cpus * ratio));
        }
    }
    listing(types)
}

#[track_caller]
fn assert_plain(cpus: u32, memory_gib: u32, expected: &[&str]) {
    let wanted = Requirements::default().cpus(cpus).memory_gib(memory_gib);
    assert_eq!(names(&fit(&processors(), &wanted, &setting())), expected, "{wanted}");
}

#[test]
fn of_each_family_the_smallest_type_that_fits_is_taken_and_those_for_general_use_come_first() {
    let with_large =
        ["c7i.large", "c6i.large", "m7i.large", "r7i.large", "c7i-flex.large", "m7id.large", "x2idn.16xlarge"];
    assert_plain(2, 4, &with_large);
    assert_plain(
        2,
        16,
        &["r7i.large", "m7i.xlarge", "c7i.8xlarge", "c6i.8xlarge", "m7id.xlarge", "c7i-flex.8xlarge", "x2idn.16xlarge"],
    );
    assert_plain(2, 1024, &["x2idn.16xlarge"]);
    assert_plain(128, 1, &[]);
}

#[test]
fn processors_alone_are_those_of_x86_unless_arm_is_asked_for() {
    let processors = processors();
    let wanted = Requirements::default().architecture(Architecture::Aarch64);
    assert_eq!(names(&fit(&processors, &wanted, &setting())), ["m7g.large"]);
}

#[test]
fn no_more_types_are_priced_than_are_needed() {
    let many = listing((0..50).map(|number| plain(&format!("m{number}i.large"), 2, 8)).collect());
    let fit = fit(&many, &Requirements::default(), &setting());
    assert_eq!(fit.fitting.len(), MOST_TYPES);
    assert_eq!(names(&fit)[0], "m49i.large");
}

#[test]
fn names_of_families_have_three_parts() {
    assert_eq!(parts("c7i-flex"), ("c", 7, "i-flex"));
    assert_eq!(parts("m5"), ("m", 5, ""));
    assert_eq!(parts("u-6tb1"), ("u-", 6, "tb1"));
    assert_eq!(parts("mac"), ("mac", 0, ""));
}
