//! The keeper under a real systemd, which boots in namespaces.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use skyward_core::ids::{LaunchId, MachineNumber, PoolId};

use super::*;

/// A system with the keeper of a lease that is over soon after the boot, and with a service that is
/// stopped by a script.
struct System {
    folder: PathBuf,
    process: Child,
}

impl System {
    /// Boots a system. The keeper waits this long for the orderly end; none: as long as it waits on
    /// an instance.
    fn boot(name: &str, stop: &str, forced: Option<u32>) -> Self {
        let folder = std::env::temp_dir().join(format!("skyward-systemd-{}-{name}", std::process::id()));
        let shared = folder.join("shared");
        let units = shared.join("units");
        std::fs::create_dir_all(units.join("skyward-keeper.service.d")).unwrap();
        std::fs::write(shared.join("stop"), stop).unwrap();
        std::fs::write(shared.join("first-boot"), first_boot()).unwrap();
        let unit = |file: &str, text: &str| std::fs::write(units.join(file), text).unwrap();
        unit("system.target", "[Unit]\nWants=busy.service first-boot.service\n");
        unit(
            "busy.service",
            "[Unit]\nDefaultDependencies=no\nConflicts=shutdown.target\nBefore=shutdown.target\n[Service]\nType=exec\n\
             ExecStart=/bin/sleep infinity\nExecStop=/bin/sh /dev/shared/stop\nTimeoutStopSec=infinity\n",
        );
        // As cloud-init.
        unit(
            "first-boot.service",
            "[Unit]\nDefaultDependencies=no\nAfter=busy.service\n[Service]\nType=oneshot\n\
             ExecStart=/bin/sh /dev/shared/first-boot\n",
        );
        if let Some(forced) = forced {
            let text = format!("[Service]\nEnvironment=SKYWARD_KEEPER_FORCED={forced}\n");
            unit("skyward-keeper.service.d/forced.conf", &text);
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SYSTEM, "system"]).arg(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().unwrap_or_else(|error| panic!("cannot start `unshare`: {error}"));
        Self { folder, process }
    }

    /// Waits until the system has ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.process.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Whether the script that stops the service has got this far.
    fn has(&self, mark: &str) -> bool {
        self.folder.join("shared").join(mark).exists()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // The processes of the system end with the one that waits for it.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The commands of an instance's user data that its first boot runs.
fn first_boot() -> String {
    let request = LaunchRequest::new(LaunchId::new("l"), PoolId::new("p"), MachineNumber(0), Duration::ZERO);
    let data = user_data(&request, SystemTime::now(), "root", &KeyPair::generate().unwrap(), &[]).unwrap();
    let commands = super::tests::unpacked(&data)["bootcmd"].take();
    let line = |words: &serde_json::Value| {
        let words = words.as_array().unwrap().iter().map(|word| quoted(word.as_str().unwrap()));
        words.collect::<Vec<_>>().join(" ")
    };
    commands.as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
#[ignore = "needs systemd"]
fn a_machine_powers_off_although_one_of_its_services_does_not_stop() {
    let mut system = System::boot("hangs", "touch /dev/shared/stopping; exec sleep infinity", Some(2));
    let status = system.ended();
    assert!(system.has("stopping"), "the orderly end comes first: {status:?}");
    assert_eq!(status.and_then(|status| status.code()), Some(POWERED_OFF), "{status:?}");
}

#[test]
#[ignore = "needs systemd"]
fn a_machine_whose_services_stop_powers_off_in_order() {
    let mut system = System::boot("stops", "touch /dev/shared/stopping; sleep 1; touch /dev/shared/stopped", None);
    let status = system.ended();
    assert_eq!(status.and_then(|status| status.code()), Some(POWERED_OFF), "{status:?}");
    assert!(system.has("stopped"), "the service had its time");
}

/// How the script exits when the system has powered itself off.
const POWERED_OFF: i32 = 128 + 2;
/// Less than the keeper waits for the orderly end of an instance.
const PATIENCE: Duration = Duration::from_secs(60);
const SYSTEM: &str = include_str!("systemd.sh");
