//! Who may call: signatures, their time, and the policy of a user.

use std::time::SystemTime;

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use aws_sdk_ec2::types::{ResourceType, Tag, TagSpecification};

use crate::support::{calls_only, client, client_with, code, filter, ids, launch, spot};

const EXPIRED: Option<&str> = Some("RequestExpired");

#[tokio::test]
#[ignore = "needs moto"]
async fn a_policy_holds_and_signatures_pass_the_proxy() {
    let cloud = calls_only().await;
    let actions =
        ["RunInstances", "DescribeInstances", "CreateTags"].map(|action| format!("\"ec2:{action}\"")).join(",");
    let policy =
        format!(r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Resource":"*","Action":[{actions}]}}]}}"#);
    let environment = cloud.enforce(&policy).await.unwrap();
    let allowed = client_with(&cloud, &environment);
    let id = ids(launch(&cloud, &allowed).max_count(2).client_token("signed")).await.remove(0);
    let own =
        allowed.describe_instances().filters(filter("client-token", "signed")).max_results(5).send().await.unwrap();
    assert_eq!(own.reservations()[0].instances().len(), 2);
    assert_eq!(
        code(allowed.terminate_instances().instance_ids(&id).send().await).as_deref(),
        Some("UnauthorizedOperation")
    );
    assert_eq!(code(allowed.describe_spot_price_history().send().await).as_deref(), Some("UnauthorizedOperation"));
    let mut wrong = environment.clone();
    wrong.insert("AWS_SECRET_ACCESS_KEY".into(), "other".into());
    assert!(code(client_with(&cloud, &wrong).describe_instances().send().await).is_some());
    assert!(client(&cloud).describe_instances().send().await.is_err());
    // What asks for the test itself still may.
    assert_eq!(cloud.states().await.unwrap().len(), 2);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_policy_holds_for_resources_and_by_tags() {
    let cloud = calls_only().await;
    let free = client(&cloud);
    let foreign = ids(launch(&cloud, &free)).await.remove(0);
    let policy = include_str!("../../../../docs/aws-policy.json");
    let held = client_with(&cloud, &cloud.enforce(policy).await.unwrap());
    let tags = |kind: ResourceType, key: &str| {
        let tag = Tag::builder().key(key).value("true").build();
        TagSpecification::builder().resource_type(kind).tags(tag).build()
    };
    let denied = Some("UnauthorizedOperation");
    let tagged = |kinds: &[ResourceType], key: &str| {
        kinds.iter().fold(launch(&cloud, &held), |run, kind| run.tag_specifications(tags(kind.clone(), key)))
    };
    let all = [ResourceType::Instance, ResourceType::NetworkInterface, ResourceType::Volume];
    assert_eq!(code(tagged(&all[..2], "skyward:managed").send().await).as_deref(), denied, "a volume without a tag");
    assert_eq!(code(tagged(&all, "managed").send().await).as_deref(), denied, "another tag");
    let spot = tagged(&all, "skyward:managed").instance_market_options(spot());
    assert_eq!(code(spot.send().await).as_deref(), denied, "a request for spot without a tag");
    let own = ids(tagged(&all, "skyward:managed")).await.remove(0);
    let tag = |id: &str, key: &str| held.create_tags().resources(id).tags(Tag::builder().key(key).value("1").build());
    for (id, key, refusal) in [
        (&own, "skyward:expires-at", None),
        (&own, "skyward:managed", denied),
        (&foreign, "skyward:expires-at", denied),
    ] {
        assert_eq!(code(tag(id, key).send().await).as_deref(), refusal, "{key}");
    }
    let end = |id: &str| held.terminate_instances().instance_ids(id).send();
    assert_eq!(code(end(&foreign).await).as_deref(), denied);
    assert_eq!(code(end(&own).await), None);
    let make = || held.create_security_group().group_name("held").description("held").vpc_id(cloud.vpc());
    assert_eq!(code(make().send().await).as_deref(), denied);
    let made = make().tag_specifications(tags(ResourceType::SecurityGroup, "skyward:managed")).send().await.unwrap();
    assert_eq!(code(held.delete_security_group().group_id(made.group_id().unwrap()).send().await), None);
    let unknown = policy.replace("ForAllValues:StringEquals", "StringNotLike");
    let error = cloud.enforce(&unknown).await.unwrap_err();
    assert!(format!("{error:#}").contains("StringNotLike"), "{error:#}");
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_signature_of_another_time_is_refused_with_the_time_of_the_service() {
    let cloud = calls_only().await;
    for (seconds, refusal) in [(0, None), (240, None), (-240, None), (360, EXPIRED), (-3600, EXPIRED), (0, None)] {
        cloud.set_clock_skew(seconds);
        // The SDK has to learn the time of the service from an answer.
        let client = client(&cloud);
        let answer = client.describe_vpcs().send().await;
        if let Err(error) = &answer {
            let date = error.raw_response().and_then(|raw| raw.headers().get("date")).unwrap();
            let date = DateTime::from_str(date, DateTimeFormat::HttpDate).unwrap().secs();
            let expected = DateTime::from(SystemTime::now()).secs() + seconds;
            assert!(date.abs_diff(expected) < 30, "{date} {expected}");
        }
        assert_eq!(code(answer).as_deref(), refusal, "{seconds}");
        assert_eq!(code(client.describe_vpcs().send().await), None, "{seconds}");
    }
}
