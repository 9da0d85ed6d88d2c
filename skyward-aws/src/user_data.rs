//! The user data of an instance: who may log in, the host key, and the keeper that ends the
//! instance.

use std::io::Write;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use skyward_core::error::{Error, Refusal, Result};
use skyward_core::provider::{Keeper, KeeperEnd, LaunchRequest};
use skyward_core::remote::ssh::KeyPair;

use crate::tags;

/// The folder of a machine. It belongs to the user who runs the pool's commands, and lies in a
/// folder of root.
pub(crate) const FOLDER: &str = "/var/lib/skyward/node";

/// The user data of the instances of one call, as EC2 takes it.
///
/// The user data is a cloud-config in JSON. Every JSON text is YAML too, and needs no further
/// quoting: <https://docs.cloud-init.io/en/latest/explanation/format.html>.
///
/// The instances' time to live is counted from `asked`, a time of EC2's clock, whenever they boot.
///
/// # Errors
///
/// [`Refusal::Misconfigured`] when it is longer than EC2 takes.
pub(crate) fn user_data(
    request: &LaunchRequest,
    asked: SystemTime,
    user: &str,
    host_key: &KeyPair,
    client_keys: &[String],
) -> Result<String> {
    let config = json!({
        "ssh_deletekeys": true,
        "ssh_keys": {
            "ed25519_private": host_key.private().expose(),
            "ed25519_public": host_key.public(),
        },
        "ssh_authorized_keys": client_keys,
        "ssh_pwauth": false,
        "disable_root": true,
        "bootcmd": [["sh", "-c", BOOT, "boot", start(request, asked, user), UNIT]],
    });
    let text = format!("#cloud-config\n{config}\n");
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let packed = packed.write_all(text.as_bytes()).and_then(|()| packed.finish());
    // Writing to memory cannot fail.
    let packed = packed.unwrap_or_default();
    if packed.len() > LONGEST {
        let message = format!("the user data has {} bytes, and EC2 takes {LONGEST}", packed.len());
        return Err(Error::refused(Refusal::Misconfigured, message).with_hint("give fewer public keys"));
    }
    Ok(STANDARD.encode(packed))
}

/// The script that starts the keeper of a machine.
fn start(request: &LaunchRequest, asked: SystemTime, user: &str) -> String {
    let keeper = Keeper::of(request, FOLDER).end(KeeperEnd::PowerOff).command();
    // Rounded up to a whole second, so that the machine never ends too early.
    let own = [FOLDER.to_owned(), user.to_owned(), tags::seconds(asked + Duration::from_millis(999))];
    let words: Vec<String> = own.into_iter().chain(keeper).map(|word| quoted(&word)).collect();
    format!("set -- {}\n{START}", words.join(" "))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

const BOOT: &str = include_str!("scripts/boot.sh");
const START: &str = include_str!("scripts/start.sh");
const UNIT: &str = include_str!("scripts/keeper.service");
/// What EC2 takes, before base64:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html>.
const LONGEST: usize = 16 << 10;

#[cfg(test)]
mod systemd;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use skyward_core::ids::{LaunchId, MachineNumber, PoolId};

    use super::*;

    /// The cloud-config in user data.
    pub(super) fn unpacked(data: &str) -> serde_json::Value {
        let mut text = String::new();
        let packed = STANDARD.decode(data).unwrap();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
        serde_json::from_str(text.strip_prefix("#cloud-config\n").unwrap()).unwrap()
    }

    #[test]
    fn an_instance_gets_its_key_its_users_and_its_keeper() {
        let minute = Duration::from_secs(60);
        let request = LaunchRequest::new(LaunchId::new("l"), PoolId::new("p"), MachineNumber(0), minute);
        let key = KeyPair::generate().unwrap();
        let asked = SystemTime::UNIX_EPOCH + 60 * minute;
        let data =
            user_data(&request.ends_in(60 * minute), asked, "o'brien", &key, &["ssh-ed25519 AAAA".into()]).unwrap();
        let config = unpacked(&data);
        assert_eq!(config["ssh_keys"]["ed25519_public"], key.public());
        assert_eq!(config["ssh_authorized_keys"][0], "ssh-ed25519 AAAA");
        let start = config["bootcmd"][0][4].as_str().unwrap();
        assert!(start.starts_with(r"set -- '/var/lib/skyward/node' 'o'\''brien' '3600' 'sh' '-c' "), "{start}");
        assert!(start.contains("'360000' 'off'"), "the end, and the way to it: {start}");
        let many = vec!["ssh-ed25519 ".to_owned() + &"Ab1+".repeat(20_000)];
        assert!(
            user_data(
                &LaunchRequest::new(LaunchId::new("l"), PoolId::new("p"), MachineNumber(0), minute),
                asked,
                "u",
                &key,
                &many
            )
            .is_ok(),
            "text that repeats packs well"
        );
    }

    /// A machine whose clock and uptime the test sets.
    struct Host(std::path::PathBuf);

    impl Host {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("skyward-start-{}-{name}", std::process::id()));
            std::fs::create_dir_all(folder.join("bin")).unwrap();
            let host = std::fs::read("/sys/class/dmi/id/product_uuid").unwrap_or_default();
            std::fs::write(folder.join("host"), host).unwrap();
            Self(folder)
        }

        /// How many seconds before this boot the keeper takes the machine's life to have begun,
        /// when the machine has booted at a time.
        fn begins_before_boot(&self, booted: u64, asked: u64) -> i64 {
            use std::os::unix::fs::PermissionsExt;
            const UP: u64 = 70;
            let uptime = self.0.join("uptime");
            std::fs::write(&uptime, format!("{UP}.12 99.50\n")).unwrap();
            let start = START.replace("/proc/uptime", uptime.to_str().unwrap());
            let date = self.0.join("bin/date");
            std::fs::write(&date, format!("#!/bin/sh\necho {}\n", booted + UP)).unwrap();
            std::fs::set_permissions(&date, std::fs::Permissions::from_mode(0o755)).unwrap();
            let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
            let node = self.0.join("node");
            let output = std::process::Command::new("sh")
                .args(["-euc", &start, "start", node.to_str().unwrap(), "root", &asked.to_string()])
                .args(["sh", "-c", "echo $SKYWARD_KEEPER_BORN"])
                .env("PATH", path)
                .output()
                .unwrap();
            let born = String::from_utf8_lossy(&output.stdout).trim().parse::<i64>();
            -born.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr))) / 100
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Two seconds less, as the clocks have no parts of a second and no machine may end too early.
    fn assert_near(told: i64, wanted: i64) {
        assert_eq!(told, (wanted - 2).max(0), "for {wanted}");
    }

    #[test]
    fn a_machine_lives_from_its_launch_and_a_late_boot_or_another_one_gives_it_no_more_time() {
        const ASKED: u64 = 1_800_000_000;
        let host = Host::new("late");
        assert_near(host.begins_before_boot(ASKED + 20, ASKED), 20);
        assert_near(host.begins_before_boot(ASKED + 5000, ASKED), 5000);
        let late = Host::new("very-late");
        assert_near(late.begins_before_boot(ASKED + 900, ASKED), 900);
    }

    /// The user is made later in the boot, or never.
    #[test]
    fn the_wait_for_the_user_ends_with_the_machines_folder() {
        let host = Host::new("no-user");
        let node = host.0.join("node");
        let started = std::process::Command::new("sh")
            .args(["-euc", START, "start", node.to_str().unwrap(), "skyward-nobody", "0", "true"])
            .status()
            .unwrap();
        assert!(started.success());
        let waits = || {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            let mut lines = processes.flat_map(|process| std::fs::read(process.path().join("cmdline")));
            lines.any(|line| String::from_utf8_lossy(&line).contains(node.to_str().unwrap()))
        };
        assert!(waits());
        drop(host);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while waits() {
            assert!(std::time::Instant::now() < end, "the process still waits for the user");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn clocks_that_are_wrong_give_a_machine_no_more_time_than_its_boot_does() {
        const ASKED: u64 = 1_800_000_000;
        let ahead = Host::new("client-ahead");
        assert_near(ahead.begins_before_boot(ASKED - 250, ASKED), 0);
        assert_near(ahead.begins_before_boot(ASKED + 5000, ASKED), 5250);
        let unset = Host::new("not-set");
        assert_near(unset.begins_before_boot(60, ASKED), 0);
        assert_near(unset.begins_before_boot(ASKED + 5000, ASKED), 5000);
        assert_near(unset.begins_before_boot(60, ASKED), 0);
        let broken = Host::new("broken");
        std::fs::write(broken.0.join("began"), format!("{ASKED} 1x\n")).unwrap();
        assert_near(broken.begins_before_boot(ASKED + 30, ASKED), 30);
    }

    #[test]
    fn a_disk_that_is_a_copy_of_another_machines_does_not_end_this_one() {
        const ASKED: u64 = 1_800_000_000;
        let host = Host::new("copy");
        assert_near(host.begins_before_boot(ASKED + 20, ASKED), 20);
        let own = std::fs::read(host.0.join("host")).unwrap();
        std::fs::write(host.0.join("host"), "ec2e1916-9099-7caf-fd21-012345abcdef").unwrap();
        assert_near(host.begins_before_boot(ASKED + 900_000, ASKED), 0);
        // Then cloud-init writes a script of its own.
        std::fs::write(host.0.join("host"), own).unwrap();
        assert_near(host.begins_before_boot(ASKED + 900_000, ASKED + 899_990), 10);
    }
}
