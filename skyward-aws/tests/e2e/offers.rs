//! What is tried when there is no capacity, no quota, or no answer.

use std::time::Duration;

use skyward_aws_testkit::{CloudOptions, Market as Paid, Rule};
use skyward_core::error::Refusal;
use skyward_core::pool::Pool;
use skyward_core::provider::{Market, Provider, Requirements};
use skyward_core::spec::Accelerator;

use crate::scene::{SEVEN, Scene, limits, python};

/// Types and zones that were asked for, spot in parentheses.
fn asked(scene: &Scene) -> Vec<String> {
    let zones = scene.cloud.subnets();
    let name = |call: &skyward_aws_testkit::Call| {
        let subnet = call.get("NetworkInterface.1.SubnetId");
        let zone = zones.iter().find(|(_, id)| *id == subnet).map(|(zone, _)| zone.as_str()).unwrap_or("?");
        let spot = if call.get("InstanceMarketOptions.MarketType") == "spot" { " (spot)" } else { "" };
        format!("{}/{zone}{spot}", call.get("InstanceType"))
    };
    scene.launches().iter().map(name).collect()
}

/// The facts of moto's instance types are those of EC2.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto"]
async fn the_smallest_type_that_fits_is_offered_first_where_no_price_is_known() {
    let scene = Scene::of(CloudOptions::new().without_machines()).await;
    scene.cloud.rules().add(Rule::error("GetProducts", 500, "InternalErrorException", "The service has failed."));
    // Prices that another test has read are no answer of this cloud.
    let aws = scene.aws().without_cache();
    for (accelerator, first) in [
        (Some(("A10G", 1)), "g5.xlarge"),
        (Some(("T4", 4)), "g4dn.12xlarge"),
        (Some(("A100-80GB", 8)), "p4de.24xlarge"),
        (Some(("H100", 8)), "p5.48xlarge"),
        (Some(("Inferentia2", 12)), "inf2.48xlarge"),
        (Some(("Trn1", 1)), "trn1.2xlarge"),
        (None, "c7a.medium"),
    ] {
        let mut wanted = Requirements::default();
        wanted.market = Market::OnDemand;
        wanted.accelerator = accelerator.map(|(kind, count)| Accelerator::new(kind, count));
        let offers = aws.offers(&wanted).await.unwrap();
        let types: Vec<&str> = offers.iter().map(|offer| &*offer.machine_type).collect();
        assert_eq!(types.first(), Some(&first), "{accelerator:?}: {types:?}");
        assert!(offers.iter().all(|offer| wanted.are_met_by(offer)), "{accelerator:?}");
    }
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn capacity_is_looked_for_in_other_zones_and_then_in_other_types() {
    let scene = Scene::new().await;
    let zones: Vec<String> = scene.cloud.subnets().keys().cloned().collect();
    for zone in &zones {
        scene.cloud.set_capacity("g4dn.xlarge", zone, Paid::OnDemand, 0);
    }
    let call = python::<u32>(SEVEN);
    let pool = Pool::builder().provider(scene.aws()).limits(limits()).accelerator(Accelerator::new("T4", 1));
    assert_eq!(pool.scope(async |pool| call.run(pool).await).await.unwrap(), 7);
    let asked = asked(&scene);
    let (last, refused) = asked.split_last().unwrap();
    assert!(!refused.is_empty() && refused.iter().all(|offer| offer.starts_with("g4dn.xlarge/")), "{asked:?}");
    let mut once = refused.to_vec();
    once.dedup();
    assert_eq!(once, refused, "no offer twice: {asked:?}");
    assert!(last.starts_with("g4dn.2xlarge/"), "the next by its price: {asked:?}");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn spot_falls_to_on_demand() {
    let scene = Scene::new().await;
    scene.cloud.rules().add(
        Rule::error("RunInstances", 500, "InsufficientInstanceCapacity", "There is no Spot capacity available.")
            .with("InstanceMarketOptions.MarketType", "spot"),
    );
    let call = python::<u32>(SEVEN);
    let pool = Pool::builder().provider(scene.aws()).limits(limits()).accelerator(Accelerator::new("T4", 1));
    let pool = pool.market(Market::SpotOrOnDemand);
    assert_eq!(pool.scope(async |pool| call.run(pool).await).await.unwrap(), 7);
    let asked = asked(&scene);
    let (last, spot) = asked.split_last().unwrap();
    assert!(!spot.is_empty() && spot.iter().all(|offer| offer.ends_with("(spot)")), "{asked:?}");
    assert!(last.starts_with("g4dn.xlarge/") && !last.ends_with("(spot)"), "{asked:?}");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_quota_ends_the_search_in_its_family_and_is_named_with_its_code() {
    let scene = Scene::new().await;
    let message = "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that the specified instance type belongs to.";
    scene.cloud.rules().add(Rule::error("RunInstances", 400, "VcpuLimitExceeded", message));
    let pool = Pool::builder().provider(scene.aws()).limits(limits()).accelerator(Accelerator::new("T4", 1));
    let error = pool.start().await.unwrap_err();
    assert_eq!(asked(&scene).len(), 1, "{:?}", asked(&scene));
    assert!(matches!(error.refusal(), Some(Refusal::Quota(quota)) if quota == "L-DB2E81BA"), "{error:?}");
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("request-service-quota-increase") && hint.contains("L-DB2E81BA"), "{error}");
    let told = format!("{error:#}");
    assert!(told.contains("Running On-Demand G and VT instances") && told.contains("g4dn.xlarge"), "{told}");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_quota_that_is_looked_up_leaves_out_what_it_does_not_allow() {
    let scene = Scene::new().await;
    scene.cloud.set_quota("L-DB2E81BA", 0.0);
    let aws = scene.aws().look_up_quotas(true);
    let pool = Pool::builder().provider(aws).limits(limits()).accelerator(Accelerator::new("T4", 1));
    let error = pool.start().await.unwrap_err();
    assert!(format!("{error:#}").contains("L-DB2E81BA"), "{error}");
    assert_eq!(asked(&scene), Vec::<String>::new(), "nothing is tried");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_burst_of_throttling_is_waited_out() {
    let scene = Scene::new().await;
    for action in ["RunInstances", "DescribeInstances", "CreateSecurityGroup", "TerminateInstances"] {
        let throttled = Rule::error(action, 503, "RequestLimitExceeded", "Request limit exceeded.");
        scene.cloud.rules().add(throttled.when(|call| !call.is_dry_run()).times(3));
    }
    let call = python::<u32>(SEVEN);
    assert_eq!(scene.pool(1).scope(async |pool| call.run(pool).await).await.unwrap(), 7);
    let launches = scene.launches();
    let tokens: std::collections::BTreeSet<&str> = launches.iter().map(|call| call.get("ClientToken")).collect();
    assert_eq!(launches.len(), 4, "the same call each time");
    assert_eq!(tokens.len(), 1, "the same call each time");
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_lost_answer_makes_one_instance() {
    let scene = Scene::new().await;
    let real = |call: &skyward_aws_testkit::Call| !call.is_dry_run();
    scene.cloud.rules().add(Rule::drop_after("RunInstances").when(real).times(2));
    let call = python::<u32>(SEVEN);
    let pool = scene.pool(1).start().await.unwrap();
    assert_eq!(call.run(&pool).await.unwrap(), 7);
    assert_eq!(scene.cloud.states().await.unwrap().len(), 1, "instances that were ever there");
    assert_eq!(scene.launches().len(), 3);
    pool.shutdown(crate::scene::PATIENCE).await.unwrap();
    scene.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn an_accelerator_that_is_not_sold_is_refused_with_what_is() {
    let scene = Scene::new().await;
    for (wanted, word) in [
        (Accelerator::new("T5", 1), "T4"),
        (Accelerator::new("T4", 16), "4: g4dn.12xlarge"),
        (Accelerator::new("MI300X", 8), "MI300X"),
    ] {
        let pool = Pool::builder().provider(scene.aws()).limits(limits()).accelerator(wanted.clone());
        let error = tokio::time::timeout(Duration::from_secs(60), pool.start()).await.unwrap().unwrap_err();
        assert!(format!("{error:#}").contains(word), "{wanted}: {error}");
    }
    assert_eq!(asked(&scene), Vec::<String>::new());
    scene.assert_nothing_left().await;
}
