//! The phases of an instance, from its launch until it is no longer listed.

use std::time::Duration;

use aws_sdk_ec2::types::InstanceStateName;
use skyward_aws_testkit::{Cloud, CloudOptions, Phases};

use crate::support::{calls_only, client, code, filter, ids, launch, spot, subnet, terminated};

#[tokio::test]
#[ignore = "needs moto"]
async fn an_instance_goes_through_its_phases() {
    let minute = Duration::from_secs(60);
    let phases = Phases { hidden: minute, pending: 2 * minute, ending: 5 * minute };
    let cloud = Cloud::start(CloudOptions::new().without_machines().phases(phases)).await.unwrap();
    let client = client(&cloud);
    let launched = launch(&cloud, &client).send().await.unwrap();
    let [launched] = launched.instances() else { panic!("{launched:?}") };
    assert_eq!(launched.state().unwrap().name(), Some(&InstanceStateName::Pending));
    let (id, private) = (launched.instance_id().unwrap(), launched.private_ip_address().unwrap());
    let named = || client.describe_instances().instance_ids(id).send();
    // Its state and addresses, as EC2 lists it, and the public address of its interface.
    let seen = async || {
        let answer = named().await.unwrap();
        let instance = &answer.reservations()[0].instances()[0];
        let with = filter("attachment.instance-id", id);
        let interfaces = client.describe_network_interfaces().filters(with).send().await.unwrap();
        let associated = interfaces.network_interfaces().iter().any(|one| one.association().is_some());
        assert_eq!(associated, instance.public_ip_address().is_some());
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let state = instance.state().unwrap().name().unwrap().clone();
        (state, text(instance.private_ip_address()), text(instance.public_ip_address()))
    };
    assert_eq!(code(named().await).as_deref(), Some("InvalidInstanceID.NotFound"));
    assert!(client.describe_instances().send().await.unwrap().reservations().is_empty());
    cloud.pass(minute);
    assert_eq!(seen().await, (InstanceStateName::Pending, private.to_owned(), String::new()));
    // How often it is asked for changes nothing.
    assert_eq!(seen().await.0, InstanceStateName::Pending);
    cloud.pass(minute);
    let (state, address, public) = seen().await;
    assert_eq!((state, address.as_str()), (InstanceStateName::Running, private));
    assert!(public.starts_with("127."), "{public}");
    let ended = client.terminate_instances().instance_ids(id).send().await.unwrap();
    let change = &ended.terminating_instances()[0];
    assert_eq!(change.previous_state().unwrap().name(), Some(&InstanceStateName::Running));
    assert_eq!(change.current_state().unwrap().name(), Some(&InstanceStateName::ShuttingDown));
    cloud.pass(4 * minute);
    assert_eq!(seen().await, (InstanceStateName::ShuttingDown, address, public));
    assert_eq!(code(client.start_instances().instance_ids(id).send().await).as_deref(), Some("IncorrectInstanceState"));
    assert_eq!(cloud.left(None).await.unwrap(), [], "nobody has to end what ends");
    // A second time it is fine, and takes no longer.
    client.terminate_instances().instance_ids(id).send().await.unwrap();
    cloud.pass(minute);
    terminated(&cloud, &client, &[id.to_owned()]).await;
    assert_eq!(seen().await, (InstanceStateName::Terminated, String::new(), String::new()));
    client.terminate_instances().instance_ids(id).send().await.unwrap();
    assert_eq!(seen().await.0, InstanceStateName::Terminated);
}

#[tokio::test]
#[ignore = "needs moto"]
async fn a_filter_by_state_knows_the_phases() {
    let cloud = calls_only().await;
    let minute = Duration::from_secs(60);
    cloud.set_phases(Phases { pending: minute, ..Phases::NONE });
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
    cloud.pass(minute);
    assert_eq!(with("instance-state-name", "running").await, 1);
    assert_eq!(with("client-token", "mine").await, 1);
    assert_eq!(with("client-token", "other").await, 0);
    assert_eq!(with("instance-lifecycle", "spot").await, 1);
    assert_eq!(with("availability-zone", &format!("{}a", cloud.region())).await, 1);
}

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
