//! The scheduler's tables.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::Action;
use super::backlog::Backlog;
use super::ending::Ending;
use super::family::{Call, Families, FamilyId};
use super::gang::Gang;
use super::nodes::Record;
use super::policy::Average;
use super::rescue::Rescue;
use super::table::{Linked, Links, List, TaskTable};
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
    pub(super) tasks: TaskTable<TaskState>,
    /// Tasks that any worker may run, in order. Those for one worker or one node wait there.
    pub(super) any: List,
    /// Gangs that wait to be started, in order.
    pub(super) gangs: List,
    /// By the first task of each.
    pub(super) gang_table: TaskTable<Gang>,
    /// What running tasks have called.
    pub(super) families: Families,
    pub(super) rescue: Rescue,
    /// Workers that take more, the least busy first.
    pub(super) open: BTreeSet<(usize, Rank)>,
    pub(super) counts: Counts,
    pub(super) backlog: Backlog,
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
    /// Nodes that leave, and may have nothing more to do.
    pub(super) departing: Vec<NodeIndex>,
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
    /// The task that it runs is long: nothing is sent ahead to it until it returns one.
    pub(super) long: bool,
    /// What was sent and has not returned, in order: the first one runs.
    pub(super) sent: VecDeque<TaskId>,
    /// Calls that its main thread runs within the first one, each within the one before it.
    pub(super) frames: Vec<TaskId>,
    /// Calls that it runs on other threads; those of a task that has ended may still be there.
    pub(super) asides: Vec<TaskId>,
    /// The task within which its main thread waits for calls, unless it runs one meanwhile.
    pub(super) waits: Option<TaskId>,
    /// When the first one began.
    pub(super) began: Option<Instant>,
    /// Tasks that wait for this worker alone.
    pub(super) queue: List,
    pub(super) average: Average,
    /// When it last became ready, or returned a task.
    pub(super) idle_since: Option<Instant>,
    /// What it was told to end.
    pub(super) endings: Vec<Ending>,
    /// When it is looked at whether the task that it runs is long.
    pub(super) recall: Option<(Instant, Timer)>,
    /// It is to look for tasks: it is in the backlog.
    pub(super) looks: bool,
    /// Its entry in `open`.
    pub(super) listed: Option<usize>,
    /// What it is in the counts.
    pub(super) counted: Counts,
}

/// How many workers, and how many tasks they have.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) ready: usize,
    /// Those that have tasks.
    pub(super) busy: usize,
    /// Those that take tasks and have none.
    pub(super) idle: usize,
    /// Tasks that workers have, with those that they help with.
    pub(super) sent: usize,
    /// What workers run that does not wait for calls.
    pub(super) going: usize,
}

#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) target: Target,
    pub(super) options: TaskOptions,
    pub(super) streaming: bool,
    pub(super) gang: Option<Membership>,
    /// Of a call.
    pub(super) call: Option<Call>,
    /// The calls of this try, while one has no outcome.
    pub(super) family: Option<FamilyId>,
    /// A worker that helped with its calls was lost: no worker does so again before it has to.
    pub(super) alone: bool,
    pub(super) tries: Tries,
    pub(super) place: Place,
    pub(super) links: Links,
    /// Since when it waits to be started.
    pub(super) since: Option<Instant>,
    /// Which deadline runs: that of its start, or that of its end.
    pub(super) timer: Option<(Instant, Timer)>,
    /// Its caller has an outcome; only its worker has still to be done with it.
    pub(super) abandoned: bool,
}

/// A task's part in a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Membership {
    /// The gang's first task.
    pub(super) first: TaskId,
    pub(super) rank: Rank,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the queue of its target.
    Queue,
    /// With its gang: it waits for the others to start, or what it returned is kept back.
    Gang,
    Worker(Rank),
    /// On a worker that runs it within another.
    Helped(Rank),
    /// In the backlog: its worker is lost.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The task is to have been started.
    Queue(TaskId),
    /// The task's own deadline.
    Run(TaskId),
    /// The task that the worker was told to end still runs.
    Again(Rank, TaskId),
    /// Its grace is over.
    Grace(Rank, TaskId),
    /// The task that the worker runs may be long, and others wait behind it.
    Recall(Rank),
    /// The gang is to have made progress, or its ranks to have said where they are.
    Stall(TaskId),
    /// The gang's errors are no longer kept back.
    Suspicion(TaskId),
    /// It is looked at whether calls wait for one another.
    Rescue,
}

#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Scheduler {
    /// A scheduler for so many nodes with so many workers each, none of them ready. `joined`: all workers are one world.
    pub fn new(nodes: u32, workers_per_node: u32, joined: bool, limits: Limits) -> Self {
        let mut scheduler = Self {
            nodes: Vec::new(),
            workers: Vec::new(),
            tasks: TaskTable::default(),
            any: List::default(),
            gangs: List::default(),
            gang_table: TaskTable::default(),
            families: Families::default(),
            rescue: Rescue::default(),
            open: BTreeSet::new(),
            counts: Counts::default(),
            backlog: Backlog::default(),
            timers: Timers::default(),
            actions: Vec::new(),
            joined,
            workers_per_node,
            active: 0,
            held: false,
            told_idle: false,
            departing: Vec::new(),
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
        gang: Option<Membership>,
    ) {
        let state = TaskState {
            target,
            options,
            streaming,
            gang,
            call: None,
            family: None,
            alone: false,
            tries: Tries::default(),
            place: if gang.is_some() { Place::Gang } else { Place::Queue },
            links: Links::default(),
            since: None,
            timer: None,
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
        let runs = worker.innermost().into_iter().chain(worker.asides.iter().copied());
        let going = runs.filter(|id| worker.lives() && !self.is_caller(*id)).count();
        Counts {
            ready: usize::from(worker.ready),
            busy: usize::from(busy),
            idle: usize::from(worker.lives() && !busy),
            sent: worker.load(),
            going,
        }
    }

    /// Keeps `open` and the counts true after a change of a worker.
    pub(super) fn refresh(&mut self, rank: Rank) {
        let node = self.workers[rank.0 as usize].node;
        // One that leaves looks for its own tasks alone.
        let parts = self.nodes[node].parts();
        if parts {
            self.departing.push(NodeIndex(node as u32));
        }
        let takes_more = !parts && self.takes_more(rank);
        if takes_more {
            self.rescue.end();
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

impl Worker {
    /// How many tasks it has, with those that it helps with.
    pub(super) fn load(&self) -> usize {
        self.sent.len() + self.frames.len() + self.asides.len()
    }

    /// What its main thread runs.
    pub(super) fn innermost(&self) -> Option<TaskId> {
        self.frames.last().or(self.sent.front()).copied()
    }

    /// Whether it can be given something to help with.
    pub(super) fn lives(&self) -> bool {
        self.ready && !self.leaving
    }
}

impl Counts {
    /// What was counted as `before` counts as `after`.
    pub(super) fn replace(&mut self, before: Self, after: Self) {
        self.ready = self.ready - before.ready + after.ready;
        self.busy = self.busy - before.busy + after.busy;
        self.idle = self.idle - before.idle + after.idle;
        self.sent = self.sent - before.sent + after.sent;
        self.going = self.going - before.going + after.going;
    }
}

impl TaskState {
    /// What it is tried again after. What a stream has handed out cannot be taken back.
    pub(super) fn retry(&self) -> RetryPolicy {
        if self.streaming { RetryPolicy::never() } else { self.options.retry.unwrap_or_default() }
    }
}

impl Linked for TaskState {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
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
