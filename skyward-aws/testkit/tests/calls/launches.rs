//! Launches: what is launched once, as far as there is room, or refused.

use std::time::Duration;

use aws_sdk_ec2::error::ProvideErrorMetadata as _;
use aws_sdk_ec2::types::{BlockDeviceMapping, EbsBlockDevice, IamInstanceProfileSpecification, InstanceType};
use skyward_aws_testkit::{Market, Phases, Rule};

use crate::support::{IMAGE, calls_only, client, code, filter, ids, launch, spot, subnet, terminated};

#[tokio::test]
#[ignore = "needs moto"]
async fn a_client_token_launches_once_also_at_the_same_time() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let run = || ids(launch(&cloud, &client).client_token("token"));
    let (one, two, three) = tokio::join!(run(), run(), run());
    assert_eq!(&one, &two);
    assert_eq!(&one, &three);
    assert_eq!(run().await, one);
    let other = launch(&cloud, &client).client_token("token").instance_type(InstanceType::G52xlarge).send().await;
    assert_eq!(code(other).as_deref(), Some("IdempotentParameterMismatch"));
    assert_eq!(cloud.states().await.unwrap().len(), 1);
    // A launch that failed does not use the token up.
    cloud.rules().add(Rule::error("RunInstances", 503, "RequestLimitExceeded", "Request limit exceeded.").times(1));
    let again = || launch(&cloud, &client).client_token("another");
    assert_eq!(code(again().send().await).as_deref(), Some("RequestLimitExceeded"));
    assert_eq!(ids(again()).await.len(), 1);
    assert_eq!(cloud.calls().count("RunInstances"), 7);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn an_answer_that_is_lost_is_given_again_by_the_token() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    for rule in [Rule::drop_after("RunInstances"), Rule::drop_before("RunInstances")] {
        cloud.rules().add(rule.times(1));
        let run = || launch(&cloud, &client).client_token("lost");
        assert!(run().send().await.is_err());
        assert_eq!(ids(run()).await.len(), 1);
    }
    assert_eq!(cloud.states().await.unwrap().len(), 1);
    cloud.rules().add(Rule::hang_after("RunInstances").times(1));
    let hanging = launch(&cloud, &client).client_token("hanging").send();
    assert!(tokio::time::timeout(Duration::from_millis(500), hanging).await.is_err());
    let seen = ids(launch(&cloud, &client).client_token("hanging")).await;
    assert_eq!(cloud.states().await.unwrap().keys().filter(|id| seen.contains(id)).count(), 1);
    assert_eq!(cloud.states().await.unwrap().len(), 2);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn as_many_are_launched_as_there_is_room_for() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let zone = format!("{}a", cloud.region());
    cloud.set_capacity("g5.xlarge", &zone, Market::OnDemand, 3);
    cloud.set_capacity("g5.xlarge", &zone, Market::Spot, 0);
    let some = ids(launch(&cloud, &client).min_count(1).max_count(2)).await;
    assert_eq!(some.len(), 2);
    assert_eq!(ids(launch(&cloud, &client).min_count(1).max_count(5)).await.len(), 1);
    let refused = launch(&cloud, &client).send().await;
    let status = refused.as_ref().err().and_then(|error| error.raw_response()).map(|raw| raw.status().as_u16());
    assert_eq!(code(refused).as_deref(), Some("InsufficientInstanceCapacity"));
    assert_eq!(status, Some(500));
    client.terminate_instances().set_instance_ids(Some(some.clone())).send().await.unwrap();
    // They take their room until they are terminated.
    let early = launch(&cloud, &client).send().await;
    assert_eq!(code(early).as_deref(), Some("InsufficientInstanceCapacity"));
    cloud.pass(Phases::default().ending);
    terminated(&cloud, &client, &some).await;
    let gang = launch(&cloud, &client).min_count(3).max_count(3).send().await;
    assert_eq!(code(gang).as_deref(), Some("InsufficientInstanceCapacity"));
    assert_eq!(ids(launch(&cloud, &client).min_count(2).max_count(2)).await.len(), 2);
    let refused = launch(&cloud, &client).instance_market_options(spot()).send().await;
    assert_eq!(code(refused).as_deref(), Some("InsufficientInstanceCapacity"));
    let elsewhere = client.run_instances().image_id(IMAGE).instance_type(InstanceType::G5Xlarge);
    let elsewhere = elsewhere.subnet_id(subnet(&cloud, "b")).min_count(1).max_count(1);
    assert_eq!(ids(elsewhere.instance_market_options(spot())).await.len(), 1);
    let wrong = launch(&cloud, &client).min_count(2).max_count(1).send().await;
    assert_eq!(code(wrong).as_deref(), Some("InvalidParameterValue"));
}

#[tokio::test]
#[ignore = "needs moto"]
async fn launches_that_ec2_refuses_are_refused() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let arm = launch(&cloud, &client).instance_type(InstanceType::from("c7g.large")).send().await;
    assert_eq!(code(arm).as_deref(), Some("InvalidParameterValue"));
    let volume = EbsBlockDevice::builder().volume_size(20).build();
    let disk = BlockDeviceMapping::builder().device_name("/dev/sda1").ebs(volume).build();
    let small = launch(&cloud, &client).image_id("ami-0c240400000000002").block_device_mappings(disk).send().await;
    assert_eq!(code(small).as_deref(), Some("InvalidBlockDeviceMapping"));
    let long = launch(&cloud, &client).user_data("eHh4".repeat(6000)).send().await;
    assert_eq!(code(long).as_deref(), Some("InvalidParameterValue"));
    let absent = launch(&cloud, &client).image_id("ami-0123456789abcdef0").send().await;
    assert_eq!(code(absent).as_deref(), Some("InvalidAMIID.NotFound"));
    let dry = launch(&cloud, &client).dry_run(true).client_token("dry").send().await;
    assert_eq!(code(dry).as_deref(), Some("DryRunOperation"));
    assert!(cloud.states().await.unwrap().is_empty());
    let images = client.describe_images().owners("898082745236").filters(filter("name", "Deep Learning*Ubuntu 24.04*"));
    assert_eq!(images.send().await.unwrap().images().len(), 5);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn an_instance_profile_has_to_be_there() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let arn = cloud.make_instance_profile("training").await.unwrap();
    let named = |name: &str| IamInstanceProfileSpecification::builder().name(name).build();
    let run = |profile| launch(&cloud, &client).iam_instance_profile(profile);
    ids(run(named("training"))).await;
    ids(run(IamInstanceProfileSpecification::builder().arn(arn).build())).await;
    let refused = run(named("nobody")).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("InvalidParameterValue"));
    let message = "Value (nobody) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
    assert_eq!(refused.message(), Some(message));
}

#[tokio::test]
#[ignore = "needs moto"]
async fn tags_are_given_behind_the_clients_back() {
    let cloud = calls_only().await;
    let id = ids(launch(&cloud, &client(&cloud))).await;
    cloud.tag(&id, "color", "red").await.unwrap();
    let tag = ("color".to_owned(), "red".to_owned());
    assert!(cloud.left(Some("color")).await.unwrap().iter().any(|left| left.tags.contains(&tag)));
}
