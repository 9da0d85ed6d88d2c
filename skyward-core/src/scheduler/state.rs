//! The scheduler's tables.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use super::Action;
use super::eligible::Eligible;
use super::families::Families;
use super::gang::Gang;
use super::node::Record;
use super::returns::Returns;
use super::table::{Links, List, TaskTable};
use super::task::{FamilyId, Membership, Position, TaskData, TaskState};
use super::timers::{Timer, Timers};
use super::tries::Tries;
use super::worker::{Counts, Worker};
use crate::error::Error;
use crate::ids::{NodeIndex, Rank, TaskId};
use crate::layout::Layout;
use crate::payload::{Target, TaskOptions};
use crate::spec::Limits;

/// The tasks of a pool and its workers; see the [module](super).
#[derive(Debug)]
pub struct Scheduler {
    pub(super) workers: Vec<Worker>,
    pub(super) nodes: Vec<Record>,
    pub(super) tasks: TaskTable<TaskState>,
    /// Tasks that any worker may run, in order. Tasks for one worker or one node wait in its own
    /// queue.
    pub(super) any: List,
    /// Gangs that wait to be started, in order.
    pub(super) gangs: List,
    /// The gangs, by the first task of each.
    pub(super) gang_table: TaskTable<Gang>,
    /// The calls of running tasks.
    pub(super) families: Families,
    pub(super) fallback: Fallback,
    /// Workers that take more tasks, the least busy first.
    pub(super) open: BTreeSet<(usize, Rank)>,
    pub(super) counts: Counts,
    pub(super) backlog: Backlog,
    pub(super) timers: Timers,
    /// Tasks that have passed their timeout and were not interrupted yet, with the stacks of their
    /// workers, once they have answered.
    pub(super) overdue: BTreeMap<TaskId, Option<String>>,
    pub(super) actions: Vec<Action>,
    pub(super) joined: bool,
    pub(super) layout: Layout,
    /// Which nodes take tasks.
    pub(super) eligible: Eligible,
    /// Whether [`Action::WorldIdle`] was emitted.
    pub(super) reported_idle: bool,
    /// Leaving nodes that may have no more tasks.
    pub(super) departing: Vec<NodeIndex>,
    pub(super) limits: Limits,
    pub(super) returns: Returns,
    pub(super) failed: Option<Error>,
}

/// The work that is left.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Tasks of lost workers, and the error that each failed with.
    pub(super) lost: VecDeque<(TaskId, Error)>,
    /// The families of calls whose caller's try has ended.
    pub(super) orphans: VecDeque<FamilyId>,
    /// The end of all tasks, if it is under way.
    pub(super) ends: Option<Ends>,
    /// Workers that must look for tasks.
    pub(super) looks: VecDeque<Rank>,
}

/// The end of all tasks with one error, from the task `from` on.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) from: TaskId,
    pub(super) error: Error,
    /// Whether tasks that a worker has go on.
    pub(super) only_waiting: bool,
}

/// The state of the check for calls that no worker has taken.
#[derive(Debug, Default)]
pub(super) struct Fallback {
    /// The next check; runs while calls wait.
    pub(super) timer: Option<(Instant, Timer)>,
    /// Whether a call has fallen back and no worker has been free for calls since: further calls
    /// fall back at once.
    pub(super) on: bool,
}

impl Fallback {
    /// A worker is free for calls, or has refused one.
    pub(super) fn end(&mut self) {
        self.on = false;
    }
}

impl Scheduler {
    /// A scheduler for `nodes` nodes with `workers_per_node` workers each, none of them ready.
    /// `joined`: all workers are one world.
    pub fn new(nodes: u32, workers_per_node: u32, joined: bool, limits: Limits) -> Self {
        let mut scheduler = Self {
            nodes: Vec::new(),
            workers: Vec::new(),
            tasks: TaskTable::default(),
            any: List::default(),
            gangs: List::default(),
            gang_table: TaskTable::default(),
            families: Families::default(),
            fallback: Fallback::default(),
            open: BTreeSet::new(),
            counts: Counts::default(),
            backlog: Backlog::default(),
            timers: Timers::default(),
            overdue: BTreeMap::new(),
            actions: Vec::new(),
            joined,
            layout: Layout::new(workers_per_node),
            eligible: Eligible { active: nodes, ..Eligible::default() },
            reported_idle: false,
            departing: Vec::new(),
            limits,
            returns: Returns::default(),
            failed: None,
        };
        (0..nodes).for_each(|node| scheduler.add_node(NodeIndex(node)));
        scheduler
    }

    /// Whether all workers are one world.
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: Rank) -> NodeIndex {
        NodeIndex(self.workers.get(rank.0 as usize).map_or(0, |worker| worker.node as u32))
    }

    pub(super) fn insert(
        &mut self,
        now: Instant,
        id: TaskId,
        target: Target,
        options: TaskOptions,
        TaskData { streaming, bytes }: TaskData,
        gang: Option<Membership>,
    ) {
        let state = TaskState {
            target,
            options,
            streaming,
            bytes,
            gang,
            call: None,
            family: None,
            alone: false,
            tries: Tries::default(),
            position: if gang.is_some() { Position::Gang } else { Position::Queue },
            links: Links::default(),
            since: now,
            timer: None,
            importing: false,
            abandoned: false,
        };
        let before = self.tasks.insert(id, state);
        debug_assert!(before.is_none(), "task ids are never used twice");
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.workers.len() as u32).map(Rank)
    }

    pub(super) fn counts_of(&self, rank: Rank) -> Counts {
        let worker = &self.workers[rank.0 as usize];
        let busy = worker.load() > 0;
        Counts {
            ready: usize::from(worker.ready),
            busy: usize::from(busy),
            idle: usize::from(worker.lives() && !busy),
            sent: worker.load(),
        }
    }

    /// Updates `open` and the counts after a change of a worker.
    pub(super) fn refresh(&mut self, rank: Rank) {
        let node = self.workers[rank.0 as usize].node;
        // A worker that has ended looks for its own tasks alone.
        let parts = self.is_leaving(node);
        if parts {
            self.departing.push(NodeIndex(node as u32));
        }
        let takes_more = !parts && self.takes_more(rank);
        if takes_more {
            self.fallback.end();
        }
        let counts = self.counts_of(rank);
        let worker = &mut self.workers[rank.0 as usize];
        self.counts.replace(worker.counted, counts);
        worker.counted = counts;
        let entry = takes_more.then_some(worker.sent.len());
        if worker.listed == entry {
            return;
        }
        if let Some(load) = worker.listed {
            self.open.remove(&(load, rank));
        }
        if let Some(load) = entry {
            self.open.insert((load, rank));
        }
        worker.listed = entry;
    }
}
