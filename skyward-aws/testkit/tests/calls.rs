//! Calls of the loopback EC2: what the shims add to moto, and the faults of the rules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use aws_sdk_ec2::error::ProvideErrorMetadata as _;
use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use aws_sdk_ec2::types::{
    BlockDeviceMapping, EbsBlockDevice, Filter, IamInstanceProfileSpecification, InstanceStateName, InstanceType,
    ResourceType, Tag, TagSpecification,
};
use skyward_aws_testkit::{Cloud, CloudOptions, Market, Phases, Rule};
use support::{IMAGE, calls_only, client, client_with, code, ids, launch, spot, subnet};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}

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
    client.terminate_instances().set_instance_ids(Some(some)).send().await.unwrap();
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
async fn an_instance_goes_through_its_phases() {
    let phases = Phases { hidden: 2, pending: 1, ending: 1 };
    let cloud = Cloud::start(CloudOptions::new().without_machines().phases(phases)).await.unwrap();
    let client = client(&cloud);
    let id = ids(launch(&cloud, &client)).await.remove(0);
    let named = || client.describe_instances().instance_ids(&id).send();
    let state = async || {
        let answer = named().await.unwrap();
        let instance = &answer.reservations()[0].instances()[0];
        (instance.state().unwrap().name().unwrap().clone(), instance.private_ip_address().map(str::to_owned))
    };
    assert_eq!(code(named().await).as_deref(), Some("InvalidInstanceID.NotFound"));
    assert!(client.describe_instances().send().await.unwrap().reservations().is_empty());
    assert_eq!(state().await, (InstanceStateName::Pending, None));
    let running = client.describe_instances().filters(filter("instance-state-name", "running")).send().await.unwrap();
    assert_eq!(running.reservations()[0].instances()[0].public_ip_address().map(|address| &address[..4]), Some("127."));
    client.terminate_instances().instance_ids(&id).send().await.unwrap();
    assert_eq!(state().await.0, InstanceStateName::ShuttingDown);
    assert_eq!(state().await, (InstanceStateName::Terminated, None));
    // A second time it is fine.
    client.terminate_instances().instance_ids(&id).send().await.unwrap();
    assert_eq!(state().await.0, InstanceStateName::Terminated);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_filter_by_state_knows_the_phases() {
    let cloud = calls_only().await;
    cloud.set_phases(Phases { pending: 2, ..Phases::default() });
    let client = client(&cloud);
    let id = ids(launch(&cloud, &client).client_token("mine").instance_market_options(spot())).await.remove(0);
    let with = async |name: &str, value: &str| {
        let answer = client.describe_instances().filters(filter(name, value)).send().await.unwrap();
        answer
            .reservations()
            .iter()
            .flat_map(|one| one.instances())
            .filter(|one| one.instance_id() == Some(&id))
            .count()
    };
    assert_eq!(with("instance-state-name", "running").await, 0);
    assert_eq!(with("instance-state-name", "pending").await, 1);
    assert_eq!(with("instance-state-name", "running").await, 1);
    assert_eq!(with("client-token", "mine").await, 1);
    assert_eq!(with("client-token", "other").await, 0);
    assert_eq!(with("instance-lifecycle", "spot").await, 1);
    assert_eq!(with("availability-zone", &format!("{}a", cloud.region())).await, 1);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_group_that_is_used_cannot_be_deleted_and_what_is_left_is_found() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let tagged = |kind: ResourceType| {
        let tag = Tag::builder().key("skyward:pool").value("p").build();
        TagSpecification::builder().resource_type(kind).tags(tag).build()
    };
    let group = client.create_security_group().group_name("kit").description("kit").vpc_id(cloud.vpc());
    let group = group.tag_specifications(tagged(ResourceType::SecurityGroup)).send().await.unwrap();
    let group = group.group_id().unwrap().to_owned();
    let run = client.run_instances().image_id(IMAGE).instance_type(InstanceType::G5Xlarge).min_count(1).max_count(1);
    let run = run.subnet_id(subnet(&cloud, "a")).security_group_ids(&group);
    let run = run.tag_specifications(tagged(ResourceType::Instance)).tag_specifications(tagged(ResourceType::Volume));
    let id = ids(run.tag_specifications(tagged(ResourceType::NetworkInterface))).await.remove(0);
    client
        .import_key_pair()
        .key_name("kit")
        .public_key_material(aws_sdk_ec2::primitives::Blob::new(PUBLIC))
        .send()
        .await
        .unwrap();
    let kinds =
        async |key: Option<&str>| cloud.left(key).await.unwrap().into_iter().map(|left| left.kind).collect::<Vec<_>>();
    assert_eq!(kinds(None).await, ["instance", "key pair", "network interface", "security group", "volume"]);
    assert_eq!(kinds(Some("skyward:pool")).await, ["instance", "network interface", "security group", "volume"]);
    assert_eq!(kinds(Some("other")).await, Vec::<&str>::new());
    let delete = || client.delete_security_group().group_id(&group).send();
    assert_eq!(code(delete().await).as_deref(), Some("DependencyViolation"));
    client.terminate_instances().instance_ids(&id).send().await.unwrap();
    assert_eq!(kinds(None).await, ["key pair", "security group"]);
    cloud.set_dependency_violations(1);
    assert_eq!(code(delete().await).as_deref(), Some("DependencyViolation"));
    delete().await.unwrap();
    client.delete_key_pair().key_name("kit").send().await.unwrap();
    assert_eq!(cloud.left(None).await.unwrap(), []);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn lists_come_in_pages() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let types = client.describe_instance_types().filters(filter("instance-type", "g5.*")).send().await.unwrap();
    let (count, token) = (types.instance_types().len(), types.next_token().map(str::to_owned));
    assert!(count > 5 && token.is_none(), "{count} {token:?}");
    let all = client.describe_instance_types().send().await.unwrap();
    assert_eq!(all.instance_types().len(), 100);
    assert!(all.next_token().is_some());
    let mut names: Vec<String> = Vec::new();
    let mut pages = client
        .describe_instance_types()
        .filters(filter("instance-type", "g5.*"))
        .max_results(5)
        .into_paginator()
        .send();
    while let Some(page) = pages.next().await {
        let page = page.unwrap();
        assert!(page.instance_types().len() <= 5);
        names.extend(page.instance_types().iter().map(|one| one.instance_type().unwrap().as_str().to_owned()));
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    for _ in 0..3 {
        ids(launch(&cloud, &client).min_count(2).max_count(2)).await;
    }
    cloud.set_page(2);
    let first = client.describe_instances().send().await.unwrap();
    assert_eq!(first.reservations().len(), 1);
    assert!(first.next_token().is_some());
    let mut seen = 0;
    let mut pages = client.describe_instances().into_paginator().send();
    while let Some(page) = pages.next().await {
        seen += page.unwrap().reservations().iter().map(|one| one.instances().len()).sum::<usize>();
    }
    assert_eq!(seen, 6);
    let both = client.describe_instances().instance_ids("i-1").max_results(5).send().await;
    assert_eq!(code(both).as_deref(), Some("InvalidParameterCombination"));
}

#[tokio::test]
#[ignore = "needs moto"]
async fn prices_are_those_of_now_where_now_is_asked_for() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    cloud.set_price("g5.xlarge", 2.0);
    let ask = || {
        client.describe_spot_price_history().instance_types(InstanceType::G5Xlarge).product_descriptions("Linux/UNIX")
    };
    let now = ask().start_time(DateTime::from(SystemTime::now())).send().await.unwrap();
    let prices: BTreeMap<&str, f64> = now
        .spot_price_history()
        .iter()
        .map(|row| (row.availability_zone().unwrap(), row.spot_price().unwrap().parse().unwrap()))
        .collect();
    assert_eq!(now.spot_price_history().len(), 3);
    assert_eq!(prices.len(), 3);
    assert!((prices[format!("{}a", cloud.region()).as_str()] - 0.7).abs() < 1e-6, "{prices:?}");
    // Without a start there are old prices too, in pages.
    assert_eq!(ask().send().await.unwrap().spot_price_history().len(), 9);
    let page = ask().max_results(5).send().await.unwrap();
    assert_eq!(page.spot_price_history().len(), 5);
    assert!(page.next_token().is_some());
    let time = page.spot_price_history()[0].timestamp().unwrap().fmt(DateTimeFormat::DateTime).unwrap();
    assert!(time.as_str() > "2026", "{time}");

    let filters = r#"[{"Type":"TERM_MATCH","Field":"instanceType","Value":"g5.xlarge"},{"Type":"TERM_MATCH","Field":"operatingSystem","Value":"Linux"},
        {"Type":"TERM_MATCH","Field":"tenancy","Value":"Shared"},{"Type":"TERM_MATCH","Field":"capacitystatus","Value":"Used"}]"#;
    let products = json(
        &cloud,
        "AWSPriceListService.GetProducts",
        &format!(r#"{{"ServiceCode":"AmazonEC2","Filters":{filters}}}"#),
    )
    .await;
    let list = products["PriceList"].as_array().unwrap();
    assert_eq!(list.len(), 1);
    let product: serde_json::Value = serde_json::from_str(list[0].as_str().unwrap()).unwrap();
    assert_eq!(product["product"]["attributes"]["regionCode"], cloud.region());
    assert!(list[0].as_str().unwrap().contains(r#""USD":"2.0000000000""#));

    let quota = |code: &str| format!(r#"{{"ServiceCode":"ec2","QuotaCode":"{code}"}}"#);
    cloud.set_quota("L-417A185B", 0.0);
    for (code, value) in [("L-417A185B", 0.0), ("L-DB2E81BA", 768.0)] {
        let answer = json(&cloud, "ServiceQuotasV20190624.GetServiceQuota", &quota(code)).await;
        assert_eq!(answer["Quota"]["Value"], value, "{answer}");
    }
    let answer = json(&cloud, "ServiceQuotasV20190624.GetServiceQuota", &quota("L-0")).await;
    assert_eq!(answer["__type"], "NoSuchResourceException");
}

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
async fn the_network_reaches_the_internet_and_the_default_one_can_go() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let routes = client.describe_route_tables().filters(filter("vpc-id", cloud.vpc())).send().await.unwrap();
    let has_gateway = |answer: &aws_sdk_ec2::operation::describe_route_tables::DescribeRouteTablesOutput| {
        let mut routes = answer.route_tables().iter().flat_map(|table| table.routes());
        routes.any(|route| route.gateway_id().is_some_and(|id| id.starts_with("igw-")))
    };
    assert!(has_gateway(&routes));
    assert_eq!(cloud.subnets().len(), 3);
    let default =
        async || client.describe_vpcs().filters(filter("is-default", "true")).send().await.unwrap().vpcs().to_vec();
    cloud.default_vpc(true).await.unwrap();
    let id = default().await[0].vpc_id().unwrap().to_owned();
    assert!(has_gateway(&client.describe_route_tables().filters(filter("vpc-id", &id)).send().await.unwrap()));
    cloud.default_vpc(false).await.unwrap();
    assert!(default().await.is_empty());
}

/// A call in JSON, as the SDKs of Pricing and Service Quotas make it.
async fn json(cloud: &Cloud, target: &str, body: &str) -> serde_json::Value {
    let address = cloud.endpoint().strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/x-amz-json-1.1\r\nx-amz-target: {target}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

const PUBLIC: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxGZr0Xn3yV5m0mJw3h1t3eUxqz0nM0JX6y3m1s2pQe kit";

#[tokio::test]
#[ignore = "needs moto"]
async fn a_protected_instance_keeps_those_of_its_zone() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let in_b = launch(&cloud, &client).set_network_interfaces(None).subnet_id(subnet(&cloud, "b"));
    let (beside, kept, elsewhere) =
        (ids(launch(&cloud, &client)).await, ids(launch(&cloud, &client)).await, ids(in_b).await);
    let end = || {
        let all = [&beside, &kept, &elsewhere].into_iter().flatten().cloned().collect();
        client.terminate_instances().set_instance_ids(Some(all)).send()
    };
    cloud.protect(&kept[0], true);
    assert_eq!(code(end().await).as_deref(), Some("OperationNotPermitted"));
    let states = cloud.states().await.unwrap();
    let state = |id: &[String]| states[&id[0]].as_str();
    assert_eq!(state(&beside), "running");
    assert_eq!(state(&kept), "running");
    assert_eq!(state(&elsewhere), "terminated");
    cloud.protect(&kept[0], false);
    end().await.unwrap();
    assert!(cloud.states().await.unwrap().values().all(|state| state == "terminated"));
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
