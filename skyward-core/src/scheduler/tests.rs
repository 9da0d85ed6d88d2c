//! Tables of small stories, and random stories with the invariants checked after each step.

use std::collections::HashMap;
use std::time::Duration;

use super::*;
use crate::error::{Cause, RemoteError, WorkerExit};
use crate::payload::{RetryPolicy, Value};
use crate::spec::Limits;

pub(super) const GRACE: Duration = Duration::from_secs(5);

pub(super) struct Story {
    pub(super) scheduler: Scheduler,
    pub(super) now: Instant,
    pub(super) next: u64,
    actions: Vec<Action>,
    pub(super) finished: HashMap<TaskId, Outcome>,
    /// How often workers were told to help: on their main threads, and on others.
    pub(super) helps: [usize; 2],
}

impl Story {
    pub(super) fn new(nodes: u32, workers: u32, joined: bool) -> Self {
        Self::with_limits(nodes, workers, joined, Limits::default())
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
                self.scheduler.on_ready(self.now, rank);
            }
        }
        self.step();
    }

    pub(super) fn submit_with(&mut self, target: Target, options: TaskOptions) -> TaskId {
        let id = TaskId(self.next);
        self.next += 1;
        self.scheduler.submit(self.now, id, target, options, false).unwrap();
        self.step();
        id
    }

    pub(super) fn submit(&mut self, target: Target) -> TaskId {
        self.submit_with(target, TaskOptions::default())
    }

    pub(super) fn call_with(&mut self, parent: TaskId, options: TaskOptions) -> TaskId {
        let id = TaskId(self.next);
        self.next += 1;
        self.scheduler.submit_call(self.now, id, parent, options).unwrap();
        self.step();
        id
    }

    pub(super) fn call(&mut self, parent: TaskId) -> TaskId {
        self.call_with(parent, TaskOptions::default().retry(RetryPolicy::for_calls()))
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

    /// A worker has done a call that it helped with.
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

    /// What the workers were given to help with in the last step: the rank, the call, and whether on
    /// another thread.
    pub(super) fn helps(&self) -> Vec<(u32, TaskId, bool)> {
        let help = |action: &Action| match action {
            Action::Help { rank, task, within, .. } => Some((rank.0, *task, within.is_none())),
            _ => None,
        };
        self.actions.iter().filter_map(help).collect()
    }

    /// Whether a worker was told to interrupt a task.
    pub(super) fn interrupted(&self, id: TaskId) -> bool {
        self.has(|action| matches!(action, Action::Cancel { task, interrupt: true, .. } if *task == id))
    }

    pub(super) fn gang_with(&mut self, retry: RetryPolicy) -> Vec<TaskId> {
        let ids: Vec<_> = self.scheduler.ranks().map(|rank| TaskId(self.next + u64::from(rank.0))).collect();
        self.next += ids.len() as u64;
        self.scheduler.submit_gang(self.now, &ids, TaskOptions::default().retry(retry), false);
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

    /// The worker crashed, and had begun this task last.
    fn lost_with(&mut self, rank: u32, last: Option<TaskId>) {
        self.scheduler.on_lost(self.now, Rank(rank), &WorkerExit::Signal(11), last);
        self.step();
    }

    /// The worker is about to be lost, and has surely not begun these.
    pub(super) fn not_begun(&mut self, rank: u32, ids: &[TaskId]) {
        self.scheduler.on_leaving(Rank(rank));
        self.scheduler.on_not_begun(self.now, Rank(rank), ids);
        self.step();
    }

    pub(super) fn node_lost(&mut self, node: u32) {
        let cause = Error::new(ErrorKind::Io, "the agent ended its connection");
        self.scheduler.on_node_lost(self.now, NodeIndex(node), &cause);
        self.step();
    }

    pub(super) fn running(&self, rank: u32) -> Option<TaskId> {
        self.scheduler.sent(Rank(rank)).next()
    }

    /// This time passes, and what is due then happens.
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

    /// The tables hold, and what has an outcome is forgotten or only its worker is not done with it.
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
    Error::remote_error(RemoteError {
        type_name: "ValueError".into(),
        message: "no".into(),
        traceback: String::new(),
        node: NodeIndex(0),
        rank: Rank(rank),
    })
}

/// A worker with three tasks, of which it has the last two in advance.
fn three_on_one() -> (Story, [TaskId; 3]) {
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

#[test]
fn a_worker_that_leaves_gets_no_more_and_what_it_has_answered_counts() {
    let (mut story, [first, second, third]) = three_on_one();
    story.scheduler.on_leaving(Rank(0));
    let late = story.submit(Target::Any);
    assert_eq!(story.done(0), first);
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [second, third]);
    story.not_begun(0, &[third]);
    assert_eq!(story.running(0), Some(second), "it leaves, and gets nothing");
    story.lost(0);
    assert!(story.finished[&first].is_ok());
    assert_eq!(story.finished[&second].as_ref().unwrap_err().exit(), Some(&WorkerExit::Signal(11)));
    // Neither began, and neither is tried again: they are sent for the first time.
    assert!(!story.actions.iter().any(|action| matches!(action, Action::Retried { .. })));
    story.ready();
    assert_eq!(story.done(0), third);
    assert_eq!(story.running(0), Some(late));
}

#[test]
fn what_may_have_begun_on_a_lost_worker_is_told_as_tried_again() {
    let (mut story, [first, second, third]) = three_on_one();
    story.lost(0);
    assert!(story.finished[&first].is_err());
    let again = |task| {
        story.actions.iter().any(|action| matches!(action, Action::Retried { task: other, .. } if *other == task))
    };
    assert!(again(second) && again(third));
    story.ready();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [second, third]);
}

#[test]
fn the_task_that_began_last_on_a_lost_worker_is_the_one_that_crashed() {
    let (mut story, [first, second, third]) = three_on_one();
    story.not_begun(0, &[third]);
    story.lost_with(0, Some(second));
    assert_eq!(story.finished[&second].as_ref().unwrap_err().exit(), Some(&WorkerExit::Signal(11)));
    let retried = |wanted: TaskId| {
        story.has(|action| match action {
            Action::Retried { task, error, .. } => *task == wanted && Cause::of(error) == Some(Cause::NodeLost),
            _ => false,
        })
    };
    assert!(retried(first), "it had returned, and its answer was lost with the worker");
    assert!(!retried(third), "it had not begun");
    story.ready();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [first, third]);
    assert_eq!((story.done(0), story.done(0)), (first, third));
}

#[test]
fn a_task_whose_answer_is_lost_with_its_worker_again_and_again_is_not_poison() {
    let (mut story, ids) = three_on_one();
    for id in ids {
        story.scheduler.on_returned(story.now, Rank(0), id, Ok(Value::new(vec![], Rank(0))), 1);
    }
    let innocent = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(100)));
    for round in 0..2 * Limits::default().poison {
        let crashes = story.submit(Target::Any);
        assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [innocent, crashes], "round {round}");
        story.lost_with(0, Some(crashes));
        assert_eq!(story.outcome(crashes), Some(Err(ErrorKind::WorkerExited)), "round {round}");
        story.ready();
    }
    assert_eq!(story.done(0), innocent);
    assert_eq!(story.outcome(innocent), Some(Ok(())));
}

#[test]
fn tasks_go_to_idle_workers_and_the_rest_waits_in_order() {
    let mut story = Story::new(2, 1, false);
    let ids: Vec<_> = (0..4).map(|_| story.submit(Target::Any)).collect();
    assert_eq!((story.running(0), story.running(1)), (Some(ids[0]), Some(ids[1])));
    story.done(1);
    assert_eq!(story.running(1), Some(ids[2]));
    story.done(0);
    assert_eq!(story.running(0), Some(ids[3]));
}

#[test]
fn a_target_waits_for_its_worker_alone() {
    let mut story = Story::new(2, 2, false);
    let head = story.submit(Target::Head);
    let second = story.submit(Target::Rank(Rank(0)));
    let node = story.submit(Target::Node(NodeIndex(1)));
    let any = story.submit(Target::Any);
    assert_eq!(story.running(0), Some(head));
    assert_eq!(story.running(2), Some(node));
    assert_eq!(story.running(1), Some(any));
    story.done(0);
    assert_eq!(story.running(0), Some(second));
    let error = story
        .scheduler
        .submit(story.now, TaskId(99), Target::Rank(Rank(4)), TaskOptions::default(), false)
        .unwrap_err();
    assert_eq!(error.to_string(), "the pool has no rank 4\nhint: its ranks are 0 to 3");
    let error = story
        .scheduler
        .submit(story.now, TaskId(99), Target::Node(NodeIndex(2)), TaskOptions::default(), false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_gang_starts_when_all_are_idle_and_is_not_overtaken() {
    let mut story = Story::new(2, 1, true);
    let single = story.submit(Target::Any);
    let gang = story.gang();
    let later = story.submit(Target::Any);
    assert_eq!((story.running(0), story.running(1)), (Some(single), None), "rank 1 is kept for the gang");
    story.done(0);
    assert_eq!((story.running(0), story.running(1)), (Some(gang[0]), Some(gang[1])));
    story.done(1);
    assert_eq!(story.running(1), Some(later));
    assert_eq!(story.outcome(gang[1]), None, "kept back: the gang may have to run again");
    story.done(0);
    assert_eq!((story.outcome(gang[0]), story.outcome(gang[1])), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_lost_worker_fails_its_running_task_and_the_rest_runs_elsewhere() {
    let mut story = Story::new(2, 1, false);
    let (a, b) = (story.submit(Target::Any), story.submit(Target::Any));
    story.lost(0);
    assert_eq!(story.outcome(a), Some(Err(ErrorKind::WorkerExited)));
    assert!(story.has(|action| matches!(action, Action::RestartWorker { rank: Rank(0) })));
    assert_eq!(story.outcome(b), None);
    let c = story.submit(Target::Rank(Rank(0)));
    story.ready();
    assert_eq!(story.running(0), Some(c));
}

#[test]
fn what_was_sent_ahead_and_never_began_is_not_blamed() {
    let mut story = Story::new(1, 1, false);
    let first = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), first, Ok(Value::new(vec![], Rank(0))), 10);
    story.step();
    let ids: Vec<_> = (0..3).map(|_| story.submit(Target::Any)).collect();
    assert_eq!(story.scheduler.sent(Rank(0)).count(), 3, "short tasks are sent ahead");
    story.not_begun(0, &ids[1..]);
    story.lost(0);
    assert_eq!(story.outcome(ids[0]), Some(Err(ErrorKind::WorkerExited)));
    story.ready();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids[1..]);
}

#[test]
fn what_a_worker_gives_back_goes_elsewhere_in_order_and_is_no_try() {
    let (mut story, [first, second, third]) = three_on_one();
    let queued = story.submit_with(Target::Rank(Rank(0)), TaskOptions::default().retry(RetryPolicy::never()));
    story.scheduler.cancel(story.now, second);
    story.step();
    story.scheduler.on_not_begun(story.now, Rank(0), &[second, third, queued]);
    story.step();
    assert!(!story.has(|action| matches!(action, Action::Retried { .. })));
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [first], "nothing is sent ahead to it");
    story.scheduler.add_node(NodeIndex(1));
    story.ready();
    assert_eq!(story.running(1), Some(third), "it was in front of the queue");
    assert_eq!((story.done(0), story.running(0)), (first, Some(queued)));
    let ahead = [0; 3].map(|_| story.submit(Target::Rank(Rank(0))));
    story.scheduler.on_returned(story.now, Rank(0), queued, Ok(Value::new(vec![], Rank(0))), 1);
    story.step();
    assert_eq!(story.running(0), Some(ahead[0]));
    assert_eq!(story.outcome(second), Some(Err(ErrorKind::Cancelled)));
}

#[test]
fn a_joined_world_ends_as_a_whole_and_lost_tasks_are_tried_again() {
    let mut story = Story::new(3, 1, true);
    let (a, b) = (story.submit(Target::Any), story.submit(Target::Any));
    story.lost(0);
    assert_eq!(story.outcome(a), Some(Err(ErrorKind::WorkerExited)));
    assert_eq!(story.outcome(b), None, "it was ended through no fault of its own");
    assert!(story.has(|action| matches!(action, Action::RestartWorld { lost: Rank(0) })));
    story.lost(1);
    assert!(!story.has(|action| matches!(action, Action::RestartWorld { .. })), "it is under way");
    story.ready();
    assert_eq!(story.running(0), Some(b));
}

#[test]
fn a_gang_is_tried_again_as_a_whole() {
    let mut story = Story::new(3, 1, true);
    let gang = story.gang_with(RetryPolicy::times(1));
    story.done(2);
    story.lost(1);
    assert!(story.finished.is_empty());
    story.ready();
    assert_eq!((0..3).filter_map(|rank| story.running(rank)).collect::<Vec<_>>(), gang);
    story.lost(1);
    for id in gang {
        let error = story.finished[&id].as_ref().unwrap_err();
        assert_eq!(error.exit(), Some(&WorkerExit::Signal(11)), "all are told what ended their world");
    }
}

#[test]
fn a_gang_in_which_one_raised_is_interrupted_and_tried_again() {
    let mut story = Story::new(2, 1, true);
    let gang = story.gang_with(RetryPolicy::times(1));
    story.scheduler.on_returned(story.now, Rank(1), gang[1], Err(raised(1)), 10);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Cancel { rank: Rank(0), interrupt: true, .. })));
    let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
    story.scheduler.on_returned(story.now, Rank(0), gang[0], cancelled, 10);
    story.step();
    assert_eq!((story.running(0), story.running(1)), (Some(gang[0]), Some(gang[1])));
    story.done(0);
    story.done(1);
    assert_eq!(story.outcome(gang[0]), Some(Ok(())));
}

#[test]
fn what_a_collective_raised_is_not_taken_for_the_cause_when_a_peer_has_died() {
    let mut story = Story::new(2, 1, true);
    let gang = story.gang();
    story.scheduler.on_returned(story.now, Rank(0), gang[0], Err(raised(0)), 10);
    story.step();
    assert!(story.finished.is_empty(), "the death of a peer may be told a little later");
    story.lost(1);
    for id in &gang {
        assert_eq!(story.finished[id].as_ref().unwrap_err().exit(), Some(&WorkerExit::Signal(11)));
    }
    story.ready();

    let gang = story.gang();
    story.scheduler.on_returned(story.now, Rank(0), gang[0], Err(raised(0)), 10);
    story.now = story.scheduler.next_timeout().unwrap();
    story.scheduler.on_timeout(story.now);
    story.step();
    assert_eq!(story.outcome(gang[0]), Some(Err(ErrorKind::Remote)));
    assert_eq!(story.outcome(gang[1]), None);
    story.scheduler.on_returned(story.now, Rank(1), gang[1], Err(raised(1)), 10);
    story.step();
    assert_eq!(story.outcome(gang[1]), Some(Err(ErrorKind::Remote)));
}

#[test]
fn the_streams_of_a_gang_end_one_by_one() {
    let mut story = Story::new(2, 1, true);
    let ids = [TaskId(1), TaskId(2)];
    story.scheduler.submit_gang(story.now, &ids, TaskOptions::default(), true);
    story.step();
    assert_eq!(story.done(1), ids[1]);
    assert_eq!(story.outcome(ids[1]), Some(Ok(())), "its reader waits for the end");
    assert_eq!(story.outcome(ids[0]), None);
    story.done(0);
    assert_eq!(story.outcome(ids[0]), Some(Ok(())));
}

#[test]
fn a_raised_error_is_not_tried_again_unless_asked() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), id, Err(raised(0)), 10);
    story.step();
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::Remote)));
    let id = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(2)));
    for _ in 0..2 {
        story.scheduler.on_returned(story.now, Rank(0), id, Err(raised(0)), 10);
        story.step();
        assert_eq!(story.running(0), Some(id));
    }
    story.scheduler.on_returned(story.now, Rank(0), id, Err(raised(0)), 10);
    story.step();
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::Remote)));
}

#[test]
fn a_cancelled_task_gets_its_grace_and_then_its_worker_is_killed() {
    let mut story = Story::new(1, 1, false);
    let (running, queued) = (story.submit(Target::Any), story.submit(Target::Any));
    story.scheduler.cancel(story.now, queued);
    story.step();
    assert_eq!(story.outcome(queued), Some(Err(ErrorKind::Cancelled)));
    story.scheduler.cancel(story.now, running);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Cancel { interrupt: true, .. })));
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
    story.lost(0);
    assert!(story.has(|action| matches!(action, Action::RestartWorker { .. })));
}

#[test]
fn the_timeout_counts_from_the_start_and_not_from_the_queue() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().timeout(Duration::from_secs(10));
    story.submit(Target::Any);
    let id = story.submit_with(Target::Any, options);
    assert_eq!(story.scheduler.next_timeout(), None);
    story.now += Duration::from_secs(100);
    story.done(0);
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + Duration::from_secs(10)));
    story.later(Duration::from_secs(10));
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::Timeout)));
}

#[test]
fn a_task_that_never_began_is_sent_again_and_is_the_same_try() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit(Target::Any);
    story.scheduler.on_not_begun(story.now, Rank(0), &[id]);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Send { rank: Rank(0), .. })));
    assert!(!story.has(|action| matches!(action, Action::Retried { .. })));
    assert_eq!(story.done(0), id);
    assert_eq!(story.outcome(id), Some(Ok(())));
}

#[test]
fn a_task_that_never_began_lets_the_time_of_the_one_behind_it_begin() {
    let mut story = Story::new(1, 1, false);
    let short = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), short, Ok(Value::new(vec![], Rank(0))), 1);
    let options = TaskOptions::default().timeout(Duration::from_secs(30));
    let (first, second) = (story.submit_with(Target::Any, options), story.submit_with(Target::Any, options));
    story.scheduler.on_not_begun(story.now, Rank(0), &[first]);
    story.step();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [second]);
    story.later(Duration::from_secs(30));
    assert_eq!(story.outcome(second), Some(Err(ErrorKind::Timeout)));
    assert_eq!(story.outcome(first), None);
}

#[test]
fn the_first_failure_is_the_one_that_is_told() {
    let mut story = Story::new(1, 1, false);
    story.scheduler.fail(Error::new(ErrorKind::NodeLost, "the cause"));
    story.scheduler.fail(Error::new(ErrorKind::Io, "its consequence"));
    assert_eq!(story.scheduler.failure().unwrap().kind(), ErrorKind::NodeLost);
}

#[test]
fn workers_that_only_die_end_the_pool() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..=policy::MAX_BARREN_RESTARTS {
        story.lost(0);
        story.ready();
    }
    assert!(story.scheduler.failure().is_some());
}

#[test]
fn a_worker_that_is_lost_with_its_node_is_no_crash_of_its_task() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit(Target::Any);
    for exit in [WorkerExit::Unreachable, WorkerExit::LeaseEnded] {
        story.scheduler.on_lost(story.now, Rank(0), &exit, None);
        story.step();
        assert!(story.has(|action| matches!(action, Action::Retried { .. })), "{exit}");
        story.ready();
        assert_eq!(story.running(0), Some(id));
    }
    story.scheduler.on_lost(story.now, Rank(0), &WorkerExit::AgentGone, None);
    story.step();
    let error = story.finished[&id].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.tries().len()), (ErrorKind::NodeLost, 3), "{error}");
}

#[test]
fn a_poison_task_fails_alone_and_the_others_go_on() {
    let mut story = Story::new(1, 1, false);
    let poison = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(100)));
    let good = story.submit(Target::Any);
    for _ in 0..Limits::default().poison {
        assert_eq!(story.running(0), Some(poison));
        story.lost(0);
        story.ready();
    }
    assert_eq!(story.outcome(poison), Some(Err(ErrorKind::Poisoned)));
    assert_eq!(story.done(0), good);
    assert!(story.scheduler.failure().is_none());
}

#[test]
fn poison_tasks_one_after_another_do_not_end_the_pool() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..20 {
        let poison = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(100)));
        while story.outcome(poison).is_none() {
            story.lost(0);
            story.ready();
        }
        assert_eq!(story.outcome(poison), Some(Err(ErrorKind::Poisoned)));
    }
    assert!(story.scheduler.failure().is_none());
    let good = story.submit(Target::Any);
    assert_eq!(story.done(0), good);
}

#[test]
fn a_poison_gang_fails_as_a_whole_and_the_world_goes_on() {
    let mut story = Story::new(2, 1, true);
    let gang = story.gang_with(RetryPolicy::times(100));
    for rank in [1, 0, 1] {
        story.lost(rank);
        story.ready();
    }
    for id in gang {
        let error = story.finished[&id].as_ref().unwrap_err();
        assert_eq!((error.kind(), error.tries().len()), (ErrorKind::Poisoned, 3), "{error}");
    }
    let next = story.gang();
    assert_eq!((story.running(0), story.running(1)), (Some(next[0]), Some(next[1])));
}

#[test]
fn tasks_that_are_killed_when_they_were_cancelled_do_not_end_the_pool() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..20 {
        let id = story.submit(Target::Any);
        story.scheduler.cancel(story.now, id);
        story.later(GRACE);
        assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
        story.scheduler.on_lost(story.now, Rank(0), &WorkerExit::Killed, None);
        story.step();
        story.ready();
    }
    assert!(story.scheduler.failure().is_none());
}

#[test]
fn a_cancelled_task_that_never_began_is_dropped_and_not_sent_again() {
    let mut story = Story::new(1, 1, false);
    let (lost, next) = (story.submit(Target::Any), story.submit(Target::Any));
    story.scheduler.cancel(story.now, lost);
    story.scheduler.on_not_begun(story.now, Rank(0), &[lost]);
    story.step();
    assert!(!story.has(|action| matches!(action, Action::Send { task, .. } if *task == lost)));
    assert_eq!(story.running(0), Some(next), "what is behind it begins");
    story.later(GRACE);
    assert!(!story.has(|action| matches!(action, Action::Kill { .. })), "it is not killed for the other");
    assert_eq!(story.done(0), next);
}

#[test]
fn a_task_that_waits_too_long_says_what_for() {
    let mut story = Story::new(2, 1, false);
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    let running = [story.submit(Target::Any), story.submit(Target::Any)];
    let (before, late) = (story.submit(Target::Any), story.submit_with(Target::Any, options));
    let on_rank = story.submit_with(Target::Rank(Rank(1)), options);
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + Duration::from_secs(10)));
    story.later(Duration::from_secs(10));
    let error = story.finished[&late].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueTimeout);
    assert_eq!(
        error.message(),
        "the task was not started within 10s: 1 task was before it, and of 2 workers 2 ran tasks and 0 were being started"
    );
    let error = story.finished[&on_rank].as_ref().unwrap_err();
    assert!(error.message().ends_with(&format!("the worker of rank 1 ran task {}", running[1])), "{error}");
    assert_eq!(story.outcome(before), None);
    story.done(0);
    assert_eq!(story.running(0), Some(before));
}

#[test]
fn what_was_started_in_time_is_not_bound_by_the_queue() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    let (first, second) = (story.submit_with(Target::Any, options), story.submit_with(Target::Any, options));
    story.now += Duration::from_secs(9);
    story.done(0);
    assert_eq!((story.running(0), story.scheduler.next_timeout()), (Some(second), None));
    story.now += Duration::from_secs(100);
    story.scheduler.on_timeout(story.now);
    story.done(0);
    assert_eq!((story.outcome(first), story.outcome(second)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_task_that_waits_behind_another_on_its_worker_still_waits() {
    let mut story = Story::new(1, 1, false);
    let short = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), short, Ok(Value::new(vec![], Rank(0))), 1);
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    let (_, behind) = (story.submit(Target::Any), story.submit_with(Target::Any, options));
    assert_eq!(story.scheduler.sent(Rank(0)).nth(1), Some(behind));
    story.later(Duration::from_secs(10));
    assert_eq!(story.outcome(behind), Some(Err(ErrorKind::QueueTimeout)));
    assert!(story.has(|action| matches!(action, Action::Cancel { interrupt: false, .. })));
}

#[test]
fn a_gang_that_waits_too_long_fails_as_a_whole() {
    let mut story = Story::new(2, 1, true);
    let running = story.submit(Target::Any);
    let ids = [TaskId(50), TaskId(51)];
    story.next = 60;
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    story.scheduler.submit_gang(story.now, &ids, options, false);
    story.step();
    let behind = story.submit(Target::Any);
    assert_eq!(story.running(1), None, "rank 1 is kept for the gang");
    story.later(Duration::from_secs(10));
    for id in ids {
        let error = story.finished[&id].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QueueTimeout);
        assert!(error.message().contains("0 gangs were before its gang, and of 2 workers 1 ran tasks"), "{error}");
    }
    assert_eq!((story.running(0), story.running(1)), (Some(running), Some(behind)), "what waited behind it goes on");
}

#[test]
fn a_deadline_beyond_all_clocks_is_none() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().timeout(Duration::MAX).queue_timeout(Duration::MAX);
    let (first, second) = (story.submit_with(Target::Any, options), story.submit_with(Target::Any, options));
    assert_eq!(story.scheduler.next_timeout(), None);
    story.done(0);
    story.done(0);
    assert_eq!((story.outcome(first), story.outcome(second)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn what_ran_on_a_lost_node_runs_again_and_the_other_nodes_go_on() {
    let mut story = Story::new(2, 2, false);
    let kept: Vec<_> = [0, 1].map(|rank| story.submit(Target::Rank(Rank(rank)))).into();
    let never = TaskOptions { retry: Some(RetryPolicy::never()), ..TaskOptions::default() };
    let (fails, again) = (story.submit_with(Target::Rank(Rank(2)), never), story.submit(Target::Rank(Rank(3))));
    story.node_lost(1);
    let error = story.finished[&fails].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.exit()), (ErrorKind::NodeLost, Some(&WorkerExit::AgentGone)));
    assert!(story.has(|action| matches!(action, Action::Retried { task, .. } if *task == again)));
    assert!(story.has(|action| matches!(action, Action::ReplaceNode { node: NodeIndex(1) })));
    assert!(!story.has(|action| matches!(action, Action::RestartWorker { .. } | Action::RestartWorld { .. })));
    assert_eq!((story.running(0), story.running(1), story.running(3)), (Some(kept[0]), Some(kept[1]), None));
    story.ready();
    assert_eq!(story.running(3), Some(again));
}

#[test]
fn a_world_that_loses_a_node_has_one_fate() {
    let mut story = Story::new(2, 2, true);
    let gang = story.gang_with(RetryPolicy::never());
    story.node_lost(1);
    for id in &gang {
        assert_eq!(story.outcome(*id), Some(Err(ErrorKind::NodeLost)), "the cause is told to all");
    }
    assert!((0..4).all(|rank| !story.scheduler.is_ready(Rank(rank))));
    let gang = story.gang_with(RetryPolicy::times(1));
    story.ready();
    story.node_lost(0);
    story.ready();
    assert_eq!((0..4).map(|rank| story.running(rank).unwrap()).collect::<Vec<_>>(), gang);
}

#[test]
fn machines_that_do_not_last_end_the_pool_unless_they_lasted_or_something_returned() {
    let mut story = Story::new(2, 1, false);
    let lose = |story: &mut Story, times: u32| {
        for _ in 0..times {
            story.node_lost(1);
            story.ready();
        }
    };
    lose(&mut story, policy::MAX_BARREN_REPLACEMENTS);
    story.submit(Target::Rank(Rank(1)));
    story.done(1);
    lose(&mut story, policy::MAX_BARREN_REPLACEMENTS);
    story.now += policy::SOUND;
    lose(&mut story, policy::MAX_BARREN_REPLACEMENTS);
    assert!(story.scheduler.failure().is_none());
    let waits = story.submit(Target::Rank(Rank(1)));
    story.node_lost(1);
    let error = story.scheduler.failure().unwrap().clone();
    assert_eq!(error.kind(), ErrorKind::NodeLost);
    assert!(error.message().contains("4 times in a row") && error.message().contains("the agent ended"), "{error}");
    assert_eq!(story.outcome(waits), Some(Err(ErrorKind::NodeLost)));
    assert!(!story.has(|action| matches!(action, Action::ReplaceNode { .. })));
}

#[test]
fn a_node_that_was_never_ready_counts_as_lost_again() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..policy::MAX_BARREN_REPLACEMENTS {
        story.node_lost(0);
        assert!(story.has(|action| matches!(action, Action::ReplaceNode { .. })));
        story.now += policy::SOUND;
    }
    story.node_lost(0);
    assert!(story.scheduler.failure().is_some());
}

#[test]
fn workers_that_cannot_be_started_again_end_the_pool_with_what_kept_them() {
    for joined in [false, true] {
        let mut story = Story::new(2, 1, joined);
        story.lost(1);
        for time in 1..policy::MAX_BARREN_RESTARTS {
            // Now on the one node, now on the other: another machine would not help.
            story.scheduler.on_start_failed(Rank(time % 2), &Error::new(ErrorKind::Hook, "no peer"));
            story.step();
            let again = |action: &Action| matches!(action, Action::RestartWorker { .. } | Action::RestartWorld { .. });
            assert!(story.has(again));
        }
        story.scheduler.on_start_failed(Rank(1), &Error::new(ErrorKind::Hook, "no peer"));
        let error = story.scheduler.failure().unwrap();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.message().ends_with("no peer"), "{error}");
    }
}

#[test]
fn what_was_to_end_is_told_again_when_the_agent_is_back() {
    let mut story = Story::new(2, 1, false);
    let (id, other) = (story.submit(Target::Rank(Rank(0))), story.submit(Target::Rank(Rank(1))));
    story.scheduler.cancel(story.now, id);
    story.step();
    story.scheduler.on_agent_back(story.now, NodeIndex(1));
    story.step();
    assert!(!story.has(|action| matches!(action, Action::Cancel { .. })), "task {other} goes on");
    story.now += GRACE * 2;
    story.scheduler.on_timeout(story.now);
    story.scheduler.on_agent_back(story.now, NodeIndex(0));
    story.step();
    assert!(story.has(|action| matches!(action, Action::Cancel { task, interrupt: true, .. } if *task == id)));
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
}

#[test]
fn random_stories_keep_the_invariants() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    for seed in 0..500_u64 {
        let mut random = StdRng::seed_from_u64(seed);
        let joined = random.random_bool(0.5);
        let (nodes, workers) = (random.random_range(1..4), random.random_range(1..3));
        let stall = random.random_bool(0.5).then_some(Duration::from_secs(3));
        let limits = Limits { stall, ..Limits::default() };
        let mut story = Story::with_limits(nodes, workers, joined, limits);
        let ranks = nodes * workers;
        for _ in 0..60 {
            let rank = random.random_range(0..ranks);
            match random.random_range(0..13) {
                0 => drop(story.submit(Target::Any)),
                1 => {
                    let options = TaskOptions::default()
                        .queue_timeout(Duration::from_secs(random.random_range(0..9)))
                        .retry(RetryPolicy::times(random.random_range(0..6)));
                    story.submit_with(Target::Any, options);
                }
                2 => drop(story.submit(Target::Rank(Rank(rank)))),
                3 => drop(story.submit(Target::Node(NodeIndex(rank / workers)))),
                4 if joined => drop(story.gang_with(RetryPolicy::times(random.random_range(0..2)))),
                5 => {
                    let id = TaskId(random.random_range(1..story.next + 1));
                    story.scheduler.cancel(story.now, id);
                    story.step();
                }
                6 if random.random_bool(0.3) => story.lost(rank),
                6 if random.random_bool(0.1) => story.node_lost(rank / workers),
                7 => story.ready(),
                10 => {
                    story.scheduler.on_stacks(story.now, Rank(rank), String::new());
                    story.step();
                }
                9 => {
                    let sent: Vec<TaskId> = story.scheduler.sent(Rank(rank)).collect();
                    if !sent.is_empty() {
                        let id = sent[random.random_range(0..sent.len())];
                        story.scheduler.on_not_begun(story.now, Rank(rank), &[id]);
                        story.step();
                    }
                }
                11 => {
                    // Those behind some place, as of a worker that is recalled or lost.
                    let sent: Vec<TaskId> = story.scheduler.sent(Rank(rank)).collect();
                    let begun = random.random_range(0..=sent.len());
                    story.scheduler.on_not_begun(story.now, Rank(rank), &sent[begun..]);
                    story.step();
                }
                8 => {
                    story.later(Duration::from_secs(1));
                }
                _ => {
                    if let Some(id) = story.running(rank) {
                        let outcome = if random.random_bool(0.8) {
                            Ok(Value::new(vec![], Rank(rank)))
                        } else {
                            Err(raised(rank))
                        };
                        story.scheduler.on_returned(story.now, Rank(rank), id, outcome, random.random_range(0..5000));
                        story.step();
                    }
                }
            }
        }
        // Left alone, everything ends: no task waits for ever.
        if story.scheduler.failure().is_none() {
            for _ in 0..2000 {
                story.ready();
                let Some(rank) = (0..ranks).find(|rank| story.running(*rank).is_some()) else { break };
                story.done(rank);
            }
        }
        let unfinished: Vec<_> = (1..story.next).filter(|id| !story.finished.contains_key(&TaskId(*id))).collect();
        assert!(unfinished.is_empty(), "seed {seed}: tasks {unfinished:?} have no outcome: {:?}", story.scheduler);
    }
}
