//! The policy that is shipped.

use std::time::Duration;

use skyward_aws::Addressing;
use skyward_core::pool::Pool;
use skyward_core::provider::{Market, Provider, Requirements};
use skyward_core::spec::Budget;

use crate::scene::{PATIENCE, SEVEN, Scene, limits, python};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn the_shipped_policy_is_enough_for_a_whole_life() {
    let scene = Scene::new().await;
    let policy = include_str!("../../../docs/aws-policy.json");
    let environment = scene.cloud.enforce(policy).await.unwrap();
    let (id, key) = (&environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"].as_str());
    let aws = scene.without_credentials().without_cache().credentials(id, key, None);
    // A budget in dollars needs the prices of spot instances.
    let budget = Budget::usd_per_hour(1000.0);
    let pool = Pool::builder().provider(aws.clone()).nodes(2).limits(limits()).market(Market::Spot).budget(budget);
    let pool = pool.start().await.unwrap();
    let call = python::<u32>(SEVEN);
    assert_eq!(call.broadcast(&pool).await.unwrap(), [7, 7]);
    assert_eq!(aws.pools().await.unwrap().len(), 1);
    pool.shutdown(PATIENCE).await.unwrap();
    // A machine that is reached by a public address has to be in a subnet with a way to the
    // internet.
    scene.cloud.default_vpc(true).await.unwrap();
    let aws = scene.without_credentials().credentials(id, key, None);
    let public = aws.clone().subnets(Vec::<String>::new()).addressing(Addressing::Public);
    assert!(!public.offers(&Requirements::default()).await.unwrap().is_empty());
    // One that does not boot is reported with its console.
    scene.cloud.fail_boots(1).unwrap();
    let mut short = limits();
    short.start = Duration::from_secs(15);
    let error = Pool::builder().provider(aws).limits(short).start().await.unwrap_err();
    assert!(format!("{error:?}").contains("Kernel panic"), "{error:?}");
    scene.until_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto, ec2 machines"]
async fn a_permission_that_is_missing_is_named_before_anything_is_left() {
    let scene = Scene::new().await;
    let policy = include_str!("../../../docs/aws-policy.json").replace("ec2:RunInstances", "ec2:StopInstances");
    let environment = scene.cloud.enforce(&policy).await.unwrap();
    let (id, key) = (&environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"].as_str());
    let aws = scene.without_credentials().credentials(id, key, None);
    let error = Pool::builder().provider(aws).limits(limits()).start().await.unwrap_err();
    let told = format!("{error:#}");
    assert!(told.contains("ec2:RunInstances") && told.contains("aws-policy.json"), "{told}");
    scene.until_nothing_left().await;
}
