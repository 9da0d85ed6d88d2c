//! A joined world of real frameworks: what happens to all when one is lost.

mod common;

use std::time::Duration;

use common::{limits, python};
use skyward::error::{ErrorKind, WorkerExit};
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::PendingCompute;
use skyward::pool::{ComputePool, Pool};
use skyward::prelude::plugins;

#[tokio::test]
async fn a_jax_world_survives_the_loss_of_a_rank_as_its_next_generation() {
    let sum: PendingCompute<(u64, f64)> = python(
        "import numpy as np\nimport skyward as sky\nfrom jax.experimental import multihost_utils\ndef f():\n    info = sky.instance_info()\n    ranks = multihost_utils.process_allgather(np.array([info.global_worker_index + 1.0]))\n    return info.generation, float(ranks.sum())\n",
    )
    .into();
    let lose: PendingCompute<()> = python(
        "import os\nimport skyward as sky\nfrom jax.experimental import multihost_utils\ndef f():\n    if sky.instance_info().global_worker_index == 1:\n        os._exit(9)\n    multihost_utils.sync_global_devices('never met')\n",
    )
    .into();
    let mut limits = limits();
    limits.hooks = Duration::from_secs(240);
    Pool::builder()
        .nodes(2)
        .limits(limits)
        .plugin(plugins::jax())
        .scope(async |pool| {
            assert_eq!(sum.clone().broadcast(pool).await?, [(1, 3.0), (1, 3.0)]);
            let mut events = pool.events();
            let error = lose.broadcast(pool).await.unwrap_err();
            assert_eq!((error.kind(), error.exit()), (ErrorKind::WorkerExited, Some(&WorkerExit::Code(9))), "{error}");
            assert_eq!(sum.broadcast(pool).await?, [(2, 3.0), (2, 3.0)]);
            let mut generations = 0;
            while let Some(EventItem::Event(event)) = events.next().await {
                match *event {
                    PoolEvent::GenerationStarting { generation, workers } => {
                        assert_eq!((generation.0, workers), (2, 2), "the whole world is started again, once");
                        generations += 1;
                    }
                    PoolEvent::TaskFinished { .. } => break,
                    _ => {}
                }
            }
            assert_eq!(generations, 1);
            Ok(())
        })
        .await
        .unwrap();
}
