//! The jobs that the driver runs besides taking commands.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use futures_util::future::{AbortHandle, Aborted, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::pool::fleet::step::Job;

type Running<T> = Pin<Box<dyn Future<Output = (Job, Result<T, Aborted>)> + Send>>;

/// Running jobs and their results. Jobs run only while [`next`](Self::next) is awaited, and end
/// when they are dropped.
pub(crate) struct Jobs<T> {
    running: FuturesUnordered<Running<T>>,
    handles: BTreeMap<Job, AbortHandle>,
}

impl<T: Send + 'static> Jobs<T> {
    /// Begins a job, which replaces a running job of the same name.
    pub(crate) fn begin(&mut self, job: Job, work: impl Future<Output = T> + Send + 'static) {
        let (work, handle) = abortable(work);
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

    /// Gives up all jobs.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The next job that has ended, with its result; waits for ever while there is no job.
    ///
    /// # Cancel safety
    ///
    /// No result is lost.
    pub(crate) async fn next(&mut self) -> (Job, T) {
        loop {
            match self.running.next().await {
                Some((job, Ok(end))) => {
                    self.handles.remove(&job);
                    return (job, end);
                }
                Some((_, Err(Aborted))) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl<T> Default for Jobs<T> {
    fn default() -> Self {
        Self { running: FuturesUnordered::new(), handles: BTreeMap::new() }
    }
}

impl<T> std::fmt::Debug for Jobs<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handles.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::ids::{NodeIndex, Rank};

    #[tokio::test]
    async fn a_job_replaces_a_running_job_of_its_name_and_ends_once() {
        let mut jobs = Jobs::default();
        let (replace, reach) = (Job::Replace(NodeIndex(0)), Job::ReachWorker(Rank(1)));
        jobs.begin(replace, pending());
        jobs.begin(reach, ready(1));
        jobs.begin(replace, ready(2));
        let mut ends = [jobs.next().await, jobs.next().await];
        ends.sort();
        assert_eq!(ends, [(replace, 2), (reach, 1)]);
        jobs.begin(reach, ready(3));
        jobs.end(reach);
        jobs.begin(replace, ready(4));
        assert_eq!(jobs.next().await, (replace, 4));
        assert!(futures_util::FutureExt::now_or_never(jobs.next()).is_none());
    }
}
