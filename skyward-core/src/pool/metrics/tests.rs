use super::*;
use crate::ids::MachineId;

#[test]
fn the_labels_of_failures_begin_with_the_causes_in_order() {
    for cause in Cause::ALL {
        assert_eq!(FAILURES[cause.index()], format!("{cause:#}").replace(' ', "_"));
    }
}

/// The number of nodes in each phase, after these events.
fn phases<const N: usize>(metrics: &Metrics, events: [PoolEvent; N]) -> [usize; PHASES.len()] {
    events.iter().for_each(|event| metrics.on_event(event));
    metrics.seen().nodes.counts
}

fn error() -> Error {
    Error::new(ErrorKind::Io, "it broke")
}

#[test]
fn a_node_is_up_until_its_successor_replaces_it() {
    let (metrics, node) = (Metrics::new("fake"), NodeIndex(1));
    let (successor, address) = (MachineId::new("m-4"), String::new());
    assert_eq!(phases(&metrics, [PoolEvent::PoolReady { nodes: 2, workers: 2 }]), [0, 2, 0, 0]);
    assert_eq!(phases(&metrics, [PoolEvent::NodeLaunching { node }]), [0, 2, 0, 0]);
    assert_eq!(phases(&metrics, [PoolEvent::NodeFailed { node, error: error() }]), [0, 2, 0, 0]);
    let launching = PoolEvent::NodeLaunching { node };
    assert_eq!(
        phases(&metrics, [launching, PoolEvent::NodeReplaced { node, machine: successor, address }]),
        [0, 2, 0, 0]
    );
    assert_eq!(phases(&metrics, [PoolEvent::NodeLost { node, error: error() }]), [0, 1, 1, 0]);
    assert_eq!(phases(&metrics, [PoolEvent::NodeLaunching { node }]), [1, 1, 0, 0]);
}

#[test]
fn the_end_of_a_machine_that_a_node_had_before_does_not_end_the_node() {
    let (metrics, node) = (Metrics::new("fake"), NodeIndex(0));
    let (before, now) = (MachineId::new("m-1"), MachineId::new("m-2"));
    let replaced = PoolEvent::NodeReplaced { node, machine: now.clone(), address: String::new() };
    let ready = PoolEvent::PoolReady { nodes: 1, workers: 1 };
    let gone = |machine| PoolEvent::NodeGone { node, machine };
    assert_eq!(phases(&metrics, [ready, replaced, PoolEvent::Draining, gone(before)]), [0, 0, 0, 1]);
    assert_eq!(phases(&metrics, [gone(now)]), [0, 0, 0, 0]);
}
