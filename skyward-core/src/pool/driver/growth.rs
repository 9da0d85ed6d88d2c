//! The state of a pool's growing and shrinking, and the caller that waits for it.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::ids::MachineNumber;
use crate::pool::fleet::autoscale::Elastic;
use crate::pool::foreign::answer;
use crate::pool::node::make::Node;
use crate::pool::tasks::shared::Shared;
use crate::spec::Nodes;

/// The state of a pool's growing and shrinking, and the caller that waits for it.
pub(crate) struct Growth {
    pub(super) elastic: Option<Elastic>,
    /// When to look at the load of an elastic pool again.
    pub(super) look_at: Instant,
    /// Further machines that are ready and have no place yet.
    pub(crate) ready: BTreeMap<MachineNumber, Node>,
    /// The caller that waits for a new size, and the least number of nodes that it waits for.
    pub(super) waiter: Option<(u32, oneshot::Sender<Result<()>>)>,
    /// Why the last machine could not be made ready.
    pub(super) error: Option<Error>,
    /// The number of nodes that was reported last.
    pub(super) reported: u32,
}

impl Growth {
    pub(crate) fn new(nodes: Nodes, workers_per_node: u32, reported: u32, shared: &Shared) -> Self {
        Self {
            elastic: elastic(nodes, workers_per_node, shared),
            look_at: Instant::now(),
            ready: BTreeMap::new(),
            waiter: None,
            error: None,
            reported,
        }
    }

    /// The pool has failed, and its size does not change any more.
    pub(crate) fn give_up(&mut self, error: &Error) {
        self.elastic = None;
        self.refuse(error);
    }

    /// The size that is waited for cannot be had now.
    pub(super) fn refuse(&mut self, error: &Error) {
        if let Some((_, done)) = self.waiter.take() {
            answer(done, Err(error.clone()));
        }
    }
}

pub(super) fn elastic(nodes: Nodes, workers_per_node: u32, shared: &Shared) -> Option<Elastic> {
    let (min, max) = nodes.bounds()?;
    Some(Elastic::new(min, max, workers_per_node, &shared.limits))
}
