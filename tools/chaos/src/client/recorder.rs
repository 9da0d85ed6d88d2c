//! A pool that reports each task it is given.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use skyward::compute::{ComputePool, PoolStatus};
use skyward::event::{EventItem, Events, PoolEvent};
use skyward::files::NodeFiles;
use skyward::payload::{Target, Task, TaskHandle, value};
use skyward::pool::Pool;
use skyward::spec::Nodes;

use crate::words::Line;

#[derive(Debug)]
pub(crate) struct Recorder {
    pool: Pool,
    refuses: AtomicBool,
}

impl Recorder {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, refuses: AtomicBool::new(false) }
    }

    /// Whether the pool refused the last task.
    pub(crate) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl ComputePool for Recorder {
    async fn submit(&self, task: Task, target: Target) -> skyward::Result<TaskHandle> {
        let call = call_of(&task)?;
        let submitted = self.pool.submit(task, target).await;
        let tasks = submitted.iter().map(|handle| handle.id().0).collect();
        self.refuses.store(submitted.is_err(), Ordering::Relaxed);
        say(&Line::Submitted { call, tasks, each_rank: false });
        submitted
    }

    async fn submit_all(&self, task: Task) -> skyward::Result<Vec<TaskHandle>> {
        let call = call_of(&task)?;
        let submitted = self.pool.submit_all(task).await;
        let tasks = submitted.iter().flatten().map(|handle| handle.id().0).collect();
        self.refuses.store(submitted.is_err(), Ordering::Relaxed);
        say(&Line::Submitted { call, tasks, each_rank: true });
        submitted
    }

    fn status(&self) -> PoolStatus {
        self.pool.status()
    }

    fn events(&self) -> Events {
        self.pool.events()
    }

    fn files(&self) -> Option<&dyn NodeFiles> {
        self.pool.files()
    }

    async fn resize(&self, nodes: Nodes) -> skyward::Result<()> {
        self.pool.resize(nodes).await
    }

    async fn shutdown(&self, deadline: Duration) -> skyward::Result<()> {
        self.pool.shutdown(deadline).await
    }
}

/// Reports which tasks are tried again, until the pool is closed.
pub(crate) async fn tell_retries(mut events: Events) {
    while let Some(item) = events.next().await {
        match item {
            EventItem::Event(event) => {
                if let PoolEvent::TaskRetried { task, .. } = &*event {
                    say(&Line::Retried { task: task.0 });
                }
            }
            _ => say(&Line::Missed),
        }
    }
}

/// Writes one line in one piece: a client that is killed has written all of it or nothing.
pub(crate) fn say(line: &Line) {
    use std::io::Write;
    if let Ok(mut text) = serde_json::to_vec(line) {
        text.push(b'\n');
        // Without a reader, the line is lost.
        let _ = std::io::stdout().lock().write_all(&text);
    }
}

/// The number that each call carries among its arguments.
fn call_of(task: &Task) -> skyward::Result<u64> {
    #[derive(serde::Deserialize)]
    struct Arguments {
        call: u64,
    }
    Ok(value::decode::<Arguments>(&task.args)?.call)
}
