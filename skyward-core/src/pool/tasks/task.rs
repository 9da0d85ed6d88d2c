//! A task that has no outcome yet: what it runs, where its outcome goes, and how far it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::caller::Caller;
use super::counts::Root;
use super::held::Unread;
use super::spans::Spans;
use crate::ids::TaskId;
use crate::payload::{ItemSender, Task, TaskReply};
use crate::scheduler::Scheduler;
use crate::worker::message::{Awaited, GangTry};
use crate::worker::session::Call;

pub(crate) struct Entry {
    pub(crate) task: Task,
    pub(crate) reply: Reply,
    pub(crate) items: Option<ItemSender>,
    pub(crate) next_item: u64,
    /// The first task of the broadcast and the number of its tasks, if the task belongs to one.
    pub(crate) gang: Option<(TaskId, u32)>,
    /// When the present worker began the task.
    pub(super) began: Option<Instant>,
    /// How long the payload ran, once its worker has reported it.
    pub(crate) ran: Option<Duration>,
    /// What the worker had written when the task ended, if some of that output is still missing.
    pub(crate) unread: Option<Unread>,
    pub(crate) spans: Option<Arc<Spans>>,
    /// Room in the queue. A call has none, because its caller would wait for room that it occupies
    /// itself.
    pub(crate) _room: Option<OwnedSemaphorePermit>,
}

/// Where the outcome of a task goes.
pub(crate) enum Reply {
    /// To the handle that the Rust caller holds.
    Handle(TaskReply),
    /// To the payload that made the call, below this root.
    Caller(Caller, Root),
}

impl Entry {
    /// The entry of a task without a stream. It has no span, as calls have none, because a span
    /// would call the subscriber while the state is locked.
    pub(super) fn new(task: Task, reply: Reply) -> Self {
        Self {
            task,
            reply,
            items: None,
            next_item: 0,
            gang: None,
            began: None,
            ran: None,
            unread: None,
            spans: None,
            _room: None,
        }
    }

    /// The root above a call; `None` for a task that Rust has submitted.
    pub(crate) fn root(&self) -> Option<Root> {
        match &self.reply {
            Reply::Caller(_, root) => Some(*root),
            Reply::Handle(_) => None,
        }
    }

    /// What the worker must run in the present try. `id` is the task.
    pub(super) fn call(&self, id: TaskId, scheduler: &Scheduler) -> Call<'_> {
        let (attempt, depth) = (scheduler.attempt(id), scheduler.depth(id));
        let granted = self.items().map_or(0, |items| items.awaited(0).granted);
        let gang = self.gang.map(|(first, ranks)| GangTry { first: first.0, attempt: attempt.0, ranks });
        Call { task: &self.task, granted, gang, depth }
    }

    /// The stream of the task, if it has one.
    pub(crate) fn items(&self) -> Option<Items<'_>> {
        self.items.as_ref().map(|channel| Items { channel, arrived: self.next_item })
    }
}

/// The client's end of a stream.
pub(crate) struct Items<'e> {
    channel: &'e ItemSender,
    arrived: u64,
}

impl Items<'_> {
    /// How far the client is: the items that have arrived, and the items that may be sent.
    pub(crate) fn awaited(&self, run: u64) -> Awaited {
        let granted = self.arrived + self.channel.capacity() as u64;
        Awaited { run, arrived: self.arrived, granted }
    }
}
