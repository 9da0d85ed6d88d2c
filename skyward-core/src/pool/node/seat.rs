//! Changes the row of a node in the state: the node joins, gets another machine or connection, or
//! leaves.

use super::make::Node;
use crate::error::{Result, WorkerExit};
use crate::ids::NodeIndex;
use crate::pool::environment::Environment;
use crate::pool::tasks::after::After;
use crate::pool::tasks::shared::Shared;
use crate::pool::tasks::state::State;
use crate::worker::link::Sender;

impl Shared {
    /// Admits a machine to the place of a node, if it has the environment of the other nodes that
    /// are there. Nodes that are lost do not count: the machines that take their places may all
    /// have another environment.
    ///
    /// # Errors
    ///
    /// As [`Environment::check`].
    pub(super) fn admit_machine(&self, node: NodeIndex, environment: Environment) -> Result<Environment> {
        let mut state = self.lock();
        let other = state
            .nodes
            .iter()
            .filter(|(other, _)| *other != node)
            .find_map(|(other, row)| Some((other, row.environment.clone()?)));
        let environment = match other {
            Some((other, theirs)) if !self.is_mixed => environment.check(node, &theirs, other).map(|()| theirs)?,
            _ => environment,
        };
        // At once, so that of several machines that join at the same time each knows the others.
        if let Some(row) = state.nodes.get_mut(node) {
            row.environment = Some(environment.clone());
        }
        Ok(environment)
    }

    /// An agent has another connection: subscribes to the output of its workers over it, and
    /// repeats the requests that were made while there was no connection.
    pub(crate) fn on_agent_back(&self, node: &Node) {
        self.set_node(node);
        let mut after = After::default();
        let unfollowed = self.act(|state, now| {
            let layout = state.scheduler.layout();
            let mut unfollowed = Vec::new();
            for (rank, row) in state.workers.of(node.index, layout) {
                let worker = layout.worker(rank);
                if row.may_have_output()
                    && let Err(error) = node.agent.follow(row.generation(), worker, row.output.received())
                {
                    unfollowed.push((worker, error));
                }
            }
            for rank in layout.ranks_of(node.index) {
                if state.workers.get(rank).is_some_and(|row| row.requests.is_recalling()) {
                    state.recall(rank, &mut after);
                }
            }
            state.scheduler.on_agent_back(now, node.index);
            unfollowed
        });
        after.flush.iter().for_each(Sender::flush);
        for (worker, error) in unfollowed {
            tracing::warn!(pool = %self.pool, node = node.index.0, worker, error = error.summary(), "the client cannot subscribe to the worker's output");
        }
    }

    /// A node has another machine, or its agent has another connection.
    pub(crate) fn set_node(&self, node: &Node) {
        if let Some(row) = self.lock().nodes.get_mut(node.index) {
            *row = node.row();
        }
    }

    /// Gives the place of a node, which has finished its work or is lost, to another machine. Its
    /// workers must be started after that.
    pub(crate) fn hand_over(&self, node: &Node) {
        self.act(|state, _| {
            for (rank, row) in state.workers.of(node.index, state.scheduler.layout()) {
                row.leave(WorkerExit::Left);
                state.held.release(rank);
            }
            state.scheduler.retire(node.index);
            if let Some(port) = node.port {
                state.rendezvous.move_to(port);
            }
        });
        self.set_node(node);
    }

    /// Adds a further node in its place. Its workers must be started after that.
    pub(crate) fn add_node(&self, node: &Node) {
        self.act(|state, _| state.add_node(node, self.limits.max_frame_bytes));
    }

    /// Removes a node that has left the pool; `rows` rows remain.
    pub(crate) fn remove_node(&self, node: NodeIndex, rows: u32) {
        self.act(|state, _| {
            state.leave(node);
            state.scheduler.remove_node(node, rows);
            state.truncate(rows);
        });
    }

    /// Changes the nodes of an idle world to its first `stay` nodes and the nodes in `joined`.
    pub(crate) fn reshape(&self, stay: u32, joined: &[Node]) {
        self.act(|state, _| {
            (stay..state.nodes.len()).for_each(|node| state.leave(NodeIndex(node)));
            state.truncate(stay);
            state.scheduler.reshape(stay);
            joined.iter().for_each(|node| state.add_node(node, self.limits.max_frame_bytes));
        });
    }
}

impl State {
    /// Adds a node behind the others or in the place of a node that has left.
    fn add_node(&mut self, node: &Node, max_frame_bytes: usize) {
        self.scheduler.add_node(node.index);
        match self.nodes.get_mut(node.index) {
            Some(row) => *row = node.row(),
            None => {
                self.nodes.push(node.row());
                self.workers.add(self.scheduler.layout().workers_per_node(), max_frame_bytes);
            }
        }
    }
}
