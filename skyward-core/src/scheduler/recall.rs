//! Recalls: tasks that were sent ahead and wait behind a long task are recalled, and go to other
//! workers.
//!
//! A worker that has several tasks has one timer, and not one for each task. When the timer is due,
//! it checks how long the first task has run.

use std::time::Instant;

use super::policy::long;
use super::task::Position;
use super::timers::Timer;
use super::timing::RECALL_PAUSE;
use super::{Action, Scheduler};
use crate::error::{Error, ErrorKind};
use crate::ids::{Rank, TaskId};
use crate::payload::Target;

impl Scheduler {
    /// A worker did not begin these tasks and never will. They return to the front of their queues
    /// in the given order. That does not count as a try.
    ///
    /// For a lost worker, call this before [`on_lost`](Self::on_lost) and
    /// [`on_node_lost`](Self::on_node_lost), which count each task that the worker still has as
    /// begun, and after [`on_ended`](Self::on_ended), so that a world that is about to end
    /// takes none of the tasks. A sent gang counts as begun: its member is lost with its worker,
    /// and sent again to a live worker.
    pub fn on_not_begun(&mut self, now: Instant, rank: Rank, ids: &[TaskId]) {
        for id in ids.iter().rev() {
            let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return };
            let Some(place) = worker.sent.iter().rposition(|sent| sent == id) else { continue };
            let Some(task) = self.tasks.get(id) else { continue };
            if task.gang.is_some() {
                self.send_again(now, rank, *id);
                continue;
            }
            worker.sent.remove(place);
            worker.long = true;
            worker.late |= place == 0;
            let abandoned = task.abandoned;
            self.end_calls(*id);
            if place == 0 {
                self.forget_interrupt_of(rank, *id);
                self.disarm(*id);
                self.leave_front(rank);
                self.begin_front(now, rank);
            }
            if abandoned {
                self.disarm(*id);
                self.tasks.remove(id);
            } else {
                self.queue_again(now, *id);
            }
        }
        let worker = &mut self.workers[rank.0 as usize];
        worker.long &= !worker.sent.is_empty();
        let ended = worker.ended;
        self.refresh(rank);
        ids.iter().for_each(|id| self.offer(now, *id));
        if ended {
            return;
        }
        // Each worker may take hundreds of tasks, so workers look one after another, in slices.
        let mut for_any = 0;
        for id in ids {
            match self.tasks.get(id).filter(|task| task.position == Position::Queue).map(|task| task.target) {
                Some(Target::Any) => for_any += 1,
                Some(_) => self.place(now, *id),
                None => {}
            }
        }
        self.look_first(for_any);
        // With its first task gone, the worker may take tasks that had to wait for the end of that
        // task.
        self.fill(now, rank);
        // The worker stays idle if its world is held, and may be the last one that a gang waits
        // for.
        self.start_gang(now);
        // The task behind the first one may have begun, and may wait for calls.
        self.help(now, rank);
    }

    /// Sends a member of a gang again. The member is the only task of its worker.
    fn send_again(&mut self, now: Instant, rank: Rank, member: TaskId) {
        if self.workers[rank.0 as usize].ended {
            return;
        }
        self.forget_interrupt_of(rank, member);
        let unwanted = self.tasks.get(&member).is_none_or(|task| task.abandoned || self.is_retrying(task.gang));
        if !unwanted {
            self.actions.push(Action::Send { rank, task: member });
            return self.begin_front(now, rank);
        }
        // The member was abandoned, or its whole gang begins anew.
        self.workers[rank.0 as usize].sent.retain(|id| *id != member);
        self.disarm(member);
        self.refresh(rank);
        self.settle(now, member, Err(Error::new(ErrorKind::Cancelled, "the task was cancelled before it began")));
        self.start_gang(now);
    }

    /// A task was sent to a worker that runs another task.
    pub(super) fn watch_length(&mut self, now: Instant, rank: Rank) {
        let worker = &mut self.workers[rank.0 as usize];
        if worker.recall.is_none() {
            worker.recall = self.timers.add(now, long(worker.round_trip), Timer::Recall(rank));
        }
    }

    pub(super) fn on_recall_timer(&mut self, now: Instant, rank: Rank) {
        let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return };
        let due = worker.recall.take();
        let Some(began) = worker.began.filter(|_| worker.ready && !worker.ended && worker.sent.len() > 1) else {
            return;
        };
        if due.is_none() {
            return;
        }
        let left = long(worker.round_trip).saturating_sub(now.saturating_duration_since(began));
        worker.recall = self.timers.add(now, if left.is_zero() { RECALL_PAUSE } else { left }, Timer::Recall(rank));
        if left.is_zero() {
            worker.long = true;
            self.actions.push(Action::Recall { rank });
            self.refresh(rank);
        }
    }

    /// A worker has another connection: the request to return tasks may be lost with the old one.
    pub(super) fn recall_again(&mut self, rank: Rank) {
        let Some(worker) = self.workers.get(rank.0 as usize) else { return };
        if worker.long && worker.sent.len() > 1 {
            self.actions.push(Action::Recall { rank });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::TaskData;
    use super::super::policy::LARGE;
    use super::super::tests::Story;
    use super::super::timing::LONG_TASK;
    use super::*;
    use crate::payload::{RetryPolicy, TaskOptions, Value};

    fn recalled(story: &Story) -> bool {
        story.has(|action| matches!(action, Action::Recall { rank: Rank(0) }))
    }

    fn short(story: &mut Story, rank: u32) -> TaskId {
        let id = story.running(rank).expect("the rank runs a task");
        story.scheduler.on_returned(story.now, Rank(rank), id, Ok(Value::new(vec![], Rank(rank))), 1);
        story.step();
        id
    }

    /// Two workers. Rank 0 had short tasks, and runs one with `count` tasks behind it; rank 1 is
    /// busy.
    fn behind(count: usize) -> (Story, Vec<TaskId>) {
        let mut story = Story::new(2, 1, false);
        story.submit(Target::Rank(Rank(1)));
        for _ in 0..9 {
            story.submit(Target::Rank(Rank(0)));
            short(&mut story, 0);
        }
        let ids: Vec<TaskId> = (0..=count).map(|_| story.submit(Target::Any)).collect();
        assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids);
        (story, ids)
    }

    #[test]
    fn tasks_behind_a_long_task_go_to_another_worker() {
        let (mut story, ids) = behind(200);
        story.later(LONG_TASK - Duration::from_millis(1));
        assert!(!recalled(&story));
        story.later(Duration::from_millis(1));
        assert!(recalled(&story));
        story.scheduler.on_not_begun(story.now, Rank(0), &ids[1..]);
        story.step();
        assert!(!story.has(|action| matches!(action, Action::Retried { .. })));
        assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids[..1]);
        story.done(1);
        for id in &ids[1..] {
            assert_eq!(story.done(1), *id, "in the order in which they came");
        }
        assert!(!story.finished.contains_key(&ids[0]));
    }

    #[test]
    fn a_distant_worker_has_two_round_trips_more_for_a_short_task() {
        let far = Duration::from_millis(40);
        let mut story = Story::new(1, 1, false);
        story.scheduler.on_ready(story.now, Rank(0), far);
        let ids: Vec<TaskId> = (0..20).map(|_| story.submit(Target::Any)).collect();
        story.scheduler.on_returned(story.now, Rank(0), ids[0], Ok(Value::new(Vec::new(), Rank(0))), 5_000);
        story.step();
        assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids[1..17], "80 ms of work");
        story.later(LONG_TASK + 2 * far - Duration::from_millis(1));
        assert!(!recalled(&story));
        story.later(Duration::from_millis(1));
        assert!(recalled(&story));
    }

    #[test]
    fn a_distant_worker_gets_nothing_behind_large_arguments() {
        for (far, count) in [(Duration::from_millis(40), 2), (Duration::from_micros(100), 5)] {
            let mut story = Story::new(1, 1, false);
            story.scheduler.on_ready(story.now, Rank(0), far);
            story.submit(Target::Any);
            short(&mut story, 0);
            for id in 100..105 {
                let data = TaskData { bytes: if id == 101 { LARGE + 1 } else { LARGE }, ..TaskData::default() };
                let options = TaskOptions::default();
                story.scheduler.submit(story.now, TaskId(id), Target::Any, options, data).unwrap();
            }
            assert_eq!(story.scheduler.sent(Rank(0)).count(), count, "{far:?}");
        }
    }

    #[test]
    fn a_worker_gets_nothing_ahead_while_tasks_take_long_to_arrive() {
        let (mut story, ids) = behind(3);
        story.later(LONG_TASK);
        // All tasks are still on the way.
        story.scheduler.on_not_begun(story.now, Rank(0), &ids);
        story.step();
        let sent = |story: &Story| story.scheduler.sent(Rank(0)).collect::<Vec<_>>();
        assert_eq!(sent(&story), ids[..1]);
        story.later(LONG_TASK * 2);
        assert!(!recalled(&story));
        assert_eq!(short(&mut story, 0), ids[0], "it took long too");
        assert_eq!(sent(&story), ids[1..2]);
        assert_eq!(short(&mut story, 0), ids[1]);
        assert_eq!(sent(&story), ids[2..]);
    }

    #[test]
    fn returned_tasks_are_sent_in_slices() {
        let (mut story, ids) = behind(200);
        story.done(1);
        story.later(LONG_TASK);
        story.scheduler.on_not_begun(story.now, Rank(0), &ids[1..]);
        let mut actions = Vec::new();
        story.scheduler.take_actions(&mut actions);
        assert!(!actions.iter().any(|action| matches!(action, Action::Send { .. })));
        assert!(story.scheduler.has_work());
        story.step();
        assert_eq!(story.running(1), Some(ids[1]));
    }

    #[test]
    fn a_worker_that_runs_a_long_task_gets_nothing_ahead_until_it_returns() {
        let (mut story, ids) = behind(0);
        story.now += LONG_TASK;
        let next = story.submit(Target::Any);
        assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids, "the next look finds the task long");
        assert_eq!(short(&mut story, 0), ids[0]);
        assert_eq!(story.running(0), Some(next));
        let ahead = story.submit(Target::Any);
        assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [next, ahead]);
    }

    #[test]
    fn short_tasks_in_a_row_are_not_recalled_and_share_one_timer() {
        let (mut story, mut ids) = behind(100);
        for _ in 0..50 {
            let timers = story.scheduler.next_timeout();
            assert!(timers.is_some());
            story.later(LONG_TASK / 4);
            assert!(!recalled(&story));
            assert_eq!(short(&mut story, 0), ids.remove(0));
        }
    }

    #[test]
    fn a_worker_that_does_not_return_tasks_is_asked_again() {
        let (mut story, ids) = behind(3);
        story.later(LONG_TASK);
        assert!(recalled(&story));
        story.later(RECALL_PAUSE - Duration::from_millis(1));
        assert!(!recalled(&story));
        story.later(Duration::from_millis(1));
        assert!(recalled(&story));
        story.scheduler.on_connected(story.now, Rank(0));
        story.step();
        assert!(recalled(&story));
        // The worker has begun the tasks in the meantime, and finishes them.
        for id in ids {
            assert_eq!(short(&mut story, 0), id);
        }
        story.later(RECALL_PAUSE);
        assert!(!recalled(&story) && story.scheduler.next_timeout().is_none());
    }

    #[test]
    fn the_queue_timeout_continues_for_returned_tasks() {
        let mut story = Story::new(1, 1, false);
        story.submit(Target::Any);
        short(&mut story, 0);
        let options = TaskOptions::default().queue_timeout(LONG_TASK * 3).retry(RetryPolicy::never());
        let ids = [0; 2].map(|_| story.submit_with(Target::Any, options));
        story.later(LONG_TASK);
        story.scheduler.on_not_begun(story.now, Rank(0), &ids[1..]);
        story.later(LONG_TASK * 2);
        assert!(story.finished[&ids[1]].is_err() && !story.finished.contains_key(&ids[0]));
    }
}
