//! The formats on a host that versions of the library share: claims, keepers, slots among users.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use super::*;
use crate::ids::{LaunchId, MachineNumber};
use crate::spec::Accelerator;

const CLAIM_RECORD: &str = include_str!("../formats/claim");
const MACHINE: &str = "p-x-n1-a2@0123456789abcdef";
const HOUR: Duration = Duration::from_secs(3600);

/// A folder of machines, on this host.
struct Base(PathBuf);

impl Base {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Runs scripts of a client, after the lines of a header.
    fn run(&self, header: &[(&str, &str)], script: &str) -> String {
        let base = quoted(self.0.to_str().unwrap());
        let mut text = format!("base={base}\nslots=2\nexpected=\n{PLACE}");
        header.iter().for_each(|(name, value)| text += &format!("{name}={}\n", quoted(value)));
        let output = Process::new("sh").args(["-eu", "-c", &(text + script)]).env_remove("SSH_CONNECTION").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Puts a record where this version keeps claims, or where older ones do, with the folder of
    /// its machine.
    fn claim(&self, record: &str, older: bool) -> PathBuf {
        let folder = if older { "$before" } else { "$claims" };
        let said = self.run(&[], &format!("mkdir -p \"{folder}\" \"$base/{}\"\necho \"{folder}\"\n", name()));
        let file = PathBuf::from(said.lines().last().unwrap()).join("slot-0");
        fs::write(&file, record).unwrap();
        file
    }

    fn pools(&self) -> Vec<PoolRecord> {
        record::pools(
            &self.run(&[], &format!("{ENDING}{POOLS}")),
            SystemTime::UNIX_EPOCH + HOUR * 24 * 365,
            UNRECORDED_LEASE,
        )
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn name() -> String {
    folder_name(&MachineId::new(MACHINE))
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

fn user() -> String {
    fs::metadata("/proc/self").unwrap().uid().to_string()
}

#[test]
fn claims_of_each_version_are_read() {
    let older = include_str!("../formats/claim-older").replace("BOOT", &boot());
    for (record, is_older) in [
        (CLAIM_RECORD, false),
        (older.as_str(), true),
        (older.as_str(), false),
        (include_str!("../formats/claim-newer"), false),
    ] {
        let base = Base::new();
        base.claim(record, is_older);
        let listed = base.run(&[("pool", "p-x")], &format!("{ENDING}{LIST}"));
        let found = record::machines(&listed, &Host::new("gpu1"));
        let [found] = &found[..] else { panic!("{listed}") };
        let Machine { id, launch, pool, number, facts, .. } = &found.machine;
        assert_eq!(id.as_str(), MACHINE, "{record}");
        assert_eq!(launch.as_str(), "p-x-n1-a2", "{record}");
        assert_eq!(pool.as_str(), "p-x", "{record}");
        assert_eq!(number.0, 1, "{record}");
        assert_eq!(facts[record::SLOT].as_str(), "0", "{record}");
        assert_eq!(facts[record::DEVICES].as_str(), "0,2", "{record}");
        assert_eq!(found.place.address.as_str(), "127.0.0.1");
        assert_eq!(&found.place.folder, &base.path(&name()));
        let pools = base.pools();
        assert_eq!(pools.len(), 1, "{record}");
        assert_eq!(pools[0].pool.as_str(), "p-x", "{record}");
        assert_eq!(pools[0].owner, if record == older { "" } else { "ada at a desk" });
    }
}

#[test]
fn a_claim_of_an_older_version_without_its_beginning_lasts_until_the_next_boot() {
    let older = include_str!("../formats/claim-older");
    for (boot, lives) in [(boot(), true), ("00000000-0000-0000-0000-000000000000".to_owned(), false)] {
        let base = Base::new();
        base.claim(&older.replace("BOOT", &boot), true);
        fs::write(base.path(&name()) + "/lease", "").unwrap();
        let expires = base.pools()[0].expires;
        // Without a lease of its own, it has one of an hour.
        let end = SystemTime::UNIX_EPOCH + HOUR * 24 * 365 + HOUR;
        assert_eq!(expires == end, lives, "{boot}: {expires:?}");
        let state = base.run(&[("machines", &format!("{MACHINE}/{}", name()))], &format!("{ENDING}{INSPECT}"));
        let running = format!("skyward-state {MACHINE} running");
        assert_eq!(state.lines().any(|line| line == running), lives, "{state}");
    }
}

/// Launches the machine of the fixtures by a keeper that writes down its command line.
fn claimed(base: &Base) -> (String, String) {
    let pool = PoolId::new("p-x");
    let request = LaunchRequest::new(LaunchId::new("p-x-n1-a2"), pool, MachineNumber(1), Duration::from_secs(60));
    let request = LaunchRequest { ends_in: Some(HOUR), ..request.owner("ada at\na desk") };
    let offer = Offer::new(record::OFFER, "here", 1, 1).accelerator(Accelerator::new("A100", 2));
    let header = claim_header(&offer, &request, &MachineId::new(MACHINE), &["0".to_owned(), "2".to_owned()]).unwrap();
    let mut header: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let written = format!("printf '%s\\n' keeper \"$@\" >{}", quoted(&base.path("command")));
    let room = base.path("room");
    fs::create_dir(&room).unwrap();
    header.retain(|(name, _)| *name != "keeper");
    header.extend([("keeper", written.as_str()), ("room", &room)]);
    base.run(&header, CLAIM);
    // The keeper holds the claim until it has ended.
    let said = base.run(&[], &format!("look_up_machine {MACHINE}\nreleased \"$file\" 20\necho \"$file\""));
    let file = said.lines().last().unwrap().to_owned();
    (fs::read_to_string(&file).unwrap(), file)
}

#[test]
fn this_version_writes_the_claim_the_keeper_and_the_share_of_its_fixtures() {
    let base = Base::new();
    let (record, file) = claimed(&base);
    let value = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
    };
    let life = |text: &str| value(text, "ends") - value(text, "born");
    assert_eq!(life(&record), life(CLAIM_RECORD));
    let mut same = record.clone();
    for name in ["born", "ends", "keeper"] {
        let is = |text: &str| format!("{name} {}\n", value(text, name));
        same = same.replace(&is(&record), &is(CLAIM_RECORD));
    }
    assert_eq!(same, CLAIM_RECORD);

    let share = base.path(&format!("room/{}", shares()[0]));
    let room: Vec<_> = fs::read_dir(base.path("room")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(room, [Path::new(&share)]);
    assert_eq!(
        fs::read_to_string(base.path("command")).unwrap(),
        keeper(include_str!("../formats/keeper"), &base, &file, &share)
    );
}

/// The names of the fixture of shares, of this user.
fn shares() -> Vec<String> {
    include_str!("../formats/shares").lines().map(|name| name.replace("USER", &user())).collect()
}

/// The command line of a fixture.
fn keeper(fixture: &str, base: &Base, file: &str, share: &str) -> String {
    let base = base.path("");
    fixture.replace("BASE/", &base).replace("CLAIM", file).replace("SHARE", share)
}

#[test]
fn the_shares_of_other_users_are_read() {
    let base = Base::new();
    let room = base.path("room");
    let names = shares();
    // A newer version may use other characters.
    for name in names.iter().chain([&format!("skyward-slot-2.{}.MIG-1", user())]) {
        fs::create_dir_all(format!("{room}/{name}")).unwrap();
    }
    let hold = "exec 3<\"$room/$one/.\" 4<\"$room/$two/.\"\nflock 3\nflock 4\n";
    // Whoever looks is another user.
    let header = [("room", room.as_str()), ("one", &names[0]), ("two", &names[1]), ("me", "nobody")];
    let said = base.run(&header, &format!("{hold}look_elsewhere\nprintf '%s\\n' \"$elsewhere\""));
    let found: BTreeSet<_> = said.lines().skip(1).map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(found, BTreeSet::from(["0 ..0,2", "1 ."]), "{said}");
}

/// A process with this command line that holds a claim, as a keeper does.
fn holder(command: &str) -> Child {
    let script = "for one; do case $one in */slot-0) exec 9<>\"$one\"; flock 9 ;; esac; done; echo held; read -r end";
    let mut child = Process::new("sh")
        .args(["-c", script])
        .args(command.lines())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut held).unwrap();
    assert_eq!(held, "held\n");
    child
}

#[test]
fn keepers_of_each_version_are_found_and_ended() {
    for (fixture, record) in [
        (include_str!("../formats/keeper"), CLAIM_RECORD),
        (include_str!("../formats/keeper-older"), include_str!("../formats/claim-older")),
    ] {
        let base = Base::new();
        let file = base.claim(record, false);
        let mut child = holder(&keeper(fixture, &base, file.to_str().unwrap(), ""));
        fs::write(&file, record.replace("keeper 4711", &format!("keeper {}", child.id()))).unwrap();
        base.run(&[("machine", MACHINE), ("name", &name())], &format!("{ENDING}{END}"));
        assert!(!child.wait().unwrap().success(), "it was ended");
        assert_eq!(fs::read_to_string(&file).unwrap(), "", "the slot is free");
        assert!(!Path::new(&base.path(&name())).exists());
    }
}
