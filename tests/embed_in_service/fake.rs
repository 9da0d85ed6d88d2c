//! The service on a pool without machines: the test receives each task and answers it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use serde_json::{Value as Json, json};
use skyward::Result;
use skyward::compute::{PoolPhase, PoolStatus};
use skyward::error::WorkerExit;
use skyward::event::Events;
use skyward::ids::{PoolId, TaskId};
use skyward::payload::{ItemSender, Target, Task, TaskHandle, TaskReply, Value, value};
use skyward::prelude::*;
use tokio::sync::mpsc;

use super::example::client::{Client, Told};
use super::example::http::router;
use super::example::trainings::{Bounds, Trainings};

/// A task that the test received.
struct Asked {
    arguments: Json,
    reply: TaskReply,
    items: ItemSender,
}

struct Fake {
    asked: mpsc::UnboundedSender<Asked>,
    refuses: Mutex<Option<Error>>,
}

#[async_trait]
impl ComputePool for Fake {
    async fn submit(&self, task: Task, _: Target) -> Result<TaskHandle> {
        if let Some(error) = self.refuses.lock().unwrap().clone() {
            return Err(error);
        }
        let (handle, reply, items) = TaskHandle::stream(TaskId(1), 16, || ());
        let _ = self.asked.send(Asked { arguments: value::decode(&task.args)?, reply, items });
        Ok(handle)
    }

    async fn submit_all(&self, task: Task) -> Result<Vec<TaskHandle>> {
        Ok(vec![self.submit(task, Target::Any).await?])
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::new(PoolId::new("fake"), PoolPhase::Ready)
    }

    fn events(&self) -> Events {
        Events::new(stream::pending())
    }

    async fn resize(&self, _: Nodes) -> Result<()> {
        Ok(())
    }

    async fn shutdown(&self, _: Duration) -> Result<()> {
        Ok(())
    }
}

impl Asked {
    async fn item(&self, item: Json) {
        self.items.send(Value::encode(&item, Rank(0)).unwrap()).await.unwrap();
    }

    async fn finish(self) {
        let report = json!({ "kind": "report", "epochs": 1, "samples": 2, "loss": 0.5, "accuracy": 1.0, "seconds": 0 });
        self.item(report).await;
        self.end(Ok(()));
    }

    fn end(self, outcome: Result<()>) {
        drop(self.items);
        self.reply.send(outcome.and_then(|()| Value::encode(&(), Rank(0))));
    }
}

async fn serve(waiting: usize) -> (Client, Arc<Fake>, Trainings, mpsc::UnboundedReceiver<Asked>) {
    let (sender, asked) = mpsc::unbounded_channel();
    let fake = Arc::new(Fake { asked: sender, refuses: Mutex::default() });
    let trainings = Trainings::new(Arc::clone(&fake) as Arc<dyn ComputePool>, Bounds { waiting, events: 8, ended: 2 });
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let client = Client(listener.local_addr().unwrap());
    let app = router(trainings.clone());
    tokio::spawn(async { axum::serve(listener, app).await });
    (client, fake, trainings, asked)
}

/// Awaits a future that must complete in time.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap()
}

/// The next task that the pool receives.
async fn task(asked: &mut mpsc::UnboundedReceiver<Asked>) -> Asked {
    soon(asked.recv()).await.unwrap()
}

async fn begin(client: &Client) -> String {
    let answer = client.post("/trainings", r#"{"epochs": 1}"#).await.unwrap();
    assert_eq!(answer.status, 202, "{:?}", answer.body);
    answer.headers["location"].to_str().unwrap().to_owned()
}

async fn events(client: &Client, place: &str) -> Vec<Told> {
    let mut follower = client.follow(&format!("{place}/events"), 0).await.unwrap();
    follower.until(&["finished", "failed", "cancelled"]).await.unwrap()
}

fn names(events: &[Told]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn a_training_whose_worker_is_lost_starts_again_once() {
    let (client, _fake, _, mut asked) = serve(2).await;
    let lost = || Error::worker_exited(Rank(0), WorkerExit::Signal(9));

    let place = begin(&client).await;
    let first = task(&mut asked).await;
    assert_eq!(first.arguments, json!({ "epochs": 1, "batch_size": 64, "learning_rate": 0.5, "seed": 0 }));
    first.item(json!({ "kind": "epoch", "epoch": 1, "loss": 0.5, "accuracy": 0.5 })).await;
    first.end(Err(lost()));
    task(&mut asked).await.finish().await;
    let told = events(&client, &place).await;
    assert_eq!(names(&told), ["queued", "progress", "retried", "finished"]);
    assert_eq!(told[2].data["error"]["kind"], "WorkerExited");
    assert_eq!(told[2].data["attempt"], 2);

    let place = begin(&client).await;
    for _ in 0..2 {
        task(&mut asked).await.end(Err(lost()));
    }
    let told = events(&client, &place).await;
    assert_eq!(names(&told), ["queued", "retried", "failed"]);
    assert_eq!(client.get(&place).await.unwrap().body["error"]["kind"], "WorkerExited");
}

#[tokio::test]
async fn a_pool_that_takes_no_tasks_is_reported_to_the_caller_without_the_hint_for_developers() {
    let (client, fake, trainings, _asked) = serve(2).await;
    *fake.refuses.lock().unwrap() = Some(Error::new(ErrorKind::NodeLost, "node 0 was lost").with_hint("start another"));
    let answer = client.post("/trainings", r#"{"epochs": 1}"#).await.unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.headers.contains_key("retry-after"));
    let expected = json!({ "kind": "NodeLost", "message": "node 0 was lost", "retry_after": 5 });
    assert_eq!(answer.body["error"], expected);
    assert_eq!(trainings.room(), 2, "a training that was not taken needs no room");
}

#[tokio::test]
async fn an_invalid_item_of_a_payload_fails_only_its_training() {
    let (client, _fake, _, mut asked) = serve(2).await;
    let (odd, fine) = (begin(&client).await, begin(&client).await);
    let first = task(&mut asked).await;
    first.item(json!({ "kind": "epoch", "epoch": "one" })).await;
    task(&mut asked).await.finish().await;
    assert_eq!(names(&events(&client, &odd).await), ["queued", "failed"]);
    assert_eq!(client.get(&odd).await.unwrap().body["error"]["kind"], "Decode");
    assert_eq!(names(&events(&client, &fine).await), ["queued", "finished"]);
    // A training that ends without a report fails too.
    let silent = begin(&client).await;
    task(&mut asked).await.end(Ok(()));
    assert_eq!(names(&events(&client, &silent).await), ["queued", "failed"]);
}

#[tokio::test]
async fn the_oldest_ended_trainings_are_forgotten() {
    let (client, _fake, _, mut asked) = serve(1).await;
    let mut places = Vec::new();
    for _ in 0..4 {
        let place = begin(&client).await;
        task(&mut asked).await.finish().await;
        events(&client, &place).await;
        places.push(place);
    }
    let mut states = Vec::new();
    for place in &places {
        states.push(client.get(place).await.unwrap().status.as_u16());
    }
    assert_eq!(states, [404, 404, 200, 200]);
}
