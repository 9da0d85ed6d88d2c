//! The cache that pools share: later pools run the environments built in it, so no payload may
//! write to it, and the containers that may write are removed once their work is done.

use std::fs::File;
use std::process::{Child, Command};

use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::payload::Payload;
use skyward::provider::Docker;
use skyward::spec::Image;

use super::common::scene::Folder;
use super::common::{python, soon, unique, until};
use super::{User, ended, engine, pool, who};

/// A cache for this test alone: it belongs to a user id that no other test uses.
struct Cache {
    user: String,
    /// Its file `builders` has a line for each container that was made to build in the cache. The
    /// engine itself keeps only its last events.
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

    /// How many containers were made to build in the cache so far.
    fn builders(&self) -> usize {
        std::fs::read_to_string(self.made.gate("builders")).unwrap().lines().count()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.listening.kill();
        let _ = self.listening.wait();
        // The volume belongs to the cache's user.
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

/// Returns what the payload can change in the cache, by every way that the user of a container has.
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
#[ignore = "needs docker"]
async fn no_payload_can_write_to_the_cache() {
    let image = engine::node_image();
    // Also as root, whom no file mode keeps from writing.
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
#[ignore = "needs docker"]
async fn an_environment_is_built_once_by_a_container_that_is_then_removed() {
    let image = engine::node_image();
    let cache = Cache::new();
    let first = pool(cache.docker(&image), 2).start().await.unwrap();
    until("the engine reports the builder", || cache.builders() > 0).await;
    assert_eq!(cache.builders(), 1);
    assert_eq!(who().broadcast(&first).await.unwrap().len(), 2);
    // The builder compiled the package: a node cannot write to the cache.
    let compiled: PendingCompute<bool> = python(indoc! {"
        import msgspec, os
        def f():
            return os.path.exists(msgspec.__cached__)
    "})
    .into();
    assert!(compiled.run(&first).await.unwrap());
    let id = first.id().clone();
    until("the builder is gone", || engine::left(id.as_str()).len() == 3).await;
    ended(first).await;
    let second = pool(cache.docker(&image), 2).start().await.unwrap();
    assert_eq!(cache.builders(), 1);
    ended(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_failed_or_dropped_build_leaves_no_container() {
    let image = engine::node_image();
    let cache = Cache::new();
    let unknown = Image::new().pip(["skyward-no-such-package==1"]);
    let error = pool(cache.docker(&image), 1).image(unknown).start().await.unwrap_err();
    assert!(format!("{error:#}").contains("skyward-no-such-package"), "{error}");
    until("the engine reports the builder", || cache.builders() == 1).await;
    let mine = ["ps", "-aq", "--filter", &format!("label=skyward-test-cache={}", cache.user)];
    assert_eq!(engine::ask(&mine).unwrap(), "");
    let given_up = tokio::spawn(pool(cache.docker(&image), 1).start());
    let building = ["ps", "-q", "--filter", mine[3], "--filter", "label=skyward.builds-for"];
    until("the build runs", || !engine::ask(&building).unwrap().is_empty()).await;
    given_up.abort();
    let gone = until("the containers are gone", || engine::ask(&mine).unwrap().is_empty());
    soon("the containers end", gone).await;
}

#[test]
#[ignore = "needs docker"]
fn a_client_killed_during_a_build_leaves_only_what_the_lease_or_reap_ends() {
    for reaped in [false, true] {
        let cache = Cache::new();
        let mut user = User::new();
        let client = user.command("build").env(CACHE_USER, &cache.user).spawn().unwrap();
        user.clients.push(client);
        let mut pool = String::new();
        super::common::user::until("the build runs", || {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs docker"]
async fn a_payload_changes_the_environment_only_where_the_image_allows_it() {
    let cache = Cache::new();
    let changes = |entry| -> PendingCompute<Vec<String>> {
        Payload::python("changes.py", include_str!("../payloads/changes.py"), entry).into()
    };
    let image = Image::new().pip(["iniconfig==2.0.0"]);
    for (image, ways) in [(image.clone(), 0), (image.clone().writable(true), 10), (image, 0)] {
        let found = pool(cache.docker(&engine::node_image()), 1)
            .image(image)
            .scope(async |pool| {
                let done = changes("change").run(pool).await?;
                assert_eq!(changes("seen").run(pool).await?, done);
                Ok(done)
            })
            .await
            .unwrap();
        assert_eq!(found.len(), ways, "{found:?}");
    }
}
