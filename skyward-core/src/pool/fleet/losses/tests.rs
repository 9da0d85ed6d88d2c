//! Stories of losses: which of them are repaired, and which end a machine or the pool.

use super::*;
use crate::error::{LastWords, WorkerExit};
use crate::ids::MachineNumber;
use crate::layout::Layout;
use crate::spec::Nodes;

struct Story {
    fleet: Fleet,
    returns: Returns,
}

/// What became of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    Repaired,
    Sick,
    Failed,
}

impl Story {
    fn new(nodes: u32, joined: bool, apart: bool) -> Self {
        let machines = (0..nodes).map(MachineNumber).collect();
        let mut fleet = Fleet::new(joined, Layout::new(1), Nodes::fixed(nodes), machines, std::iter::empty());
        fleet.set_apart(apart);
        Self { fleet, returns: Returns::default() }
    }

    /// A worker ends while it runs no task, after this time.
    fn idle(&mut self, rank: u32, lasted: Duration) -> Becomes {
        let loss = Loss { idle: Some((WorkerExit::Signal(11), LastWords::default())), lasted };
        becomes(&self.fleet.on_worker_lost(Rank(rank), loss, &self.returns))
    }

    /// The start of a worker fails this often. Returns what became of the last of them.
    fn fails(&mut self, rank: u32, times: u32) -> Verdict {
        let error = Error::new(ErrorKind::Hook, "no peer");
        let mut last = Verdict::Repair(Vec::new());
        for time in 0..times {
            assert_eq!(becomes(&last), Becomes::Repaired, "start {time}");
            last = self.fleet.on_start_failed(Rank(rank), &error, &self.returns);
        }
        last
    }

    /// The machine of a node is lost, and replaced.
    fn lose(&mut self, node: u32, lasted: Duration) -> Verdict {
        let (node, cause) = (NodeIndex(node), Error::new(ErrorKind::Io, "the agent ended"));
        let verdict = self.fleet.on_node_lost(node, lasted, &cause, &self.returns);
        self.fleet.on_replaced(node);
        verdict
    }

    fn task_returns(&mut self, node: u32) {
        self.returns.add(NodeIndex(node));
    }
}

fn becomes(verdict: &Verdict) -> Becomes {
    match verdict {
        Verdict::Repair(_) => Becomes::Repaired,
        Verdict::Sick(..) => Becomes::Sick,
        Verdict::Failed(..) => Becomes::Failed,
    }
}

#[test]
fn idle_workers_that_end_in_a_row_end_the_pool_and_those_that_end_now_and_then_do_not() {
    for (lasted, ends) in [(SOUND, false), (SOUND / 4, true)] {
        for (nodes, joined) in [(1, false), (2, false), (2, true)] {
            let mut story = Story::new(nodes, joined, false);
            let became: Vec<_> = (0..=MAX_IDLE).map(|_| story.idle(0, lasted)).collect();
            let last = if nodes == 1 { Becomes::Failed } else { Becomes::Sick };
            assert_eq!(became.contains(&last), ends, "{nodes} nodes, a death each {lasted:?}: {became:?}");
            assert!(ends || became.iter().all(|became| *became == Becomes::Repaired));
        }
    }
}

#[test]
fn a_returned_task_ends_a_row_of_losses() {
    let mut story = Story::new(1, false, false);
    for _ in 0..3 * MAX_IDLE {
        assert_eq!(story.idle(0, Duration::ZERO), Becomes::Repaired);
        story.task_returns(0);
    }
}

#[test]
fn a_worker_that_its_task_has_ended_counts_for_nothing() {
    let mut story = Story::new(1, false, true);
    for _ in 0..3 * MAX_IDLE {
        let verdict = story.fleet.on_worker_lost(Rank(0), Loss::default(), &story.returns);
        assert_eq!(becomes(&verdict), Becomes::Repaired);
    }
}

#[test]
fn a_node_whose_workers_do_not_start_is_sick_if_another_machine_may_help() {
    for (nodes, apart) in [(2, false), (2, true), (1, true)] {
        let mut story = Story::new(nodes, false, apart);
        for _ in 0..MAX_SICK {
            // The other nodes work on, and their returned tasks do not count for this node.
            if nodes > 1 {
                story.task_returns(0);
            }
            assert_eq!(becomes(&story.fails(nodes - 1, 1)), Becomes::Repaired);
        }
        let verdict = story.fails(nodes - 1, 1);
        let Verdict::Sick(node, error) = verdict else { panic!("{nodes} nodes: {verdict:?}") };
        assert_eq!(node, NodeIndex(nodes - 1));
        assert!(error.summary().ends_with(": no peer"), "{error}");
        assert_eq!(becomes(&story.fails(nodes - 1, MAX_SICK)), Becomes::Repaired, "another machine starts anew");
    }
    let mut story = Story::new(1, false, false);
    assert_eq!(becomes(&story.fails(0, MAX_IDLE + 1)), Becomes::Failed, "this host is as sick with another folder");
}

#[test]
fn a_sick_node_whose_machine_is_given_up_already_is_not_given_up_twice() {
    let mut story = Story::new(2, false, true);
    story.fails(1, MAX_SICK);
    story.fleet.lose(NodeIndex(1), "gone".to_owned());
    assert_eq!(becomes(&story.fails(1, 1)), Becomes::Repaired);
}

#[test]
fn starts_that_fail_on_all_nodes_end_the_pool_with_the_error_of_the_start() {
    for joined in [false, true] {
        let mut story = Story::new(2, joined, true);
        for time in 0..MAX_IDLE {
            assert_eq!(becomes(&story.fails(time % 2, 1)), Becomes::Repaired);
        }
        let verdict = story.fails(1, 1);
        let Verdict::Failed(_, error) = verdict else { panic!("{verdict:?}") };
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.summary().ends_with(": no peer"), "{error}");
    }
}

#[test]
fn a_node_that_is_lost_again_and_again_ends_the_pool_unless_it_was_sound_or_a_task_returned() {
    let mut story = Story::new(2, false, false);
    let lose = |story: &mut Story, first: Duration| {
        for time in 0..MAX_MACHINES {
            let lasted = if time == 0 { first } else { Duration::ZERO };
            let verdict = story.lose(1, lasted);
            assert!(matches!(&verdict, Verdict::Repair(directives) if !directives.is_empty()), "{verdict:?}");
        }
    };
    lose(&mut story, Duration::ZERO);
    story.task_returns(1);
    lose(&mut story, Duration::ZERO);
    lose(&mut story, SOUND);
    story.task_returns(0);
    let verdict = story.lose(1, SOUND - Duration::from_secs(1));
    let Verdict::Failed(_, error) = verdict else { panic!("{verdict:?}") };
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.message().contains("4 times in a row") && error.summary().contains("the agent ended"), "{error}");
}

#[test]
fn losses_of_a_node_that_leaves_are_not_counted_and_a_node_that_joins_there_begins_anew() {
    let mut story = Story::new(2, false, false);
    for _ in 0..MAX_MACHINES {
        story.lose(1, Duration::ZERO);
    }
    story.fleet.set_target(1);
    for _ in 0..=MAX_MACHINES {
        let verdict = story.lose(1, Duration::ZERO);
        let Verdict::Repair(directives) = verdict else { panic!("{verdict:?}") };
        assert!(directives.iter().all(|directive| matches!(directive, Directive::End(_))), "{directives:?}");
    }
    story.fleet.on_drained(NodeIndex(1));
    story.fleet.on_stopped(NodeIndex(1));
    story.fleet.on_dismissed(MachineNumber(1), true);
    story.fleet.set_target(2);
    let coming = *story.fleet.coming.keys().next().unwrap();
    story.fleet.on_ready(coming);
    story.fleet.on_added(NodeIndex(1));
    assert_eq!(becomes(&story.lose(1, Duration::ZERO)), Becomes::Repaired);
}

#[test]
fn a_pool_that_ends_counts_nothing() {
    let mut story = Story::new(1, false, true);
    story.fleet.end();
    for _ in 0..2 * MAX_IDLE {
        assert_eq!(story.idle(0, Duration::ZERO), Becomes::Repaired);
        assert_eq!(becomes(&story.lose(0, Duration::ZERO)), Becomes::Repaired);
    }
}
