//! Scripts of fake workers: every answer of a rule reaches the caller through the whole pool.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skyward_core::compute::PendingCompute;
use skyward_core::error::{Error, ErrorKind, WorkerExit};
use skyward_core::event::{EventItem, OutputStream, PoolEvent};
use skyward_core::ids::Rank;
use skyward_core::payload::{Args, Output, RetryPolicy, Source, Streaming};
use skyward_core::pool::Pool;
use skyward_core::testkit::fake_provider::{Death, FakeProvider, Faults};
use skyward_core::testkit::fake_worker::Fate;
use skyward_core::testkit::script::{Answer, Rule, Script};
use tokio::time::Instant;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Trained {
    loss: f64,
    steps: Vec<u32>,
}

fn train<T: Output>(epochs: u32) -> PendingCompute<T> {
    call("train", Args::new().with("epochs", &epochs).with_borrowed("name", "a"))
}

fn call<T: Output>(entry: &'static str, args: Args) -> PendingCompute<T> {
    PendingCompute::new(Arc::new(Source::file("a.py", format!("def {entry}(**_): ..."), entry)), args)
}

async fn pool(script: Script, nodes: u32) -> (FakeProvider, Pool) {
    let provider = FakeProvider::new(script);
    let pool = Pool::builder().provider(provider.clone()).nodes(nodes).start().await.unwrap();
    (provider, pool)
}

async fn end((provider, pool): (FakeProvider, Pool)) {
    pool.shutdown(Duration::from_secs(60)).await.unwrap();
    assert_eq!(provider.witness().wrongs(), Vec::<String>::new());
}

/// A rule for the task `train`.
fn on_train(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Script {
    Script::new().rule(Rule::task("train").answer(move |_| answer()))
}

#[tokio::test(start_paused = true)]
async fn a_result_has_the_type_of_the_payload_and_takes_its_time() {
    let answer = || Answer::returns(&Trained { loss: 0.5, steps: vec![1, 2] }).after(Duration::from_secs(90));
    let fake = pool(on_train(answer), 1).await;
    let began = Instant::now();
    let trained: Trained = train(3).run(&fake.1).await.unwrap();
    assert_eq!(trained, Trained { loss: 0.5, steps: vec![1, 2] });
    assert!(began.elapsed() >= Duration::from_secs(90), "{:?}", began.elapsed());
    let error = train::<String>(3).run(&fake.1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_matches_entry_and_arguments_answers() {
    let few = |task: &skyward_core::testkit::script::FakeTask<'_>| task.arg::<u32>("epochs").is_some_and(|n| n < 5);
    let script = Script::new()
        .rule(Rule::task("other"))
        .rule(Rule::task("train").when("epochs is below 5", few).answer(|_| Answer::returns("few")))
        .rule(Rule::task("train").answer(|task| Answer::returns(&task.arg::<String>("name"))));
    let fake = pool(script, 1).await;
    assert_eq!(train::<String>(4).run(&fake.1).await.unwrap(), "few");
    assert_eq!(train::<String>(5).run(&fake.1).await.unwrap(), "a");
    call::<()>("other", Args::new()).run(&fake.1).await.unwrap();
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_task_without_a_rule_lists_the_task_and_the_rules() {
    let script = Script::new()
        .rule(Rule::task("train").when("epochs is 1", |task| task.arg("epochs") == Some(1)))
        .rule(Rule::calls_of("train"));
    let fake = pool(script, 1).await;
    let error = train::<()>(2).run(&fake.1).await.unwrap_err();
    let exception = error.exception().unwrap();
    assert_eq!(exception.type_name, "skyward.testkit.NoRule");
    let expected = "no rule of the script answers `train(epochs=2, name=\"a\")` on rank 0; \
                    its rules are: `train` where epochs is 1; calls of `train`";
    assert_eq!(exception.message, expected);
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn reports_and_items_arrive_in_order() {
    let answer = || (0..300).fold(Answer::returns(&()), |answer, n| answer.reports(&n).yields(&(n * 2)));
    let fake = pool(on_train(answer), 1).await;
    let (call, mut reports) = train::<Streaming<u32>>(1).reports::<u32>();
    let mut stream = call.run(&fake.1).await.unwrap();
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item.unwrap());
    }
    drop(stream);
    let mut reported = Vec::new();
    while let Some(report) = reports.next().await {
        reported.push(report.unwrap().value);
    }
    assert!(items.into_iter().eq((0..300).map(|n| n * 2)) && reported.into_iter().eq(0..300));
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn output_belongs_to_the_task_that_writes_it() {
    let script = Script::new().rule(Rule::task("train").answer(|task| {
        let epochs: u32 = task.arg("epochs").unwrap();
        Answer::returns(&()).stdout(format!("epoch {epochs}\n")).after(Duration::from_secs(1)).stderr("warned\n")
    }));
    let fake = pool(script, 1).await;
    let mut events = fake.1.events();
    train::<()>(1).run(&fake.1).await.unwrap();
    train::<()>(2).run(&fake.1).await.unwrap();
    end(fake).await;
    let (mut started, mut written) = (Vec::new(), Vec::new());
    while let Some(item) = events.next().await {
        let EventItem::Event(event) = item else { continue };
        match &*event {
            PoolEvent::TaskStarted { task, .. } => started.push(*task),
            PoolEvent::Output(chunk) => {
                let task = started.iter().position(|task| Some(*task) == chunk.task).unwrap();
                written.push((task, chunk.stream, String::from_utf8(chunk.bytes.to_vec()).unwrap()));
            }
            _ => {}
        }
    }
    let line = |task, stream, text: &str| (task, stream, text.to_owned());
    let expected = [
        line(0, OutputStream::Stdout, "epoch 1\n"),
        line(0, OutputStream::Stderr, "warned\n"),
        line(1, OutputStream::Stdout, "epoch 2\n"),
        line(1, OutputStream::Stderr, "warned\n"),
    ];
    assert_eq!(written, expected);
}

#[tokio::test(start_paused = true)]
async fn an_exception_has_its_type_message_and_traceback() {
    let raises = || Answer::raises("torch.OutOfMemoryError", "too large").traceback("File \"a.py\", line 1\n");
    let fake = pool(on_train(raises), 1).await;
    let error = train::<()>(1).run(&fake.1).await.unwrap_err();
    let exception = error.exception().unwrap();
    assert_eq!(exception.type_name.as_str(), "torch.OutOfMemoryError");
    assert_eq!(exception.message.as_str(), "too large");
    assert_eq!(exception.traceback, "File \"a.py\", line 1\n");
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_encoded_fails_as_in_python() {
    let fake = pool(on_train(|| Answer::returns(&i128::MAX)), 1).await;
    let error: Error = train::<()>(1).run(&fake.1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Encode, "{error}");
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_exits_fails_its_task_or_has_it_tried_again() {
    let script = Script::new().rule(Rule::task("train").answer(|task| match task.start() {
        1 => Answer::exits(7).stdout("last words"),
        start => Answer::returns(&start),
    }));
    let fake = pool(script, 1).await;
    let once = train::<u32>(1).retry(RetryPolicy::never());
    let error = once.run(&fake.1).await.unwrap_err();
    assert_eq!(error.exit(), Some(&WorkerExit::Code(7)), "{error}");
    let again = train::<u32>(2).retry(RetryPolicy::never().crash(1));
    assert_eq!(again.run(&fake.1).await.unwrap(), 2);
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn ranks_of_a_broadcast_answer_differently() {
    let script = Script::new()
        .rule(Rule::task("train").when("rank is 1", |task| task.rank() == Rank(1)).answer(|_| Answer::returns(&100)))
        .rule(Rule::task("train").answer(|task| Answer::returns(&task.rank().0)));
    let fake = pool(script, 3).await;
    assert_eq!(train::<u32>(1).broadcast(&fake.1).await.unwrap(), [0, 100, 2]);
    end(fake).await;
}

#[tokio::test(start_paused = true)]
async fn calls_within_calls_have_rules_of_their_own() {
    let script = Script::new()
        .rule(Rule::task("train").answer(|_| Answer::returns(&3).calls(2)))
        .rule(Rule::calls_of("train").when("it is the first call", |task| *task.path() == [0]).answer(|task| {
            assert_eq!(task.arg::<u32>("epochs"), Some(1));
            Answer::returns(&()).calls(3)
        }))
        .rule(Rule::calls_of("train").when("it is deeper", |task| task.path().len() == 2))
        .rule(Rule::calls_of("train").answer(|task| match task.arg::<String>("name") {
            Some(_) if task.start() == 1 => Answer::returns(&()),
            _ => Answer::raises("ValueError", "it was called twice"),
        }));
    let fake = pool(script, 2).await;
    assert_eq!(train::<u32>(1).run(&fake.1).await.unwrap(), 3);
    assert_eq!(fake.0.witness().calls().made, 5);
    let error = train::<u32>(1).retry(RetryPolicy::never()).run(&fake.1).await.unwrap_err();
    assert_eq!(error.exception().unwrap().message, "a call has failed");
    end(fake).await;
}

/// The first machine of node 0 dies after a minute.
#[derive(Debug)]
struct Unlucky;

impl Fate for Unlucky {}

impl Faults for Unlucky {
    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        ((node, machine) == (0, 0)).then_some((Duration::from_secs(60), Death::Machine))
    }
}

#[tokio::test(start_paused = true)]
async fn rules_answer_tasks_while_faults_happen_below_them() {
    let rule = Rule::task("train").answer(|task| Answer::returns(&task.start()).after(Duration::from_secs(100)));
    let fake = pool(Script::new().faults(Unlucky).rule(rule), 1).await;
    assert_eq!(train::<u32>(1).run(&fake.1).await.unwrap(), 2);
    assert_eq!(fake.0.launched(), 2);
    end(fake).await;
}
