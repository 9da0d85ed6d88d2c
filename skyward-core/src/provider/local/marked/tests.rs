//! Processes of a machine, as they are recognised and ended.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::provider::kin;

#[test]
fn processes_that_cannot_be_read_end_no_machine() {
    // In a process of its own, because the limit is that of all of its threads.
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "provider::local::marked::tests::processes_that_cannot_be_read_end_no_machine";
        let output = command.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let machine = MachineId::new(format!("test-{:016x}", rand::random::<u64>()));
    let mut process = Command::new("sleep").arg("600").env(MARK, machine.as_str()).spawn().unwrap();
    let marks = Marks::of(&machine, Path::new("/none"));
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limit }).unwrap();
    let results = (marks.end(Duration::from_millis(50)).is_err(), super::marks().is_err());
    setrlimit(Resource::Nofile, limit).unwrap();
    let lived = process.try_wait().unwrap().is_none();
    let ended = marks.end(Duration::from_secs(30));
    process.wait().unwrap();
    assert_eq!(results, (true, true));
    assert!(lived);
    assert!(ended.unwrap().is_empty());
}

#[test]
fn processes_without_the_mark_end_with_their_parent_or_with_the_leader_of_their_session() {
    let machine = MachineId::new(format!("test-{:016x}", rand::random::<u64>()));
    let (mut leader, ids) = kin::start(machine.as_str());
    let lives = |id: &u32| Process::read(*id).unwrap().is_some_and(|process| !process.has_ended);
    assert!(ids.iter().all(lives));
    assert!(Marks::of(&machine, Path::new("/none")).end(Duration::from_secs(30)).unwrap().is_empty());
    assert!(!ids.iter().any(lives));
    leader.wait().unwrap();
}

#[test]
fn a_process_that_replaces_its_program_all_the_time_ends() {
    let script = std::env::temp_dir().join(format!("skyward-again-{:016x}.sh", rand::random::<u64>()));
    std::fs::write(&script, format!("exec /bin/sh {}\n", script.display())).unwrap();
    for round in 0..100 {
        let machine = MachineId::new(format!("test-{:016x}", rand::random::<u64>()));
        let mut command = Command::new("/bin/sh");
        let mut process = command.arg(&script).env_clear().env(MARK, machine.as_str()).spawn().unwrap();
        let started = Instant::now();
        std::thread::sleep(Duration::from_millis(round % 7));
        assert!(marks().unwrap().contains(machine.as_str()), "round {round}");
        assert!(Marks::of(&machine, Path::new("/none")).end(Duration::from_secs(30)).unwrap().is_empty());
        let ended = process.try_wait().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(ended.is_some(), "round {round}, after {:?}", started.elapsed());
    }
    std::fs::remove_file(&script).unwrap();
}

const ALONE: &str = "SKYWARD_TEST_ALONE";
