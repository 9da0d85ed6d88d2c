//! What a pool reports, and what it conceals: traces, metrics and secrets, with real Python on this
//! host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod common;
#[path = "../skyward-core/tests/support/printed.rs"]
mod printed;
#[path = "common/recorder.rs"]
mod recorder;
#[path = "common/traces.rs"]
mod traces;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::Stdio;
use std::sync::OnceLock;

use common::scene::Folder;
use common::search::search;
use common::user::{ROLE, User, finish};
use common::{assert_nothing_left, ledger, limits, pool, python, soon, until};
use indoc::indoc;
use recorder::Recorder;
use skyward::compute::ComputePoolExt;
use skyward::compute::PendingCompute;
use skyward::error::{ErrorKind, WorkerExit};
use skyward::event::{EventItem, PoolEvent};
use skyward::ids::{NodeIndex, Rank};
use skyward::payload::{RetryPolicy, Streaming, Target, TraceContext};
use skyward::plugin::plugin;
use skyward::pool::Pool;
use skyward::provider::Local;
use skyward::remote::Process;
use skyward::spec::{Image, Secret};
use traces::Traces;

/// Raises an error at once.
const RAISES: &str = indoc! {"
    def f():
        raise ValueError('no')
"};

/// Everything that this program traces.
fn traces() -> &'static Traces {
    static TRACES: OnceLock<Traces> = OnceLock::new();
    TRACES.get_or_init(Traces::of_program)
}

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
    assert_eq!((found.files, found.commands), (Vec::new(), Vec::new()));
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

/// The role in which the tests start this program.
#[tokio::test]
#[ignore = "a role that the other tests play"]
async fn client() {
    assert_eq!(std::env::var(ROLE).unwrap(), "service");
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
        assert_eq!((&found.files, &found.commands), (&Vec::new(), &Vec::new()), "{what}");
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

/// Returns the trace that a payload sees, and checks that a child process sees the same.
const SEES_TRACE: &str = r"
import os
import subprocess
import sys

import skyward as sky


def f():
    program = 'import os; print(os.environ.get(\'TRACEPARENT\', \'\'), end=\'\')'
    child = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True).stdout
    context = sky.trace_context()
    assert os.environ.get('TRACEPARENT', '') == context.get('traceparent', '') == child
    return [context.get('traceparent', ''), context.get('tracestate', '')]
";

/// A `traceparent` of this span.
fn trace_of(span: u64) -> String {
    format!("00-0af7651916cd43dd8448eb211c80319c-{span:016x}-01")
}

#[tokio::test]
async fn python_sees_the_trace_of_each_call() {
    let traces = traces();
    let call = || PendingCompute::<[String; 2]>::from(python(SEES_TRACE));
    let own = TraceContext::new(trace_of(7)).unwrap().with_state("vendor=1").unwrap();
    let source = || {
        let context = TraceContext::new(trace_of(Traces::current()?)).ok()?;
        context.with_state("tests=1").ok()
    };
    let builder = pool(2).trace_context(source);
    let caller = tracing::info_span!(target: "skyward::tests", "caller");
    let caller_id = caller.id().unwrap().into_u64();
    let id = builder
        .scope(async |pool| {
            let said = call().trace(own.clone()).run_on(pool, Target::Head).await?;
            assert_eq!(said, [trace_of(7), "vendor=1".to_owned()], "the call's own trace comes first");
            let all = call().trace(own.clone()).broadcast(pool).await?;
            assert_eq!(all, [said.clone(), said]);

            use tracing::Instrument as _;
            let all = call().broadcast(pool).instrument(caller).await?;
            let tasks: Vec<_> =
                traces.spans("task").into_iter().filter(|task| task.parent == Some(caller_id)).collect();
            assert_eq!(tasks.len(), 2, "a span for each rank, below the caller's");
            for (rank, task) in tasks.iter().enumerate() {
                assert_eq!(all[rank], [trace_of(task.id), "tests=1".to_owned()]);
                assert_eq!((task.field("rank"), task.field("outcome")), (rank.to_string().as_str(), "returned"));
                assert_eq!((task.target(), task.closed), ("skyward::task", true));
                task.field("queued_us").parse::<u64>().unwrap();
                let tries: Vec<_> =
                    traces.spans("attempt").into_iter().filter(|one| one.parent == Some(task.id)).collect();
                assert_eq!((tries.len(), tries[0].closed, tries[0].field("attempt")), (1, true, "1"));
                // A child process was started in the meantime.
                assert!(tries[0].field("ran_us").parse::<u64>().unwrap() > 100);
            }
            Ok(pool.id().clone())
        })
        .await
        .unwrap();

    let of_pool = |name| {
        traces.spans(name).into_iter().filter(|span| span.fields.get("pool").is_some_and(|of| of == id.as_str()))
    };
    let spans: Vec<_> = of_pool("pool").collect();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(span.field("provider"), "local");
    until("the pool's span has ended with it", || of_pool("pool").all(|span| span.closed)).await;
    let below = |name, parent| {
        traces.spans(name).into_iter().filter(move |span| span.parent == Some(parent)).collect::<Vec<_>>()
    };
    let nodes = below("node", span.id);
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert!(node.closed && node.field("machine").contains(id.as_str()), "{node:?}");
        let steps = below("step", node.id);
        let names: Vec<_> = steps.iter().map(|step| step.field("step")).collect();
        assert!(steps.iter().all(|step| step.closed) && names.starts_with(&["launch", "wait", "connect"]), "{steps:?}");
        assert!(names.contains(&"agent"), "{names:?}");
    }
    let workers = below("workers", span.id);
    assert_eq!((workers.len(), workers[0].closed, workers[0].field("generation")), (1, true, "1"));
}

#[tokio::test]
async fn a_task_without_a_trace_sees_that_of_its_workers_environment() {
    let call = || PendingCompute::<[String; 2]>::from(python(SEES_TRACE));
    let image = Image::new().env("TRACEPARENT", trace_of(1));
    pool(1)
        .image(image)
        .scope(async |pool| {
            let outside = [trace_of(1), String::new()];
            assert_eq!(call().run(pool).await?, outside);
            let own = TraceContext::new(trace_of(2))?;
            assert_eq!(call().trace(own).run(pool).await?[0], trace_of(2));
            assert_eq!(call().run(pool).await?, outside, "the trace of one task is not visible to the next");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn failed_tasks_and_steps_are_marked() {
    let traces = traces();
    let broken: PendingCompute<()> = python(RAISES).into();
    let id = pool(1)
        .scope(async |pool| {
            broken.retry(RetryPolicy::times(1)).run(pool).await.unwrap_err();
            Ok(pool.id().clone())
        })
        .await
        .unwrap();
    let tasks = traces.spans("task");
    let task = tasks.iter().find(|task| task.field("pool") == id.as_str()).unwrap();
    assert_eq!(
        (task.field("outcome"), task.field("otel.status_code"), task.field("attempts")),
        ("failed", "ERROR", "2")
    );
    let tries = traces.spans("attempt").into_iter().filter(|one| one.parent == Some(task.id)).count();
    assert_eq!(tries, 2);

    let image = Image::new().python("/no/such/python");
    let error = pool(1).image(image).start().await.unwrap_err();
    let step = format!("{error:#}");
    let failed: Vec<_> =
        traces.spans("step").into_iter().filter(|step| step.fields.contains_key("otel.status_code")).collect();
    assert!(
        failed.iter().any(|failed| failed.closed && step.contains(&format!("step: {}", failed.field("step")))),
        "{step}: {failed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_task_comes_before_its_outcome() {
    let pool = pool(2).start().await.unwrap();
    printed::printed_before_outcome(&pool, 30).await;
    pool.shutdown(limits().shutdown).await.unwrap();
}

/// The name of a metric of the provider `local`.
fn of(name: &str, labels: &str) -> String {
    format!("{name}{{provider=local{labels}}}")
}

/// Ends a pool, whose metrics all have a description, and of which nothing is counted after that.
async fn end(pool: Pool, recorder: &Recorder) {
    pool.shutdown(limits().shutdown).await.unwrap();
    drop(pool);
    for level in ["skyward_nodes{", "skyward_workers_ready", "skyward_tasks_queued", "skyward_tasks_running"] {
        assert_eq!(recorder.standing(level), [], "a closed pool counts nothing");
    }
    let described = recorder.described();
    for (name, value) in recorder.standing("skyward_") {
        assert!(described.contains_key(name.split('{').next().unwrap()), "{name} {value}");
    }
}

#[tokio::test]
async fn the_metrics_of_a_start_and_of_calls_add_up() {
    let recorder = Recorder::default();
    let _here = metrics::set_default_local_recorder(&recorder);
    let echo = |n: usize| {
        PendingCompute::<Vec<u8>>::from(
            python(indoc! {"
                def f(x):
                    return bytes(len(x))
            "})
            .arg("x", vec![0_u8; n]),
        )
    };
    let pool = pool(2).start().await.unwrap();
    assert_eq!(recorder.value(&of("skyward_nodes", ",phase=up")), 2.0);
    assert_eq!(recorder.value(&of("skyward_workers_ready", "")), 2.0);
    assert_eq!(recorder.count(&of("skyward_pool_start_seconds", "")), 1);
    for (step, count) in [("launch", 2), ("connect", 2), ("workers", 1)] {
        assert_eq!(recorder.count(&of("skyward_bring_up_seconds", &format!(",step={step}"))), count, "{step}");
    }
    assert!(recorder.count(&of("skyward_bring_up_seconds", ",step=agent")) >= 2);

    pool.map((0..50).map(|_| echo(1000))).await.unwrap();
    let handles = recorder.registered();
    pool.map((0..50).map(|_| echo(1000))).await.unwrap();
    assert_eq!(recorder.registered(), handles, "no call makes a handle");
    assert_eq!(recorder.value(&of("skyward_tasks_total", ",outcome=returned,cause=none")), 100.0);
    for seconds in ["skyward_task_seconds", "skyward_task_queue_seconds", "skyward_task_overhead_seconds"] {
        assert_eq!(recorder.count(&of(seconds, "")), 100, "{seconds}");
        let sum = recorder.value(&of(seconds, ""));
        assert!(sum > 0.0 && sum < 600.0, "{seconds}: {sum}");
    }
    let sent = recorder.value(&of("skyward_sent_bytes_total", ""));
    let received = recorder.value(&of("skyward_received_bytes_total", ""));
    assert!((100_000.0..110_000.0).contains(&sent) && (100_000.0..110_000.0).contains(&received), "{sent} {received}");
    end(pool, &recorder).await;
}

#[tokio::test]
async fn the_metrics_of_tasks_add_up_by_their_outcomes() {
    let recorder = Recorder::default();
    let _here = metrics::set_default_local_recorder(&recorder);
    let broken: PendingCompute<()> = python(RAISES).into();
    let long: PendingCompute<()> = python(indoc! {"
        import time
        def f():
            time.sleep(600)
    "})
    .into();
    let stream: PendingCompute<Streaming<u32>> = python(indoc! {"
        def f():
            yield from range(5)
    "})
    .into();
    let pool = pool(2).start().await.unwrap();

    broken.retry(RetryPolicy::times(2)).run(&pool).await.unwrap_err();
    assert_eq!(recorder.value(&of("skyward_task_retries_total", ",cause=raised")), 2.0);
    assert_eq!(recorder.value(&of("skyward_tasks_total", ",outcome=failed,cause=raised")), 1.0);
    let mut items = stream.run(&pool).await.unwrap();
    while let Some(item) = items.next().await {
        item.unwrap();
    }
    let running = long.clone().run_on(&pool, Target::Rank(Rank(0)));
    let late = long.clone().timeout(std::time::Duration::from_millis(1)).run_on(&pool, Target::Rank(Rank(0)));
    {
        let mut running = Box::pin(running);
        let behind = Box::pin(long.run_on(&pool, Target::Rank(Rank(0))));
        let both = futures_util::future::join(&mut running, behind);
        let seen = until("one task runs and one waits", || {
            recorder.value(&of("skyward_tasks_running", "")) == 1.0
                && recorder.value(&of("skyward_tasks_queued", "")) == 1.0
        });
        tokio::select! {
            _ = both => panic!("both tasks sleep"),
            () = seen => {}
        }
    }
    until("both are cancelled", || recorder.value(&of("skyward_tasks_total", ",outcome=cancelled,cause=none")) == 2.0)
        .await;
    assert_eq!(recorder.standing(&of("skyward_tasks_running", "")), []);
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(recorder.value(&of("skyward_tasks_total", ",outcome=failed,cause=timeout")), 1.0);
    end(pool, &recorder).await;
}

#[tokio::test]
async fn the_metrics_of_losses_add_up() {
    let recorder = Recorder::default();
    let _here = metrics::set_default_local_recorder(&recorder);
    let pool = pool(2).start().await.unwrap();

    // Kills a worker, and then the agent of the other node.
    let status = pool.status();
    let ready = || recorder.value(&of("skyward_workers_ready", ""));
    let mut events = pool.events();
    common::signal("KILL", status.workers[0].pid.unwrap()).await;
    until("the end of the worker is counted", || {
        recorder.value(&of("skyward_worker_exits_total", ",exit=signal")) >= 1.0
    })
    .await;
    until("the worker is started again", || ready() == 2.0).await;
    let agent = std::fs::read_to_string(format!("/proc/{}/stat", status.workers[1].pid.unwrap())).unwrap();
    let agent = agent.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    common::signal("KILL", agent).await;
    soon("the node is replaced", async {
        while let Some(item) = events.next().await {
            if let EventItem::Event(event) = item
                && let PoolEvent::NodeReplaced { node: NodeIndex(1), .. } = &*event
            {
                return;
            }
        }
    })
    .await;
    assert_eq!(
        recorder.value(&of("skyward_nodes_lost_total", ",cause=agent")),
        1.0,
        "{:?}",
        recorder.standing("skyward_nodes")
    );
    assert_eq!(recorder.value(&of("skyward_nodes_replaced_total", "")), 1.0);
    assert_eq!(recorder.value(&of("skyward_nodes", ",phase=up")), 2.0);
    assert_eq!(
        recorder.value(&of("skyward_generations_total", "")),
        1.0,
        "a pool without a world keeps its generation"
    );
    until("leases are renewed", || recorder.value(&of("skyward_lease_renewals_total", "")) >= 2.0).await;
    assert_eq!(recorder.value(&of("skyward_lease_silences_total", "")), 0.0);
    end(pool, &recorder).await;
}

fn cache() -> String {
    let from = |variable| std::env::var(variable).ok().filter(|value| !value.is_empty());
    let of_user = || from("XDG_CACHE_HOME").unwrap_or_else(|| format!("{}/.cache", from("HOME").unwrap())) + "/skyward";
    from("SKYWARD_CACHE_DIR").unwrap_or_else(of_user)
}
