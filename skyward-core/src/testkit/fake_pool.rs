//! A pool whose workers run no Python, for the tests of a service's handlers.

use super::FakeArtifacts;
use super::fake_provider::FakeProvider;
use super::script::{Answer, FakeTask, Rule, Script};
use crate::pool::{Pool, PoolBuilder};

/// Makes pools that answer every task by a function.
///
/// The pool is a real one on a [`FakeProvider`]: it queues, decodes, retries and reports as with
/// real workers. A script of [several rules](Script), or with faults of machines, goes to a
/// `FakeProvider` directly. Use a paused clock, on which a start and delays take no time.
#[derive(Debug)]
pub struct FakePool;

impl FakePool {
    /// A builder of a pool that answers each task, and each call within a task, by this function.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use std::time::Duration;
    /// use skyward::compute::PendingCompute;
    /// use skyward::payload::Payload;
    /// use skyward::testkit::FakePool;
    /// use skyward::testkit::script::Answer;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// let pool = FakePool::answering(|task| match task.entry() {
    ///     "score" => Answer::returns(&0.9).after(Duration::from_secs(5)),
    ///     other => Answer::raises("KeyError", other),
    /// });
    /// let pool = pool.nodes(2).workers_per_node(4).start().await?;
    /// let score: PendingCompute<f64> = Payload::python("a.py", "def score(): ...", "score").into();
    /// assert_eq!(score.run(&pool).await?, 0.9);
    /// # Ok::<(), skyward::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn answering(answer: impl Fn(&FakeTask<'_>) -> Answer + Send + Sync + 'static) -> PoolBuilder {
        Self::with_artifacts(&FakeArtifacts::default(), answer)
    }

    /// The same, with these artifacts on its nodes, which the answers may contain.
    pub fn with_artifacts(
        artifacts: &FakeArtifacts,
        answer: impl Fn(&FakeTask<'_>) -> Answer + Send + Sync + 'static,
    ) -> PoolBuilder {
        let script = Script::new().rule(Rule::all().answer(answer)).artifacts(artifacts);
        Pool::builder().provider(FakeProvider::new(script))
    }
}
