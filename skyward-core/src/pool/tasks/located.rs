//! The Python stacks of one worker, on request.

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::after::After;
use super::shared::Shared;
use super::state::State;
use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind, RankStacks, Result};
use crate::ids::Rank;
use crate::scheduler::timing::STACKS;
use crate::worker::message::Signal;

impl Shared {
    /// Asks a worker for the stacks of its threads.
    ///
    /// # Errors
    ///
    /// As [`Pool::stacks`](crate::pool::Pool::stacks).
    pub(crate) async fn stacks(&self, rank: Rank) -> Result<RankStacks> {
        let answer = self.send(|state, after| state.ask_for_stacks(rank, after))?;
        match timeout(STACKS, answer).await {
            Ok(Ok(text)) if text.is_empty() => Err(silent(
                rank,
                "its process is stopped or hangs in the kernel, or has not begun to execute its own code",
            )),
            Ok(Ok(text)) => Ok(RankStacks::new(rank, &text, text.len())),
            Ok(Err(_)) => Err(self.lock().without_worker(rank)),
            Err(_) => Err(silent(rank, "the agent of its node did not answer")),
        }
    }
}

impl State {
    fn ask_for_stacks(&mut self, rank: Rank, after: &mut After) -> Result<oneshot::Receiver<String>> {
        let running = self.workers.get_mut(rank).filter(|row| row.process.pid().is_some() && !row.process.has_ended());
        let Some(row) = running else { return Err(self.without_worker(rank)) };
        let (asked, answer) = oneshot::channel();
        row.requests.ask_for_stacks(asked);
        self.signal(rank, Signal::Stacks, after);
        Ok(answer)
    }

    /// The error for a rank that has no worker.
    fn without_worker(&self, rank: Rank) -> Error {
        let not_found = |what: String| Error::new(ErrorKind::NotFound, what);
        match (self.workers.get(rank), self.workers.ranks().last()) {
            (Some(_), _) if self.life.phase() != PoolPhase::Ready => self.life.refusal(),
            (Some(_), _) => not_found(format!("rank {rank} has no worker now: it is being started")).temporary(),
            (None, last) => not_found(format!("the pool has no rank {rank}"))
                .with_hint(format!("its ranks are 0 to {}", last.map_or(0, |rank| rank.0))),
        }
    }
}

fn silent(rank: Rank, why: &str) -> Error {
    Error::new(ErrorKind::Timeout, format!("the worker of rank {rank} did not report where it is: {why}")).temporary()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{LastWords, WorkerExit};
    use crate::pool::tasks::replies::tests::{LIFE, RANK, pool, wire};
    use crate::pool::tasks::worker::WorkerRow;

    const PID: u32 = 4;

    async fn asked(shared: &std::sync::Arc<Shared>) -> tokio::task::JoinHandle<Result<RankStacks>> {
        let asking = std::sync::Arc::clone(shared);
        let asking = tokio::spawn(async move { asking.stacks(RANK).await });
        tokio::task::yield_now().await;
        asking
    }

    fn running() -> std::sync::Arc<Shared> {
        let shared = pool();
        shared.lock().row(RANK, LIFE).unwrap().process.on_started(PID, "/w0".to_owned());
        shared
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_gets_the_stacks_and_asks_the_agent() {
        let shared = running();
        let (agent, _writers, mut reader) = wire();
        shared.lock().nodes.get_mut(crate::ids::NodeIndex(0)).unwrap().agent = Some(agent);
        let (one, other) = (asked(&shared).await, asked(&shared).await);
        let mut frames = Vec::new();
        reader.read(&mut frames).await.unwrap();
        assert_eq!(rmp_serde::from_slice::<(u32, u64, u32, String)>(&frames[0].head).unwrap().3, "stacks");
        shared.on_stacks(RANK, LIFE, b"Current thread 0x1 (most recent call first):\n  File \"job.py\", line 3 in f\n");
        for asked in [one, other] {
            let stacks = asked.await.unwrap().unwrap();
            assert_eq!((stacks.rank, stacks.place.as_deref()), (RANK, Some("`f` (job.py:3)")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_cannot_answer_ends_or_is_not_there_is_an_error_of_its_own() {
        let shared = running();
        let silent = asked(&shared).await;
        shared.on_stacks(RANK, LIFE, b"");
        let late = asked(&shared).await;
        for asked in [silent, late] {
            let error = asked.await.unwrap().unwrap_err();
            assert!(error.kind() == ErrorKind::Timeout && error.is_temporary(), "{error}");
        }
        let ends = asked(&shared).await;
        shared.on_exited(RANK, LIFE, PID, &WorkerExit::Signal(9), LastWords::default(), 0);
        let replaced = {
            let mut state = shared.lock();
            let row = state.workers.get_mut(RANK).unwrap();
            *row = row.replaced(LIFE, 1 << 20);
            row.process.on_started(PID + 1, "/w0".to_owned());
            drop(state);
            asked(&shared).await
        };
        *shared.lock().workers.get_mut(RANK).unwrap() = WorkerRow::new(LIFE, 1 << 20);
        for asked in [ends, replaced] {
            let error = asked.await.unwrap().unwrap_err();
            assert!(error.kind() == ErrorKind::NotFound && error.is_temporary(), "{error}");
        }
        let error = shared.stacks(Rank(1)).await.unwrap_err();
        assert_eq!((error.kind(), error.hint()), (ErrorKind::NotFound, Some("its ranks are 0 to 0")));
        assert!(!error.is_temporary());
        shared.enter(PoolPhase::Draining);
        assert_eq!(shared.stacks(RANK).await.unwrap_err().kind(), ErrorKind::Closed);
    }
}
