//! A secret is only in the environments of the processes that need it: not in a container's files
//! and command lines, nor in the engine's records.

use std::hash::{BuildHasher, Hasher};

use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::provider::Docker;
use skyward::remote::{Command, Container, Remote};
use skyward::spec::Image;

use super::common::search::{Found, search};
use super::common::{python, soon};
use super::{container, ended, engine, pool};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_secret_is_only_in_environments() {
    let image = engine::node_image();
    let secret = || format!("{:024x}", std::hash::RandomState::new().build_hasher().finish());
    let (of_worker, of_command) = (secret(), secret());
    let since = engine::ask(&["info", "--format", "{{.SystemTime}}"]).unwrap();
    let builder = pool(Docker::new(image), 1).image(Image::new().secret("SKY_TEST_TOKEN", of_worker.as_str()));
    let pool = builder.start().await.unwrap();
    let worker = pool.status().workers[0].pid.unwrap();
    let uses = indoc! {"
        import os
        def f():
            return os.environ['SKY_TEST_TOKEN']
    "};
    assert_eq!(PendingCompute::<String>::from(python(uses)).run(&pool).await.unwrap(), of_worker);
    let container = container(&pool, 0);
    let remote = Container::new(&container);
    let begun = tokio::sync::Notify::new();
    let script = "echo \"${#token}\"; until [ -e /tmp/go ]; do sleep 0.01; done";
    let command = Command::script(script).env("token", of_command.as_str());
    let on_line = |_: &str| begun.notify_one();
    let look = async {
        begun.notified().await;
        // All files that are younger than the container.
        let folders = ["/", "/dev/shm", "/skyward/node", "/skyward/cache"];
        let found = search(&remote, &of_worker, &folders, "/.dockerenv").await;
        assert_eq!(found, Found { environments: vec![worker], ..Found::default() });
        let found = search(&remote, &of_command, &folders, "/.dockerenv").await;
        assert!(!found.environments.contains(&worker) && !found.environments.is_empty(), "{found:?}");
        assert!(found.files.is_empty());
        assert!(found.commands.is_empty());
        let mut told = engine::ask(&["inspect", &container]).unwrap();
        for exec in engine::execs(&container) {
            told.push_str(&engine::get(&format!("/exec/{exec}/json")).unwrap());
        }
        assert!(told.contains("SKYWARD_MACHINE"), "the engine's records include the commands: {told}");
        let until = engine::ask(&["info", "--format", "{{.SystemTime}}"]).unwrap();
        let filter = format!("container={container}");
        told.push_str(&engine::ask(&["events", "--since", &since, "--until", &until, "--filter", &filter]).unwrap());
        assert!(told.contains("exec_create"), "{told}");
        told.push_str(&engine::ask(&["logs", &container]).unwrap());
        told.push_str(&engine::ask(&["top", &container, "-eo", "pid,args"]).unwrap());
        assert!(!told.contains(&of_worker) && !told.contains(&of_command), "{told}");
        engine::inside(&container, ": >/tmp/go").unwrap();
    };
    let (ran, ()) = soon("the command ends", async { tokio::join!(remote.run(&command, &on_line), look) }).await;
    assert_eq!(ran.unwrap().stdout.trim(), "24");
    ended(pool).await;
}
