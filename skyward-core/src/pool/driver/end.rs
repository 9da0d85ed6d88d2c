//! Ends what a pool started: workers and agents in an orderly way, then the machines.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::timing::LAST_OUTPUT;
use crate::error::Result;
use crate::event::PoolEvent;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::node::make::Node;
use crate::pool::tasks::shared::Shared;
use crate::provider::Machine;

impl Cleanup {
    /// Ends workers, agents and machines within the deadline.
    pub(crate) async fn end(&self, shared: &Arc<Shared>, nodes: Vec<Arc<Node>>, deadline: Duration) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        let end = Instant::now() + deadline;
        // The orderly way gets half of the time; what does not end by itself is ended with its
        // machine.
        let orderly = tokio::time::timeout(deadline / 2, end_agents(shared, &nodes, deadline));
        if orderly.await.is_err() {
            tracing::warn!(pool = %shared.pool, "workers did not end in time; their machines are ended");
        }
        drop(nodes);
        let node_of = shared.node_of();
        let gone = |machine: &Machine| {
            shared.emit(PoolEvent::NodeGone { node: node_of(machine), machine: machine.id.clone() });
        };
        self.end_all(end, gone).await
    }
}

/// Ends workers and agents in an orderly way.
async fn end_agents(shared: &Arc<Shared>, nodes: &[Arc<Node>], deadline: Duration) {
    let (generation, layout, ranks) = {
        let state = shared.lock();
        (state.rendezvous.generation(), state.scheduler.layout(), state.workers.ranks())
    };
    let grace = shared.limits.grace.min(deadline / 4);
    join_all(nodes.iter().map(|node| async move {
        if let Err(error) = node.agent.stop(generation, layout.all_workers(), grace, deadline).await {
            tracing::warn!(pool = %shared.pool, node = node.index.0, error = error.summary(), "the workers could not be stopped");
        }
    }))
    .await;
    // Waiting for output that does not arrive soon is not worth the price of the machines.
    let _ = tokio::time::timeout(LAST_OUTPUT.min(deadline / 4), shared.output_ended(ranks)).await;
    join_all(nodes.iter().map(|node| async move {
        if let Err(error) = node.agent.shutdown(Duration::ZERO, deadline).await {
            tracing::warn!(pool = %shared.pool, node = node.index.0, error = error.summary(), "the agent did not confirm its end");
        }
    }))
    .await;
}
