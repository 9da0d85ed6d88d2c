//! What is done about nodes and workers that are lost: events in, steps out. No I/O, no clock.
//!
//! In a pool that is no world each worker stands for itself: it is started again as soon as its node is up. A joined world is started as a whole, when all nodes are up.

use std::collections::BTreeSet;

use crate::ids::{MachineNumber, NodeIndex, Rank};

/// The nodes of a pool that serves, and what waits for them.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    joined: bool,
    workers_per_node: u32,
    nodes: Vec<NodePhase>,
    /// Workers that are to be started as soon as their node is up; of a joined world all, or none.
    due: BTreeSet<Rank>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodePhase {
    /// Its agent is connected.
    Up,
    /// The connection to its agent was lost; the client tries to have it again.
    Away,
    /// Its machine is given up; another one is made ready.
    Lost,
    /// It has left the pool, or is about to.
    Gone,
}

/// Something that takes time. The same job never runs twice at once: the later one takes the place of the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Job {
    /// Connect to a node's agent again.
    ReachAgent(NodeIndex),
    /// End what is left of a node's machine, and make another one ready.
    Replace(NodeIndex),
    /// End all workers of a world.
    StopWorld,
    Start(Workers),
    /// A start has failed: find out whether the node is to blame.
    Examine(Workers),
    /// Connect to a worker again.
    ReachWorker(Rank),
    /// Connect to a worker that calls.
    ReachCaller(Rank),
    /// Make a further machine ready, which has no place in the pool yet.
    Add(MachineNumber),
    /// End the workers of a node that leaves, with the time to leave their hooks.
    Stop(NodeIndex),
    /// End the machine of a node that has left, or that is not wanted any more.
    Dismiss(MachineNumber),
    /// Ask the provider about the machines.
    Watch,
    /// Have workers look whether their machines will end.
    Remind,
}

/// What is started together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Workers {
    One(Rank),
    /// All of a joined world, as its next generation.
    World,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Begin(Job),
    /// Give the job up.
    End(Job),
}

impl Lifecycle {
    /// All nodes are up, and all workers started.
    pub(crate) fn new(nodes: u32, workers_per_node: u32, joined: bool) -> Self {
        let nodes = (0..nodes).map(|_| NodePhase::Up).collect();
        Self { joined, workers_per_node, nodes, due: BTreeSet::new() }
    }

    pub(crate) fn is_up(&self, node: NodeIndex) -> bool {
        self.phase(node) == Some(NodePhase::Up)
    }

    /// Whether all nodes that these workers are on are up.
    pub(crate) fn are_up(&self, workers: Workers) -> bool {
        match workers {
            Workers::One(rank) => self.is_up(self.node_of(rank)),
            Workers::World => self.nodes.iter().all(|phase| *phase == NodePhase::Up),
        }
    }

    /// The nodes that these workers are on.
    pub(crate) fn nodes_of(&self, workers: Workers) -> Vec<NodeIndex> {
        match workers {
            Workers::One(rank) => vec![self.node_of(rank)],
            Workers::World => (0..self.nodes.len() as u32).map(NodeIndex).collect(),
        }
    }

    /// The workers of a node.
    pub(crate) fn ranks_of(&self, node: NodeIndex) -> impl Iterator<Item = Rank> + use<> {
        let first = node.0 * self.workers_per_node;
        (first..first + self.workers_per_node).map(Rank)
    }

    /// These workers are lost, or could not be started.
    pub(crate) fn on_workers_lost(&mut self, workers: Workers) -> Vec<Step> {
        match workers {
            Workers::One(rank) if !self.joined => {
                self.due.insert(rank);
            }
            _ => self.all_due(),
        }
        self.go_on()
    }

    /// The connection to an agent ended.
    pub(crate) fn on_agent_away(&mut self, node: NodeIndex) -> Vec<Step> {
        if !self.is_up(node) {
            return Vec::new();
        }
        self.set(node, NodePhase::Away);
        vec![Step::Begin(Job::ReachAgent(node))]
    }

    /// It is there again.
    pub(crate) fn on_agent_reached(&mut self, node: NodeIndex) -> Vec<Step> {
        self.set(node, NodePhase::Up);
        self.go_on()
    }

    /// A node's machine is given up. That it is to be replaced is said by [`on_replace`](Self::on_replace).
    pub(crate) fn on_node_lost(&mut self, node: NodeIndex) -> Vec<Step> {
        if self.phase(node) == Some(NodePhase::Gone) {
            return Vec::new();
        }
        self.set(node, NodePhase::Lost);
        let mut steps = self.give_up(node);
        if self.joined {
            steps.extend([Job::Start(Workers::World), Job::Examine(Workers::World)].map(Step::End));
            // Without this one the others wait for it in vain, for as long as it takes to replace it.
            steps.push(Step::Begin(Job::StopWorld));
            self.all_due();
        } else {
            self.due.extend(self.ranks_of(node));
        }
        steps
    }

    /// A node that is lost is to have another machine.
    pub(crate) fn on_replace(&mut self, node: NodeIndex) -> Vec<Step> {
        match self.phase(node) {
            Some(NodePhase::Lost) => vec![Step::Begin(Job::Replace(node))],
            _ => Vec::new(),
        }
    }

    /// A node has another machine, whose agent is connected.
    pub(crate) fn on_replaced(&mut self, node: NodeIndex) -> Vec<Step> {
        self.set(node, NodePhase::Up);
        self.go_on()
    }

    /// Another machine, whose agent is connected, has taken the place of a node's: what is under way for the one before is given up, and the workers are started.
    pub(crate) fn on_taken(&mut self, node: NodeIndex) -> Vec<Step> {
        let mut steps = self.give_up(node);
        if self.joined {
            self.all_due();
        } else {
            self.due.extend(self.ranks_of(node));
        }
        self.set(node, NodePhase::Up);
        steps.extend(self.go_on());
        steps
    }

    /// A node has come: at the end, or at the place of one that is gone. Its workers are started.
    pub(crate) fn on_added(&mut self, node: NodeIndex) -> Vec<Step> {
        if node.0 as usize == self.nodes.len() {
            self.nodes.push(NodePhase::Up);
        }
        self.set(node, NodePhase::Up);
        self.due.extend(self.ranks_of(node));
        self.go_on()
    }

    /// A node that leaves has nothing more to do: what is under way for it is given up.
    pub(crate) fn on_drained(&mut self, node: NodeIndex) -> Vec<Step> {
        self.set(node, NodePhase::Gone);
        self.due.retain(|rank| rank.0 / self.workers_per_node.max(1) != node.0);
        self.give_up(node)
    }

    /// So many nodes are left.
    pub(crate) fn on_removed(&mut self, rows: u32) {
        self.nodes.truncate(rows as usize);
    }

    /// A world has nodes up to this number from now on, and is started as its next generation. Of those that stay, what is lost is still to be replaced; these have another machine.
    pub(crate) fn on_reshaped(&mut self, stay: u32, nodes: u32, taken: &[NodeIndex]) -> Vec<Step> {
        let gone: Vec<NodeIndex> = (stay..self.nodes.len() as u32).map(NodeIndex).collect();
        let mut steps: Vec<Step> = gone.into_iter().flat_map(|node| self.on_drained(node)).collect();
        steps.extend([Job::Start(Workers::World), Job::Examine(Workers::World)].map(Step::End));
        for node in taken {
            steps.extend(self.give_up(*node));
            self.set(*node, NodePhase::Up);
        }
        self.nodes.truncate(stay as usize);
        self.nodes.resize(nodes as usize, NodePhase::Up);
        self.all_due();
        steps.extend(self.go_on());
        steps
    }

    /// What is under way for a node is of no use any more.
    fn give_up(&self, node: NodeIndex) -> Vec<Step> {
        let mut steps =
            vec![Step::End(Job::ReachAgent(node)), Step::End(Job::Replace(node)), Step::End(Job::Stop(node))];
        for rank in self.ranks_of(node) {
            let one = Workers::One(rank);
            steps.extend([Job::ReachWorker(rank), Job::Start(one), Job::Examine(one)].map(Step::End));
        }
        steps
    }

    /// Starts what is due and can be.
    fn go_on(&mut self) -> Vec<Step> {
        if self.joined {
            if self.due.is_empty() || !self.are_up(Workers::World) {
                return Vec::new();
            }
            let mut steps = vec![Step::End(Job::StopWorld)];
            steps.extend(std::mem::take(&mut self.due).into_iter().map(|rank| Step::End(Job::ReachWorker(rank))));
            steps.push(Step::Begin(Job::Start(Workers::World)));
            return steps;
        }
        let due: Vec<Rank> = self.due.iter().copied().filter(|rank| self.is_up(self.node_of(*rank))).collect();
        self.due.retain(|rank| !due.contains(rank));
        let start = |rank| [Step::End(Job::ReachWorker(rank)), Step::Begin(Job::Start(Workers::One(rank)))];
        due.into_iter().flat_map(start).collect()
    }

    fn all_due(&mut self) {
        self.due = (0..self.nodes.len() as u32 * self.workers_per_node).map(Rank).collect();
    }

    /// The node of a worker.
    pub(crate) fn node_of(&self, rank: Rank) -> NodeIndex {
        NodeIndex(rank.0 / self.workers_per_node.max(1))
    }

    fn phase(&self, node: NodeIndex) -> Option<NodePhase> {
        self.nodes.get(node.0 as usize).copied()
    }

    fn set(&mut self, node: NodeIndex, phase: NodePhase) {
        if let Some(slot) = self.nodes.get_mut(node.0 as usize) {
            *slot = phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(steps: &[Step]) -> Vec<Job> {
        let begin = |step: &Step| match step {
            Step::Begin(job) => Some(*job),
            Step::End(_) => None,
        };
        steps.iter().filter_map(begin).collect()
    }

    fn one(rank: u32) -> Job {
        Job::Start(Workers::One(Rank(rank)))
    }

    const WORLD: Job = Job::Start(Workers::World);

    #[test]
    fn a_worker_is_started_again_while_another_node_is_replaced() {
        let mut pool = Lifecycle::new(2, 2, false);
        assert_eq!(begun(&pool.on_node_lost(NodeIndex(1))), []);
        assert_eq!(begun(&pool.on_replace(NodeIndex(1))), [Job::Replace(NodeIndex(1))]);
        let steps = pool.on_workers_lost(Workers::One(Rank(0)));
        assert_eq!(steps[0], Step::End(Job::ReachWorker(Rank(0))), "the one that was looked for is not there any more");
        assert_eq!(begun(&steps), [one(0)]);
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(3)))), []);
        assert_eq!(begun(&pool.on_replaced(NodeIndex(1))), [one(2), one(3)]);
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(3)))), [one(3)]);
    }

    #[test]
    fn a_world_is_stopped_when_a_node_is_lost_and_started_when_all_are_up() {
        let mut pool = Lifecycle::new(3, 1, true);
        let steps = pool.on_node_lost(NodeIndex(0));
        assert!(steps.contains(&Step::End(WORLD)));
        assert_eq!(begun(&steps), [Job::StopWorld]);
        pool.on_replace(NodeIndex(0));
        assert_eq!(begun(&pool.on_node_lost(NodeIndex(2))), [Job::StopWorld]);
        pool.on_replace(NodeIndex(2));
        assert_eq!(begun(&pool.on_replaced(NodeIndex(2))), []);
        assert_eq!(begun(&pool.on_workers_lost(Workers::World)), []);
        assert_eq!(begun(&pool.on_replaced(NodeIndex(0))), [WORLD]);
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(1)))), [WORLD], "one of a world is all of it");
    }

    #[test]
    fn an_agent_that_is_away_keeps_its_workers_waiting_and_nothing_else() {
        let mut pool = Lifecycle::new(2, 1, false);
        assert_eq!(begun(&pool.on_agent_away(NodeIndex(0))), [Job::ReachAgent(NodeIndex(0))]);
        assert_eq!(pool.on_agent_away(NodeIndex(0)), [], "it is told once");
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(0)))), []);
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(1)))), [one(1)]);
        assert_eq!(begun(&pool.on_agent_reached(NodeIndex(0))), [one(0)]);
    }

    #[test]
    fn what_goes_on_for_a_lost_node_is_given_up() {
        let mut pool = Lifecycle::new(1, 1, false);
        pool.on_agent_away(NodeIndex(0));
        let steps = pool.on_node_lost(NodeIndex(0));
        for job in [Job::ReachAgent(NodeIndex(0)), one(0), Job::ReachWorker(Rank(0)), Job::Replace(NodeIndex(0))] {
            assert!(steps.contains(&Step::End(job)), "{job:?}");
        }
        assert_eq!(pool.on_agent_away(NodeIndex(0)), []);
        pool.on_replace(NodeIndex(0));
        pool.on_replaced(NodeIndex(0));
        assert_eq!(pool.on_replace(NodeIndex(0)), [], "it is not lost any more");
    }
}
