//! Pools in capacity that was reserved before.

use std::time::{Duration, SystemTime};

use skyward_aws::Aws;
use skyward_aws_testkit::{CloudOptions, Phases, Reservation, Rule};
use skyward_core::error::Refusal;
use skyward_core::ids::{LaunchId, MachineId, MachineNumber};
use skyward_core::pool::{Pool, PoolBuilder};
use skyward_core::provider::{LaunchBatch, LaunchRequest, Market, Provider, Requirements};
use skyward_core::spec::{Accelerator, Budget};

use crate::scene::{PATIENCE, SEVEN, Scene, limits, python};

const ID: &str = "cr-0123456789abcdef0";
const TARGET: &str = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";

/// A zone that is not the one that offers begin with.
fn zone(scene: &Scene) -> String {
    scene.cloud.subnets().keys().last().unwrap().clone()
}

fn pool(aws: Aws) -> PoolBuilder {
    Pool::builder().provider(aws).limits(limits())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_pool_in_a_reservation_is_of_its_type_and_in_its_zone_and_takes_no_more_than_is_left() {
    // Instances that end would take room in it for a while.
    let scene = Scene::of(CloudOptions::new().phases(Phases::NONE)).await;
    let zone = zone(&scene);
    scene.cloud.set_reservations([Reservation::new(ID, "c7a.large", &zone, 3)]);
    scene.cloud.set_price("c7a.large", 0.5);
    let aws = scene.aws().capacity_reservation(ID);
    // Cheaper as spot, which a reservation is not.
    let running = pool(aws.clone()).nodes(2).market(Market::Cheapest).start().await.unwrap();
    let call = python::<u32>(SEVEN);
    assert_eq!(call.broadcast(&running).await.unwrap(), [7, 7]);
    let launches = scene.launches();
    let [launch] = launches.as_slice() else { panic!("{launches:?}") };
    assert_eq!(launch.get(TARGET), ID);
    assert_eq!(launch.get("InstanceType"), "c7a.large");
    assert_eq!(launch.get("NetworkInterface.1.SubnetId"), scene.cloud.subnets()[&zone]);
    assert!(!launch.parameters.keys().any(|name| name.starts_with("InstanceMarketOptions")), "{launch:?}");
    let offers = aws.offers(&Requirements::default()).await.unwrap();
    let [offer] = offers.as_slice() else { panic!("{offers:?}") };
    assert_eq!(offer.usd_per_hour, Some(0.5));
    assert!(!offer.spot);
    assert_eq!(offer.zone.as_str(), zone.as_str());
    // One is left, and two are wanted.
    let error = pool(aws.clone()).nodes(2).start().await.unwrap_err();
    assert!(format!("{error:#}").contains("EC2 launched 1 of 2"), "{error}");
    let last = pool(aws.clone()).start().await.unwrap();
    // An offer of a moment ago.
    let launch = LaunchRequest::new(LaunchId::new("late"), running.id().clone(), MachineNumber(9), limits().lease);
    let answers = aws.launch(&LaunchBatch::one(offer.clone(), launch)).await;
    let error = answers[0].as_ref().unwrap_err();
    assert!(error.refusal() == Some(&Refusal::Capacity) && error.message().contains("ReservationCapacityExceeded"));
    let error = pool(aws).start().await.unwrap_err();
    assert!(error.message().contains(ID) && error.message().contains("no instance left: all 3"), "{error:?}");
    last.shutdown(PATIENCE).await.unwrap();
    running.shutdown(PATIENCE).await.unwrap();
    scene.until_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_pool_in_a_block_is_of_a_type_that_is_sold_in_blocks_alone_and_ends_before_the_block() {
    let scene = Scene::of(CloudOptions::new().gpus(8)).await;
    let zone = zone(&scene);
    // The emulator's types are sold in other ways too.
    scene.cloud.rules().add(Rule::rewrite("DescribeInstanceTypes", |body| {
        let uses = "<supportedUsageClasses><item>capacity-block</item></supportedUsageClasses>";
        let mut parts = body.split("<supportedUsageClasses>");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text += uses;
            text += part.split_once("</supportedUsageClasses>").unwrap().1;
        }
        text
    }));
    let ends = SystemTime::now() + Duration::from_secs(2 * 3600);
    scene.cloud.set_reservations([Reservation::new(ID, "p5.48xlarge", &zone, 1).block(ends)]);
    let asking = |aws: Aws| pool(aws).accelerator(Accelerator::new("H100", 8));
    let error = asking(scene.aws().without_cache()).start().await.unwrap_err();
    assert!(format!("{error:#}").contains("only as capacity blocks"), "{error}");
    let aws = scene.aws().without_cache().capacity_block(ID);
    // Nothing is paid by the hour, so the smallest budget is enough.
    let budget = Budget::usd_per_hour(0.01);
    let running = asking(aws.clone()).budget(budget).start().await.unwrap();
    let call = python::<u32>(SEVEN);
    assert_eq!(call.run(&running).await.unwrap(), 7);
    let launches = scene.launches();
    let [launch] = launches.as_slice() else { panic!("{launches:?}") };
    assert_eq!(launch.get(TARGET), ID);
    assert_eq!(launch.get("InstanceType"), "p5.48xlarge");
    assert_eq!(launch.get("InstanceMarketOptions.MarketType"), "capacity-block");
    let reports = aws.inspect(&[MachineId::new(scene.instances()[0].as_str())]).await.unwrap();
    // EC2 begins to end them 30 minutes before the block ends.
    let most = Duration::from_secs(90 * 60);
    assert!(reports[0].ends_in.is_some_and(|left| left <= most && left > most / 2), "{reports:?}");
    running.shutdown(PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn capacity_that_cannot_be_used_is_refused_before_anything_is_made() {
    let scene = Scene::of(CloudOptions::new().without_machines()).await;
    let (zone, soon) = (zone(&scene), SystemTime::now() + Duration::from_secs(600));
    let (first, subnet) = scene.cloud.subnets().first_key_value().unwrap();
    let plain = || Reservation::new(ID, "c7a.large", &zone, 2);
    let of = |aws: Aws| pool(aws.capacity_reservation(ID));
    let reservation = || of(scene.aws());
    let block = || pool(scene.aws().capacity_block(ID));
    let elsewhere = || of(scene.aws().subnets([subnet.as_str()]));
    let t4 = || reservation().accelerator(Accelerator::new("T4", 1));
    let spot = || reservation().market(Market::Spot);
    let cases: Vec<(&str, Option<Reservation>, PoolBuilder, [&str; 2])> = vec![
        ("nothing", None, reservation(), ["does not exist in us-east-1", "describe-capacity-reservations"]),
        ("another kind", Some(plain()), block(), ["plain reservation", ".capacity_reservation("]),
        ("another kind", Some(plain().block(soon)), reservation(), ["capacity block", ".capacity_block("]),
        ("early", Some(plain().state("scheduled")), reservation(), ["not active yet", "it starts at 20"]),
        ("late", Some(plain().state("expired")), reservation(), ["`expired`", "reserve anew"]),
        ("late", Some(plain().state("cancelled")), reservation(), ["`cancelled`", "reserve anew"]),
        ("at its end", Some(plain().block(soon)), block(), ["30 minutes before", "buy another"]),
        ("used up", Some(Reservation::new(ID, "c7a.large", &zone, 0)), reservation(), ["no instance left", "more"]),
        ("a platform", Some(plain().platform("Windows")), reservation(), ["`Windows`", "`Linux/UNIX`"]),
        ("a type", Some(plain()), t4(), ["c7a.large", "T4"]),
        ("a market", Some(plain()), spot(), ["spot", "Market::OnDemand"]),
        ("a zone", Some(plain()), elsewhere(), ["where no subnet of the pool lies", first]),
    ];
    for (what, reserved, asking, words) in cases {
        // What the last case has declared is not there any more.
        scene.cloud.set_reservations(reserved);
        let error = asking.start().await.unwrap_err();
        let told = format!("{error:#}");
        assert!(told.contains(ID) && words.iter().all(|word| told.contains(word)), "{what}: {told}");
    }
    for action in ["RunInstances", "CreateSecurityGroup"] {
        assert_eq!(scene.cloud.calls().count(action), 0, "{action}");
    }
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn the_shipped_policy_is_enough_for_a_reservation_and_its_lack_is_named() {
    let shipped = include_str!("../../../docs/aws-policy.json");
    let lacking = shipped.replace("ec2:DescribeCapacityReservations", "ec2:DescribeAddresses");
    for (policy, is_enough) in [(shipped, true), (lacking.as_str(), false)] {
        let scene = Scene::of(CloudOptions::new().without_machines()).await;
        scene.cloud.set_reservations([Reservation::new(ID, "c7a.large", &zone(&scene), 1)]);
        let environment = scene.cloud.enforce(policy).await.unwrap();
        let (id, key) = (&environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"].as_str());
        let aws = scene.without_credentials().credentials(id, key, None).capacity_reservation(ID);
        match aws.offers(&Requirements::default()).await {
            Ok(offers) => assert!(is_enough && offers.len() == 1, "{offers:?}"),
            Err(error) => {
                let told = format!("{error:#}");
                let words = ["ec2:DescribeCapacityReservations", "aws-policy.json"];
                assert!(!is_enough && words.iter().all(|word| told.contains(word)), "{told}");
            }
        }
    }
}
