//! Machines and processes that a killed client leaves end by themselves, or by `reap` when that is
//! not enough.
//!
//! Clients and reapers are separate processes: this test program, started again with a role.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod common;

use std::fs;
use std::io::{BufRead, Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::user::{ROLE, User, each_process, finish, signal, until};
use common::{limits, processes_of, python};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::ErrorKind;
use skyward::ids::PoolId;
use skyward::pool::{Pool, PoolBuilder};

#[test]
fn the_machines_of_a_client_killed_while_idle_end_with_it_and_reap_forgets_them() {
    let mut user = User::new();
    let (client, pool) = user.start_until("idle", "pool ");
    let pool = PoolId::new(pool);
    until("two agents and two workers run", || processes_of(&pool).len() >= 4);
    assert_eq!(user.run("reap"), format!("alive {pool}"), "a pool whose client lives is left alone");
    user.kill(client);
    until("the agents end with their client, long before the lease", || processes_of(&pool).is_empty());
    assert_eq!(user.run("reap"), format!("ended {pool} 2"));
    user.assert_nothing_left(&pool);
    assert_eq!(user.run("reap"), "");
}

#[test]
fn a_client_killed_while_a_task_runs_leaves_nothing_of_the_task() {
    let mut user = User::new();
    let (client, pool) = user.start_until("task", "pool ");
    let pool = PoolId::new(pool);
    until("the task's children run", || children(&pool) == 20);
    user.kill(client);
    until("the task and its children end", || processes_of(&pool).is_empty());
    assert_eq!(user.run("reap"), format!("ended {pool} 1"));
    user.assert_nothing_left(&pool);
}

#[test]
fn a_client_killed_at_any_moment_of_its_start_leaves_only_what_reap_finds() {
    // The stages: a record of the pool; the pool's folder; the folder of a machine in it; a process
    // of a machine; and some time after that.
    let stages: [fn(&User) -> bool; 5] = [
        |user| !user.pools().is_empty(),
        |user| !user.machines().is_empty(),
        User::has_a_machine,
        |user| user.machines().iter().any(|pool| !processes_of(&PoolId::new(pool.as_str())).is_empty()),
        |user| user.machines().iter().any(|pool| processes_of(&PoolId::new(pool.as_str())).len() > 3),
    ];
    for (number, reached) in stages.into_iter().enumerate() {
        let mut user = User::new();
        let client = user.start("idle");
        until("the start gets this far", || reached(&user));
        user.kill(client);
        let pool = user.pools().pop().unwrap_or_else(|| panic!("stage {number}: nothing is on record"));
        let record = fs::read_to_string(user.ledger().join(format!("{pool}.ledger"))).unwrap();
        assert!(number < 2 || record.contains(&format!("\"launch\":\"{pool}-n1-a1\"")), "stage {number}: {record}");
        let mut said = String::new();
        // A process that the client had just forked holds the ledger's lock until it becomes
        // another program.
        until("no process has the ledger's lock", || {
            said = user.run("reap");
            said != format!("busy {pool}")
        });
        assert!(said.starts_with(&format!("ended {pool} ")), "stage {number}: {said}");
        user.assert_nothing_left(&pool);
    }
}

#[test]
fn a_client_killed_while_it_ends_its_pool_leaves_only_what_reap_finds() {
    let mut user = User::new();
    let (client, pool) = user.start_until("leave", "pool ");
    let pool = PoolId::new(pool);
    until("an agent and a worker run", || processes_of(&pool).len() >= 2);
    each_process(&pool, "skyward.agent", |pid| signal("STOP", pid));
    user.clients[client].stdin.take().unwrap().write_all(b"\n").unwrap();
    // With the agent stopped, the pool cannot end before the kill.
    assert!(BufRead::lines(&mut user.outputs[0]).any(|line| line.unwrap() == "leaving"));
    user.kill(client);
    assert_eq!(user.run("reap"), format!("ended {pool} 1"));
    user.assert_nothing_left(&pool);
}

#[test]
fn reap_ends_machines_whose_client_and_agent_were_killed() {
    let mut user = User::new();
    let (client, pool) = user.start_until("task", "pool ");
    let pool = PoolId::new(pool);
    until("the task's children run", || children(&pool) == 20);
    each_process(&pool, "skyward.agent", |pid| signal("STOP", pid));
    user.kill(client);
    each_process(&pool, "skyward.agent", |pid| signal("KILL", pid));
    until("the agent is gone", || !processes_of(&pool).iter().any(|line| line.contains("skyward.agent")));
    assert!(children(&pool) > 0, "children in a session of their own outlive the agent");
    assert_eq!(user.run("reap"), format!("ended {pool} 1"));
    user.assert_nothing_left(&pool);
}

#[test]
fn reap_ends_machines_whose_agent_is_stopped() {
    let mut user = User::new();
    let (client, pool) = user.start_until("idle", "pool ");
    let pool = PoolId::new(pool);
    until("two agents and two workers run", || processes_of(&pool).len() >= 4);
    each_process(&pool, "", |pid| signal("STOP", pid));
    user.kill(client);
    assert!(processes_of(&pool).len() >= 4, "stopped processes cannot end by themselves");
    // The reaper may keep its own machines elsewhere.
    let elsewhere = user.root.join("elsewhere");
    let reap = user.command("reap").env("SKYWARD_RUNTIME_DIR", elsewhere).stdin(Stdio::null()).spawn().unwrap();
    assert_eq!(finish(reap), format!("ended {pool} 2"));
    user.assert_nothing_left(&pool);
}

#[test]
fn two_reaps_at_once_end_dead_pools_and_leave_live_ones() {
    let mut user = User::new();
    let dead: Vec<(usize, String)> = (0..3).map(|_| user.start_until("task", "pool ")).collect();
    let (_, alive) = user.start_until("idle", "pool ");
    for (client, pool) in &dead {
        each_process(&PoolId::new(pool.as_str()), "skyward.agent", |pid| signal("STOP", pid));
        user.kill(*client);
    }
    let reaps: Vec<Child> = (0..2).map(|_| user.command("reap").stdin(Stdio::null()).spawn().unwrap()).collect();
    let said: Vec<String> = reaps.into_iter().map(finish).collect();
    let lines: Vec<&str> = said.iter().flat_map(|said| said.lines()).collect();
    for (_, pool) in &dead {
        let ended = lines.iter().filter(|line| **line == format!("ended {pool} 1")).count();
        assert_eq!(ended, 1, "{lines:?}");
        assert_eq!(processes_of(&PoolId::new(pool.as_str())), Vec::<String>::new());
    }
    assert_eq!(lines.iter().filter(|line| **line == format!("alive {alive}")).count(), 2, "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("left")), "{lines:?}");
    assert_eq!(user.pools(), [PoolId::new(alive.as_str())]);
    let alive = PoolId::new(alive);
    until("the pool whose client lives runs on", || processes_of(&alive).len() >= 4);
}

#[test]
fn a_client_that_reaps_constantly_ends_no_starting_or_running_pool() {
    let mut user = User::new();
    let (reaper, _) = user.start_until("reaping", "said looks");
    for _ in 0..3 {
        let lives: Vec<Child> = (0..2).map(|_| user.command("life").stdin(Stdio::null()).spawn().unwrap()).collect();
        for life in lives {
            assert_eq!(finish(life), "returned");
        }
    }
    drop(user.clients[reaper].stdin.take());
    let mut said = String::new();
    user.outputs[0].read_to_string(&mut said).unwrap();
    assert!(user.clients[reaper].wait().unwrap().success(), "{said}");
    assert!(said.contains("said looked") && !said.contains("said ended") && !said.contains("said left"), "{said}");
    assert!(user.machines().is_empty());
    assert!(user.pools().is_empty());
}

#[test]
fn reap_ends_a_pool_whose_record_was_cut_off() {
    let mut user = User::new();
    let (client, pool) = user.start_until("idle", "pool ");
    let pool = PoolId::new(pool);
    each_process(&pool, "skyward.agent", |pid| signal("STOP", pid));
    user.kill(client);
    let path = user.ledger().join(format!("{pool}.ledger"));
    let length = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(length - 20).unwrap();
    assert_eq!(user.run("reap"), format!("ended {pool} 2"));
    user.assert_nothing_left(&pool);
}

#[test]
fn no_machine_starts_whose_ledger_cannot_be_made() {
    let user = User::new();
    let said = finish(user.command("start").env("SKYWARD_STATE_DIR", "/proc/not/writable").spawn().unwrap());
    assert!(said.starts_with("error Ledger cannot make the ledger /proc/not/writable/ledger"), "{said}");
    assert_eq!(user.machines(), Vec::<String>::new());
}

#[test]
#[ignore = "needs mount"]
fn no_machine_starts_that_cannot_be_recorded() {
    let user = User::new();
    // Enough space for the first record and the intents, but for no machine.
    let disk = user.small_disk(16 << 10);
    disk.fill();
    let said = finish(user.command("start").spawn().unwrap());
    assert!(said.starts_with("error Ledger cannot write to the ledger") && said.contains("free some space"), "{said}");
    assert!(user.machines().is_empty());
    assert!(user.pools().is_empty());
}

#[test]
#[ignore = "needs mount"]
fn machines_end_although_the_disk_fills_up() {
    let mut user = User::new();
    let disk = user.small_disk(16 << 10);
    let (client, pool) = user.start_until("leave", "pool ");
    disk.fill();
    user.clients[client].stdin.take().unwrap().write_all(b"\n").unwrap();
    let status = user.clients[client].wait().unwrap();
    assert!(status.success());
    user.assert_nothing_left(&PoolId::new(pool));
}

#[test]
fn machines_end_although_the_ledger_is_damaged() {
    let mut user = User::new();
    let (client, pool) = user.start_until("leave", "pool ");
    let pool = PoolId::new(pool);
    let path = user.ledger().join(format!("{pool}.ledger"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    user.clients[client].stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(user.clients[client].wait().unwrap().success());
    assert_eq!(processes_of(&pool), Vec::<String>::new());
    assert_eq!(user.machines(), Vec::<String>::new());
}

#[test]
fn a_start_dropped_at_any_moment_leaves_nothing() {
    let mut user = User::new();
    // The client lives on, so that nothing ends its machines but itself.
    user.start_until("dropping", "dropped");
    let folder = user.root.to_string_lossy().into_owned();
    let agents = || processes_of(&PoolId::new("")).into_iter().filter(|line| line.contains(&folder)).count();
    until("the dropped pools end", || agents() == 0 && user.machines().is_empty() && user.pools().is_empty());
}

/// The roles in which the tests start this program.
#[test]
#[ignore = "a role that the other tests play"]
fn client() {
    let role = std::env::var(ROLE).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        match role.as_str() {
            "idle" => {
                let pool = owned(2).start().await.unwrap();
                println!("\npool {}", pool.id());
                std::future::pending().await
            }
            "task" => {
                let pool = owned(1).start().await.unwrap();
                println!("\npool {}", pool.id());
                let busy: PendingCompute<()> = python(indoc! {"
                    import subprocess, time
                    def f():
                        for n in range(20):
                            subprocess.Popen(['sleep', '3600'], start_new_session=n % 2 == 0)
                        while True:
                            time.sleep(3600)
                "})
                .into();
                busy.run(&pool).await.unwrap();
            }
            "dropping" => {
                for millis in [0, 1, 5, 20, 60, 120, 250] {
                    let start = owned(2).start();
                    if let Ok(pool) = tokio::time::timeout(Duration::from_millis(millis), start).await {
                        pool.unwrap().shutdown(Duration::from_secs(20)).await.unwrap();
                    }
                }
                println!("\ndropped");
                std::future::pending().await
            }
            "leave" => {
                let pool = owned(1).start().await.unwrap();
                println!("\npool {}", pool.id());
                tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
                println!("leaving");
                pool.shutdown(Duration::from_secs(30)).await.unwrap();
            }
            "start" => {
                let error = owned(2).start().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Ledger, "{error}");
                println!("\nsaid error {:?} {}", error.kind(), format!("{error:#}").replace('\n', " "));
            }
            "life" => {
                let call: PendingCompute<u32> = python(indoc! {"
                    def f():
                        return 7
                "})
                .into();
                let returned = owned(1).scope(async |pool| call.run(pool).await).await.unwrap();
                assert_eq!(returned, 7);
                println!("\nsaid returned");
            }
            "reaping" => {
                println!("\nsaid looks");
                let end = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
                while !end.is_finished() {
                    let reaped = skyward::reap([]).await.unwrap();
                    reaped.ended.iter().for_each(|ended| println!("said ended {}", ended.pool));
                    reaped.unconfirmed.iter().for_each(|left| println!("said left {} {}", left.pool, left.error));
                }
                println!("said looked");
            }
            "reap" => {
                let reaped = skyward::reap([]).await.unwrap();
                println!();
                for ended in &reaped.ended {
                    println!("said ended {} {}", ended.pool, ended.machines.len());
                }
                for other in &reaped.elsewhere {
                    let word = if other.process.is_some() { "alive" } else { "busy" };
                    println!("said {word} {}", other.pool);
                }
                for left in &reaped.unconfirmed {
                    println!("said left {} {}", left.pool, left.error);
                }
            }
            other => panic!("no role is called {other}"),
        }
    });
}

/// A pool whose lease outlasts any test, so that the lease does not end its nodes.
fn owned(nodes: u32) -> PoolBuilder {
    let mut limits = limits();
    limits.lease = Duration::from_secs(3600);
    Pool::builder().nodes(nodes).limits(limits)
}

fn children(pool: &PoolId) -> usize {
    processes_of(pool).iter().filter(|line| line.contains("sleep 3600")).count()
}
