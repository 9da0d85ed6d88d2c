//! Pointers to pools are pools.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{ComputePool, PoolStatus};
use crate::error::Result;
use crate::event::Events;
use crate::files::NodeFiles;
use crate::payload::{Target, Task, TaskHandle};
use crate::spec::Nodes;

macro_rules! forward {
    ($($pointer:ty),+) => {$(
        // Fails to compile where a method gets a default later and is not forwarded here.
        #[deny(clippy::missing_trait_methods)]
        #[async_trait]
        impl<P: ComputePool + ?Sized> ComputePool for $pointer {
            async fn submit(&self, task: Task, target: Target) -> Result<TaskHandle> {
                (**self).submit(task, target).await
            }

            async fn submit_all(&self, task: Task) -> Result<Vec<TaskHandle>> {
                (**self).submit_all(task).await
            }

            fn status(&self) -> PoolStatus {
                (**self).status()
            }

            fn most_workers(&self) -> usize {
                (**self).most_workers()
            }

            fn events(&self) -> Events {
                (**self).events()
            }

            fn files(&self) -> Option<&dyn NodeFiles> {
                (**self).files()
            }

            async fn resize(&self, nodes: Nodes) -> Result<()> {
                (**self).resize(nodes).await
            }

            async fn shutdown(&self, deadline: Duration) -> Result<()> {
                (**self).shutdown(deadline).await
            }
        }
    )+};
}

forward!(Arc<P>, Box<P>, &P);

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use crate::compute::{ComputePoolExt, PendingCompute};
    use crate::payload::Payload;
    use crate::pool::Pool;
    use crate::testkit::fake_provider::FakeProvider;
    use crate::testkit::script::{Answer, Rule, Script};

    fn seven() -> PendingCompute<u32> {
        Payload::python("seven.py", "def f():\n    return 7\n", "f").into()
    }

    async fn total(pool: impl ComputePool + Clone) -> u32 {
        assert_eq!(pool.status().workers.len(), pool.most_workers());
        let first = seven().run(&pool).await.unwrap();
        let others = pool.into_map_unordered([seven(), seven()]);
        first + others.map(|(_, result)| result.unwrap()).fold(0, async |sum, value| sum + value).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_pointer_to_a_pool_runs_its_calls_and_ends_it() {
        let provider = FakeProvider::new(Script::new().rule(Rule::all().answer(|_| Answer::returns(&7))));
        let pool = Pool::builder().provider(provider.clone()).start().await.unwrap();
        assert_eq!(total(&pool).await, 21);
        let shared: Arc<dyn ComputePool> = Arc::new(pool);
        assert_eq!(total(Arc::clone(&shared)).await, 21);
        assert_eq!(total(&Box::new(&*shared)).await, 21);
        Box::new(shared).shutdown(Duration::from_secs(60)).await.unwrap();
    }
}
