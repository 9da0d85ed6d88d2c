//! Writes what a service must see of a pool to the log: lost workers and nodes, retries, failure; and
//! why a start takes longer than others.
//!
//! Each line names its pool in a field of its own: no span that a subscriber may have disabled is
//! needed to understand it.

use crate::error::WorkerExit;
use crate::event::PoolEvent;
use crate::ids::PoolId;

/// Writes an event to the log if it is one that a service must see. `is_ending` says whether the pool
/// ends its workers itself.
pub(super) fn log(pool: &PoolId, event: &PoolEvent, is_ending: impl FnOnce() -> bool) {
    match event {
        PoolEvent::Failed { .. } => tracing::error!(%pool, "{event}"),
        PoolEvent::NodeUnconfirmed { node, .. } => tracing::error!(%pool, node = node.0, "{event}"),
        PoolEvent::BootstrapStep { node, step } if *step == "environment" => tracing::info!(
            %pool, node = node.0,
            "node {node} builds the environment of this image, which takes longer than later starts, which use it again"
        ),
        PoolEvent::BudgetSpent { .. } => tracing::warn!(%pool, "{event}"),
        PoolEvent::NodeLost { node, .. }
        | PoolEvent::NodeDisconnected { node, .. }
        | PoolEvent::NodeFailed { node, .. } => {
            tracing::warn!(%pool, node = node.0, "{event}");
        }
        PoolEvent::WorkerExited { rank, exit } if is_news(exit) && !is_ending() => {
            tracing::warn!(%pool, rank = rank.0, "{event}");
        }
        PoolEvent::TaskRetried { task, attempt, .. } => {
            tracing::warn!(%pool, task = task.0, attempt = attempt.0, "{event}");
        }
        PoolEvent::CheckpointSkipped { name, .. } => tracing::warn!(%pool, name, "{event}"),
        PoolEvent::CheckpointDropped { name, step, .. } => tracing::warn!(%pool, name, step, "{event}"),
        PoolEvent::TaskStalled { task, entry, payload, .. } => tracing::warn!(
            %pool, task = task.0, entry, payload,
            "{event}; the task goes on, and `PoolEvent::TaskStalled` has the stacks"
        ),
        PoolEvent::RuntimeBlocked { .. } => tracing::warn!(
            %pool,
            "{event}; machines end themselves when a renewal is late by three quarters of the lease; \
             run blocking code in `spawn_blocking`, or run the pool in a runtime of its own"
        ),
        _ => {}
    }
}

/// Whether no other line of the log reports this end of a worker: those of its node or its world do.
fn is_news(exit: &WorkerExit) -> bool {
    !exit.is_node_loss() && *exit != WorkerExit::WorldEnded
}

#[cfg(test)]
#[path = "../../../tests/support/lines.rs"]
mod lines;

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::lines::Lines;
    use super::*;
    use crate::ids::NodeIndex;

    #[test]
    fn a_start_that_builds_an_environment_says_why_it_takes_longer() {
        let lines = Lines::of(Level::TRACE);
        tracing::subscriber::with_default(lines.clone(), || {
            for step in ["agent", "uv", "environment", "worker"] {
                let event = PoolEvent::BootstrapStep { node: NodeIndex(3), step };
                log(&PoolId::random(), &event, || false);
            }
        });
        let said = lines.said();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("INFO node 3 builds the environment of this image"), "{said:?}");
    }
}
