//! Gives nodes their places in a running pool, and removes nodes that leave.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::serving::{Fresh, Serving};
use super::timing::LAST_OUTPUT;
use crate::error::Result;
use crate::event::{DrainReason, PoolEvent};
use crate::ids::{Generation, MachineNumber, NodeIndex};
use crate::layout::Layout;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::fleet::directive::{Job, Taken};
use crate::pool::node::make::Node;
use crate::pool::node::timing::STOP_MARGIN;
use crate::pool::tasks::shared::Shared;

impl Serving {
    /// Gives up a machine that has no place and is not needed any more.
    pub(crate) fn forget(&mut self, node: NodeIndex, machine: MachineNumber) {
        self.jobs.end(Job::Add(machine));
        let there = self.growth.ready.remove(&machine).map(Arc::new);
        self.dismiss(machine, node, there);
    }

    /// Gives a ready machine its place.
    pub(crate) fn join(&mut self, node: NodeIndex, machine: MachineNumber) {
        let Some(mut joined) = self.growth.ready.remove(&machine) else { return };
        joined.take_place(node);
        self.shared.add_node(&joined);
        self.seat(joined);
        self.decide(|fleet| fleet.on_added(node));
        self.look_at_agent(node);
    }

    /// Reports that a node takes no new tasks, so that it can leave.
    pub(crate) fn report_leaving(&mut self, node: NodeIndex) {
        // A resize that lowers the bounds of an elastic pool leaves nodes above them.
        let is_idle = self.growth.elastic.as_ref().is_some_and(|elastic| node.0 < elastic.most());
        let reason = if is_idle { DrainReason::Idle } else { DrainReason::Resized };
        self.shared.emit(PoolEvent::NodeDraining { node, reason, ends_in: None });
    }

    /// Stops the workers of a node that leaves and has finished its work.
    pub(crate) fn retire(&mut self, node: NodeIndex) {
        self.decide(|fleet| fleet.on_retired(node));
        self.fresh.remove(&node);
        self.vacate(node);
    }

    /// Stops the workers of a node that has finished its work: the node leaves, or a successor
    /// takes its place.
    pub(crate) fn vacate(&mut self, node: NodeIndex) {
        self.shared.act(|state, _| state.scheduler.retire(node));
        let Some(there) = self.node(node) else { return self.on_stopped(node, Ok(())) };
        let (shared, generation) = (Arc::clone(&self.shared), self.shared.lock().rendezvous.generation());
        let layout = self.layout();
        let stop = async move { stop(&shared, &there, generation, layout).await };
        self.jobs.begin(Job::Stop(node), stop, move |serving, stopped| serving.on_stopped(node, stopped));
    }

    /// Ends the machine of a node that has left.
    pub(crate) fn remove(&mut self, node: NodeIndex, machine: MachineNumber, rows: u32) {
        let left = self.nodes.remove(&node);
        self.shared.remove_node(node, rows);
        self.dismiss(machine, node, left);
    }

    /// Changes the nodes of an idle world at once: the nodes from `stay` on leave, others join
    /// in their places, and some of the nodes that stay get another machine.
    pub(crate) fn reshape(&mut self, stay: u32, left: Vec<MachineNumber>, join: Vec<MachineNumber>, taken: Vec<Taken>) {
        let leaving = left.len() as u32;
        for (index, machine) in (stay..).map(NodeIndex).zip(left) {
            self.fresh.remove(&index);
            let node = self.nodes.remove(&index);
            self.dismiss(machine, index, node);
        }
        let mut joined = Vec::new();
        for (index, machine) in (stay..).map(NodeIndex).zip(join) {
            let Some(mut node) = self.growth.ready.remove(&machine) else { continue };
            node.take_place(index);
            joined.push(node);
        }
        let indices: Vec<NodeIndex> = joined.iter().map(|node| node.index).collect();
        self.shared.reshape(stay, &joined);
        joined.into_iter().for_each(|node| self.seat(node));
        let taken: Vec<_> =
            taken.into_iter().filter(|taken| self.seat_successor(*taken)).map(|(node, ..)| node).collect();
        self.decide(|fleet| fleet.on_reshaped(stay, leaving, &taken));
        indices.into_iter().chain(taken).for_each(|node| self.look_at_agent(node));
    }

    /// Puts a node that has joined into its place.
    fn seat(&mut self, node: Node) {
        let index = node.index;
        self.nodes.insert(index, Arc::new(node));
        self.fresh.insert(index, Fresh::Joined);
        self.note_end(index);
    }

    pub(crate) fn look_at_agent(&mut self, node: NodeIndex) {
        if let Some(connection) = self.connection(node) {
            self.on_agent_gone(node, connection);
        }
    }

    /// Ends a machine that is not needed any more.
    pub(crate) fn dismiss(&mut self, machine: MachineNumber, node: NodeIndex, there: Option<Arc<Node>>) {
        if let Some(there) = &there {
            there.agent.leave_place();
            self.notices(|notices| notices.forget(&there.machine.id));
        }
        let (shared, cleanup) = (Arc::clone(&self.shared), self.cleanup.clone());
        let (generation, layout) = (shared.lock().rendezvous.generation(), self.layout());
        let dismiss = async move { dismiss(&shared, &cleanup, machine, node, there, generation, layout).await };
        self.jobs.begin(Job::Dismiss(machine), dismiss, move |serving, gone| serving.on_dismissed(machine, gone));
    }
}

/// Stops the workers of a node, and waits until their output has arrived.
async fn stop(shared: &Shared, node: &Node, generation: Generation, layout: Layout) -> Result<()> {
    let grace = shared.limits.grace;
    node.agent.stop(generation, layout.all_workers(), grace, grace + STOP_MARGIN).await?;
    let _ = tokio::time::timeout(LAST_OUTPUT, shared.output_ended(layout.ranks_of(node.index))).await;
    Ok(())
}

/// Ends the processes on a machine that has left, then the machine.
async fn dismiss(
    shared: &Arc<Shared>,
    cleanup: &Cleanup,
    machine: MachineNumber,
    node: NodeIndex,
    there: Option<Arc<Node>>,
    generation: Generation,
    layout: Layout,
) -> Result<()> {
    if let Some(there) = there {
        let grace = shared.limits.grace;
        let orderly = async {
            there.agent.stop(generation, layout.all_workers(), grace, grace + STOP_MARGIN).await?;
            there.agent.shutdown(Duration::ZERO, grace + STOP_MARGIN).await
        };
        if let Err(error) = orderly.await {
            tracing::debug!(pool = %shared.pool, node = node.0, %error, "the agent and its workers end with their machine");
        }
    }
    let end = Instant::now() + shared.limits.shutdown;
    let gone = |gone: &crate::provider::Machine| {
        shared.emit(PoolEvent::NodeGone { node, machine: gone.id.clone() });
    };
    let retired = cleanup.retire(machine, end, gone).await;
    if let Err(error) = &retired {
        shared.emit(PoolEvent::NodeUnconfirmed { node, error: error.clone() });
    }
    retired
}
