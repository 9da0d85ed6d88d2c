//! Machines of the loopback EC2: they boot from their user data, are reached by SSH, and end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod support;

use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{InstanceType, ShutdownBehavior};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use skyward_aws_testkit::{Cloud, CloudOptions, Instance, Phases};
use tokio::io::AsyncReadExt as _;

use support::{Key, Login, booted, client, ids, launch, open, spot, ssh, text, user_data, wait, with_machines};

/// A cloud with one machine.
struct Scene {
    cloud: Cloud,
    client: Client,
    login: Login,
    machine: Instance,
}

impl Scene {
    async fn new(name: &str, options: CloudOptions, is_spot: bool, more: serde_json::Value) -> Self {
        let cloud = with_machines(options).await;
        let client = client(&cloud);
        open(&client).await;
        let login = Login::new(name);
        let mut config = login.config();
        let hardened = json!({ "ssh_deletekeys": true, "disable_root": true, "ssh_pwauth": false });
        for (key, value) in hardened.as_object().unwrap().iter().chain(more.as_object().unwrap()) {
            config[key] = value.clone();
        }
        let launch = launch(&cloud, &client).user_data(user_data(&config));
        let launch = if is_spot { launch.instance_market_options(spot()) } else { launch };
        let id = ids(launch).await.remove(0);
        let machine = booted(&cloud, &client, &id).await;
        Self { cloud, client, login, machine }
    }

    async fn run(&self, command: &str) -> String {
        self.login.read(&self.cloud, &self.machine, command).await
    }

    /// What EC2 says of the instance's state and of the reason of its end.
    async fn state(&self) -> (String, String) {
        let answer = self.client.describe_instances().instance_ids(&self.machine.id).send().await.unwrap();
        let instance = &answer.reservations()[0].instances()[0];
        let reason = instance.state_reason().and_then(|reason| reason.code()).unwrap_or_default();
        (instance.state().unwrap().name().unwrap().as_str().to_owned(), reason.to_owned())
    }

    async fn ended(&self) -> String {
        wait(&self.cloud, "the instance is terminated", async || self.state().await.0 == "terminated").await;
        wait(&self.cloud, "its machine is gone", async || self.cloud.instances().is_empty()).await;
        self.state().await.1
    }
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn a_machine_boots_from_its_user_data_and_proves_its_host_key() {
    let more = json!({
        "bootcmd": [["sh", "-c", "echo boot >>/order; id -u ubuntu >>/order 2>&1 || true"]],
        "write_files": [
            { "path": "/opt/kit/file", "permissions": "0640", "content": "aGVsbG8=", "encoding": "b64" },
            { "path": "/etc/kit.conf", "content": "plain\n" },
        ],
        "runcmd": ["echo run >>/order", ["sh", "-c", "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT >>/order"]],
    });
    let scene = Scene::new("boot", CloudOptions::new().gpus(2), false, more).await;
    let order = scene.run("cat /order").await;
    let lines: Vec<&str> = order.lines().collect();
    assert_eq!(lines[0], "boot", "{order}");
    assert_eq!(lines[2], "run", "{order}");
    assert!(lines[1].contains("no such user"), "{order}");
    assert_eq!(Some(lines[3]), scene.machine.metadata.as_deref());
    assert_eq!(
        scene.run("sudo -n cat /opt/kit/file; stat -c %a /opt/kit/file; id -un; echo $HOME").await.replace('\n', " "),
        "hello640 ubuntu /home/ubuntu"
    );
    assert_eq!(
        scene.run("cat /etc/kit.conf; nvidia-smi -L | wc -l; hostname").await.replace('\n', " "),
        format!("plain 2 ip-{}", scene.machine.private.replace('.', "-"))
    );
    // What it writes is its own.
    scene.run("sudo -n touch /tmp/kit-of-the-machine /usr/local/kit-of-the-machine").await;
    assert!(!std::path::Path::new("/usr/local/kit-of-the-machine").exists());
    assert!(!std::env::temp_dir().join("kit-of-the-machine").exists());
    // Its public address is its own too, and another host key is refused.
    let public = scene.machine.public.clone().unwrap();
    assert!(scene.login.ssh(&scene.cloud, &public, "true").await.status.success());
    let refused = ssh(&scene.cloud, &public, &scene.login.own, &scene.login.own, "true").await;
    assert!(text(&refused.stderr).contains("Host key verification failed"), "{}", text(&refused.stderr));
    let refused = ssh(&scene.cloud, &public, &scene.login.host, &scene.login.host, "true").await;
    assert!(text(&refused.stderr).contains("Permission denied"), "{}", text(&refused.stderr));
    scene.client.terminate_instances().instance_ids(&scene.machine.id).send().await.unwrap();
    assert_eq!(scene.ended().await, "Client.UserInitiatedShutdown");
    assert_eq!(scene.cloud.left(None).await.unwrap(), []);
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn a_unit_runs_is_started_again_and_powers_off() {
    let unit = "[Unit]\nDescription=a unit of a test\n[Service]\nUser=ubuntu\nRestart=always\nRestartSec=50ms\n\
        Environment=WORD=there\nExecStartPre=/bin/sh -c 'echo $$(id -un) ${WORD} >>/tmp/unit'\n\
        ExecStart=/bin/sh -c '[ $$(wc -l </tmp/unit) -lt 3 ] || exec sleep 1000'\n[Install]\nWantedBy=multi-user.target\n";
    let more = json!({
        "write_files": [{ "path": "/etc/systemd/system/kit.service", "content": unit }],
        "runcmd": [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", "kit.service"]],
    });
    let scene = Scene::new("unit", CloudOptions::new(), false, more).await;
    wait(&scene.cloud, "the unit was started three times", async || {
        scene.run("cat /tmp/unit 2>/dev/null || true").await.lines().count() == 3
    })
    .await;
    assert_eq!(scene.run("cat /tmp/unit").await, "ubuntu there\nubuntu there\nubuntu there");
    wait(&scene.cloud, "the unit is active", async || scene.run("systemctl is-active kit || true").await == "active")
        .await;
    scene.run("sudo -n systemctl stop kit; ! pgrep -x sleep -u ubuntu").await;
    let refused = scene.login.ssh(&scene.cloud, &scene.machine.private, "poweroff").await;
    assert!(text(&refused.stderr).contains("authentication required"), "{}", text(&refused.stderr));
    // The answer may get lost with the machine.
    scene.login.ssh(&scene.cloud, &scene.machine.private, "sudo -n systemctl poweroff").await;
    assert_eq!(scene.ended().await, "Client.InstanceInitiatedShutdown");
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn the_host_key_is_changed_by_a_reload() {
    let scene = Scene::new("rekey", CloudOptions::new(), false, json!({})).await;
    let script = "sudo -n sh -c 'rm /etc/ssh/ssh_host_ed25519_key; ssh-keygen -q -t ed25519 -N \"\" -f /etc/ssh/ssh_host_ed25519_key; \
        systemctl reload ssh'; cat /etc/ssh/ssh_host_ed25519_key.pub";
    let public = scene.run(script).await;
    let renewed = Key::new("rekey-renewed");
    std::fs::write(renewed.path().with_extension("pub"), public).unwrap();
    wait(&scene.cloud, "the new host key is there", async || {
        ssh(&scene.cloud, &scene.machine.private, &scene.login.own, &renewed, "true").await.status.success()
    })
    .await;
    let old = scene.login.ssh(&scene.cloud, &scene.machine.private, "true").await;
    assert!(text(&old.stderr).contains("Host key verification failed"), "{}", text(&old.stderr));
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines, curl"]
async fn a_spot_instance_gets_notice_and_is_taken_back() {
    let scene = Scene::new("spot", CloudOptions::new(), true, json!({})).await;
    let get = "curl -s -o /dev/null -w '%{http_code} ' $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/meta-data";
    assert_eq!(scene.run(&format!("{get}/instance-id")).await, "401");
    let token = "token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/api/token)";
    let with = |path: &str| {
        format!(
            "{token}; curl -s -H \"X-aws-ec2-metadata-token: $token\" -w ' %{{http_code}}' $AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/{path}"
        )
    };
    assert_eq!(scene.run(&with("meta-data/instance-id")).await, format!("{} 200", scene.machine.id));
    assert!(scene.run(&with("meta-data/spot/instance-action")).await.ends_with(" 404"));
    assert!(scene.run(&with("meta-data/events/recommendations/rebalance")).await.ends_with(" 404"));
    assert_eq!(scene.run(&with("meta-data/events/maintenance/scheduled")).await, "[] 200");
    scene.cloud.rebalance(&scene.machine.id).unwrap();
    assert!(scene.run(&with("meta-data/events/recommendations/rebalance")).await.contains("noticeTime"));
    scene.cloud.interrupt(&scene.machine.id, Duration::from_secs(5)).unwrap();
    assert!(scene.run(&with("meta-data/spot/instance-action")).await.contains("\"action\":\"terminate\""));
    assert_eq!(scene.state().await.0, "running");
    assert_eq!(scene.ended().await, "Server.SpotInstanceTermination");
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn a_config_with_an_unknown_key_does_not_boot_and_says_why() {
    let cloud = with_machines(CloudOptions::new()).await;
    let client = client(&cloud);
    let wrong = launch(&cloud, &client).user_data(user_data(&json!({ "run_cmd": ["true"] })));
    let id = ids(wrong).await.remove(0);
    wait(&cloud, "the console says why", async || cloud.console(&id).contains("unknown field `run_cmd`")).await;
    assert!(cloud.instances().iter().all(|one| !one.is_booted));
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn a_machine_ends_with_its_instance_and_its_address_is_used_again() {
    // EC2 may give the address to the next instance at once.
    let scene = Scene::new("end", CloudOptions::new().phases(Phases::NONE), false, json!({})).await;
    let pid = scene.machine.pid.unwrap();
    assert!(scene.cloud.instances()[0].processes.contains(&pid));
    scene.cloud.block_ssh(&scene.machine.id, true).unwrap();
    // The kernel takes the connection, and nobody answers.
    let mut silent =
        tokio::net::TcpStream::connect((scene.machine.private.as_str(), scene.cloud.ssh_port())).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_millis(500), silent.read_u8()).await;
    assert!(answer.is_err(), "{answer:?}");
    scene.cloud.block_ssh(&scene.machine.id, false).unwrap();
    scene.run("true").await;
    scene.cloud.kill(&scene.machine.id).await.unwrap();
    assert_eq!(scene.ended().await, "Client.UserInitiatedShutdown");
    wait(&scene.cloud, "its processes are gone", async || !std::path::Path::new(&format!("/proc/{pid}")).exists())
        .await;
    // Another machine with the same address has another host key.
    let next = ids(launch(&scene.cloud, &scene.client)).await.remove(0);
    let next = booted(&scene.cloud, &scene.client, &next).await;
    assert_eq!(next.private, scene.machine.private);
    let refused = scene.login.ssh(&scene.cloud, &next.private, "true").await;
    assert!(text(&refused.stderr).contains("Host key verification failed"), "{}", text(&refused.stderr));
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn the_console_is_posted_with_each_change_of_state_and_shows_more_on_request() {
    let scene = Scene::new("console", CloudOptions::new(), false, json!({})).await;
    let read = async |is_latest: bool| {
        let ask = scene.client.get_console_output().instance_id(&scene.machine.id).latest(is_latest);
        let output = ask.send().await.unwrap().output().unwrap_or_default().to_owned();
        text(&STANDARD.decode(output).unwrap())
    };
    wait(&scene.cloud, "the boot is posted", async || read(false).await.contains("finished")).await;
    let posted = read(false).await;
    scene.run("sudo -n systemctl is-active kit || true").await;
    let said = "systemctl is-active kit";
    assert!(read(true).await.contains(said), "{}", read(true).await);
    assert_eq!(read(false).await, posted, "nothing has changed its state");
    scene.client.terminate_instances().instance_ids(&scene.machine.id).send().await.unwrap();
    wait(&scene.cloud, "the end is posted", async || read(false).await.contains(said)).await;
    // Nothing is posted before a boot has ended.
    let next = ids(launch(&scene.cloud, &scene.client)).await.remove(0);
    let early = scene.client.get_console_output().instance_id(&next).send().await.unwrap();
    assert_eq!(early.output(), None);
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn a_machine_that_is_not_to_be_terminated_is_stopped_and_started() {
    let cloud = with_machines(CloudOptions::new()).await;
    let client = client(&cloud);
    open(&client).await;
    let login = Login::new("stop");
    let launch = launch(&cloud, &client).instance_initiated_shutdown_behavior(ShutdownBehavior::Stop);
    let id = ids(launch.user_data(user_data(&login.config()))).await.remove(0);
    let machine = booted(&cloud, &client, &id).await;
    // It counts its time from its own boot.
    let uptime = login.ssh(&cloud, &machine.private, "cut -d. -f1 /proc/uptime").await;
    assert!(text(&uptime.stdout).parse::<u64>().unwrap() < 60, "{}", text(&uptime.stdout));
    login.ssh(&cloud, &machine.private, "sudo -n shutdown -P now").await;
    let state = async || cloud.states().await.unwrap()[&id].clone();
    wait(&cloud, "the instance is stopped", async || state().await == "stopped").await;
    wait(&cloud, "its machine is gone", async || cloud.instances().is_empty()).await;
    client.start_instances().instance_ids(&id).send().await.unwrap();
    booted(&cloud, &client, &id).await;
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn a_system_that_does_not_come_up_runs_as_far_as_ec2_knows() {
    let cloud = with_machines(CloudOptions::new().boot_delay(Duration::from_millis(300))).await;
    let client = client(&cloud);
    open(&client).await;
    cloud.fail_boots(1).unwrap();
    let broken = ids(launch(&cloud, &client)).await.remove(0);
    wait(&cloud, "the console says so", async || cloud.console(&broken).contains("Kernel panic")).await;
    assert_eq!(cloud.states().await.unwrap()[&broken], "running");
    assert_eq!(cloud.instances()[0].pid, None);
    let sound = ids(launch(&cloud, &client)).await.remove(0);
    booted(&cloud, &client, &sound).await;
    cloud.kill_sshd(&sound).unwrap();
    let address = cloud.instances().into_iter().find(|one| one.id == sound).unwrap().private;
    wait(&cloud, "nobody listens", async || {
        tokio::net::TcpStream::connect((address.as_str(), cloud.ssh_port())).await.is_err()
    })
    .await;
    assert_eq!(cloud.states().await.unwrap()[&sound], "running");
}

#[tokio::test]
#[ignore = "needs moto, ec2 machines"]
async fn a_machine_of_the_default_network_is_reached_by_its_public_address() {
    let cache = Key::new("default-cache");
    let folder = cache.path().with_file_name("shared");
    let cloud = with_machines(CloudOptions::new().cache(&folder)).await;
    cloud.default_vpc(true).await.unwrap();
    let client = client(&cloud);
    open(&client).await;
    let login = Login::new("default");
    let run = client.run_instances().image_id(support::IMAGE).instance_type(InstanceType::M7iLarge);
    let id = ids(run.min_count(1).max_count(1).user_data(user_data(&login.config()))).await.remove(0);
    let machine = booted(&cloud, &client, &id).await;
    assert!(machine.private.starts_with("172.31."), "{}", machine.private);
    let public = machine.public.unwrap();
    let output = login.ssh(&cloud, &public, "id -u; touch ~/.cache/made; ls -d ~/.cache").await;
    assert_eq!(text(&output.stdout), "1000\n/home/ubuntu/.cache", "{}", text(&output.stderr));
    assert!(folder.join("made").exists());
}
