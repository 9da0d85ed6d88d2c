//! Machines of root, with processes of other users.

use super::*;

#[test]
#[ignore = "needs root"]
fn a_mark_that_another_user_copies_does_not_keep_a_machine_of_root_in_bash() {
    a_mark_that_another_user_copies_does_not_keep_a_machine_of_root(&BASH);
}

#[test]
#[ignore = "needs root, dash"]
fn a_mark_that_another_user_copies_does_not_keep_a_machine_of_root_in_dash() {
    a_mark_that_another_user_copies_does_not_keep_a_machine_of_root(&DASH);
}

#[test]
#[ignore = "needs root, busybox"]
fn a_mark_that_another_user_copies_does_not_keep_a_machine_of_root_in_busybox() {
    a_mark_that_another_user_copies_does_not_keep_a_machine_of_root(&BUSYBOX);
}

fn a_mark_that_another_user_copies_does_not_keep_a_machine_of_root(shell: &[&str]) {
    let (user, mut kept) = (OtherUser::any(), Kept::new(shell, NEVER));
    // A program that runs as root for every user, as `su` does.
    let scratch = std::env::temp_dir().join(format!("sky{:08x}", rand::random::<u32>()));
    std::fs::create_dir(&scratch).unwrap();
    std::fs::set_permissions(&scratch, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = scratch.join("sleep");
    std::fs::copy("/bin/sleep", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let again = "while :; do sleep 600; done";
    let mut others = [
        user.start(&["sleep", "600"], &kept.mark),
        user.start(&["sh", "-c", again], &kept.mark),
        user.start(&[program.to_str().unwrap(), "600"], &kept.mark),
    ];
    kept.ask();
    kept.ends();
    let alive = others.each_ref().map(|other| lives(other.id()));
    for other in &mut others {
        let group = rustix::process::Pid::from_child(other);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        other.wait().unwrap();
    }
    std::fs::remove_dir_all(&scratch).unwrap();
    assert_eq!(alive, [true; 3], "a process of another user was ended");
}

#[test]
#[ignore = "needs root"]
fn processes_that_became_another_user_end_with_the_machine_in_bash() {
    processes_that_became_another_user_end_with_the_machine(&BASH);
}

#[test]
#[ignore = "needs root, dash"]
fn processes_that_became_another_user_end_with_the_machine_in_dash() {
    processes_that_became_another_user_end_with_the_machine(&DASH);
}

#[test]
#[ignore = "needs root, busybox"]
fn processes_that_became_another_user_end_with_the_machine_in_busybox() {
    processes_that_became_another_user_end_with_the_machine(&BUSYBOX);
}

fn processes_that_became_another_user_end_with_the_machine(shell: &[&str]) {
    let becomes = OtherUser::any().becomes();
    for script in [
        // An orphan in a session of its own; a child without its environment; one in the session of
        // a process that has not become another user.
        format!("exec 5>\"$0\"; setsid {becomes} sleep 600 & "),
        format!("exec 5>\"$0\"; env -i {becomes} sleep 600 & wait"),
        format!("exec 5>\"$0\"; (env -i {becomes} sleep 600 &) ; exec 5>&-; exec sleep 600"),
    ] {
        let mut held = Held::new();
        let mut kept = Kept::new(shell, NEVER);
        std::fs::write(kept.folder.join("key"), format!("secret-{}", kept.mark)).unwrap();
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &script]).arg(&held.path).stdin(Stdio::null());
        command.env("SKYWARD_MACHINE", &kept.mark).env(KEY, format!("secret-{}", kept.mark));
        let mut started = command.spawn().unwrap();
        held.wait(true);
        kept.ask();
        kept.ends();
        held.wait(false);
        started.wait().unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn a_fork_bomb_at_its_limit_ends_with_the_machine_in_bash() {
    a_fork_bomb_at_its_limit_ends_with_the_machine(&BASH);
}

#[test]
#[ignore = "needs root, dash"]
fn a_fork_bomb_at_its_limit_ends_with_the_machine_in_dash() {
    a_fork_bomb_at_its_limit_ends_with_the_machine(&DASH);
}

#[test]
#[ignore = "needs root, busybox"]
fn a_fork_bomb_at_its_limit_ends_with_the_machine_in_busybox() {
    a_fork_bomb_at_its_limit_ends_with_the_machine(&BUSYBOX);
}

fn a_fork_bomb_at_its_limit_ends_with_the_machine(shell: &[&str]) {
    let user = OtherUser::any();
    let times = Times { looks: NEVER, first: NEVER, life: 0 };
    let mut kept = Kept::of(Some(&user), shell, times, KEEPER);
    let mut held = Held::new();
    let bomb = "trap '' HUP; exec 5>\"$0\"; f() { while :; do f & done; }; f";
    let path = held.path.to_str().unwrap();
    let mut bomb = user.start(&["prlimit", "--nproc=100:100", "sh", "-c", bomb, path], &kept.mark);
    held.wait(true);
    kept.ask();
    kept.ends();
    held.wait(false);
    bomb.wait().unwrap();
}
