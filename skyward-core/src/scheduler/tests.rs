//! Tables of small stories: events go into a scheduler, and the test looks at the actions that come
//! out. A [`Story`] checks the scheduler's invariants after each step.

mod gangs;
mod lost_nodes;
mod lost_workers;
mod queue;
mod random;
mod timeouts;

use std::collections::HashMap;
use std::time::Duration;

use super::*;
use crate::error::{Exception, LastWords, WorkerExit};
use crate::payload::{RetryPolicy, Value};
use crate::spec::Limits;

pub(super) const GRACE: Duration = Duration::from_secs(5);

pub(super) struct Story {
    pub(super) scheduler: Scheduler,
    pub(super) now: Instant,
    pub(super) next: u64,
    actions: Vec<Action>,
    pub(super) finished: HashMap<TaskId, Outcome>,
    /// How often workers were asked to help: on their main threads, and on others.
    pub(super) helps: [usize; 2],
}

impl Story {
    /// Without reports of tasks that make no progress: no timer runs but those that a test is about.
    pub(super) fn new(nodes: u32, workers: u32, joined: bool) -> Self {
        Self::with_limits(nodes, workers, joined, Limits { stall_report: Duration::MAX, ..Limits::default() })
    }

    pub(super) fn with_limits(nodes: u32, workers: u32, joined: bool, limits: Limits) -> Self {
        let scheduler = Scheduler::new(nodes, workers, joined, limits);
        let mut story = Self {
            scheduler,
            now: Instant::now(),
            next: 1,
            actions: Vec::new(),
            finished: HashMap::new(),
            helps: [0; 2],
        };
        story.ready();
        story
    }

    pub(super) fn ready(&mut self) {
        for rank in self.scheduler.ranks() {
            if !self.scheduler.is_ready(rank) {
                self.scheduler.on_ready(self.now, rank, Duration::ZERO);
            }
        }
        self.step();
    }

    pub(super) fn submit_with(&mut self, target: Target, options: TaskOptions) -> TaskId {
        let id = TaskId(self.next);
        self.next += 1;
        self.scheduler.submit(self.now, id, target, options, TaskData::default()).unwrap();
        self.step();
        id
    }

    pub(super) fn submit(&mut self, target: Target) -> TaskId {
        self.submit_with(target, TaskOptions::default())
    }

    pub(super) fn call_with(&mut self, parent: TaskId, options: TaskOptions) -> TaskId {
        let id = TaskId(self.next);
        self.next += 1;
        self.scheduler.submit_call(self.now, id, parent, options, true).unwrap();
        self.step();
        id
    }

    pub(super) fn call(&mut self, parent: TaskId) -> TaskId {
        self.call_with(parent, TaskOptions::default().retry(RetryPolicy::for_calls()))
    }

    /// The owner of the nodes decides which of them take tasks.
    fn decide(&mut self, change: impl FnOnce(&mut Eligible)) {
        let mut eligible = self.scheduler.eligible.clone();
        change(&mut eligible);
        self.scheduler.follow(eligible);
    }

    /// This many nodes take any task, and the others drain.
    pub(super) fn activate(&mut self, nodes: u32) {
        self.decide(|eligible| eligible.active = nodes);
    }

    pub(super) fn cordon(&mut self, node: u32) {
        self.decide(|eligible| eligible.cordoned.extend([NodeIndex(node)]));
    }

    pub(super) fn uncordon(&mut self, node: u32) {
        self.decide(|eligible| eligible.cordoned.retain(|cordoned| cordoned.0 != node));
    }

    pub(super) fn hold(&mut self) {
        self.decide(|eligible| eligible.held = true);
    }

    pub(super) fn release(&mut self) {
        self.decide(|eligible| eligible.held = false);
    }

    /// The main thread of a worker waits for calls of the innermost task that it runs.
    pub(super) fn waiting(&mut self, rank: u32, frame: TaskId) {
        self.scheduler.on_waiting(self.now, Rank(rank), frame);
        self.step();
    }

    pub(super) fn waited(&mut self, rank: u32) {
        self.scheduler.on_waited(self.now, Rank(rank));
        self.step();
    }

    /// A worker has finished a call that it helped with.
    pub(super) fn helped(&mut self, rank: u32, id: TaskId) {
        let outcome = Ok(Value::new(vec![], Rank(rank)));
        self.scheduler.on_helped(self.now, Rank(rank), id, outcome, 10);
        self.step();
    }

    pub(super) fn refused(&mut self, rank: u32, id: TaskId) {
        self.scheduler.on_refused(self.now, Rank(rank), id);
        self.step();
    }

    pub(super) fn cancel(&mut self, id: TaskId) {
        self.scheduler.cancel(self.now, id);
        self.step();
    }

    /// The calls that workers were asked to help with in the last step: the rank, the call, and
    /// whether it runs on another thread.
    pub(super) fn helps(&self) -> Vec<(u32, TaskId, bool)> {
        let help = |action: &Action| match action {
            Action::Help { rank, task, within, .. } => Some((rank.0, *task, within.is_none())),
            _ => None,
        };
        self.actions.iter().filter_map(help).collect()
    }

    /// Whether a worker was asked to interrupt a task.
    pub(super) fn interrupted(&self, id: TaskId) -> bool {
        self.has(|action| matches!(action, Action::Cancel { task, interrupt: true, .. } if *task == id))
    }

    /// A worker answers where it is.
    pub(super) fn located(&mut self, rank: u32, stacks: &str) {
        self.scheduler.on_stacks(self.now, Rank(rank), stacks.to_owned());
        self.step();
    }

    pub(super) fn gang_with(&mut self, retry: RetryPolicy) -> Vec<TaskId> {
        self.gang_of(TaskOptions::default().retry(retry))
    }

    pub(super) fn gang_of(&mut self, options: TaskOptions) -> Vec<TaskId> {
        let ids: Vec<_> = self.scheduler.ranks().map(|rank| TaskId(self.next + u64::from(rank.0))).collect();
        self.next += ids.len() as u64;
        self.scheduler.submit_gang(self.now, &ids, options, false);
        self.step();
        ids
    }

    pub(super) fn gang(&mut self) -> Vec<TaskId> {
        self.gang_with(RetryPolicy::default())
    }

    pub(super) fn done(&mut self, rank: u32) -> TaskId {
        let id = self.running(rank).expect("the rank runs a task");
        self.scheduler.on_returned(self.now, Rank(rank), id, Ok(Value::new(vec![], Rank(rank))), 1_000_000);
        self.step();
        id
    }

    pub(super) fn lost(&mut self, rank: u32) {
        self.lost_with(rank, None);
    }

    /// The worker crashed; `last` is the task that it had begun last.
    fn lost_with(&mut self, rank: u32, last: Option<TaskId>) {
        self.scheduler.on_lost(self.now, Rank(rank), &WorkerExit::Signal(11), &LastWords::default(), last);
        self.step();
    }

    /// The worker is about to be lost, and has not begun these tasks.
    pub(super) fn not_begun(&mut self, rank: u32, ids: &[TaskId]) {
        self.scheduler.on_ended(Rank(rank));
        self.scheduler.on_not_begun(self.now, Rank(rank), ids);
        self.step();
    }

    pub(super) fn node_lost(&mut self, node: u32) {
        self.give_up(node);
    }

    /// A node is lost. Returns for how long its machine had been ready.
    pub(super) fn give_up(&mut self, node: u32) -> Duration {
        let cause = Error::new(ErrorKind::Io, "the agent ended its connection");
        let lasted = self.scheduler.lasted(self.now, NodeIndex(node));
        self.scheduler.on_node_lost(self.now, NodeIndex(node), &cause);
        self.step();
        lasted
    }

    pub(super) fn running(&self, rank: u32) -> Option<TaskId> {
        self.scheduler.sent(Rank(rank)).next()
    }

    /// Lets this time pass, and handles the timers that are due.
    pub(super) fn later(&mut self, after: Duration) {
        self.now += after;
        self.scheduler.on_timeout(self.now);
        self.step();
    }

    /// Takes the actions, and checks that no task is finished twice.
    pub(super) fn step(&mut self) {
        self.actions.clear();
        while self.scheduler.work(self.now) {}
        self.scheduler.take_actions(&mut self.actions);
        for action in &self.actions {
            match action {
                Action::Finish { task, outcome } => {
                    let before = self.finished.insert(*task, outcome.clone());
                    assert!(before.is_none(), "task {task} has two outcomes");
                }
                Action::Help { within, .. } => self.helps[usize::from(within.is_none())] += 1,
                _ => {}
            }
        }
        self.check();
    }

    /// Checks the tables. A task with an outcome is removed, or is one that only its worker is not
    /// done with.
    fn check(&self) {
        self.scheduler.check();
        for id in self.scheduler.tasks.keys() {
            let task = self.scheduler.tasks.get(&id).unwrap();
            assert_eq!(task.abandoned, self.finished.contains_key(&id), "task {id}");
        }
    }

    pub(super) fn outcome(&self, id: TaskId) -> Option<std::result::Result<(), ErrorKind>> {
        self.finished.get(&id).map(|outcome| outcome.as_ref().map(|_| ()).map_err(Error::kind))
    }

    pub(super) fn has(&self, wanted: impl Fn(&Action) -> bool) -> bool {
        self.actions.iter().any(wanted)
    }

    pub(super) fn find<T>(&self, wanted: impl Fn(&Action) -> Option<T>) -> Option<T> {
        self.actions.iter().find_map(wanted)
    }
}

fn raised(rank: u32) -> Error {
    Error::raised(Exception {
        type_name: "ValueError".into(),
        message: "no".into(),
        traceback: String::new(),
        node: NodeIndex(0),
        rank: Rank(rank),
    })
}

/// A worker with three tasks; two of them were sent ahead.
pub(super) fn three_on_one() -> (Story, [TaskId; 3]) {
    let mut story = Story::new(1, 1, false);
    for _ in 0..64 {
        let id = story.submit(Target::Any);
        story.scheduler.on_returned(story.now, Rank(0), id, Ok(Value::new(vec![], Rank(0))), 1);
        story.step();
    }
    let ids = [0; 3].map(|_| story.submit(Target::Any));
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids);
    (story, ids)
}
