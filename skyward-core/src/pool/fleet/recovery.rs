//! How a pool recovers from lost nodes and workers: events in, directives out. No I/O, no clock.
//!
//! Without a world, each worker is restarted on its own, as soon as its node is up. A joined world
//! is started as a whole, when all nodes are up.

use super::Fleet;
use super::directive::{Directive, Job, Repair, Workers};
use super::table::Health;
use crate::ids::{NodeIndex, Rank};

impl Fleet {
    pub(crate) fn is_up(&self, node: NodeIndex) -> bool {
        self.table.health(node) == Some(&Health::Up)
    }

    /// Whether the node's machine is still counted on: its agent is connected, or the client
    /// reconnects to it.
    pub(crate) fn is_kept(&self, node: NodeIndex) -> bool {
        matches!(self.table.health(node), Some(Health::Up | Health::Away))
    }

    /// Whether the client reconnects to a node, which may be lost.
    pub(crate) fn is_one_away(&self) -> bool {
        self.table.nodes().any(|node| self.table.health(node) == Some(&Health::Away))
    }

    /// Whether the pool has workers while nodes are lost. A world needs all of its nodes.
    pub(crate) fn has_workers(&self) -> bool {
        !self.joined && self.table.nodes().any(|node| self.is_kept(node))
    }

    /// Whether all nodes of these workers are up.
    pub(crate) fn are_up(&self, workers: Workers) -> bool {
        match workers {
            Workers::One(rank) => self.is_up(self.node_of(rank)),
            Workers::World => self.table.are_all_up(),
        }
    }

    /// The nodes of these workers.
    pub(crate) fn nodes_of(&self, workers: Workers) -> Vec<NodeIndex> {
        match workers {
            Workers::One(rank) => vec![self.node_of(rank)],
            Workers::World => self.table.nodes().collect(),
        }
    }

    /// The workers of a node.
    fn ranks_of(&self, node: NodeIndex) -> impl Iterator<Item = Rank> + use<> {
        self.layout.ranks_of(node)
    }

    /// These workers must be started again.
    pub(crate) fn on_workers_lost(&mut self, workers: Workers) -> Vec<Directive> {
        match workers {
            Workers::One(rank) if !self.joined => {
                self.due.insert(rank);
            }
            _ => self.all_due(),
        }
        self.go_on()
    }

    /// The connection to an agent ended.
    pub(crate) fn on_agent_away(&mut self, node: NodeIndex) -> Vec<Directive> {
        if !self.is_up(node) {
            return Vec::new();
        }
        self.table.set_health(node, Health::Away);
        vec![Directive::Begin(Repair::ReachAgent(node))]
    }

    /// The agent is connected again.
    pub(crate) fn on_agent_reached(&mut self, node: NodeIndex) -> Vec<Directive> {
        self.table.set_health(node, Health::Up);
        let directives = self.go_on();
        if self.joined && !self.due.is_empty() {
            // The world has ended and waits for other nodes. The request to stop its workers may be
            // lost with the old connection.
            return vec![Directive::Begin(Repair::StopWorld)];
        }
        directives
    }

    /// A node's machine is given up, for this cause.
    pub(super) fn lose(&mut self, node: NodeIndex, cause: String) -> Vec<Directive> {
        if self.table.health(node) == Some(&Health::Gone) {
            return Vec::new();
        }
        self.table.set_health(node, Health::Lost(cause));
        let mut directives = self.give_up(node);
        if self.joined {
            directives
                .extend([Job::Repair(Repair::Start(Workers::World)), Job::Examine(Workers::World)].map(Directive::End));
            // Without this worker the others would wait for it in vain until it is replaced.
            directives.push(Directive::Begin(Repair::StopWorld));
            self.all_due();
        } else {
            self.due.extend(self.ranks_of(node));
        }
        directives
    }

    /// No successor takes the place of a node: if it is lost, it gets another machine.
    pub(crate) fn replace(&mut self, node: NodeIndex) -> Vec<Directive> {
        match self.table.health(node) {
            Some(Health::Lost(_)) if !self.ends => vec![Directive::Begin(Repair::Replace(node))],
            _ => Vec::new(),
        }
    }

    /// No successor takes the place of a node after all: its workers, which were being stopped, are
    /// restarted.
    pub(super) fn revive(&mut self, node: NodeIndex) -> Vec<Directive> {
        let mut directives = vec![Directive::End(Job::Stop(node))];
        for rank in self.ranks_of(node) {
            directives.extend(self.on_workers_lost(Workers::One(rank)));
        }
        directives
    }

    /// A node has another machine, and its agent is connected.
    pub(crate) fn on_replaced(&mut self, node: NodeIndex) -> Vec<Directive> {
        self.table.set_health(node, Health::Up);
        self.go_on()
    }

    /// A successor whose agent is connected has taken the place of a node's machine. The jobs for
    /// the old machine are given up, and the workers are started.
    pub(crate) fn on_taken(&mut self, node: NodeIndex) -> Vec<Directive> {
        let mut directives = self.give_up(node);
        if self.joined {
            self.all_due();
        } else {
            self.due.extend(self.ranks_of(node));
        }
        self.table.set_health(node, Health::Up);
        directives.extend(self.go_on());
        directives
    }

    /// A node has joined, at the end or in the place of a node that has left. Its workers are
    /// started.
    pub(crate) fn on_added(&mut self, node: NodeIndex) -> Vec<Directive> {
        self.table.set_health(node, Health::Up);
        self.due.extend(self.ranks_of(node));
        self.go_on()
    }

    /// A node that leaves has finished its work. The jobs under way for it are given up.
    pub(crate) fn on_retired(&mut self, node: NodeIndex) -> Vec<Directive> {
        self.table.set_health(node, Health::Gone);
        self.due.retain(|rank| self.layout.node(*rank) != node);
        self.give_up(node)
    }

    /// The nodes `stay..stay + left` of a world have left, and the nodes that are in their places
    /// now have joined. The world is started as its next generation. Nodes that stay and are lost
    /// are still replaced; the nodes in `taken` have another machine.
    pub(crate) fn on_reshaped(&mut self, stay: u32, left: u32, taken: &[NodeIndex]) -> Vec<Directive> {
        self.reshaping = false;
        let gone = (stay..stay + left).map(NodeIndex);
        let mut directives: Vec<Directive> = gone.flat_map(|node| self.on_retired(node)).collect();
        directives
            .extend([Job::Repair(Repair::Start(Workers::World)), Job::Examine(Workers::World)].map(Directive::End));
        for node in taken {
            directives.extend(self.give_up(*node));
            self.table.set_health(*node, Health::Up);
        }
        for node in (stay..self.table.len()).map(NodeIndex) {
            self.table.set_health(node, Health::Up);
        }
        self.all_due();
        directives.extend(self.go_on());
        directives
    }

    /// Gives up the jobs under way for a node.
    fn give_up(&self, node: NodeIndex) -> Vec<Directive> {
        let mut jobs = vec![Job::Repair(Repair::ReachAgent(node)), Job::Repair(Repair::Replace(node)), Job::Stop(node)];
        for rank in self.ranks_of(node) {
            let one = Workers::One(rank);
            jobs.extend([Job::ReachWorker(rank), Job::Repair(Repair::Start(one)), Job::Examine(one)]);
        }
        jobs.into_iter().map(Directive::End).collect()
    }

    /// Starts the workers that are due and whose nodes are up.
    fn go_on(&mut self) -> Vec<Directive> {
        if self.ends {
            self.due.clear();
        }
        if self.joined {
            if self.due.is_empty() || !self.are_up(Workers::World) {
                return Vec::new();
            }
            let mut directives = vec![Directive::End(Job::Repair(Repair::StopWorld))];
            directives
                .extend(std::mem::take(&mut self.due).into_iter().map(|rank| Directive::End(Job::ReachWorker(rank))));
            directives.push(Directive::Begin(Repair::Start(Workers::World)));
            return directives;
        }
        let due: Vec<Rank> = self.due.iter().copied().filter(|rank| self.is_up(self.node_of(*rank))).collect();
        self.due.retain(|rank| !due.contains(rank));
        let start =
            |rank| [Directive::End(Job::ReachWorker(rank)), Directive::Begin(Repair::Start(Workers::One(rank)))];
        due.into_iter().flat_map(start).collect()
    }

    fn all_due(&mut self) {
        self.due = self.layout.ranks(self.table.len()).collect();
    }

    /// The node of a worker.
    pub(super) fn node_of(&self, rank: Rank) -> NodeIndex {
        self.layout.node(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MachineNumber;
    use crate::layout::Layout;
    use crate::spec::Nodes;

    fn pool(nodes: u32, layout: Layout, joined: bool) -> Fleet {
        Fleet::new(joined, layout, Nodes::fixed(nodes), (0..nodes).map(MachineNumber).collect(), std::iter::empty())
    }

    fn begun(directives: &[Directive]) -> Vec<Repair> {
        let begin = |directive: &Directive| match directive {
            Directive::Begin(job) => Some(*job),
            _ => None,
        };
        directives.iter().filter_map(begin).collect()
    }

    fn one(rank: u32) -> Repair {
        Repair::Start(Workers::One(Rank(rank)))
    }

    const WORLD: Repair = Repair::Start(Workers::World);

    fn cause() -> String {
        "the machine is gone".to_owned()
    }

    #[test]
    fn a_worker_is_restarted_while_another_node_is_replaced() {
        let mut pool = self::pool(2, Layout::new(2), false);
        assert_eq!(begun(&pool.lose(NodeIndex(1), cause())), []);
        assert_eq!(begun(&pool.replace(NodeIndex(1))), [Repair::Replace(NodeIndex(1))]);
        let directives = pool.on_workers_lost(Workers::One(Rank(0)));
        assert_eq!(
            directives[0],
            Directive::End(Job::ReachWorker(Rank(0))),
            "the lost worker is not looked for any more"
        );
        assert_eq!(begun(&directives), [one(0)]);
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(3)))), []);
        assert_eq!(begun(&pool.on_replaced(NodeIndex(1))), [one(2), one(3)]);
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(3)))), [one(3)]);
    }

    #[test]
    fn a_world_is_stopped_when_a_node_is_lost_and_started_when_all_are_up() {
        let mut pool = self::pool(3, Layout::new(1), true);
        let directives = pool.lose(NodeIndex(0), cause());
        assert!(directives.contains(&Directive::End(Job::Repair(WORLD))));
        assert_eq!(begun(&directives), [Repair::StopWorld]);
        pool.replace(NodeIndex(0));
        assert_eq!(begun(&pool.lose(NodeIndex(2), cause())), [Repair::StopWorld]);
        assert_eq!(begun(&pool.on_agent_away(NodeIndex(1))), [Repair::ReachAgent(NodeIndex(1))]);
        assert_eq!(begun(&pool.on_agent_reached(NodeIndex(1))), [Repair::StopWorld], "the first request may be lost");
        pool.replace(NodeIndex(2));
        assert_eq!(begun(&pool.on_replaced(NodeIndex(2))), []);
        assert_eq!(begun(&pool.on_workers_lost(Workers::World)), []);
        assert_eq!(begun(&pool.on_replaced(NodeIndex(0))), [WORLD]);
        assert_eq!(
            begun(&pool.on_workers_lost(Workers::One(Rank(1)))),
            [WORLD],
            "one lost worker restarts its whole world"
        );
    }

    #[test]
    fn a_node_is_kept_until_its_machine_is_given_up() {
        let (mut pool, node) = (self::pool(2, Layout::new(1), false), NodeIndex(1));
        assert!(pool.is_kept(node));
        pool.on_agent_away(node);
        assert!(pool.is_kept(node) && !pool.is_up(node));
        pool.lose(node, cause());
        assert!(!pool.is_kept(node));
        assert!(!pool.is_kept(NodeIndex(2)), "there is no such node");
    }

    #[test]
    fn an_agent_that_is_away_delays_only_its_own_workers() {
        let mut pool = self::pool(2, Layout::new(1), false);
        assert_eq!(begun(&pool.on_agent_away(NodeIndex(0))), [Repair::ReachAgent(NodeIndex(0))]);
        assert_eq!(pool.on_agent_away(NodeIndex(0)), [], "the job is begun once");
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(0)))), []);
        assert_eq!(begun(&pool.on_workers_lost(Workers::One(Rank(1)))), [one(1)]);
        assert_eq!(begun(&pool.on_agent_reached(NodeIndex(0))), [one(0)]);
    }

    #[test]
    fn jobs_under_way_for_a_lost_node_are_given_up() {
        let mut pool = self::pool(1, Layout::new(1), false);
        pool.on_agent_away(NodeIndex(0));
        let directives = pool.lose(NodeIndex(0), cause());
        let repairs = [Repair::ReachAgent(NodeIndex(0)), one(0), Repair::Replace(NodeIndex(0))].map(Job::Repair);
        for job in repairs.into_iter().chain([Job::ReachWorker(Rank(0))]) {
            assert!(directives.contains(&Directive::End(job)), "{job:?}");
        }
        assert_eq!(pool.on_agent_away(NodeIndex(0)), []);
        pool.replace(NodeIndex(0));
        pool.on_replaced(NodeIndex(0));
        assert_eq!(pool.replace(NodeIndex(0)), [], "the node is not lost any more");
    }
}
