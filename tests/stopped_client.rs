//! A client is stopped for longer than its nodes' lease, at each moment of its pool's life: the
//! nodes end by themselves, and when the client goes on it learns what was lost, ends its pool, and
//! leaves nothing.
//!
//! `signals.rs` tests killed and stopped workers and agents, and `ownership.rs` killed clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod common;

use std::time::Duration;

use common::scene::{Entered, Folder, Scene};
use common::user::{ROLE, User, finish, until};
use common::{processes_of, python, signal};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::payload::Target;

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
    // Other machines have replaced those that ended.
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
    // Other machines have replaced those that ended.
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

/// A client, and what it shares with the test.
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

    /// Stops the client until its nodes have ended. The nodes belong to the client as long as it
    /// exists.
    async fn outstays(&self, process: &Entered) {
        signal("STOP", self.process).await;
        until("the lease has expired, and the nodes have ended", || processes_of(&process.pool).is_empty());
        assert_eq!(self.user.run("reap"), format!("alive {}", process.pool));
    }

    /// Lets the client go on. Returns the messages that it printed until its end.
    async fn goes_on(&mut self) -> String {
        for gate in ["enter", "call", "go", "leave"] {
            self.scene.open(gate);
        }
        signal("CONT", self.process).await;
        finish(self.user.clients.pop().unwrap())
    }
}

/// The roles in which the tests start this program.
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

/// Starts a pool, makes a call that waits for the test, ends the pool, and prints the result of
/// each step.
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
    let call: PendingCompute<()> = python(indoc! {"
        import os, pathlib, time
        def f(folder):
            pathlib.Path(folder, 'running').touch()
            while not os.path.exists(f'{folder}/go'):
                time.sleep(0.002)
    "})
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

/// The variable that names the folder of the scene.
const FOLDER: &str = "SKYWARD_TEST_SCENE";
