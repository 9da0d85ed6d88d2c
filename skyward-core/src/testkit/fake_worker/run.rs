//! The life of a worker: it enters its hooks, then runs its tasks one after another.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::fate::Work;
use super::frames::{Failure, pack, push, send};
use super::worker::{Waiting, Worker};
use super::{FakeNode, State, lock};
use crate::testkit::fake_calls::Wait;
use crate::testkit::lineage::Running;
use crate::testkit::script::{Answer, End, FakeTask, Step};
use crate::worker::codec::Frame;

impl FakeNode {
    /// The life of a worker: it enters its hooks, then runs its tasks one after another.
    pub(super) async fn work(self, number: u32, pid: u32, generation: u64) {
        let me = |state: &State| state.workers.get(&number).is_some_and(|it| it.pid == pid && it.alive);
        match self.fate().hooks(self.0.node, number, generation) {
            Some(time) => sleep(time).await,
            None => return self.until(|state| !me(state)).await,
        }
        if let Some(worker) = lock(&self.0.state).workers.get_mut(&number).filter(|it| it.pid == pid) {
            worker.ready = true;
        }
        self.0.changed.notify_waiters();
        loop {
            self.until(|state| !me(state) || !state.frozen && !state.workers[&number].waiting.is_empty()).await;
            let next = {
                let mut state = lock(&self.0.state);
                if !me(&state) {
                    return;
                }
                let worker = state.workers.get_mut(&number);
                worker.and_then(|worker| {
                    let Waiting { run: task, entry, args } = worker.waiting.pop_front()?;
                    if task <= worker.recalled {
                        worker.answer(task, Err(Failure::of("recalled")));
                        return None;
                    }
                    worker.begun = task;
                    worker.running = Some(task);
                    worker.entry = entry;
                    worker.interrupted = false;
                    let running = Running::begin(&self, &args);
                    worker.running_try = running.number;
                    Some((task, running))
                })
            };
            let Some((task, running)) = next else { continue };
            let answer = self.answer_of(number, &running);
            if let Some(worker) = lock(&self.0.state).workers.get_mut(&number) {
                worker.deaf = answer.is_deaf();
            }
            let interrupted = self.until(|state| {
                !me(state)
                    || !answer.ignores_interrupts() && {
                        let worker = &state.workers[&number];
                        worker.interrupted && worker.cancelled.contains(&task)
                    }
            });
            let ended = tokio::select! {
                biased;
                () = interrupted => Err(Failure::of("cancelled")),
                played = self.perform(number, pid, (task, 0), &answer, &running) => match played {
                    Some(ended) => ended,
                    None => return,
                },
            };
            self.until(|state| !me(state) || !state.frozen).await;
            let mut state = lock(&self.0.state);
            if !me(&state) {
                return;
            }
            self.end_calls(&mut state, number);
            if let Some(worker) = state.workers.get_mut(&number) {
                worker.running = None;
                worker.deaf = false;
                worker.cancelled.remove(&task);
                worker.answer(task, ended);
            }
            drop(state);
            drop(running);
            self.0.changed.notify_waiters();
        }
    }

    /// What a task or a call does at this start of it.
    pub(in crate::testkit) fn answer_of(&self, number: u32, running: &Running) -> Answer {
        let (entry, rank) = match lock(&self.0.state).workers.get(&number) {
            Some(worker) => (Arc::clone(&worker.entry), worker.rank),
            None => (Arc::default(), 0),
        };
        let args = &running.args;
        let length = args.len() - running.depth;
        let task = FakeTask {
            entry: &entry,
            sent: args.clone(),
            args: args.slice(..length),
            path: args.slice(length..),
            start: self.0.witness.run(args),
            node: self.0.node,
            rank,
        };
        self.0.script.answer(&task)
    }

    /// Does this within a frame of a worker: a run, or a call that it helps with. Returns the
    /// outcome, or `None` if the worker has ended.
    pub(in crate::testkit) async fn perform(
        &self,
        number: u32,
        pid: u32,
        frame: (u64, u64),
        answer: &Answer,
        running: &Running,
    ) -> Option<Result<Bytes, Failure>> {
        for step in &answer.steps {
            match step {
                Step::After(time) => sleep(*time).await,
                Step::Report(value) => {
                    self.with_worker(number, pid, |state| {
                        let worker = state.workers.get_mut(&number)?;
                        worker.report(frame.0, value.clone());
                        Some(())
                    })
                    .await?;
                }
                Step::Write(stream, text) => {
                    self.with_worker(number, pid, |state| write(state, number, *stream as usize, text)).await?;
                }
                Step::Item(value) => self.item(number, pid, frame.0, value.clone()).await?,
                Step::Calls(count) => {
                    let wait = Wait::ForAll { hidden: false };
                    if !self.call_and_wait(number, pid, frame, running, *count, wait).await? {
                        return Some(Err(Failure::raised("RuntimeError", "a call has failed")));
                    }
                }
                Step::Fail(failure) => return Some(Err(failure.clone())),
            }
        }
        match &answer.end {
            End::Return(value) => Some(Ok(value.clone())),
            End::Fail(failure) => Some(Err(failure.clone())),
            End::Exit(code) => self.end_itself(number, pid, Some(*code), None).await,
            End::Do(work) => self.play(number, pid, frame, *work, running).await,
        }
    }

    async fn play(
        &self,
        number: u32,
        pid: u32,
        frame: (u64, u64),
        work: Work,
        running: &Running,
    ) -> Option<Result<Bytes, Failure>> {
        match work {
            Work::Return(time) | Work::Deaf(time) => {
                sleep(time).await;
                Some(Ok(running.args.clone()))
            }
            Work::Raise(time) => {
                sleep(time).await;
                Some(Err(Failure::of("exception")))
            }
            Work::Crash(time, signal) => {
                sleep(time).await;
                self.end_itself(number, pid, None, Some(signal)).await
            }
            Work::Call(count, hidden) => {
                let good = self.call_and_wait(number, pid, frame, running, count, Wait::ForAll { hidden }).await?;
                Some(if good { Ok(running.args.clone()) } else { Err(Failure::of("exception")) })
            }
            Work::CallBriefly(count, time) => {
                self.call_and_wait(number, pid, frame, running, count, Wait::Until(Instant::now() + time)).await?;
                Some(Ok(running.args.clone()))
            }
            Work::Yield(count, time) => {
                for _ in 0..count {
                    sleep(time).await;
                    self.item(number, pid, frame.0, running.args.clone()).await?;
                }
                Some(Ok(Bytes::from_static(b"\xc0")))
            }
            Work::UntilInterrupted | Work::UntilKilled => std::future::pending().await,
        }
    }

    /// Changes the state once the node is not frozen. Returns `None` if the worker has ended.
    async fn with_worker(&self, number: u32, pid: u32, change: impl FnOnce(&mut State) -> Option<()>) -> Option<()> {
        let me = |state: &State| state.workers.get(&number).is_some_and(|it| it.pid == pid && it.alive);
        self.until(|state| !me(state) || !state.frozen).await;
        let mut state = lock(&self.0.state);
        if me(&state) { change(&mut state) } else { None }
    }

    async fn end_itself<T>(&self, number: u32, pid: u32, code: Option<i32>, signal: Option<i32>) -> Option<T> {
        let end = |state: &mut State| {
            self.end_worker(state, number, code, signal);
            Some(())
        };
        self.with_worker(number, pid, end).await;
        self.0.changed.notify_waiters();
        None
    }

    /// Sends the next item of a stream, when the stream has credit.
    async fn item(&self, number: u32, pid: u32, task: u64, value: Bytes) -> Option<()> {
        let may = |worker: &Worker| worker.streams.get(&task).is_some_and(|stream| stream.next < stream.granted);
        let is_over = |worker: &Worker| worker.pid != pid || !worker.alive;
        self.until(|state| {
            !state.frozen && state.workers.get(&number).is_none_or(|worker| is_over(worker) || may(worker))
        })
        .await;
        let mut state = lock(&self.0.state);
        let worker = state.workers.get_mut(&number).filter(|worker| !is_over(worker))?;
        let stream = worker.streams.get_mut(&task)?;
        let item = Frame { head: pack(&(100, task, stream.next)), body: value };
        stream.items.push_back((stream.next, item.clone()));
        stream.next += 1;
        if let Some(client) = &worker.client {
            push(client, item);
        }
        Some(())
    }
}

/// Appends to the output of a worker, and sends it to a client that wants it.
fn write(state: &mut State, number: u32, stream: usize, text: &Bytes) -> Option<()> {
    let worker = state.workers.get_mut(&number)?;
    let offset = worker.output[stream].len();
    worker.output[stream].extend_from_slice(text);
    if worker.subscribed
        && let Some(agent) = &state.client
    {
        send(agent, &(38, worker.generation, number, stream + 1, offset), text.clone());
    }
    Some(())
}
