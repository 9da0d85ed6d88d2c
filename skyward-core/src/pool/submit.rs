//! The way in: a task gets its number, its handle and its place in the queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::outbox::Spans;
use super::refused::Content;
use super::shared::{After, Entry, Reply, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Attempt, Rank, TaskId};
use crate::payload::{Target, Task, TaskHandle};
use crate::worker::link::Sender;
use crate::worker::message::ToWorker;
use crate::worker::session::too_large;

impl Shared {
    /// Takes a task for one worker.
    pub(crate) async fn submit(self: &Arc<Self>, mut task: Task, target: Target) -> Result<TaskHandle> {
        self.admit(&mut task)?;
        let room = self.take_room(1, &mut task).await?;
        let (id, handle, entry) = self.entry(task, room);
        self.act(|state, now| {
            state.may_submit()?;
            let (options, streaming) = (entry.task.options, entry.task.streaming);
            state.tasks.insert(id, Entry { since: now, ..entry });
            let submitted = state.scheduler.submit(now, id, target, options, streaming);
            if submitted.is_err() {
                state.tasks.remove(&id);
            }
            submitted
        })?;
        Ok(handle)
    }

    /// Takes a task for every worker.
    pub(crate) async fn submit_all(self: &Arc<Self>, mut task: Task) -> Result<Vec<TaskHandle>> {
        self.admit(&mut task)?;
        loop {
            let count = self.workers_of_broadcast(&mut task).await?;
            if let Some(handles) = self.submit_to_all(&mut task, count).await? {
                return Ok(handles);
            }
        }
    }

    /// How many workers a broadcast goes to. A joined world whose size is to change takes none until it has.
    async fn workers_of_broadcast(&self, task: &mut Task) -> Result<usize> {
        let settled = self.until(|state| {
            let count = state.scheduler.active_workers() as usize;
            (!state.scheduler.is_held()).then_some(count)
        });
        let Some(longest) = task.options.queue_timeout else { return Ok(settled.await) };
        let began = Instant::now();
        let count = tokio::time::timeout(longest, settled).await.map_err(|_| {
            let what = format!("the task was not started within {longest:?}: the pool is resizing and waits for running tasks to finish");
            Error::new(ErrorKind::QueueTimeout, what)
                .temporary()
                .with_hint("`.queue_timeout(…)` bounds the wait for a worker; give it more")
        })?;
        task.options.queue_timeout = Some(longest.saturating_sub(began.elapsed()));
        Ok(count)
    }

    /// Takes a task for so many workers; none, if there are others by now.
    async fn submit_to_all(self: &Arc<Self>, task: &mut Task, count: usize) -> Result<Option<Vec<TaskHandle>>> {
        if count > self.limits.max_queued {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!("a broadcast makes {count} tasks, and the queue holds {}", self.limits.max_queued),
            )
            .with_hint("raise `Limits::max_queued` to the number of workers or more"));
        }
        let mut room = self.take_room(count as u32, task).await?;
        let mut handles = Vec::with_capacity(count);
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(one) = room.split(1) else { break };
            let (id, handle, mut entry) = self.entry(task.clone(), one);
            entry.gang = Some(entries.first().map_or(id, |(first, _): &(TaskId, Entry)| *first));
            handles.push(handle);
            entries.push((id, entry));
        }
        let (options, streaming) = (task.options, task.streaming);
        let taken = self.act(|state, now| {
            state.may_submit()?;
            if state.scheduler.is_held() || state.scheduler.active_workers() as usize != count {
                return Ok::<_, Error>(false);
            }
            let ids: Vec<TaskId> = entries.iter().map(|(id, _)| *id).collect();
            for (id, entry) in entries {
                state.tasks.insert(id, Entry { since: now, ..entry });
            }
            if state.scheduler.is_joined() {
                state.scheduler.submit_gang(now, &ids, options, streaming);
                return Ok(true);
            }
            ids.iter().enumerate().try_for_each(|(rank, id)| {
                state.scheduler.submit(now, *id, Target::Rank(Rank(rank as u32)), options, streaming)
            })?;
            Ok(true)
        })?;
        // Not while the state is locked: a handle that is dropped cancels its task.
        Ok(taken.then_some(handles))
    }

    fn entry(self: &Arc<Self>, mut task: Task, room: OwnedSemaphorePermit) -> (TaskId, TaskHandle, Entry) {
        let id = TaskId(self.next_task.fetch_add(1, Ordering::Relaxed));
        let shared = Arc::downgrade(self);
        let cancel = {
            let shared = Weak::clone(&shared);
            move || {
                if let Some(shared) = shared.upgrade() {
                    shared.act(|state, now| state.scheduler.cancel(now, id));
                }
            }
        };
        let (handle, reply, items) = if task.streaming {
            let (handle, reply, items) = TaskHandle::stream(id, STREAM_WINDOW as usize, cancel);
            let taken = move || {
                if let Some(shared) = shared.upgrade() {
                    shared.grant(id);
                }
            };
            (handle.on_taken(taken), reply, Some(items))
        } else {
            let (handle, reply) = TaskHandle::new(id, cancel);
            (handle, reply, None)
        };
        let none = tracing::field::Empty;
        let span = tracing::debug_span!(
            target: "skyward::task", "task", pool = %self.pool, task = id.0, entry = task.source.entry(),
            node = none, rank = none, attempts = none, queued_us = none, outcome = none, otel.status_code = none,
        );
        if let (None, Some(source)) = (&task.trace, &self.trace) {
            task.trace = span.in_scope(|| source.get());
        }
        let spans = Spans::of(span);
        let since = Instant::now().into_std();
        let (began, ran, run, unread) = (None, None, None, None);
        let (gang, attempt) = (None, Attempt(1));
        let entry = Entry {
            task,
            reply: Reply::Handle(reply),
            depth: 0,
            items,
            next_item: 0,
            run,
            gang,
            attempt,
            since,
            began,
            ran,
            unread,
            spans,
            _room: Some(room),
        };
        (id, handle, entry)
    }

    /// The caller took an item of a stream: the generator may make one more.
    fn grant(&self, id: TaskId) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            let awaited = state.tasks.get(&id).and_then(|entry| {
                let (rank, run) = entry.run?;
                Some((rank, entry.items()?.awaited(run)))
            });
            let Some((rank, awaited)) = awaited else { return };
            state.push_to_worker(rank, ToWorker::Credit(awaited), &mut after);
        }
        for sender in after.flush {
            Sender::flush(&sender);
        }
    }

    /// Waits for room in the queue. What that takes of the time in which the task is to be started is gone.
    async fn take_room(&self, count: u32, task: &mut Task) -> Result<OwnedSemaphorePermit> {
        // Without an await where there is room: that is the usual case, and each call's.
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(count) {
            return Ok(room);
        }
        let room = Arc::clone(&self.room).acquire_many_owned(count);
        let Some(longest) = task.options.queue_timeout else { return room.await.map_err(|_| self.refusal()) };
        let began = Instant::now();
        let room = tokio::time::timeout(longest, room).await.map_err(|_| {
            Error::new(
                ErrorKind::QueueTimeout,
                format!("the task was not started within {longest:?}: {} tasks were in the queue, and it found no room there", self.limits.max_queued),
            )
            .temporary()
            .with_hint("`.queue_timeout(…)` bounds the wait for a worker; give it more, or the pool more workers")
        })?;
        task.options.queue_timeout = Some(longest.saturating_sub(began.elapsed()));
        room.map_err(|_| self.refusal())
    }

    /// Takes the pool's options where the task has none, and refuses what is not to be run.
    fn admit(&self, task: &mut Task) -> Result<()> {
        task.options = task.options.or(self.defaults);
        self.check_size(task)?;
        let suspicious = self.refused().may_hold(task);
        if suspicious {
            // All of the arguments are read, without the lock.
            let content = Content::of(task);
            let refusal = self.refused().get(&content);
            return refusal.map_or(Ok(()), Err);
        }
        Ok(())
    }

    fn check_size(&self, task: &Task) -> Result<()> {
        for (what, length) in [("arguments", task.args.len()), ("source", task.source.size())] {
            if length > self.limits.max_frame {
                return Err(too_large(what, length, self.limits.max_frame));
            }
        }
        Ok(())
    }
}

/// Items of a stream that are on their way or wait for their reader.
pub(crate) const STREAM_WINDOW: u32 = 16;
