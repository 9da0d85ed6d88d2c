//! The scheduler's tables.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::Action;
use super::ending::Ending;
use super::gang::Gang;
use super::nodes::Record;
use super::policy::Average;
use super::tries::Tries;
use crate::error::Error;
use crate::ids::{NodeIndex, Rank, TaskId};
use crate::payload::{RetryPolicy, Target, TaskOptions};
use crate::spec::Limits;

/// The tasks of a pool and its workers; see the [module](super).
#[derive(Debug)]
pub struct Scheduler {
    pub(super) workers: Vec<Worker>,
    pub(super) nodes: Vec<Record>,
    pub(super) tasks: HashMap<TaskId, TaskState>,
    pub(super) any: VecDeque<TaskId>,
    pub(super) by_rank: Vec<VecDeque<TaskId>>,
    pub(super) by_node: Vec<VecDeque<TaskId>>,
    pub(super) gangs: VecDeque<TaskId>,
    pub(super) gang_table: HashMap<TaskId, Gang>,
    /// Workers that take more, the least busy first.
    pub(super) open: BTreeSet<(usize, Rank)>,
    pub(super) timers: Timers,
    pub(super) actions: Vec<Action>,
    pub(super) joined: bool,
    pub(super) workers_per_node: u32,
    /// The nodes that take what comes, which are the first ones; behind them are those that leave.
    pub(super) active: u32,
    /// A world's size is to change: what it has is finished, and nothing else begun.
    pub(super) held: bool,
    /// That it is idle was said.
    pub(super) told_idle: bool,
    /// The machines are not the client's own host, so that another one may be sound where this one is sick.
    pub(super) apart: bool,
    pub(super) limits: Limits,
    pub(super) barren_restarts: u32,
    pub(super) failed: Option<Error>,
}

#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) node: usize,
    pub(super) ready: bool,
    /// It is going to be lost, and gets no more tasks.
    pub(super) leaving: bool,
    /// Not all that it has answered could be read, so any of its tasks may have begun.
    pub(super) unheard: bool,
    /// What was sent and has not returned, in order: the first one runs.
    pub(super) sent: VecDeque<TaskId>,
    pub(super) average: Average,
    /// When it last became ready, or returned a task.
    pub(super) idle_since: Option<Instant>,
    /// What it was told to end.
    pub(super) ending: Option<Ending>,
    /// Its entry in `open`.
    pub(super) listed: Option<usize>,
}

#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) target: Target,
    pub(super) options: TaskOptions,
    pub(super) streaming: bool,
    /// The gang's first task.
    pub(super) gang: Option<TaskId>,
    pub(super) tries: Tries,
    pub(super) sent_to: Option<Rank>,
    /// Since when it waits to be started.
    pub(super) since: Option<Instant>,
    /// Which deadline runs: that of its start, or that of its end.
    pub(super) timer: Option<(Instant, Timer)>,
    /// Its caller has an outcome; only its worker has still to be done with it.
    pub(super) abandoned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The task is to have been started.
    Queue(TaskId),
    /// The task's own deadline.
    Run(TaskId),
    /// The task that the worker was told to end still runs.
    Again(Rank),
    /// Its grace is over.
    Grace(Rank),
    /// The gang is to have made progress, or its ranks to have said where they are.
    Stall(TaskId),
    /// The gang's errors are no longer kept back.
    Suspicion(TaskId),
}

#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Scheduler {
    /// A scheduler for so many nodes with so many workers each, none of them ready. `joined`: all workers are one world.
    pub fn new(nodes: u32, workers_per_node: u32, joined: bool, limits: Limits) -> Self {
        let mut scheduler = Self {
            by_rank: Vec::new(),
            by_node: Vec::new(),
            nodes: Vec::new(),
            workers: Vec::new(),
            tasks: HashMap::new(),
            any: VecDeque::new(),
            gangs: VecDeque::new(),
            gang_table: HashMap::new(),
            open: BTreeSet::new(),
            timers: Timers::default(),
            actions: Vec::new(),
            joined,
            workers_per_node,
            active: 0,
            held: false,
            told_idle: false,
            apart: false,
            limits,
            barren_restarts: 0,
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
        id: TaskId,
        target: Target,
        options: TaskOptions,
        streaming: bool,
        gang: Option<TaskId>,
    ) {
        let state = TaskState {
            target,
            options,
            streaming,
            gang,
            tries: Tries::default(),
            sent_to: None,
            since: None,
            timer: None,
            abandoned: false,
        };
        let before = self.tasks.insert(id, state);
        debug_assert!(before.is_none(), "task ids are never used twice");
    }

    pub(super) fn clear(&mut self) {
        self.any.clear();
        self.by_rank.iter_mut().for_each(VecDeque::clear);
        self.by_node.iter_mut().for_each(VecDeque::clear);
        self.gangs.clear();
        self.gang_table.clear();
        for worker in &mut self.workers {
            worker.sent.clear();
            worker.ending = None;
        }
        self.timers = Timers::default();
    }
}

impl TaskState {
    /// What it is tried again after. What a stream has handed out cannot be taken back.
    pub(super) fn retry(&self) -> RetryPolicy {
        if self.streaming { RetryPolicy::never() } else { self.options.retry.unwrap_or_default() }
    }
}

impl Timers {
    /// A timer that is due after this time; never, when that is further away than a clock goes.
    pub(super) fn add(&mut self, now: Instant, after: Duration, timer: Timer) -> Option<(Instant, Timer)> {
        let at = now.checked_add(after)?;
        self.0.insert((at, timer));
        Some((at, timer))
    }

    pub(super) fn remove(&mut self, timer: (Instant, Timer)) {
        self.0.remove(&timer);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let (at, _) = self.0.first()?;
        if *at > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
