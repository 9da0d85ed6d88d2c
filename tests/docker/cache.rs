//! The cache that pools share: what is built in it runs in later pools, so no payload can write to it, and the containers that can are gone with their work.

use std::fs::File;
use std::process::{Child, Command};

use skyward::payload::PendingCompute;
use skyward::provider::Docker;
use skyward::spec::Image;

use super::common::scene::Folder;
use super::common::{python, soon, unique, until};
use super::{User, ended, engine, pool, who};

/// A cache of this test alone: that of a user whom no other test has.
struct Cache {
    user: String,
    /// Has a line for each container that was made to build in it. The engine itself remembers only its last events.
    made: Folder,
    listening: Child,
}

impl Cache {
    fn new() -> Self {
        let user = format!("{}:2000", 100_000 + std::process::id() % 10_000 * 100 + unique() % 100);
        let made = Folder::new();
        let since = engine::ask(&["info", "--format", "{{.SystemTime}}"]).unwrap();
        let ours = format!("label=skyward-test-cache={user}");
        let listening = Command::new("docker")
            .args(["events", "--since", &since, "--filter", &ours, "--filter", "label=skyward.builds-for"])
            .args(["--filter", "event=create", "--format", "{{.Actor.Attributes.name}}"])
            .stdout(File::create(made.gate("builders")).unwrap())
            .spawn()
            .unwrap();
        Self { user, made, listening }
    }

    fn docker(&self, image: &str) -> Docker {
        Docker::new(image).user(&self.user).label("skyward-test-cache", &self.user)
    }

    /// How many containers were made to build in it so far.
    fn builders(&self) -> usize {
        std::fs::read_to_string(self.made.gate("builders")).unwrap().lines().count()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.listening.kill();
        let _ = self.listening.wait();
        // The volume is its user's.
        let script = format!(
            "for volume in $(docker volume ls -q --filter label=skyward.cache); do
                path=$(docker volume inspect --format '{{{{.Mountpoint}}}}' $volume)
                [ \"$(stat -c %u:2000 \"$path\")\" != {} ] || docker volume rm $volume
            done",
            self.user
        );
        let _ = Command::new("sh").args(["-c", &script]).output();
    }
}

/// What of the cache the payload can change, by every way that a container's user has.
const WRITE: &str = "
import os
import subprocess

def f():
    subprocess.run(['mount', '-o', 'remount,rw', '/skyward/cache'], capture_output=True)
    subprocess.run(['chmod', '-R', 'u+w', '/skyward/cache'], capture_output=True)
    found, written = 0, []
    for folder, _, files in os.walk('/skyward/cache'):
        found += len(files)
        try:
            with open(folder + '/.written-by-a-test', 'x'):
                written.append(folder)
            os.unlink(folder + '/.written-by-a-test')
        except OSError:
            pass
        for path in [folder + '/' + name for name in files]:
            # The interpreter that an environment refers to is the image's, of which each container has its own.
            if os.access(path, os.W_OK) and not os.path.islink(path):
                written.append(path)
    return found, written[:10]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_payload_can_write_no_other_pool_runs() {
    let Some(image) = engine::node_image() else { return };
    // Also as the superuser, whom no mode of a file keeps from writing.
    for user in ["", "0:0"] {
        let pool = pool(Docker::new(&image).user(user), 1).start().await.unwrap();
        let written: PendingCompute<(u64, Vec<String>)> = python(WRITE).into();
        let (found, written) = written.run(&pool).await.unwrap();
        assert!(found > 100, "the environment is not there: {found} files");
        assert_eq!(written, Vec::<String>::new(), "as the user {user:?}");
        ended(pool).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_environment_is_built_by_one_container_that_is_gone_and_none_is_made_for_one_that_is_there() {
    let Some(image) = engine::node_image() else { return };
    let cache = Cache::new();
    let first = pool(cache.docker(&image), 2).start().await.unwrap();
    until("the builder is told", || cache.builders() > 0).await;
    assert_eq!(cache.builders(), 1);
    assert_eq!(who().broadcast(&first).await.unwrap().len(), 2);
    // Compiled by who built it: a node cannot write it.
    let compiled: PendingCompute<bool> =
        python("import msgspec, os\ndef f():\n    return os.path.exists(msgspec.__cached__)\n").into();
    assert!(compiled.run(&first).await.unwrap());
    let id = first.id().clone();
    until("the builder is gone", || engine::left(id.as_str()).len() == 3).await;
    ended(first).await;
    let second = pool(cache.docker(&image), 2).start().await.unwrap();
    assert_eq!(cache.builders(), 1);
    ended(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_fails_or_is_given_up_leaves_no_container() {
    let Some(image) = engine::node_image() else { return };
    let cache = Cache::new();
    let unknown = Image::new().pip(["skyward-no-such-package==1"]);
    let error = pool(cache.docker(&image), 1).image(unknown).start().await.unwrap_err();
    assert!(error.to_string().contains("skyward-no-such-package"), "{error}");
    until("the builder is told", || cache.builders() == 1).await;
    let mine = ["ps", "-aq", "--filter", &format!("label=skyward-test-cache={}", cache.user)];
    assert_eq!(engine::ask(&mine).unwrap(), "");
    let given_up = tokio::spawn(pool(cache.docker(&image), 1).start());
    let building = ["ps", "-q", "--filter", mine[3], "--filter", "label=skyward.builds-for"];
    until("it is built", || !engine::ask(&building).unwrap().is_empty()).await;
    given_up.abort();
    let gone = until("the containers are gone", || engine::ask(&mine).unwrap().is_empty());
    soon("they end", gone).await;
}

#[test]
fn a_client_that_is_killed_while_it_builds_leaves_what_ends_with_the_lease_and_what_reap_finds() {
    if engine::node_image().is_none() {
        return;
    }
    for reaped in [false, true] {
        let cache = Cache::new();
        let mut user = User::new();
        let client = user.command("build").env(CACHE_USER, &cache.user).spawn().unwrap();
        user.clients.push(client);
        let mut pool = String::new();
        super::common::user::until("it is built", || {
            pool = user.pools().first().map(ToString::to_string).unwrap_or_default();
            !pool.is_empty() && engine::left(&pool).iter().any(|left| left.contains("-builder Up"))
        });
        user.kill(0);
        if !reaped {
            super::common::user::until("the containers end with their lease", || {
                engine::left(&pool).iter().all(|left| left.starts_with("network"))
            });
        }
        user.run("reap");
        assert_eq!(engine::left(&pool), Vec::<String>::new(), "{reaped}");
    }
}

/// A client that builds in the cache of a test.
pub(super) fn client(image: &str) -> Docker {
    Docker::new(image).user(std::env::var(CACHE_USER).unwrap())
}

const CACHE_USER: &str = "SKYWARD_TEST_CACHE_USER";
