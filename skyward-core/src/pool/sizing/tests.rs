use super::*;

fn machines(numbers: &[u32]) -> Vec<MachineNumber> {
    numbers.iter().copied().map(MachineNumber).collect()
}

fn pool(joined: bool, nodes: u32) -> Sizing {
    Sizing::new(joined, nodes, (0..nodes).map(MachineNumber).collect(), std::iter::empty())
}

fn launch(machine: u32) -> SizeStep {
    SizeStep::Launch { machine: MachineNumber(machine) }
}

fn forget(machine: u32) -> SizeStep {
    SizeStep::Forget { machine: MachineNumber(machine) }
}

fn join(node: u32, machine: u32) -> SizeStep {
    SizeStep::Join { node: NodeIndex(node), machine: MachineNumber(machine) }
}

fn leave(node: u32) -> SizeStep {
    SizeStep::Leave { node: NodeIndex(node) }
}

fn stop(node: u32) -> SizeStep {
    SizeStep::Stop { node: NodeIndex(node) }
}

fn remove(node: u32, machine: u32, rows: u32) -> SizeStep {
    SizeStep::Remove { node: NodeIndex(node), machine: MachineNumber(machine), rows }
}

#[test]
fn further_machines_get_their_places_in_the_order_in_which_they_are_ready() {
    let mut pool = pool(false, 1);
    assert_eq!(pool.set_target(3), [launch(1), launch(2)]);
    assert_eq!(pool.on_ready(MachineNumber(2)), [join(1, 2)]);
    assert!(!pool.is_settled());
    assert_eq!(pool.on_ready(MachineNumber(1)), [join(2, 1)]);
    assert!(pool.is_settled());
    assert_eq!((pool.members(), pool.coming()), (3, 0));
}

#[test]
fn the_last_nodes_leave_when_they_have_finished_and_the_first_never() {
    let mut pool = pool(false, 3);
    assert_eq!(pool.set_target(0), [leave(2), leave(1)]);
    assert_eq!(pool.target(), 1);
    assert_eq!(pool.on_drained(NodeIndex(1)), [stop(1)]);
    assert_eq!(pool.on_drained(NodeIndex(1)), [], "it is told once");
    assert_eq!(pool.on_stopped(NodeIndex(1)), [remove(1, 1, 3)], "the one behind it is there still");
    pool.on_dismissed(MachineNumber(1), true);
    assert_eq!(pool.on_drained(NodeIndex(2)), [stop(2)]);
    assert_eq!(pool.on_stopped(NodeIndex(2)), [remove(2, 2, 1)]);
    assert!(!pool.is_settled(), "its machine is not confirmed gone");
    pool.on_dismissed(MachineNumber(2), true);
    assert!(pool.is_settled());
    assert_eq!(pool.on_drained(NodeIndex(0)), []);
}

#[test]
fn nodes_that_have_not_begun_to_end_stay_when_they_are_wanted_again() {
    let mut pool = pool(false, 4);
    pool.set_target(1);
    pool.on_drained(NodeIndex(2));
    assert_eq!(
        pool.set_target(4),
        [SizeStep::Stay { node: NodeIndex(1) }, launch(4), launch(5)],
        "2 ends, and 3 cannot be without it"
    );
    assert_eq!(pool.on_ready(MachineNumber(4)), [], "its place is not free");
    assert_eq!(
        pool.on_stopped(NodeIndex(2)),
        [remove(2, 2, 4), join(2, 4), SizeStep::Stay { node: NodeIndex(3) }, forget(5)]
    );
}

#[test]
fn what_comes_and_is_not_wanted_is_given_up_before_anything_that_is_there() {
    let mut pool = pool(false, 2);
    pool.set_target(5);
    assert_eq!(pool.set_target(3), [forget(4), forget(3)]);
    assert_eq!(pool.set_target(1), [leave(1), forget(2)]);
    assert_eq!(pool.on_ready(MachineNumber(2)), []);
}

#[test]
fn numbers_of_machines_are_not_used_again_before_they_are_gone() {
    let mut pool = pool(false, 1);
    assert_eq!(pool.set_target(2), [launch(1)]);
    pool.set_target(1);
    assert_eq!(pool.set_target(2), [launch(2)]);
    pool.set_target(1);
    pool.on_dismissed(MachineNumber(1), true);
    pool.on_dismissed(MachineNumber(2), false);
    assert_eq!(pool.set_target(3), [launch(1), launch(3)], "nobody knows whether 2 is gone");
}

#[test]
fn machines_that_cannot_be_had_are_tried_three_times_and_the_rest_goes_on() {
    let mut pool = pool(false, 1);
    assert_eq!(pool.set_target(2), [launch(1)]);
    for machine in 1..3 {
        assert_eq!(pool.on_failed(MachineNumber(machine)), [forget(machine), launch(machine + 1)]);
    }
    assert_eq!(pool.on_failed(MachineNumber(3)), [forget(3)]);
    assert!(pool.has_given_up());
    (1..4).for_each(|machine| pool.on_dismissed(MachineNumber(machine), true));
    assert!(pool.is_settled());
    assert_eq!(pool.set_target(2), [launch(1)], "it is tried anew when it is asked for anew");
}

#[test]
fn a_world_changes_at_once_when_all_that_come_are_ready_and_it_is_idle() {
    let mut pool = pool(true, 2);
    assert_eq!(pool.set_target(4), [launch(2), launch(3)]);
    assert_eq!(pool.on_ready(MachineNumber(3)), []);
    assert_eq!(pool.on_ready(MachineNumber(2)), [SizeStep::Hold]);
    assert!(!pool.is_settled());
    let reshape = SizeStep::Reshape { stay: 2, left: vec![], join: machines(&[2, 3]), taken: vec![] };
    assert_eq!(pool.on_world_idle(), [reshape]);
    assert!(pool.is_settled());
    assert_eq!(pool.set_target(1), [leave(3), leave(2), leave(1), SizeStep::Hold]);
    let reshape = SizeStep::Reshape { stay: 1, left: machines(&[1, 2, 3]), join: vec![], taken: vec![] };
    assert_eq!(pool.on_world_idle(), [reshape]);
    assert_eq!(pool.on_world_idle(), []);
}

#[test]
fn a_world_that_need_not_change_any_more_goes_on() {
    let mut pool = pool(true, 2);
    assert_eq!(pool.set_target(1), [leave(1), SizeStep::Hold]);
    assert_eq!(pool.set_target(2), [SizeStep::Stay { node: NodeIndex(1) }, SizeStep::Release]);
    pool.set_target(3);
    assert_eq!(pool.on_ready(MachineNumber(2)), [SizeStep::Hold]);
    assert_eq!(pool.on_failed(MachineNumber(2)), [forget(2), launch(3), SizeStep::Release]);
}

fn succeed(node: u32, machine: u32) -> SizeStep {
    SizeStep::Succeed { node: NodeIndex(node), machine: MachineNumber(machine) }
}

fn take(node: u32, machine: u32, left: u32) -> SizeStep {
    SizeStep::Take { node: NodeIndex(node), machine: MachineNumber(machine), left: MachineNumber(left) }
}

#[test]
fn a_machine_that_will_end_is_drained_while_another_is_made_ready_for_its_place() {
    let (first, cordon, vacate) =
        (NodeIndex(0), SizeStep::Cordon { node: NodeIndex(0) }, SizeStep::Vacate { node: NodeIndex(0) });
    let mut pool = pool(false, 2);
    assert_eq!(pool.on_ending(first), [cordon, succeed(0, 2)]);
    assert_eq!(pool.on_ending(first), [], "it is known already");
    assert_eq!(pool.on_ready(MachineNumber(2)), [], "it finishes what it has");
    assert_eq!(pool.on_drained(first), [vacate]);
    assert_eq!(pool.on_stopped(first), [take(0, 2, 0)]);
    assert_eq!(pool.members(), 2);
    assert!(!pool.is_settled(), "the machine before is not confirmed gone");
    pool.on_dismissed(MachineNumber(0), true);
    assert!(pool.is_settled());
    // The next time it is lost before it has finished.
    assert_eq!(pool.on_ending(first)[1], succeed(0, 0));
    assert_eq!(pool.on_lost(first), []);
    assert_eq!(pool.on_ready(MachineNumber(0)), [take(0, 0, 2)]);
}

#[test]
fn a_successor_that_cannot_be_had_is_tried_again_and_then_the_node_is_left_to_its_end() {
    let (mut pool, first) = (pool(false, 1), NodeIndex(0));
    pool.on_ending(first);
    assert_eq!(pool.on_failed(MachineNumber(1)), [forget(1), succeed(0, 2)]);
    assert_eq!(pool.on_failed(MachineNumber(2)), [forget(2), succeed(0, 3)]);
    assert_eq!(pool.on_failed(MachineNumber(3)), [forget(3), SizeStep::Uncordon { node: first }]);
    assert!(!pool.has_heir(first));
    assert_eq!(pool.on_ending(first)[1], succeed(0, 4), "it is tried anew");
    pool.on_lost(first);
    assert_eq!(pool.on_failed(MachineNumber(4)), [forget(4), SizeStep::Replace { node: first }]);
}

#[test]
fn a_world_waits_for_its_successors_when_it_is_idle_and_goes_on_as_its_next_generation() {
    let (mut pool, second) = (pool(true, 2), NodeIndex(1));
    assert_eq!(pool.on_ending(second), [succeed(1, 2), SizeStep::Hold]);
    assert_eq!(pool.on_world_idle(), []);
    assert_eq!(pool.on_ready(MachineNumber(2)), []);
    let taken = vec![(second, MachineNumber(2), MachineNumber(1))];
    assert_eq!(pool.on_world_idle(), [SizeStep::Reshape { stay: 2, left: vec![], join: vec![], taken }]);
    pool.on_dismissed(MachineNumber(1), true);
    assert!(pool.is_settled());
}

#[test]
fn what_leaves_has_no_successor() {
    let (mut pool, last) = (pool(false, 2), NodeIndex(1));
    pool.on_ending(last);
    assert_eq!(pool.set_target(1), [leave(1), forget(2)]);
    assert_eq!(pool.on_ending(last), []);
    // What it has for it by name is done by a machine of its own, or by the workers that were being stopped.
    for (lost, step) in [(true, SizeStep::Replace { node: last }), (false, SizeStep::Revive { node: last })] {
        let mut pool = super::tests::pool(false, 2);
        pool.on_ending(last);
        if lost {
            pool.on_lost(last);
        } else {
            pool.on_ready(MachineNumber(2));
            pool.on_drained(last);
        }
        assert_eq!(pool.set_target(1), [leave(1), forget(2), step]);
    }
}

/// Random stories: members are the first rows without a gap, node 0 is never told to leave, and every story comes to rest at its target.
#[test]
fn every_story_comes_to_rest_with_as_many_nodes_as_were_asked_for() {
    for seed in 0..2000_u64 {
        let mut draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |bound: u64| {
            draw ^= draw << 13;
            draw ^= draw >> 7;
            draw ^= draw << 17;
            draw % bound
        };
        let joined = below(2) == 0;
        let mut pool = pool(joined, 1 + below(4) as u32);
        let mut open: Vec<SizeStep> = Vec::new();
        for round in 0..200 {
            let node = NodeIndex(below(4) as u32);
            let steps = match if round < 40 { below(8) } else { 9 } {
                0 | 1 => pool.set_target(below(6) as u32),
                2 => pool.on_ending(node),
                3 => {
                    let steps = pool.on_lost(node);
                    // Nothing is stopped where nothing is left.
                    open.retain(|step| *step != SizeStep::Vacate { node } || !steps.is_empty());
                    steps
                }
                // A world that is idle looks after each event.
                4 => pool.on_world_idle(),
                _ if open.is_empty() && pool.held => pool.on_world_idle(),
                _ if open.is_empty() => break,
                _ => match open.remove(below(open.len() as u64) as usize) {
                    SizeStep::Launch { machine } if round < 40 && below(4) == 0 => pool.on_failed(machine),
                    SizeStep::Launch { machine } => pool.on_ready(machine),
                    SizeStep::Succeed { machine, .. } if round < 40 && below(4) == 0 => pool.on_failed(machine),
                    SizeStep::Succeed { machine, .. } => pool.on_ready(machine),
                    SizeStep::Cordon { node } => pool.on_drained(node),
                    SizeStep::Vacate { node } => pool.on_stopped(node),
                    SizeStep::Take { left, .. } => {
                        pool.on_dismissed(left, true);
                        Vec::new()
                    }
                    SizeStep::Leave { node } => pool.on_drained(node),
                    SizeStep::Stop { node } => pool.on_stopped(node),
                    SizeStep::Forget { machine } | SizeStep::Remove { machine, .. } => {
                        pool.on_dismissed(machine, true);
                        Vec::new()
                    }
                    SizeStep::Reshape { left, taken, .. } => {
                        let left = left.into_iter().chain(taken.into_iter().map(|(.., left)| left));
                        left.for_each(|machine| pool.on_dismissed(machine, true));
                        Vec::new()
                    }
                    SizeStep::Hold
                    | SizeStep::Join { .. }
                    | SizeStep::Replace { .. }
                    | SizeStep::Revive { .. }
                    | SizeStep::Uncordon { .. }
                    | SizeStep::Stay { .. }
                    | SizeStep::Release => Vec::new(),
                },
            };
            for step in &steps {
                match step {
                    SizeStep::Leave { node } => assert!(node.0 > 0, "seed {seed}"),
                    SizeStep::Reshape { stay, .. } => assert!(*stay > 0, "seed {seed}"),
                    SizeStep::Stay { node } => open.retain(|step| *step != leave(node.0)),
                    SizeStep::Forget { machine } => open.retain(|step| {
                        let succeeds = matches!(step, SizeStep::Succeed { machine: heir, .. } if heir == machine);
                        *step != launch(machine.0) && !succeeds
                    }),
                    SizeStep::Take { node, machine, left } => {
                        assert_ne!(machine, left, "seed {seed}");
                        assert!(node.0 < pool.members(), "seed {seed}: a node that leaves gets another machine");
                    }
                    SizeStep::Release => open.retain(|step| *step != SizeStep::Hold),
                    _ => {}
                }
            }
            let numbers: Vec<_> = pool.rows.iter().map(|row| row.machine).chain(pool.coming.keys().copied()).collect();
            let numbers: Vec<_> = numbers.into_iter().chain(pool.heirs.values().map(|heir| heir.machine)).collect();
            let alone: BTreeSet<_> = numbers.iter().collect();
            let vacant = pool.rows.iter().any(|row| row.phase == Phase::Vacant);
            assert!(vacant || alone.len() == numbers.len(), "seed {seed}: a number is used twice: {pool:?}");
            // What is drained in a world is told for the world.
            open.extend(steps.into_iter().filter(|step| !joined || !matches!(step, SizeStep::Leave { .. })));
        }
        assert_eq!(open, [], "seed {seed}: {pool:?}");
        assert!(pool.heirs.is_empty(), "seed {seed}: {pool:?}");
        assert!(pool.is_settled(), "seed {seed}: {pool:?}");
        let settled = pool.members() == pool.target() || pool.has_given_up();
        assert!(settled && pool.members() > 0, "seed {seed}: {pool:?}");
    }
}
