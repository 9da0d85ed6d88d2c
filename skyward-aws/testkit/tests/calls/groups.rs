//! Security groups, and the networks that they are in.

use std::time::Duration;

use aws_sdk_ec2::types::{InstanceType, IpPermission, ResourceType, Tag, TagSpecification, UserIdGroupPair};
use skyward_aws_testkit::Phases;

use crate::support::{IMAGE, calls_only, client, code, filter, group, ids, subnet, terminated};

const PUBLIC: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxGZr0Xn3yV5m0mJw3h1t3eUxqz0nM0JX6y3m1s2pQe kit";

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
    assert_eq!(code(delete().await).as_deref(), Some("DependencyViolation"), "it shuts down");
    cloud.pass(Phases::default().ending);
    terminated(&cloud, &client, &[id]).await;
    cloud.set_dependency_violations(1);
    assert_eq!(code(delete().await).as_deref(), Some("DependencyViolation"));
    delete().await.unwrap();
    client.delete_key_pair().key_name("kit").send().await.unwrap();
    assert_eq!(cloud.left(None).await.unwrap(), []);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn an_interface_that_is_moved_to_another_group_leaves_the_one_of_its_launch() {
    let cloud = calls_only().await;
    let minute = Duration::from_secs(60);
    cloud.set_phases(Phases { ending: 5 * minute, ..Phases::NONE });
    let client = client(&cloud);
    let (own, parking) = (group(&cloud, &client, "own").await, group(&cloud, &client, "parking").await);
    let run = client.run_instances().image_id(IMAGE).instance_type(InstanceType::G5Xlarge).min_count(1).max_count(1);
    let tag = Tag::builder().key("skyward:pool").value("p").build();
    let tags = TagSpecification::builder().resource_type(ResourceType::NetworkInterface).tags(tag).build();
    let run = run.subnet_id(subnet(&cloud, "a")).security_group_ids(&own).tag_specifications(tags);
    let id = ids(run).await.remove(0);
    let with = async |name: &str, value: &str| {
        let answer = client.describe_network_interfaces().filters(filter(name, value)).send().await.unwrap();
        answer.network_interfaces().iter().map(|one| one.network_interface_id().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let interfaces = with("attachment.instance-id", &id).await;
    let [interface] = interfaces.as_slice() else { panic!("{interfaces:?}") };
    for (name, value) in
        [("group-id", own.as_str()), ("tag:skyward:pool", "p"), ("vpc-id", cloud.vpc()), ("status", "in-use")]
    {
        assert_eq!(with(name, value).await, interfaces, "{name}");
    }
    assert_eq!(with("tag:skyward:pool", "q").await, Vec::<String>::new());
    let give = |group: &str| client.modify_network_interface_attribute().network_interface_id(interface).groups(group);
    let absent = give("sg-0123456789abcdef0").send().await;
    assert_eq!(code(absent).as_deref(), Some("InvalidGroup.NotFound"));
    let unknown = give(&parking).network_interface_id("eni-0123456789abcdef0").send().await;
    assert_eq!(code(unknown).as_deref(), Some("InvalidNetworkInterfaceID.NotFound"));
    let elsewhere = client.describe_security_groups().filters(filter("group-name", "default")).send().await.unwrap();
    let elsewhere = elsewhere.security_groups().iter().find(|group| group.vpc_id() != Some(cloud.vpc())).unwrap();
    let foreign = give(elsewhere.group_id().unwrap()).send().await;
    assert_eq!(code(foreign).as_deref(), Some("InvalidParameter"));
    give(&parking).send().await.unwrap();
    assert_eq!(with("group-id", &own).await, Vec::<String>::new());
    assert_eq!(with("group-id", &parking).await, interfaces);
    let users = async |group: &str| {
        let answer = client.describe_instances().filters(filter("instance.group-id", group)).send().await.unwrap();
        answer.reservations().iter().map(|one| one.instances().len()).sum::<usize>()
    };
    assert_eq!((users(&own).await, users(&parking).await), (0, 1));
    let delete = async |group: &str| code(client.delete_security_group().group_id(group).send().await);
    assert_eq!(delete(&own).await, None);
    assert_eq!(delete(&parking).await.as_deref(), Some("DependencyViolation"));
    client.terminate_instances().instance_ids(&id).send().await.unwrap();
    let late = give(&parking).send().await;
    assert_eq!(code(late).as_deref(), Some("IncorrectInstanceState"));
    assert_eq!(delete(&parking).await.as_deref(), Some("DependencyViolation"));
    cloud.pass(5 * minute);
    terminated(&cloud, &client, &[id]).await;
    assert_eq!(delete(&parking).await, None);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_group_that_another_ones_rule_names_cannot_be_deleted() {
    let cloud = calls_only().await;
    let client = client(&cloud);
    let (named, other) = (group(&cloud, &client, "named").await, group(&cloud, &client, "other").await);
    let from = |group: &str| {
        let pair = UserIdGroupPair::builder().group_id(group).build();
        IpPermission::builder().ip_protocol("-1").user_id_group_pairs(pair).build()
    };
    for group in [&named, &other] {
        let rule = client.authorize_security_group_ingress().group_id(group).ip_permissions(from(&named));
        rule.send().await.unwrap();
    }
    let delete = async |group: &str| code(client.delete_security_group().group_id(group).send().await);
    assert_eq!(delete(&named).await.as_deref(), Some("DependencyViolation"));
    client.revoke_security_group_ingress().group_id(&other).ip_permissions(from(&named)).send().await.unwrap();
    assert_eq!(delete(&named).await, None, "its own rule does not count");
    assert_eq!(delete(&other).await, None);
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
