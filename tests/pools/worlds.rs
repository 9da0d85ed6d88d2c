//! Joined worlds of real frameworks, and how they react to the loss of a rank.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{limits, python};
use indoc::indoc;
use skyward::compute::PendingCompute;
use skyward::error::{ErrorKind, WorkerExit};
use skyward::event::{EventItem, PoolEvent};
use skyward::payload::{Payload, Source};
use skyward::pool::Pool;
use skyward::prelude::{Image, Nodes, plugins};

/// Returns the generation, and the sum of all ranks counted from 1.
const SUM: &str = indoc! {"
    import numpy as np
    import skyward as sky
    from jax.experimental import multihost_utils
    def f():
        info = sky.instance_info()
        ranks = multihost_utils.process_allgather(np.array([info.global_worker_index + 1.0]))
        return info.generation, float(ranks.sum())
"};

#[tokio::test]
async fn a_jax_world_survives_the_loss_of_a_rank_as_its_next_generation() {
    let sum: PendingCompute<(u64, f64)> = python(SUM).into();
    let lose: PendingCompute<()> = python(indoc! {"
        import os
        import skyward as sky
        from jax.experimental import multihost_utils
        def f():
            if sky.instance_info().global_worker_index == 1:
                os._exit(9)
            multihost_utils.sync_global_devices('never met')
    "})
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
            assert_eq!(error.kind(), ErrorKind::WorkerExited, "{error}");
            assert_eq!(error.exit(), Some(&WorkerExit::Code(9)), "{error}");
            assert_eq!(sum.broadcast(pool).await?, [(2, 3.0), (2, 3.0)]);
            let mut generations = 0;
            while let Some(EventItem::Event(event)) = events.next().await {
                match *event {
                    PoolEvent::GenerationStarting { generation, workers } => {
                        assert_eq!(generation.0, 2, "the whole world is started again, once");
                        assert_eq!(workers, 2, "the whole world is started again, once");
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

/// The same with the decorator alone: these pools have no plugin.
const DECORATED: &str = r#"
import os

import skyward as sky


@sky.integrations.jax
def f(lose: bool) -> tuple[int, float, str | None]:
    import numpy as np
    from jax.experimental import multihost_utils

    info = sky.instance_info()
    if lose and info.global_worker_index == 1:
        os._exit(9)
    ranks = multihost_utils.process_allgather(np.array([info.global_worker_index + 1.0]))
    return info.generation, float(ranks.sum()), info.network.interface
"#;

fn decorated(lose: bool) -> PendingCompute<(u64, f64, Option<String>)> {
    let source = Source::file("decorated.py", DECORATED, "f").joining("jax");
    Payload::new(Arc::new(source)).arg("lose", lose).into()
}

#[tokio::test]
async fn a_world_joined_by_a_decorator_survives_the_loss_of_a_rank() {
    let limits = limits();
    Pool::builder()
        .nodes(2)
        .limits(limits)
        .image(Image::new().pip(["jax"]))
        .payload_of(&decorated(false))
        .scope(async |pool| {
            let met = |generation: u64| vec![(generation, 3.0, Some("lo".to_owned())); 2];
            assert_eq!(decorated(false).broadcast(pool).await?, met(1));
            let error = decorated(true).broadcast(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WorkerExited, "{error}");
            assert_eq!(error.exit(), Some(&WorkerExit::Code(9)), "{error}");
            assert_eq!(decorated(false).broadcast(pool).await?, met(2));
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_payload_with_a_joining_decorator_fails_on_a_pool_that_was_not_told() {
    Pool::builder()
        .nodes(2)
        .limits(limits())
        .scope(async |pool| {
            let error = decorated(false).broadcast(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Raised, "{error}");
            let text = format!("{error:#}");
            assert!(text.contains("the payload's decorator joins 2 workers into one world"), "{text}");
            assert!(text.contains("`.payload::<…>()`") && text.contains("`plugins::jax()`"), "{text}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_jax_world_in_which_one_rank_stays_away_is_ended_with_the_stacks_of_all() {
    let sum: PendingCompute<(u64, f64)> = python(SUM).into();
    let apart: PendingCompute<()> = python(indoc! {"
        import threading
        import skyward as sky
        from jax.experimental import multihost_utils

        def elsewhere():
            threading.Event().wait()

        def f():
            if sky.instance_info().global_worker_index == 1:
                elsewhere()
            multihost_utils.sync_global_devices('never met')
    "})
    .into();
    let mut limits = limits();
    limits.hooks = Duration::from_secs(240);
    // Longer than compilation takes on a busy host.
    limits.stall = Some(Duration::from_secs(10));
    Pool::builder()
        .nodes(2)
        .limits(limits)
        .plugin(plugins::jax())
        .scope(async |pool| {
            assert_eq!(sum.clone().broadcast(pool).await?, [(1, 3.0), (1, 3.0)]);
            let error = apart.broadcast(pool).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stalled, "{error}");
            let [waits, away] = error.stacks() else { panic!("{error}") };
            assert!(waits.text.contains("in sync_global_devices"), "the collective in native code: {}", waits.text);
            assert!(
                away.place.as_deref().is_some_and(|place| place.contains("`elsewhere` (payload.py:6)")),
                "{away:?}"
            );
            assert_eq!(sum.broadcast(pool).await?, [(2, 3.0), (2, 3.0)]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn keras_trains_on_one_rank_alone_and_on_all_together() {
    let train: PendingCompute<(Vec<f64>, String)> = python(indoc! {"
        import keras
        import numpy as np
        import hashlib

        def f():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            model.compile('sgd', 'mse')
            x = np.arange(32, dtype='float32').reshape(8, 4) / 32
            losses = model.fit(x, x.sum(axis=1), epochs=2, batch_size=4, verbose=0).history['loss']
            weights = b''.join(np.asarray(w).tobytes() for w in model.get_weights())
            return [float(l) for l in losses], hashlib.sha256(weights).hexdigest()
    "})
    .into();
    let mut limits = limits();
    limits.hooks = Duration::from_secs(240);
    Pool::builder()
        .nodes(2)
        .limits(limits)
        .plugin(plugins::jax())
        .plugin(plugins::keras().seed(3))
        .scope(async |pool| {
            // Without the plugin's help, the task would wait here for a rank that does not take
            // part.
            let (alone, _) = train.clone().run(pool).await?;
            assert!(alone[1] < alone[0], "{alone:?}");
            let all = train.broadcast(pool).await?;
            assert_eq!(all[0], all[1]);
            assert!(all[0].0[1] < all[0].0[0], "{all:?}");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn plugins_that_do_not_fit_are_refused_before_anything_starts() {
    let unused = async |_: &Pool| -> skyward::Result<()> { unreachable!("nothing starts") };
    let error =
        Pool::builder().nodes(2).plugin(plugins::keras()).plugin(plugins::jax()).scope(unused).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Plugins);
    assert_eq!(error.hint(), Some("the corrected list:\n    .plugin(plugins::jax())\n    .plugin(plugins::keras())"));
    let error = Pool::builder().nodes(Nodes::elastic(1, 4)).plugin(plugins::jax()).scope(unused).await.unwrap_err();
    assert_eq!(error.hint(), Some("give the pool a fixed number of nodes: `.nodes(1)`"));
    let error = Pool::builder().nodes(2).plugin(plugins::jax().cuda("cu118")).scope(unused).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec);
    assert_eq!(error.context(), [("plugin", "jax".to_owned())]);
}

#[tokio::test]
async fn a_rank_that_never_reaches_the_rendezvous_is_named() {
    let stuck = plugins::plugin("stuck").around_app(
        "
        import threading
        import skyward as sky

        def around_app(config):
            if sky.instance_info().node == 1:
                threading.Event().wait()
            yield
        ",
    );
    let error = Pool::builder()
        .nodes(2)
        .limits(limits())
        .plugin(stuck)
        .plugin(plugins::jax().timeout(Duration::from_secs(3)))
        .scope(async |_| -> skyward::Result<()> { unreachable!("the pool does not become ready") })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hook, "{error}");
    let text = format!("{error:#}");
    assert!(text.contains("1 of 2 ranks came to the rendezvous at 127."), "{text}");
    assert!(text.contains("missing: rank 1 (node 1, worker 0, 127."), "{text}");
    assert!(text.contains("jax"), "{text}");
}
