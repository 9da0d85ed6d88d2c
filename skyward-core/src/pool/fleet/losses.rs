//! Losses in a row: how often workers and machines are started again, and when that has not helped.
//!
//! A loss counts until a task returns.

use std::time::Duration;

use super::Fleet;
use super::directive::{Directive, Workers};
use super::streak::Streak;
use super::timing::SOUND;
use crate::error::{Error, ErrorKind};
use crate::ids::{NodeIndex, Rank};
use crate::pool::fleet::table::Membership;
use crate::scheduler::{Loss, Returns};

/// What follows from a loss.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Carry out these directives.
    Repair(Vec<Directive>),
    /// The workers of this node do not start, and those of the others do: its machine counts as
    /// lost.
    Sick(NodeIndex, Error),
    /// Carry out these directives. The pool fails.
    Failed(Vec<Directive>, Error),
}

impl Fleet {
    /// Sets whether the machines are other than the client's own host: then another machine may be
    /// sound where the only node is sick.
    pub(crate) fn set_apart(&mut self, apart: bool) {
        self.apart = apart;
    }

    /// A worker was lost. In a joined world, all workers were.
    pub(crate) fn on_worker_lost(&mut self, rank: Rank, loss: Loss, returns: &Returns) -> Verdict {
        if loss.lasted >= SOUND {
            self.idle = Streak::default();
            if let Some(losses) = self.table.losses_mut(self.node_of(rank)) {
                losses.workers = Streak::default();
            }
        }
        let Some((exit, words)) = loss.idle else { return Verdict::Repair(self.on_workers_lost(Workers::One(rank))) };
        self.start_again(rank, returns, |times| {
            let what = format!(
                "idle workers ended {times} times in a row, and no task returned in between; the last worker {exit}"
            );
            Error::new(ErrorKind::WorkerExited, what).with_last_words(rank, &words)
        })
    }

    /// A worker could not be started again.
    pub(crate) fn on_start_failed(&mut self, rank: Rank, error: &Error, returns: &Returns) -> Verdict {
        self.start_again(rank, returns, |times| {
            let what = format!(
                "workers were lost or could not be started again {times} times without one task returning in between"
            );
            Error::new(error.kind(), what).with_source(error.clone())
        })
    }

    /// Restarts a worker, or its world, unless restarts have not helped.
    fn start_again(&mut self, rank: Rank, returns: &Returns, why: impl FnOnce(u32) -> Error) -> Verdict {
        let node = self.node_of(rank);
        if !self.ends
            && let Some(losses) = self.table.losses_mut(node)
        {
            let times = losses.workers.grow(returns.of(node));
            let idle = self.idle.grow(returns.all());
            let ails = |node: &NodeIndex| {
                self.table.losses(*node).is_some_and(|losses| losses.workers.len(returns.of(*node)) > 0)
            };
            // If the workers of all nodes failed, the machines are not the cause.
            let alone = self.table.nodes().filter(ails).count() == 1;
            if times > MAX_SICK && alone && (self.apart || self.members() > 1) && self.is_kept(node) {
                self.idle = Streak::default();
                self.table.losses_mut(node).into_iter().for_each(|losses| losses.workers = Streak::default());
                return Verdict::Sick(node, why(times));
            }
            if idle > MAX_IDLE {
                let hint = "look at the workers' output: the environment or the machine is broken";
                return Verdict::Failed(Vec::new(), why(idle).with_kind(ErrorKind::Failed).with_hint(hint));
            }
        }
        Verdict::Repair(self.on_workers_lost(Workers::One(rank)))
    }

    /// A node's machine, which had been ready for the time `lasted`, is given up. If a successor is
    /// already being made ready, it takes the place as soon as it is ready. Otherwise the node gets
    /// another machine, unless it leaves.
    pub(crate) fn on_node_lost(
        &mut self,
        node: NodeIndex,
        lasted: Duration,
        cause: &Error,
        returns: &Returns,
    ) -> Verdict {
        let mut directives = self.lose(node, cause.summary());
        let stays = self.joined || self.table.membership(node) == Some(Membership::Member);
        if !self.ends
            && stays
            && let Some(losses) = self.table.losses_mut(node)
        {
            if lasted >= SOUND {
                losses.machines = Streak::default();
            }
            losses.workers = Streak::default();
            let times = losses.machines.grow(returns.of(node));
            if times > MAX_MACHINES {
                let error = Error::new(
                    ErrorKind::Failed,
                    format!("node {node} was lost {times} times in a row without one of its tasks returning"),
                );
                let error = error.with_source(cause.clone()).with_hint(
                    "the machines fail, or the tasks end them: check the cause, and the last output of the workers",
                );
                return Verdict::Failed(directives, error);
            }
        }
        directives.extend(self.succeed_lost(node, stays));
        Verdict::Repair(directives)
    }
}

/// How many workers may be lost in a row without a returned task before the pool gives up.
const MAX_IDLE: u32 = 5;
/// How many starts of a node's workers may fail in a row before the node counts as sick, if the
/// other nodes are not.
const MAX_SICK: u32 = 3;
/// How many machines a node may lose in a row without one of its tasks returning before the pool
/// gives up.
const MAX_MACHINES: u32 = 3;

#[cfg(test)]
mod tests;
