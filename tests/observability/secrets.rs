//! The environment of a node's processes, and that no report has the value of a secret.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::Stdio;

use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::{ErrorKind, WorkerExit};
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::RetryPolicy;
use skyward::plugin::plugin;
use skyward::pool::Pool;
use skyward::provider::Local;
use skyward::remote::Process;
use skyward::spec::{Image, Secret};

use super::common;
use super::common::scene::Folder;
use super::common::search::search;
use super::common::user::{User, finish};
use super::common::{assert_nothing_left, ledger, limits, pool, python, soon};
use super::traces;

/// Uses a secret in real Python: in the payload, in a child process, and in an exception.
const USES_SECRET: &str = r"
import os
import resource
import subprocess
import sys


def f(what):
    token = os.environ['SKY_TEST_TOKEN']
    if what == 'fail':
        raise ValueError(f'cannot log in with {token}')
    if what == 'core':
        return str(resource.getrlimit(resource.RLIMIT_CORE)[0])
    if what == 'child':
        program = 'import os; print(os.environ[\'SKY_TEST_TOKEN\'][::-1], end=\'\')'
        return subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True).stdout
    return token[::-1]
";

#[tokio::test]
async fn a_secret_is_in_the_workers_environment_and_nowhere_else() {
    let traces = traces();
    let folder = Folder::new();
    let (run, stamp) = (folder.gate("r"), folder.gate("stamp"));
    folder.open("stamp");
    // No other process has this text, not even in this program's own code.
    let token = format!("{:016x}", RandomState::new().build_hasher().finish());
    let backwards: String = token.chars().rev().collect();
    let secret = Secret::new(&token);
    let call = |what: &'static str| PendingCompute::<String>::from(python(USES_SECRET).arg("what", what));
    let hook = plugin("login").around_app(indoc! {"
        import os
        def around_app(config):
            yield
            raise OSError(os.environ['SKY_TEST_TOKEN'] + ' is no use')
    "});
    let builder = Pool::builder()
        .provider(Local::new().runtime_dir(&run))
        .nodes(2)
        .limits(limits())
        .image(Image::new().secret("SKY_TEST_TOKEN", secret))
        .plugin(hook);
    assert!(!format!("{builder:?}").contains(&token));
    let pool = builder.start().await.unwrap();
    let mut events = pool.events();

    assert_eq!(call("").broadcast(&pool).await.unwrap(), [backwards.as_str(), &backwards]);
    assert_eq!(call("child").run(&pool).await.unwrap(), backwards, "children of the worker have it too");
    assert_eq!(call("core").run(&pool).await.unwrap(), "1", "no core file is written");
    let error = call("fail").retry(RetryPolicy::times(1)).run(&pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Raised);
    assert!(format!("{error:#}").contains("cannot log in with (secret SKY_TEST_TOKEN)"), "{error}");
    assert!(!format!("{error} {error:?}").contains(&token));

    // Searches the machines, the environments and the package that were made for this pool, the
    // ledger, and all processes.
    let cache = cache();
    let places = [run.as_str(), cache.as_str(), ledger().to_str().unwrap()].map(str::to_owned);
    let places: Vec<&str> =
        places.iter().map(String::as_str).filter(|place| std::path::Path::new(place).exists()).collect();
    let found = search(&Process::new(), &token, &places, &stamp).await;
    let mut workers: Vec<u32> = pool.status().workers.iter().filter_map(|worker| worker.pid).collect();
    workers.sort_unstable();
    assert_eq!(found.environments, workers);
    assert!(found.files.is_empty());
    assert!(found.commands.is_empty());
    assert!(!format!("{pool:?} {:?}", pool.status()).contains(&token));

    // Restarted workers get the secret too, because the client has kept it.
    common::signal("KILL", workers[0]).await;
    let again = soon("the worker is started again", async {
        loop {
            match call("").broadcast(&pool).await {
                Ok(all) => return all,
                Err(error) => assert!(error.exit() == Some(&WorkerExit::Signal(9)), "{error}"),
            }
        }
    });
    assert_eq!(again.await, [backwards.as_str(), &backwards]);

    let id = pool.id().clone();
    pool.shutdown(limits().shutdown).await.unwrap();
    let mut written = Vec::new();
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { panic!("{item:?}") };
        match &*event {
            PoolEvent::Output(output) => written.extend_from_slice(&output.bytes),
            other => assert!(!format!("{other:?}").contains(&token), "{other:?}"),
        }
    }
    let written = String::from_utf8(written).unwrap();
    assert!(written.contains("(secret SKY_TEST_TOKEN) is no use") && !written.contains(&token), "{written}");
    assert!(!traces.text().contains(&token));
    assert!(traces.text().contains("is no use"), "the check covers everything that is traced");
    assert_nothing_left(&id);
}

#[test]
fn the_environment_of_a_service_reaches_no_process_of_a_node() {
    let user = User::new();
    let text = || format!("{:016x}", RandomState::new().build_hasher().finish());
    let mut service = user.command("service");
    let service = service.env("AWS_SECRET_ACCESS_KEY", text()).env("SKY_TEST_TOKEN", text()).env("SKY_TEST_GIVEN", "7");
    let said = finish(service.env("SKY_TEST_OTHER", text()).stdin(Stdio::null()).spawn().unwrap());
    assert_eq!(
        said,
        "the key is in the service alone\n\
         the token is in the service and its workers alone\n\
         a payload sees SKY_TEST_GIVEN, SKY_TEST_TOKEN\n\
         a command sees SKY_TEST_GIVEN\n\
         both have PATH and HOME"
    );
}

#[tokio::test]
async fn an_error_of_a_hook_conceals_secrets() {
    let login = plugin("login").around_app(indoc! {"
        import os
        def around_app(config):
            raise OSError('no user ' + os.environ['SKY_TEST_TOKEN'])
    "});
    let image = Image::new().secret("SKY_TEST_TOKEN", "a-token-of-that-user").env("SKY_TEST_OTHER", "user");
    let error = pool(1).image(image).plugin(login).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hook, "{error}");
    assert!(format!("{error:#}").contains("OSError: no user (secret SKY_TEST_TOKEN)"), "{error}");
    assert!(!format!("{error:?}").contains("a-token-of-that-user"));
}

/// A service with a pool: what the environments of its processes hold.
pub(crate) async fn service() {
    let (key, token) = (std::env::var("AWS_SECRET_ACCESS_KEY").unwrap(), std::env::var("SKY_TEST_TOKEN").unwrap());
    let folder = Folder::new();
    let (run, seen) = (folder.gate("r"), folder.gate("seen"));
    let look = plugin("look").bootstrap(format!("env -0 >{seen}"));
    let image = Image::new().secret("SKY_TEST_TOKEN", Secret::from_env("SKY_TEST_TOKEN").unwrap());
    let local = Local::new().runtime_dir(&run).inherit(["SKY_TEST_GIVEN"]);
    let pool = Pool::builder().provider(local).nodes(2).limits(limits()).image(image).plugin(look);
    let pool = pool.start().await.unwrap();
    let call: PendingCompute<BTreeMap<String, String>> = python(indoc! {"
        import os
        def f():
            return {**os.environ}
    "})
    .into();
    let payload = call.run(&pool).await.unwrap();
    let command = std::fs::read_to_string(&seen).unwrap();
    let command = command.split_terminator('\0').filter_map(|line| line.split_once('='));
    let command: BTreeMap<String, String> = command.map(|(name, value)| (name.into(), value.into())).collect();

    let own = std::process::id();
    let mut workers: Vec<u32> = pool.status().workers.iter().filter_map(|worker| worker.pid).chain([own]).collect();
    workers.sort_unstable();
    println!();
    for (what, text, expected, holders) in
        [("key", &key, vec![own], "the service"), ("token", &token, workers, "the service and its workers")]
    {
        let found = search(&Process::new(), text, &[&run], "").await;
        assert!(found.files.is_empty(), "{what}");
        assert!(found.commands.is_empty(), "{what}");
        assert_eq!(found.environments, expected, "processes that have the {what}; {own} is the service");
        println!("said the {what} is in {holders} alone");
    }
    for (what, environment) in [("payload", &payload), ("command", &command)] {
        let names: Vec<&str> = environment.keys().map(String::as_str).collect();
        let ours = names.iter().filter(|name| name.starts_with("SKY_TEST_") || name.starts_with("AWS_"));
        println!("said a {what} sees {}", ours.copied().collect::<Vec<_>>().join(", "));
        assert!(["PATH", "HOME"].iter().all(|name| names.contains(name)), "{what}: {names:?}");
    }
    println!("said both have PATH and HOME");
    pool.shutdown(limits().shutdown).await.unwrap();
}

fn cache() -> String {
    let from = |variable| std::env::var(variable).ok().filter(|value| !value.is_empty());
    let of_user = || from("XDG_CACHE_HOME").unwrap_or_else(|| format!("{}/.cache", from("HOME").unwrap())) + "/skyward";
    from("SKYWARD_CACHE_DIR").unwrap_or_else(of_user)
}
