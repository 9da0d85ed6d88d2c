//! The jobs that the driver runs besides taking commands.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use futures_util::future::{AbortHandle, Aborted, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::pool::fleet::directive::Job;

/// What the owner of a job does with its result.
type Then<O> = Box<dyn FnOnce(&mut O) + Send>;
type Running<O> = Pin<Box<dyn Future<Output = (Job, Result<Then<O>, Aborted>)> + Send>>;

/// The running jobs of an owner. Jobs run only while [`next`](Self::next) is awaited, and end when
/// they are dropped.
pub(crate) struct Jobs<O> {
    running: FuturesUnordered<Running<O>>,
    handles: BTreeMap<Job, AbortHandle>,
}

impl<O: 'static> Jobs<O> {
    /// Begins a job, which replaces a running job of the same name. `then` gets its result.
    pub(crate) fn begin<T: Send + 'static>(
        &mut self,
        job: Job,
        work: impl Future<Output = T> + Send + 'static,
        then: impl FnOnce(&mut O, T) + Send + 'static,
    ) {
        let (work, handle) = abortable(async move {
            let result = work.await;
            Box::new(move |owner: &mut O| then(owner, result)) as Then<O>
        });
        if let Some(before) = self.handles.insert(job, handle) {
            before.abort();
        }
        self.running.push(Box::pin(async move { (job, work.await) }));
    }

    /// Gives up a job.
    pub(crate) fn end(&mut self, job: Job) {
        if let Some(handle) = self.handles.remove(&job) {
            handle.abort();
        }
    }

    /// What follows from the next job that ends; waits for ever while there is no job.
    ///
    /// # Cancel safety
    ///
    /// No result is lost.
    pub(crate) async fn next(&mut self) -> Then<O> {
        loop {
            match self.running.next().await {
                Some((job, Ok(then))) => {
                    self.handles.remove(&job);
                    return then;
                }
                Some((_, Err(Aborted))) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl<O> Default for Jobs<O> {
    fn default() -> Self {
        Self { running: FuturesUnordered::new(), handles: BTreeMap::new() }
    }
}

impl<O> std::fmt::Debug for Jobs<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handles.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::ids::{NodeIndex, Rank};
    use crate::pool::fleet::directive::Repair;

    #[tokio::test]
    async fn a_job_replaces_a_running_job_of_its_name_and_ends_once() {
        let (mut jobs, mut results) = (Jobs::<Vec<u32>>::default(), Vec::new());
        let note = |results: &mut Vec<u32>, result| results.push(result);
        let (replace, reach) = (Job::Repair(Repair::Replace(NodeIndex(0))), Job::ReachWorker(Rank(1)));
        jobs.begin(replace, pending(), note);
        jobs.begin(reach, ready(1), note);
        jobs.begin(replace, ready(2), note);
        jobs.next().await(&mut results);
        jobs.next().await(&mut results);
        results.sort_unstable();
        assert_eq!(results, [1, 2]);
        jobs.begin(reach, ready(3), note);
        jobs.end(reach);
        jobs.begin(replace, ready(4), note);
        jobs.next().await(&mut results);
        assert_eq!(results, [1, 2, 4]);
        assert!(futures_util::FutureExt::now_or_never(jobs.next()).is_none());
    }
}
