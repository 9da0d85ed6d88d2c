//! A client that is stopped for longer than its nodes' lease, at each moment of its pool's life: the nodes end by themselves, and when the client goes on it learns
//! what was lost, ends its pool, and leaves nothing.
//!
//! Workers and agents that are killed or stopped are in `signals.rs`, a client that is killed in `ownership.rs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod common;

use std::time::Duration;

use common::scene::{Entered, Folder, Scene};
use common::user::{ROLE, User, finish, until};
use common::{processes_of, python, signal};
use skyward::payload::{PendingCompute, Target};
use skyward::pool::ComputePool;

#[tokio::test]
async fn while_the_pool_starts() {
    let mut client = Client::start();
    let process = client.scene.entered().await;
    client.outstays(&process).await;
    let said = client.goes_on().await;
    assert!(
        said.starts_with("start: NodeLost: node ") && said.contains(" was lost while its workers were started"),
        "{said}"
    );
    client.user.assert_nothing_left(&process.pool);
}

#[tokio::test]
async fn while_it_is_idle() {
    let mut client = Client::start();
    client.scene.open("enter");
    client.scene.reached("started").await;
    let process = client.scene.entered().await;
    client.outstays(&process).await;
    client.scene.open("call");
    let said = client.goes_on().await;
    // Other machines have taken the place of those that ended.
    assert_eq!(said, "call: returned\nend: ended");
    client.user.assert_nothing_left(&process.pool);
}

#[tokio::test]
async fn while_a_task_runs() {
    let mut client = Client::start();
    client.scene.open("enter");
    client.scene.open("call");
    client.scene.reached("running").await;
    let process = client.scene.entered().await;
    client.outstays(&process).await;
    let said = client.goes_on().await;
    // Other machines have taken the place of those that ended.
    assert_eq!(said, "call: returned\nend: ended");
    client.user.assert_nothing_left(&process.pool);
}

#[tokio::test]
async fn while_it_ends() {
    let mut client = Client::start();
    for gate in ["enter", "call", "go"] {
        client.scene.open(gate);
    }
    client.scene.reached("leaving1").await;
    let process = client.scene.entered().await;
    client.outstays(&process).await;
    assert_eq!(client.goes_on().await, "call: returned\nend: ended");
    client.user.assert_nothing_left(&process.pool);
}

/// A client and what it shares with the test.
struct Client {
    user: User,
    scene: Scene,
    process: u32,
}

impl Client {
    fn start() -> Self {
        let (mut user, scene) = (User::new(), Scene::new());
        let client = user.command("stopped").env(FOLDER, &scene.path).spawn().unwrap();
        let process = client.id();
        user.clients.push(client);
        Self { user, scene, process }
    }

    /// Stops it until its nodes have ended. They are its own for as long as it is there.
    async fn outstays(&self, process: &Entered) {
        signal("STOP", self.process).await;
        until("the lease has run out, and the nodes have ended", || processes_of(&process.pool).is_empty());
        assert_eq!(self.user.run("reap"), format!("alive {}", process.pool));
    }

    /// Lets it go on, and gives what it said at its end.
    async fn goes_on(&mut self) -> String {
        for gate in ["enter", "call", "go", "leave"] {
            self.scene.open(gate);
        }
        signal("CONT", self.process).await;
        finish(self.user.clients.pop().unwrap())
    }
}

/// What the tests start this program for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role that the other tests play"]
async fn client() {
    println!();
    match std::env::var(ROLE).unwrap().as_str() {
        "reap" => {
            for other in skyward::reap([]).await.unwrap().elsewhere {
                println!("said alive {}", other.pool);
            }
        }
        _ => stopped(&std::env::var(FOLDER).unwrap()).await,
    }
}

/// Starts a pool, makes a call that waits for the test, ends the pool, and says how each of them went.
async fn stopped(folder: &str) {
    let scene = Scene(Folder::of_another(folder));
    let limits = |limits: &mut skyward::spec::Limits| {
        limits.lease = Duration::from_secs(3);
        limits.grace = Duration::from_secs(60);
    };
    let pool = match scene.pool(limits).start().await {
        Ok(pool) => pool,
        Err(error) => return println!("said start: {:?}: {}", error.kind(), error.message()),
    };
    scene.open("started");
    scene.reached("call").await;
    let call: PendingCompute<()> =
        python("import os, pathlib, time\ndef f(folder):\n    pathlib.Path(folder, 'running').touch()\n    while not os.path.exists(f'{folder}/go'):\n        time.sleep(0.002)\n")
            .arg("folder", folder.to_owned())
            .into();
    match call.run_on(&pool, Target::Rank(skyward::ids::Rank(1))).await {
        Ok(()) => println!("said call: returned"),
        Err(error) => println!("said call: {:?}: {}", error.kind(), error.message()),
    }
    match pool.shutdown(Duration::from_secs(20)).await {
        Ok(()) => println!("said end: ended"),
        Err(error) => println!("said end: {:?}: {}", error.kind(), error.message()),
    }
}

/// Names the folder of the scene.
const FOLDER: &str = "SKYWARD_TEST_SCENE";
