//! The life of a worker: it enters its hooks, then runs its tasks one after another.

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::fate::Work;
use super::frames::{pack, push};
use super::worker::Worker;
use super::{FakeNode, State, lock};
use crate::testkit::fake_calls::Wait;
use crate::testkit::lineage::Running;
use crate::worker::codec::Frame;

impl FakeNode {
    /// The life of a worker: it enters its hooks, then runs its tasks one after another.
    pub(super) async fn work(self, number: u32, pid: u32, generation: u64) {
        let me = |state: &State| state.workers.get(&number).is_some_and(|it| it.pid == pid && it.alive);
        match self.0.fate.hooks(self.0.node, number, generation) {
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
                    let (task, args) = worker.waiting.pop_front()?;
                    if task <= worker.recalled {
                        worker.answer(task, Err("recalled"));
                        return None;
                    }
                    worker.begun = task;
                    worker.running = Some(task);
                    worker.interrupted = false;
                    let running = Running::begin(&self, &args);
                    worker.running_try = running.number;
                    Some((task, running))
                })
            };
            let Some((task, running)) = next else { continue };
            let work = self.work_of(&running.args);
            if let Some(worker) = lock(&self.0.state).workers.get_mut(&number) {
                worker.deaf = matches!(work, Work::Deaf(_));
            }
            let interrupted = self.until(|state| {
                !me(state)
                    || !matches!(work, Work::UntilKilled | Work::Deaf(_)) && {
                        let worker = &state.workers[&number];
                        worker.interrupted && worker.cancelled.contains(&task)
                    }
            });
            let ended = tokio::select! {
                biased;
                () = interrupted => Err("cancelled"),
                () = self.items(number, task, work, &running.args) => Ok(Bytes::from_static(b"\xc0")),
                played = self.play(number, pid, (task, 0), work, &running) => match played {
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

    /// What a task or a call with these arguments does at this start of it.
    pub(in crate::testkit) fn work_of(&self, args: &Bytes) -> Work {
        self.0.fate.work(args, self.0.witness.run(args))
    }

    /// Does this work within a frame of a worker: a run, or a call that it helps with. Returns the
    /// outcome, or `None` if the worker has ended.
    pub(in crate::testkit) async fn play(
        &self,
        number: u32,
        pid: u32,
        frame: (u64, u64),
        work: Work,
        running: &Running,
    ) -> Option<Result<Bytes, &'static str>> {
        match work {
            Work::Return(time) | Work::Deaf(time) => {
                sleep(time).await;
                Some(Ok(running.args.clone()))
            }
            Work::Raise(time) => {
                sleep(time).await;
                Some(Err("exception"))
            }
            Work::Crash(time, signal) => {
                sleep(time).await;
                let me = |state: &State| state.workers.get(&number).is_some_and(|it| it.pid == pid && it.alive);
                self.until(|state| !me(state) || !state.frozen).await;
                {
                    let mut state = lock(&self.0.state);
                    if me(&state) {
                        self.end_worker(&mut state, number, None, Some(signal));
                    }
                }
                self.0.changed.notify_waiters();
                None
            }
            Work::Call(count, hidden) => {
                let good = self.call_and_wait(number, pid, frame, running, count, Wait::ForAll { hidden }).await?;
                Some(if good { Ok(running.args.clone()) } else { Err("exception") })
            }
            Work::CallBriefly(count, time) => {
                self.call_and_wait(number, pid, frame, running, count, Wait::Until(Instant::now() + time)).await?;
                Some(Ok(running.args.clone()))
            }
            Work::Yield(..) | Work::UntilInterrupted | Work::UntilKilled => std::future::pending().await,
        }
    }

    /// Sends the items of a task that yields. For other work, the future never completes.
    async fn items(&self, number: u32, task: u64, work: Work, args: &Bytes) {
        let Work::Yield(count, time) = work else { return std::future::pending().await };
        for index in 0..u64::from(count) {
            sleep(time).await;
            let may = |worker: &Worker| worker.streams.get(&task).is_some_and(|stream| stream.next < stream.granted);
            self.until(|state| !state.frozen && state.workers.get(&number).is_none_or(may)).await;
            let mut state = lock(&self.0.state);
            let Some(worker) = state.workers.get_mut(&number) else { return };
            let item = Frame { head: pack(&(100, task, index)), body: args.clone() };
            if let Some(client) = &worker.client {
                push(client, item.clone());
            }
            if let Some(stream) = worker.streams.get_mut(&task) {
                stream.next = index + 1;
                stream.items.push_back((index, item));
            }
        }
    }
}
