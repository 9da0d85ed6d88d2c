//! The story of tasks whose payloads are imported first.

use std::time::Duration;

use super::super::tests::Story;
use crate::error::ErrorKind;
use crate::ids::{Rank, TaskId};
use crate::payload::{RetryPolicy, Target, TaskOptions};
use crate::scheduler::timing::LOCATED;
use crate::spec::Limits;

const LIMIT: Duration = Duration::from_secs(10);

impl Story {
    fn import(&mut self, id: TaskId, begins: bool) {
        self.scheduler.on_import(self.now, Rank(0), id, begins);
    }
}

fn limited() -> TaskOptions {
    TaskOptions::default().timeout(LIMIT)
}

#[test]
fn a_timeout_begins_after_the_import() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, limited());
    story.import(id, true);
    story.later(LIMIT * 3);
    assert_eq!(story.outcome(id), None);
    story.import(id, false);
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + LIMIT));
    story.later(LIMIT);
    story.later(LOCATED);
    let error = story.finished[&id].clone().unwrap_err();
    assert_eq!(error.to_string(), "the task ran longer than its timeout of 10s");
}

#[test]
fn an_import_that_begins_at_the_last_moment_counts_no_more_than_another() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, limited());
    story.later(LIMIT);
    story.import(id, true);
    story.located(0, "");
    story.later(LOCATED);
    assert_eq!(story.outcome(id), None);
    story.import(id, false);
    story.done(0);
    assert_eq!(story.outcome(id), Some(Ok(())));
}

#[test]
fn an_import_has_the_time_of_hooks() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, limited());
    story.import(id, true);
    let hooks = Limits::default().hooks;
    story.later(hooks);
    story.later(LOCATED);
    let error = story.finished[&id].clone().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.to_string(), format!("the payload of the task was not imported within {hooks:?}"));
}

#[test]
fn a_task_that_is_tried_again_is_imported_again() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, limited().retry(RetryPolicy::never().crash(1)));
    story.import(id, true);
    story.lost(0);
    story.ready();
    story.import(id, true);
    story.later(LIMIT * 2);
    assert_eq!(story.outcome(id), None);
}

#[test]
fn a_task_without_a_timeout_waits_for_its_import() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, TaskOptions::default());
    let timer = story.scheduler.next_timeout();
    story.import(id, true);
    assert_eq!(story.scheduler.next_timeout(), timer);
    story.import(id, false);
    story.done(0);
    assert_eq!(story.outcome(id), Some(Ok(())));
}

#[test]
fn what_a_worker_says_of_another_task_changes_nothing() {
    let mut story = Story::new(1, 1, false);
    let (runs, waits) = (story.submit_with(Target::Any, limited()), story.submit_with(Target::Any, limited()));
    let due = Some(story.now + LIMIT);
    for (id, begins) in [(waits, true), (waits, false), (runs, false), (TaskId(999), true)] {
        story.import(id, begins);
        assert_eq!(story.scheduler.next_timeout(), due, "{id} {begins}");
    }
}
