//! The scheduler's tables.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::Action;
use super::backlog::Backlog;
use super::fallback::Fallback;
use super::family::{Call, Families, FamilyId};
use super::gang::Gang;
use super::interrupt::Interrupt;
use super::nodes::Record;
use super::policy::{Average, long};
use super::silence::Silence;
use super::table::{Linked, Links, List, TaskTable};
use super::tries::Tries;
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
    pub(super) actions: Vec<Action>,
    pub(super) joined: bool,
    pub(super) layout: Layout,
    /// How many nodes take any task. They are the first ones; draining nodes come after them.
    pub(super) active: u32,
    /// The world waits for a resize: it finishes what is under way, and begins no other task.
    pub(super) held: bool,
    /// Whether [`Action::WorldIdle`] was emitted.
    pub(super) reported_idle: bool,
    /// Leaving nodes that may have no more tasks.
    pub(super) departing: Vec<NodeIndex>,
    /// The machines are other than the client's own host: another machine may be sound when this
    /// one is sick.
    pub(super) apart: bool,
    pub(super) limits: Limits,
    pub(super) barren_restarts: u32,
    pub(super) failed: Option<Error>,
}

#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) node: usize,
    pub(super) ready: bool,
    /// The process has ended. Answers that it sent before are still being read, and the worker gets
    /// no more tasks.
    pub(super) ended: bool,
    /// The running task is long: the worker gets no task ahead until it returns one.
    pub(super) long: bool,
    /// A first task was recalled before it had arrived at the worker. The worker gets no task ahead
    /// until a task is quick: a task ahead would be recalled and sent once more.
    pub(super) late: bool,
    /// Tasks that were sent and have not returned, in order: the first one runs.
    pub(super) sent: VecDeque<TaskId>,
    /// Calls that the main thread runs within the first task, each within the one before it.
    pub(super) frames: Vec<TaskId>,
    /// Calls that run on other threads; calls of a task that has ended may still be there.
    pub(super) asides: Vec<TaskId>,
    /// The task within which the main thread waits for calls, unless it runs a call in the
    /// meantime.
    pub(super) waits: Option<TaskId>,
    /// Whether the worker last took a task without a caller while calls waited.
    pub(super) took_root: bool,
    /// When the first task began.
    pub(super) began: Option<Instant>,
    /// Tasks that wait for this worker alone.
    pub(super) queue: List,
    pub(super) average: Average,
    /// The time that a message to the worker and its answer take.
    pub(super) round_trip: Duration,
    /// When the worker last became ready, or returned a task.
    pub(super) idle_since: Option<Instant>,
    pub(super) silence: Silence,
    /// The tasks that the worker was asked to end.
    pub(super) interrupts: Vec<Interrupt>,
    /// When the scheduler checks whether the running task is long.
    pub(super) recall: Option<(Instant, Timer)>,
    /// Whether the worker is in the backlog, to look for tasks.
    pub(super) looks: bool,
    /// The worker's entry in `open`.
    pub(super) listed: Option<usize>,
    /// The worker's share of the counts.
    pub(super) counted: Counts,
}

/// Counts of workers, and of the tasks that they have.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) ready: usize,
    /// Workers that have tasks.
    pub(super) busy: usize,
    /// Workers that take tasks and have none.
    pub(super) idle: usize,
    /// Tasks that workers have, including the calls that they help with.
    pub(super) sent: usize,
}

/// The data of a task.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// The result arrives item by item.
    pub streaming: bool,
    /// The bytes of the arguments.
    pub bytes: usize,
}

#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) target: Target,
    pub(super) options: TaskOptions,
    pub(super) streaming: bool,
    /// The bytes of the arguments.
    pub(super) bytes: usize,
    pub(super) gang: Option<Membership>,
    /// The data of a call, if the task is one.
    pub(super) call: Option<Call>,
    /// The family of this try's calls, while a call has no outcome.
    pub(super) family: Option<FamilyId>,
    /// A worker that helped with this task's calls was lost: no worker helps with them again while
    /// there is another way.
    pub(super) alone: bool,
    pub(super) tries: Tries,
    pub(super) place: Place,
    pub(super) links: Links,
    /// Since when the task waits to be started.
    pub(super) since: Option<Instant>,
    /// The deadline that runs: that of the task's start, or that of its end.
    pub(super) timer: Option<(Instant, Timer)>,
    /// The caller has an outcome; only the worker is not done with the task yet.
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
    /// In the queue of the task's target.
    Queue,
    /// With the gang: the task waits for the others to start, or its value is held back.
    Gang,
    Worker(Rank),
    /// On a worker that runs the call within another task.
    Helped(Rank),
    /// In the backlog: the task's worker is lost.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The deadline for the start of the task.
    Queue(TaskId),
    /// The deadline for the end of the task.
    Run(TaskId),
    /// The interrupt of a task that still runs is repeated.
    Again(Rank, TaskId),
    /// The grace time of an interrupted task is over.
    Grace(Rank, TaskId),
    /// The worker's task may be long, and other tasks wait behind it.
    Recall(Rank),
    /// The deadline for progress of the gang, or for the stacks of its ranks.
    Stall(TaskId),
    /// The deadline for progress of a worker that runs no gang, or for its stacks.
    Silence(Rank),
    /// The gang's errors are no longer held back.
    Suspicion(TaskId),
    /// Checks for calls that no worker has taken.
    Fallback,
}

#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

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
            actions: Vec::new(),
            joined,
            layout: Layout::new(workers_per_node),
            active: 0,
            held: false,
            reported_idle: false,
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
        Shape { streaming, bytes }: Shape,
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

impl Worker {
    /// How many tasks the worker has, including the calls that it helps with.
    pub(super) fn load(&self) -> usize {
        self.sent.len() + self.frames.len() + self.asides.len()
    }

    /// The innermost task of the main thread.
    pub(super) fn innermost(&self) -> Option<TaskId> {
        self.frames.last().or(self.sent.front()).copied()
    }

    /// The innermost task of each thread.
    pub(super) fn runs(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.innermost().into_iter().chain(self.asides.iter().copied())
    }

    /// Whether the first task has been under way for longer than a short task may be.
    pub(super) fn is_first_long(&self, now: Instant) -> bool {
        self.began.is_some_and(|began| now.saturating_duration_since(began) >= long(self.round_trip))
    }

    /// Whether the worker can take tasks, or calls to help with.
    pub(super) fn lives(&self) -> bool {
        self.ready && !self.ended
    }
}

impl Counts {
    /// Replaces a share `before` of the counts with `after`.
    pub(super) fn replace(&mut self, before: Self, after: Self) {
        self.ready = self.ready - before.ready + after.ready;
        self.busy = self.busy - before.busy + after.busy;
        self.idle = self.idle - before.idle + after.idle;
        self.sent = self.sent - before.sent + after.sent;
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
    /// Adds a timer that is due after this time. Returns `None` if that is further away than a
    /// clock can count: the timer is then never due.
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
