use std::collections::BTreeSet;

use super::*;
use crate::ids::Rank;
use crate::layout::Layout;
use crate::pool::fleet::directive::{Job, Repair, Workers};
use crate::spec::Nodes;

fn machines(numbers: &[u32]) -> Vec<MachineNumber> {
    numbers.iter().copied().map(MachineNumber).collect()
}

fn pool(joined: bool, nodes: u32) -> Fleet {
    Fleet::new(joined, Layout::new(1), Nodes::fixed(nodes), (0..nodes).map(MachineNumber).collect(), std::iter::empty())
}

fn launch(machine: u32) -> Directive {
    Directive::Launch { machine: MachineNumber(machine) }
}

fn forget(machine: u32) -> Directive {
    forget_successor(machine, machine)
}

fn forget_successor(node: u32, machine: u32) -> Directive {
    Directive::Forget { node: NodeIndex(node), machine: MachineNumber(machine) }
}

fn join(node: u32, machine: u32) -> Directive {
    Directive::Join { node: NodeIndex(node), machine: MachineNumber(machine) }
}

fn leave(node: u32) -> Directive {
    Directive::Leave { node: NodeIndex(node) }
}

fn stop(node: u32) -> Directive {
    Directive::Stop { node: NodeIndex(node) }
}

fn remove(node: u32, machine: u32, rows: u32) -> Directive {
    Directive::Remove { node: NodeIndex(node), machine: MachineNumber(machine), rows }
}

#[test]
fn further_machines_get_their_places_in_the_order_in_which_they_are_ready() {
    let mut pool = pool(false, 1);
    assert_eq!(pool.set_target(3), [launch(1), launch(2)]);
    assert_eq!(pool.on_ready(MachineNumber(2)), [join(1, 2)]);
    assert!(!pool.is_settled());
    assert_eq!(pool.on_ready(MachineNumber(1)), [join(2, 1)]);
    assert!(pool.is_settled());
    assert_eq!(pool.members(), 3);
    assert_eq!(pool.coming(), 0);
}

#[test]
fn the_last_nodes_leave_when_they_have_finished_and_node_0_never_leaves() {
    let mut pool = pool(false, 3);
    assert_eq!(pool.set_target(0), [leave(2), leave(1)]);
    assert_eq!(pool.target(), 1);
    assert_eq!(pool.on_drained(NodeIndex(1)), [stop(1)]);
    assert_eq!(pool.on_drained(NodeIndex(1)), [], "a second report changes nothing");
    assert_eq!(pool.on_stopped(NodeIndex(1)), [remove(1, 1, 3)], "node 2 behind it has not left");
    pool.on_dismissed(MachineNumber(1), true);
    assert_eq!(pool.on_drained(NodeIndex(2)), [stop(2)]);
    assert_eq!(pool.on_stopped(NodeIndex(2)), [remove(2, 2, 1)]);
    assert!(!pool.is_settled(), "its machine is not confirmed gone");
    pool.on_dismissed(MachineNumber(2), true);
    assert!(pool.is_settled());
    assert_eq!(pool.on_drained(NodeIndex(0)), []);
}

#[test]
fn draining_nodes_stay_when_the_target_includes_them_again() {
    let mut pool = pool(false, 4);
    pool.set_target(1);
    pool.on_drained(NodeIndex(2));
    assert_eq!(
        pool.set_target(4),
        [Directive::Stay { node: NodeIndex(1) }, launch(4), launch(5)],
        "node 2 is being stopped, and node 3 cannot stay without it"
    );
    assert_eq!(pool.on_ready(MachineNumber(4)), [], "its place is not free");
    assert_eq!(
        pool.on_stopped(NodeIndex(2)),
        [remove(2, 2, 4), join(2, 4), Directive::Stay { node: NodeIndex(3) }, forget(5)]
    );
}

#[test]
fn machines_under_way_are_given_up_before_members_leave() {
    let mut pool = pool(false, 2);
    pool.set_target(5);
    assert_eq!(pool.set_target(3), [forget(4), forget(3)]);
    assert_eq!(pool.set_target(1), [leave(1), forget(2)]);
    assert_eq!(pool.on_ready(MachineNumber(2)), []);
}

#[test]
fn the_number_of_a_machine_is_reused_only_when_the_machine_is_gone() {
    let mut pool = pool(false, 1);
    assert_eq!(pool.set_target(2), [launch(1)]);
    pool.set_target(1);
    assert_eq!(pool.set_target(2), [launch(2)]);
    pool.set_target(1);
    pool.on_dismissed(MachineNumber(1), true);
    pool.on_dismissed(MachineNumber(2), false);
    assert_eq!(pool.set_target(3), [launch(1), launch(3)], "machine 2 is not confirmed gone");
}

#[test]
fn after_three_failures_in_a_row_no_further_machine_is_tried() {
    let mut pool = pool(false, 1);
    assert_eq!(pool.set_target(2), [launch(1)]);
    for machine in 1..3 {
        assert_eq!(pool.on_failed(MachineNumber(machine)), [forget(machine), launch(machine + 1)]);
    }
    assert_eq!(pool.on_failed(MachineNumber(3)), [forget(3)]);
    assert!(pool.has_given_up());
    (1..4).for_each(|machine| pool.on_dismissed(MachineNumber(machine), true));
    assert!(pool.is_settled());
    assert_eq!(pool.set_target(2), [launch(1)], "a new target tries again");
}

#[test]
fn a_world_is_reshaped_in_one_step_when_it_is_idle_and_all_new_machines_are_ready() {
    let mut pool = pool(true, 2);
    assert_eq!(pool.set_target(4), [launch(2), launch(3)]);
    assert_eq!(pool.on_ready(MachineNumber(3)), []);
    assert_eq!(pool.on_ready(MachineNumber(2)), []);
    assert!(pool.is_held() && !pool.is_settled());
    let reshape = Directive::Reshape { stay: 2, left: vec![], join: machines(&[2, 3]), taken: vec![] };
    assert_eq!(pool.on_world_idle(), [reshape]);
    assert!(pool.is_held(), "no task starts before the nodes have changed");
    assert_eq!(pool.on_world_idle(), []);
    pool.on_reshaped(2, 0, &[]);
    assert!(pool.is_settled() && !pool.is_held());
    assert_eq!(pool.set_target(1), [leave(3), leave(2), leave(1)]);
    assert!(pool.is_held());
    let reshape = Directive::Reshape { stay: 1, left: machines(&[1, 2, 3]), join: vec![], taken: vec![] };
    assert_eq!(pool.on_world_idle(), [reshape]);
    pool.on_reshaped(1, 3, &[]);
    assert_eq!(pool.on_world_idle(), []);
}

#[test]
fn a_world_is_released_when_it_need_not_change_any_more() {
    let mut pool = pool(true, 2);
    assert_eq!(pool.set_target(1), [leave(1)]);
    assert!(pool.is_held());
    assert_eq!(pool.set_target(2), [Directive::Stay { node: NodeIndex(1) }]);
    assert!(!pool.is_held());
    pool.set_target(3);
    assert_eq!(pool.on_ready(MachineNumber(2)), []);
    assert!(pool.is_held());
    assert_eq!(pool.on_failed(MachineNumber(2)), [forget(2), launch(3)]);
    assert!(!pool.is_held());
}

fn succeed(node: u32, machine: u32) -> Directive {
    Directive::Succeed { node: NodeIndex(node), machine: MachineNumber(machine) }
}

/// Whether a node takes no tasks because its machine will end.
fn is_cordoned(pool: &Fleet, node: NodeIndex) -> bool {
    pool.eligible().cordoned.contains(&node)
}

/// A node that stays is lost while a successor is made ready for it.
fn lose(pool: &mut Fleet, node: NodeIndex) {
    pool.lose(node, "the machine is gone".to_owned());
    assert_eq!(pool.succeed_lost(node, true), []);
}

fn take(node: u32, machine: u32, left: u32) -> Directive {
    Directive::Take { node: NodeIndex(node), machine: MachineNumber(machine), left: MachineNumber(left) }
}

#[test]
fn a_node_whose_machine_will_end_drains_while_its_successor_is_made_ready() {
    let (mut pool, first) = (pool(false, 2), NodeIndex(0));
    assert_eq!(pool.on_ending(&[first]), [succeed(0, 2)]);
    assert!(is_cordoned(&pool, first));
    assert_eq!(pool.on_ending(&[first]), [], "the second notice changes nothing");
    assert_eq!(pool.on_ready(MachineNumber(2)), [], "the node finishes its work first");
    assert_eq!(pool.on_drained(first), [Directive::Vacate { node: first }]);
    assert!(is_cordoned(&pool, first));
    assert_eq!(pool.on_stopped(first), [take(0, 2, 0)]);
    assert!(pool.members() == 2 && !is_cordoned(&pool, first));
    assert!(!pool.is_settled(), "the old machine is not confirmed gone");
    pool.on_dismissed(MachineNumber(0), true);
    assert!(pool.is_settled());
    // The next time, the node is lost before it has finished its work.
    assert_eq!(pool.on_ending(&[first]), [succeed(0, 0)]);
    assert_eq!(pool.succeed_lost(first, true), []);
    assert!(!is_cordoned(&pool, first), "tasks that name the node wait for its workers alone");
    assert_eq!(pool.on_ready(MachineNumber(0)), [take(0, 0, 2)]);
}

#[test]
fn after_three_failed_successors_the_node_takes_tasks_again() {
    let (mut pool, first) = (pool(false, 1), NodeIndex(0));
    pool.on_ending(&[first]);
    assert_eq!(pool.on_failed(MachineNumber(1)), [forget_successor(0, 1), succeed(0, 2)]);
    assert_eq!(pool.on_failed(MachineNumber(2)), [forget_successor(0, 2), succeed(0, 3)]);
    assert!(is_cordoned(&pool, first));
    assert_eq!(pool.on_failed(MachineNumber(3)), [forget_successor(0, 3)]);
    assert!(!pool.has_successor(first) && !is_cordoned(&pool, first));
    assert_eq!(pool.on_ending(&[first]), [succeed(0, 4)], "a new notice tries again");
    lose(&mut pool, first);
    assert_eq!(pool.on_failed(MachineNumber(4)), [forget_successor(0, 4), Directive::Begin(Repair::Replace(first))]);
}

#[test]
fn a_successor_that_was_ready_ends_the_row_of_failures() {
    let (mut pool, first) = (pool(false, 1), NodeIndex(0));
    pool.on_ending(&[first]);
    for machine in 1..6 {
        assert_eq!(pool.on_ready(MachineNumber(machine)), []);
        assert_eq!(pool.on_failed(MachineNumber(machine)), [forget_successor(0, machine), succeed(0, machine + 1)]);
    }
}

#[test]
fn a_machine_whose_connection_is_cut_gets_no_place_until_it_is_ready_again() {
    let (mut pool, first) = (pool(false, 1), NodeIndex(0));
    pool.on_ending(&[first]);
    pool.on_ready(MachineNumber(1));
    assert_eq!(pool.on_drained(first), [Directive::Vacate { node: first }]);
    assert_eq!(pool.on_cut(MachineNumber(1)), []);
    assert_eq!(pool.on_stopped(first), [], "the successor is not connected");
    assert_eq!(pool.on_ready(MachineNumber(1)), [take(0, 1, 0)]);

    let mut world = super::tests::pool(true, 1);
    world.set_target(2);
    for _ in 0..2 {
        assert_eq!(world.on_ready(MachineNumber(1)), []);
        assert!(world.is_held());
        assert_eq!(world.on_cut(MachineNumber(1)), []);
        assert!(!world.is_held());
    }
}

#[test]
fn a_further_machine_never_has_the_number_of_a_node() {
    let (mut pool, first) = (pool(false, 1), NodeIndex(0));
    pool.on_ending(&[first]);
    pool.on_ready(MachineNumber(1));
    pool.on_drained(first);
    assert_eq!(pool.on_stopped(first), [take(0, 1, 0)]);
    pool.on_dismissed(MachineNumber(0), true);
    assert_eq!(pool.set_target(2), [launch(2)], "number 0 is free, but node 0 works");
    assert_eq!(pool.on_ending(&[first]), [succeed(0, 0)], "a successor is named by its node");
}

#[test]
fn an_idle_world_waits_for_its_successor_and_continues_as_its_next_generation() {
    let (mut pool, second) = (pool(true, 2), NodeIndex(1));
    assert_eq!(pool.on_ending(&[second]), [succeed(1, 2)]);
    assert!(pool.is_held() && !is_cordoned(&pool, second), "a world is held as a whole");
    assert_eq!(pool.on_world_idle(), []);
    assert_eq!(pool.on_ready(MachineNumber(2)), []);
    let taken = vec![(second, MachineNumber(2), MachineNumber(1))];
    assert_eq!(pool.on_world_idle(), [Directive::Reshape { stay: 2, left: vec![], join: vec![], taken }]);
    pool.on_reshaped(2, 0, &[second]);
    pool.on_dismissed(MachineNumber(1), true);
    assert!(pool.is_settled());
}

#[test]
fn nodes_whose_machines_will_end_at_the_same_time_get_successors_with_different_numbers() {
    let (mut pool, nodes) = (pool(false, 3), [NodeIndex(0), NodeIndex(2), NodeIndex(7)]);
    assert_eq!(pool.on_ending(&nodes), [succeed(0, 3), succeed(2, 4)]);
    assert_eq!(pool.on_ending(&nodes), []);
}

#[test]
fn a_node_that_leaves_has_no_successor() {
    let (mut pool, last) = (pool(false, 2), NodeIndex(1));
    pool.on_ending(&[last]);
    assert_eq!(pool.set_target(1), [leave(1), forget_successor(1, 2)]);
    assert_eq!(pool.on_ending(&[last]), []);
    // Tasks that were submitted for the node by name run on another machine in its place, or on the
    // workers that were being stopped.
    let workers = Workers::One(Rank(1));
    let revived = [Directive::End(Job::Stop(last)), Directive::End(Job::ReachWorker(Rank(1)))];
    let revived = revived.into_iter().chain([Directive::Begin(Repair::Start(workers))]);
    for (lost, follow) in [(true, vec![Directive::Begin(Repair::Replace(last))]), (false, revived.collect())] {
        let mut pool = super::tests::pool(false, 2);
        pool.on_ending(&[last]);
        if lost {
            lose(&mut pool, last);
        } else {
            pool.on_ready(MachineNumber(2));
            pool.on_drained(last);
        }
        let directives = [leave(1), forget_successor(1, 2)].into_iter().chain(follow);
        assert_eq!(pool.set_target(1), directives.collect::<Vec<_>>());
    }
}

/// Numbers that a seed determines.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A pool in a random history.
struct History {
    seed: u64,
    draw: Draw,
    joined: bool,
    pool: Fleet,
    /// Directives that the pool has requested, and whose ends are not reported yet.
    open: Vec<Directive>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let joined = draw.below(2) == 0;
        let pool = pool(joined, 1 + draw.below(4) as u32);
        Self { seed, draw, joined, pool, open: Vec::new() }
    }

    /// Reports something to the pool. In a calm round, open directives end, and all of them
    /// succeed: `None` if no directive is open then.
    fn report(&mut self, calm: bool) -> Option<Vec<Directive>> {
        let node = NodeIndex(self.draw.below(4) as u32);
        let directives = match if calm { 9 } else { self.draw.below(8) } {
            0 | 1 => self.pool.set_target(self.draw.below(6) as u32),
            2 => self.pool.on_ending(&[node]),
            3 => {
                let directives = self.pool.succeed_lost(node, true);
                // A lost node has no workers to stop.
                self.open.retain(|directive| *directive != Directive::Vacate { node } || !directives.is_empty());
                directives
            }
            // An idle world reports after each event that it is idle.
            4 => self.pool.on_world_idle(),
            5 => self.drained().unwrap_or_default(),
            _ if self.open.is_empty() && self.pool.is_held() => self.pool.on_world_idle(),
            _ if self.open.is_empty() => return self.drained(),
            _ => {
                let directive = self.open.remove(self.draw.below(self.open.len() as u64) as usize);
                self.end(directive, calm)
            }
        };
        Some(directives)
    }

    /// Reports that a node whose machine will end has finished its work; `None` if there is none.
    fn drained(&mut self) -> Option<Vec<Directive>> {
        let mut successors = self.pool.successors.iter().filter(|_| !self.joined);
        let (node, _) = successors.find(|(_, successor)| successor.state == HandOver::Draining)?;
        let node = *node;
        Some(self.pool.on_drained(node))
    }

    /// Reports the end of a directive.
    fn end(&mut self, directive: Directive, calm: bool) -> Vec<Directive> {
        let pool = &mut self.pool;
        match directive {
            Directive::Launch { machine } | Directive::Succeed { machine, .. } if !calm && self.draw.below(4) == 0 => {
                pool.on_failed(machine)
            }
            Directive::Launch { machine } | Directive::Succeed { machine, .. } => pool.on_ready(machine),
            Directive::Leave { node } => pool.on_drained(node),
            Directive::Vacate { node } | Directive::Stop { node } => pool.on_stopped(node),
            Directive::Take { left: machine, .. }
            | Directive::Forget { machine, .. }
            | Directive::Remove { machine, .. } => {
                pool.on_dismissed(machine, true);
                Vec::new()
            }
            Directive::Reshape { left, taken, .. } => {
                let left = left.into_iter().chain(taken.into_iter().map(|(.., left)| left));
                left.for_each(|machine| pool.on_dismissed(machine, true));
                Vec::new()
            }
            Directive::Begin(_) | Directive::End(_) | Directive::Join { .. } | Directive::Stay { .. } => Vec::new(),
        }
    }

    /// Checks directives of the pool and opens them; some of them take back others.
    fn follow(&mut self, directives: Vec<Directive>) {
        let (seed, open) = (self.seed, &mut self.open);
        for directive in &directives {
            match directive {
                Directive::Leave { node } => assert!(node.0 > 0, "seed {seed}"),
                Directive::Reshape { stay, left, taken, .. } => {
                    assert!(*stay > 0, "seed {seed}");
                    let taken: Vec<NodeIndex> = taken.iter().map(|(node, ..)| *node).collect();
                    self.pool.on_reshaped(*stay, left.len() as u32, &taken);
                }
                Directive::Stay { node } => open.retain(|directive| *directive != leave(node.0)),
                Directive::Forget { machine, .. } => open.retain(|directive| {
                    let succeeds =
                        matches!(directive, Directive::Succeed { machine: successor, .. } if successor == machine);
                    *directive != launch(machine.0) && !succeeds
                }),
                Directive::Take { node, machine, left } => {
                    assert_ne!(machine, left, "seed {seed}");
                    assert!(node.0 < self.pool.members(), "seed {seed}: a node that leaves gets another machine");
                }
                _ => {}
            }
        }
        // The nodes of a world do not drain one by one: the world reports that it is idle.
        open.extend(
            directives.into_iter().filter(|directive| !self.joined || !matches!(directive, Directive::Leave { .. })),
        );
    }

    fn assert_no_number_is_used_twice(&self) {
        let (seed, pool) = (self.seed, &self.pool);
        let rows = pool.table.nodes().filter_map(|node| pool.table.machine(node));
        let successors = pool.successors.values().map(|successor| successor.machine);
        let numbers: Vec<_> = rows.chain(pool.coming.keys().copied()).chain(successors).collect();
        let alone: BTreeSet<_> = numbers.iter().collect();
        let vacant = pool.table.nodes().any(|node| pool.table.membership(node) == Some(Membership::Vacant));
        assert!(vacant || alone.len() == numbers.len(), "seed {seed}: a number is used twice: {pool:?}");
    }

    fn assert_settled(&self) {
        let (seed, pool) = (self.seed, &self.pool);
        assert_eq!(self.open, [], "seed {seed}: {pool:?}");
        assert!(pool.successors.is_empty(), "seed {seed}: {pool:?}");
        assert!(pool.is_settled(), "seed {seed}: {pool:?}");
        let settled = pool.members() == pool.target() || pool.has_given_up();
        assert!(settled && pool.members() > 0, "seed {seed}: {pool:?}");
    }
}

/// Random histories: members are the first rows without a gap, node 0 never leaves, and every
/// history settles at its target.
#[test]
fn every_random_history_settles_at_its_target() {
    for seed in 0..2000_u64 {
        let mut history = History::new(seed);
        for round in 0..200 {
            let Some(directives) = history.report(round >= 40) else { break };
            history.follow(directives);
            history.assert_no_number_is_used_twice();
        }
        history.assert_settled();
    }
}

#[test]
fn a_pool_that_ends_gives_up_what_comes_and_replaces_nothing() {
    for joined in [false, true] {
        let mut pool = pool(joined, 3);
        pool.set_target(4);
        pool.on_ending(&[NodeIndex(0)]);
        let successor = pool.successors[&NodeIndex(0)].machine;
        pool.lose(NodeIndex(1), "gone".to_owned());
        assert!(!pool.succeed_lost(NodeIndex(1), true).is_empty(), "a replacement is begun");
        let directives = pool.end();
        for directive in [
            forget(3),
            forget_successor(0, successor.0),
            Directive::End(Job::Repair(Repair::Replace(NodeIndex(1)))),
            Directive::End(Job::Repair(Repair::Start(if joined { Workers::World } else { Workers::One(Rank(2)) }))),
        ] {
            assert!(directives.contains(&directive), "{directive:?} is missing: {directives:?}");
        }
        assert_eq!(pool.coming(), 0);
        assert!(!pool.is_held());
        // What is still connected is kept; nothing is begun for what is lost.
        assert_eq!(pool.on_agent_away(NodeIndex(2)), [Directive::Begin(Repair::ReachAgent(NodeIndex(2)))]);
        assert_eq!(pool.on_agent_reached(NodeIndex(2)), []);
        assert_eq!(pool.on_workers_lost(Workers::One(Rank(2))), []);
        assert!(pool.set_target(9).is_empty());
        assert!(pool.on_ending(&[NodeIndex(2)]).is_empty());
        let lost = pool.lose(NodeIndex(2), "gone".to_owned());
        let begun: Vec<&Directive> = lost.iter().filter(|directive| matches!(directive, Directive::Begin(_))).collect();
        assert_eq!(begun.len(), usize::from(joined), "only the other workers of a world are ended: {begun:?}");
        assert_eq!(pool.succeed_lost(NodeIndex(2), true), []);
        assert_eq!(pool.on_failed(successor), []);
    }
}
