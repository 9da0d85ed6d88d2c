//! Who reaches a machine: whom the rules of its security groups let in, and nobody else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{InstanceNetworkInterfaceSpecification, InstanceType, IpPermission, IpRange, UserIdGroupPair};
use skyward_aws_testkit::{Cloud, CloudOptions, Instance};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use support::{IMAGE, Login, booted, client, group, ids, subnet, user_data, with_machines};

struct Scene {
    cloud: Cloud,
    client: Client,
    login: Login,
}

impl Scene {
    async fn new(name: &str) -> Self {
        let cloud = with_machines(CloudOptions::new()).await;
        assert_eq!(cloud.unenforced(), None);
        let client = client(&cloud);
        Self { cloud, client, login: Login::new(name) }
    }

    /// A machine with a group and a public address.
    async fn machine(&self, group: &str) -> Instance {
        let interface = InstanceNetworkInterfaceSpecification::builder().device_index(0).groups(group);
        let interface = interface.subnet_id(subnet(&self.cloud, "a")).associate_public_ip_address(true).build();
        let run = self.client.run_instances().image_id(IMAGE).instance_type(InstanceType::G5Xlarge);
        let run =
            run.min_count(1).max_count(1).network_interfaces(interface).user_data(user_data(&self.login.config()));
        let id = ids(run).await.remove(0);
        booted(&self.cloud, &self.client, &id).await
    }

    async fn allow(&self, group: &str, rule: IpPermission) {
        self.client.authorize_security_group_ingress().group_id(group).ip_permissions(rule).send().await.unwrap();
    }

    async fn forbid(&self, group: &str, rule: IpPermission) {
        self.client.revoke_security_group_ingress().group_id(group).ip_permissions(rule).send().await.unwrap();
    }

    /// SSH from a network.
    fn ssh_from(&self, network: &str) -> IpPermission {
        let port = i32::from(self.cloud.ssh_port());
        let range = IpRange::builder().cidr_ip(network).build();
        IpPermission::builder().ip_protocol("tcp").from_port(port).to_port(port).ip_ranges(range).build()
    }

    /// The addresses of the network, from where a client reaches private addresses.
    async fn inside(&self) -> String {
        let vpcs = self.client.describe_vpcs().vpc_ids(self.cloud.vpc()).send().await.unwrap();
        vpcs.vpcs()[0].cidr_block().unwrap().to_owned()
    }

    /// What a client finds at the SSH port of an address.
    async fn knock(&self, address: &str) -> Door {
        knock(SocketAddr::new(address.parse().unwrap(), self.cloud.ssh_port())).await
    }

    async fn run(&self, machine: &Instance, command: &str) -> String {
        self.login.read(&self.cloud, machine, command).await
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Door {
    Open,
    Refused,
    /// Nobody answers.
    Silent,
}

async fn knock(address: SocketAddr) -> Door {
    match timeout(SILENCE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Door::Open,
        Ok(Err(_)) => Door::Refused,
        Err(_) => Door::Silent,
    }
}

/// All from the members of a group.
fn from_group(group: &str) -> IpPermission {
    let pair = UserIdGroupPair::builder().group_id(group).build();
    IpPermission::builder().ip_protocol("-1").user_id_group_pairs(pair).build()
}

/// How long nobody answers where everything is on this host.
const SILENCE: Duration = Duration::from_millis(500);

#[tokio::test]
#[ignore = "needs moto, ec2 machines, ec2 rules"]
async fn what_no_rule_allows_is_dropped_and_what_has_begun_goes_on() {
    let scene = Scene::new("rule").await;
    let (group, parking) =
        (group(&scene.cloud, &scene.client, "rule").await, group(&scene.cloud, &scene.client, "parking").await);
    let machine = scene.machine(&group).await;
    let public = machine.public.clone().unwrap();
    assert_eq!(scene.knock(&machine.private).await, Door::Silent);
    assert_eq!(scene.knock(&public).await, Door::Silent);
    let inside = scene.inside().await;
    scene.allow(&group, scene.ssh_from(&inside)).await;
    assert_eq!(scene.knock(&machine.private).await, Door::Open);
    assert_eq!(scene.knock(&public).await, Door::Silent, "a client outside of the network has another address");
    let other = SocketAddr::new(machine.private.parse().unwrap(), scene.cloud.ssh_port() + 1000);
    assert_eq!(knock(other).await, Door::Silent, "another port");
    scene.allow(&group, scene.ssh_from("127.0.0.1/32")).await;
    assert_eq!(scene.knock(&public).await, Door::Open);
    let mut begun = TcpStream::connect((machine.private.as_str(), scene.cloud.ssh_port())).await.unwrap();
    scene.forbid(&group, scene.ssh_from(&inside)).await;
    assert_eq!(scene.knock(&machine.private).await, Door::Silent);
    begun.write_all(b"SSH-2.0-kit\r\n").await.unwrap();
    let mut banner = [0; 4];
    timeout(Duration::from_secs(10), begun.read_exact(&mut banner)).await.unwrap().unwrap();
    assert_eq!(&banner, b"SSH-");
    // Where the machine's interface has another group, that one's rules count alone.
    let with = aws_sdk_ec2::types::Filter::builder().name("attachment.instance-id").values(&machine.id).build();
    let interfaces = scene.client.describe_network_interfaces().filters(with).send().await.unwrap();
    let interface = interfaces.network_interfaces()[0].network_interface_id().unwrap();
    let give = |group: &str| {
        scene.client.modify_network_interface_attribute().network_interface_id(interface).groups(group).send()
    };
    give(&parking).await.unwrap();
    assert_eq!(scene.knock(&public).await, Door::Silent);
    give(&group).await.unwrap();
    assert_eq!(scene.knock(&public).await, Door::Open);
    // Nobody says that a machine is not there any more.
    scene.client.terminate_instances().instance_ids(&machine.id).send().await.unwrap();
    assert_eq!(scene.knock(&public).await, Door::Silent);
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines, ec2 rules"]
async fn machines_reach_those_that_let_their_group_in_by_private_addresses() {
    let scene = Scene::new("among").await;
    let (group, strangers) =
        (group(&scene.cloud, &scene.client, "among").await, group(&scene.cloud, &scene.client, "strangers").await);
    let inside = scene.inside().await;
    scene.allow(&group, from_group(&group)).await;
    let client = IpPermission::builder().ip_protocol("tcp").from_port(0).to_port(65535);
    let client = client.ip_ranges(IpRange::builder().cidr_ip(inside.replace(".0.0/16", ".255.0/24")).build()).build();
    for group in [&group, &strangers] {
        scene.allow(group, client.clone()).await;
    }
    let (one, two, stranger) =
        (scene.machine(&group).await, scene.machine(&group).await, scene.machine(&strangers).await);
    // It answers with the address that it was reached from.
    let server = format!(
        "import socket, threading\ndef serve(host):\n    s = socket.create_server((host, 22990))\n    while True:\n        \
         c, a = s.accept()\n        c.sendall(a[0].encode())\n        c.close()\nfor host in ('{}', '{}'):\n    \
         threading.Thread(target=serve, args=(host,)).start()\n",
        two.private,
        two.public.clone().unwrap()
    );
    scene.run(&two, &format!("nohup python3 -c \"{server}\" >/dev/null 2>&1 & ")).await;
    let ask = |address: &str| {
        let code = format!(
            "import socket\ntry:\n    print(socket.create_connection(('{address}', 22990), 1).recv(99).decode())\nexcept \
             TimeoutError:\n    print('silent')\nexcept OSError as error:\n    print(error)\n"
        );
        format!(
            "for i in 1 2 3 4 5; do x=$(python3 -c \"{code}\"); case \"$x\" in *refused*) sleep 0.2;; *) break;; esac; done; echo $x"
        )
    };
    assert_eq!(scene.run(&one, &ask(&two.private)).await, one.private);
    assert_eq!(scene.run(&two, &ask(&two.private)).await, two.private, "a machine reaches itself");
    assert_eq!(scene.run(&stranger, &ask(&two.private)).await, "silent");
    let public = two.public.clone().unwrap();
    assert_eq!(scene.run(&one, &ask(&public)).await, "silent", "its members' private addresses alone");
    scene
        .allow(&group, {
            let range = IpRange::builder().cidr_ip(format!("{}/32", one.public.clone().unwrap())).build();
            IpPermission::builder().ip_protocol("-1").ip_ranges(range).build()
        })
        .await;
    assert_eq!(scene.run(&one, &ask(&public)).await, one.public.clone().unwrap());
    scene.forbid(&group, from_group(&group)).await;
    assert_eq!(scene.run(&one, &ask(&two.private)).await, "silent");
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines, ec2 rules"]
async fn a_client_that_has_moved_has_another_address_and_lost_its_connections() {
    let scene = Scene::new("move").await;
    let group = group(&scene.cloud, &scene.client, "move").await;
    scene.allow(&group, scene.ssh_from("127.0.0.1/32")).await;
    let machine = scene.machine(&group).await;
    let public = SocketAddr::new(machine.public.clone().unwrap().parse().unwrap(), scene.cloud.ssh_port());
    let told = async || {
        let url = scene.cloud.address_service();
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap().trim_end_matches('/')).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: kit\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.trim().parse::<IpAddr>().unwrap()
    };
    assert_eq!(told().await, Ipv4Addr::LOCALHOST);
    let mut begun = TcpStream::connect(public).await.unwrap();
    let mut banner = [0; 4];
    begun.read_exact(&mut banner).await.unwrap();
    let elsewhere = Ipv4Addr::new(127, 200, 0, 9);
    scene.cloud.move_client(elsewhere).await.unwrap();
    assert_eq!(told().await, elsewhere);
    assert_eq!(knock(public).await, Door::Silent);
    // The server would close the connection of a client that writes nonsense.
    begun.write_all(b"nonsense\r\n").await.unwrap();
    let mut rest = Vec::new();
    assert!(timeout(SILENCE, begun.read_to_end(&mut rest)).await.is_err(), "{rest:?}");
    scene.allow(&group, scene.ssh_from("127.200.0.9/32")).await;
    assert_eq!(knock(public).await, Door::Open);
}
