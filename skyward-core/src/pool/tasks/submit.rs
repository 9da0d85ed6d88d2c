//! The way in: a task gets its number, its handle and its place in the queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::after::After;
use super::poison::Content;
use super::shared::Shared;
use super::spans::Spans;
use super::task::{Entry, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Rank, TaskId};
use crate::payload::{Target, Task, TaskHandle};
use crate::scheduler::TaskData;
use crate::worker::link::Sender;
use crate::worker::message::ToWorker;
use crate::worker::session::too_large;

impl Shared {
    /// Accepts a task for one worker.
    pub(crate) async fn submit(self: &Arc<Self>, mut task: Task, target: Target) -> Result<TaskHandle> {
        self.admit(&mut task)?;
        let room = self.take_room(1, &mut task).await?;
        let (id, handle, entry) = self.entry(task, room);
        let (options, bytes) = (entry.task.options, entry.task.args.len());
        let data = TaskData { streaming: entry.task.streaming, bytes };
        let mut entry = Some(entry);
        let submitted: Result<()> = self.act(|state, now| {
            state.may_submit()?;
            state.scheduler.submit(now, id, target, options, data)?;
            entry.take().into_iter().for_each(|entry| state.tasks.add(now, id, entry));
            Ok(())
        });
        // A refused entry is dropped here, after the state is unlocked: the end of a span is for
        // the subscriber, which may ask the pool.
        drop(entry);
        submitted?;
        Ok(handle)
    }

    /// Accepts a task for every worker.
    pub(crate) async fn submit_all(self: &Arc<Self>, mut task: Task) -> Result<Vec<TaskHandle>> {
        self.admit(&mut task)?;
        loop {
            let count = self.workers_of_broadcast(&mut task).await?;
            if let Some(handles) = self.submit_to_all(&mut task, count).await? {
                return Ok(handles);
            }
        }
    }

    /// The number of workers that a broadcast goes to. Waits while a joined world changes its size,
    /// unless the pool takes no tasks any more: then the world may never take tasks again.
    async fn workers_of_broadcast(&self, task: &mut Task) -> Result<usize> {
        let settled = self.until(|state| match state.may_submit() {
            Ok(()) if state.scheduler.is_held() => None,
            Ok(()) => Some(Ok(state.scheduler.active_workers() as usize)),
            Err(error) => Some(Err(error)),
        });
        let Some(longest) = task.options.queue_timeout else { return settled.await };
        let began = Instant::now();
        let count = tokio::time::timeout(longest, settled).await.map_err(|_| {
            let what = format!("the task was not started within {longest:?}: the pool is resizing and waits for running tasks to finish");
            Error::new(ErrorKind::QueueTimeout, what)
                .temporary()
                .with_hint("`.queue_timeout(…)` bounds the wait for a worker; give it more")
        })??;
        task.options.queue_timeout = Some(longest.saturating_sub(began.elapsed()));
        Ok(count)
    }

    /// Accepts a task for `count` workers; returns `None` if the number of workers has changed
    /// meanwhile.
    async fn submit_to_all(self: &Arc<Self>, task: &mut Task, count: usize) -> Result<Option<Vec<TaskHandle>>> {
        if count > self.limits.max_queued {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!("a broadcast makes {count} tasks, but the queue holds only {}", self.limits.max_queued),
            )
            .with_hint("raise `Limits::max_queued` to the number of workers or more"));
        }
        let mut room = self.take_room(count as u32, task).await?;
        let mut handles = Vec::with_capacity(count);
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(one) = room.split(1) else { break };
            let (id, handle, mut entry) = self.entry(task.clone(), one);
            let first = entries.first().map_or(id, |(first, _): &(TaskId, Entry)| *first);
            entry.gang = Some((first, count as u32));
            handles.push(handle);
            entries.push((id, entry));
        }
        let (options, data) = (task.options, TaskData { streaming: task.streaming, bytes: task.args.len() });
        let taken = self.act(|state, now| {
            if let Err(error) = state.may_submit() {
                return Err((error, entries));
            }
            if state.scheduler.is_held() || state.scheduler.active_workers() as usize != count {
                return Ok(Some(entries));
            }
            if state.scheduler.is_joined() {
                let ids: Vec<TaskId> = entries.iter().map(|(id, _)| *id).collect();
                state.scheduler.submit_gang(now, &ids, options, data.streaming);
                entries.into_iter().for_each(|(id, entry)| state.tasks.add(now, id, entry));
                return Ok(None);
            }
            let mut entries = entries.into_iter();
            for (rank, (id, entry)) in (0..).map(Rank).zip(entries.by_ref()) {
                if let Err(error) = state.scheduler.submit(now, id, Target::Rank(rank), options, data) {
                    return Err((error, std::iter::once((id, entry)).chain(entries).collect()));
                }
                state.tasks.add(now, id, entry);
            }
            Ok(None)
        });
        // These are dropped after the state is unlocked: dropping a handle cancels its task, and
        // the end of a span calls the program's subscriber.
        let refused = taken.map_err(|(error, _refused)| error)?;
        Ok(refused.is_none().then_some(handles))
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
        let entry =
            Entry { items, spans: Spans::of(span), _room: Some(room), ..Entry::new(task, Reply::Handle(reply)) };
        (id, handle, entry)
    }

    /// The caller has taken an item of a stream, so the generator may make another one.
    fn grant(&self, id: TaskId) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            let awaited = state.tasks.get(id).and_then(|entry| {
                let rank = state.scheduler.runner(id)?;
                let run = state.workers.get(rank)?.session.run_of(id)?;
                Some((rank, entry.items()?.awaited(run)))
            });
            let Some((rank, awaited)) = awaited else { return };
            state.push_to_worker(rank, ToWorker::Credit(awaited), &mut after);
        }
        for sender in after.flush {
            Sender::flush(&sender);
        }
    }

    /// Waits for room in the queue. The wait counts towards the time in which the task must be
    /// started.
    async fn take_room(&self, count: u32, task: &mut Task) -> Result<OwnedSemaphorePermit> {
        // Without an await if there is room: that is the usual case, for every call.
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(count) {
            return Ok(room);
        }
        // A waker of another caller that panics can keep the end of the queue from this one.
        let room = async {
            tokio::select! {
                biased;
                room = Arc::clone(&self.room).acquire_many_owned(count) => room.map_err(|_| self.refusal()),
                error = self.until(|state| state.may_submit().err()) => Err(error),
            }
        };
        let Some(longest) = task.options.queue_timeout else { return room.await };
        let began = Instant::now();
        let room = tokio::time::timeout(longest, room).await.map_err(|_| {
            Error::new(
                ErrorKind::QueueTimeout,
                format!(
                    "the task was not started within {longest:?}: the queue was full, with {} tasks",
                    self.limits.max_queued
                ),
            )
            .temporary()
            .with_hint("`.queue_timeout(…)` bounds the wait for a worker; give it more, or the pool more workers")
        })?;
        task.options.queue_timeout = Some(longest.saturating_sub(began.elapsed()));
        room
    }

    /// Fills in the pool's options, and refuses tasks that must not run.
    fn admit(&self, task: &mut Task) -> Result<()> {
        task.options = task.options.or(self.defaults);
        self.check_size(task)?;
        let suspicious = self.refused().may_hold(task);
        if suspicious {
            // Reads all of the arguments, so the lock is not held.
            let content = Content::of(task);
            let refusal = self.refused().get(&content);
            return refusal.map_or(Ok(()), Err);
        }
        Ok(())
    }

    fn check_size(&self, task: &Task) -> Result<()> {
        for (what, length) in [("arguments", task.args.len()), ("source", task.source.size())] {
            if length > self.limits.max_frame_bytes {
                return Err(too_large(what, length, self.limits.max_frame_bytes));
            }
        }
        Ok(())
    }
}

/// The most items of a stream that are under way or wait for their reader.
pub(crate) const STREAM_WINDOW: u32 = 16;
