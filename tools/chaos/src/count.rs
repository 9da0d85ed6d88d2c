//! What a round cost: from what its client said, what its tasks left, and what still ran.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use crate::words::{Answer, CALL_LOST, CALLS_TIMEOUT, Line};

/// What happened in rounds. The first five are the verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) rounds: u64,
    /// Tasks that pools took.
    pub(crate) tasks: u64,
    /// Tasks without an outcome although their client lived, and tasks that waited for calls
    /// without end.
    pub(crate) lost: u64,
    /// Tasks that were answered twice, and tasks and calls that were executed more often than the
    /// pool has said.
    pub(crate) doubled: u64,
    /// Processes, machine folders and records that were left.
    pub(crate) left_running: u64,
    /// Outcomes that are not the task's own, and errors that no fault explains.
    pub(crate) wrong: u64,
    /// Clients that did not end, or crashed.
    pub(crate) stuck: u64,
    pub(crate) returned: u64,
    pub(crate) failed: u64,
    /// Calls that a pool did not take.
    pub(crate) refused: u64,
    /// Tasks whose caller gave them up.
    pub(crate) dropped: u64,
    /// Tasks whose client was killed before they had an outcome.
    pub(crate) orphaned: u64,
    pub(crate) executions: u64,
    /// Executions of calls that payloads made.
    pub(crate) calls: u64,
    pub(crate) retries: u64,
    /// Faults that hit.
    pub(crate) faults: u64,
}

/// What is known of a round's tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    calls: BTreeMap<u64, Call>,
    /// The call and the member of each task of the pool.
    tasks: BTreeMap<u64, (u64, u32)>,
    tries: BTreeMap<(u64, u32), u64>,
    answers: BTreeMap<(u64, u32), Vec<Answer>>,
    executions: BTreeMap<(u64, u32), u64>,
    /// How often each call that a payload made was executed: by the execution of its caller, and
    /// the index there.
    below: BTreeMap<String, u64>,
    /// Retries of tasks that are not known: those of calls, and those that came before the task.
    early: Vec<u64>,
    missed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    members: u32,
    each_rank: bool,
}

impl Counts {
    /// Nothing was lost, doubled, wrong or left, and no client hung.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.left_running + self.wrong + self.stuck == 0
    }
}

impl Tasks {
    pub(crate) fn on_line(&mut self, line: &Line) {
        match line {
            Line::Submitted { call, tasks, each_rank } => {
                self.calls.insert(*call, Call { members: tasks.len() as u32, each_rank: *each_rank });
                for (member, task) in (0_u32..).zip(tasks) {
                    self.tasks.insert(*task, (*call, member));
                }
                let early = std::mem::take(&mut self.early);
                early.into_iter().for_each(|task| self.retried(task));
            }
            Line::Retried { task } => self.retried(*task),
            Line::Missed => self.missed = true,
            Line::Answered { call, member, outcome } => {
                self.answers.entry((*call, *member)).or_default().push(outcome.clone());
            }
            Line::Ready | Line::Ending | Line::Ended { .. } => {}
        }
    }

    fn retried(&mut self, task: u64) {
        match self.tasks.get(&task) {
            Some(member) => *self.tries.entry(*member).or_default() += 1,
            None => self.early.push(task),
        }
    }

    /// The lines that executions have left: `<call> <rank> <generation> <pid>`, and `+ <caller>
    /// <index>` of a call.
    pub(crate) fn on_executions(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(call) = line.strip_prefix("+ ") {
                *self.below.entry(call.to_owned()).or_default() += 1;
                continue;
            }
            let mut words = line.split(' ').map(str::parse);
            let (Some(Ok(call)), Some(Ok(rank))) = (words.next(), words.next()) else { continue };
            let each_rank = self.calls.get(&call).is_some_and(|known| known.each_rank);
            let member = if each_rank { rank as u32 } else { 0 };
            *self.executions.entry((call, member)).or_default() += 1;
        }
    }

    /// Counts, and lists what must not be. `client_lived`: the client reported its own end, so each
    /// task must have its outcome. `only_cuts`: no process was ended or stopped, so no task may
    /// fail with a worker or a node.
    pub(crate) fn count(&self, client_lived: bool, only_cuts: bool) -> (Counts, Vec<String>) {
        let mut counts = Counts { retries: self.tries.values().sum(), ..Counts::default() };
        let mut problems = Vec::new();
        let members = self.calls.iter().flat_map(|(call, known)| (0..known.members).map(|member| (*call, member)));
        let submitted: BTreeSet<(u64, u32)> = members.collect();
        counts.tasks = submitted.len() as u64;
        counts.refused = self.calls.values().filter(|call| call.members == 0).count() as u64;
        for key in submitted.iter().chain(self.answers.keys().filter(|key| !submitted.contains(key))) {
            let name = format!("call {}.{}", key.0, key.1);
            let answers = self.answers.get(key).map(Vec::as_slice).unwrap_or_default();
            match answers {
                [] if client_lived => {
                    counts.lost += 1;
                    problems.push(format!("{name}: lost, the client ended without an outcome"));
                }
                [] => counts.orphaned += 1,
                [_] => {}
                several => {
                    counts.doubled += 1;
                    problems.push(format!("{name}: answered {} times: {several:?}", several.len()));
                }
            }
            for answer in answers {
                match answer {
                    Answer::Failed(_) if !submitted.contains(key) => {}
                    Answer::Failed(kind) if only_cuts && ENDED.contains(&kind.as_str()) => {
                        counts.wrong += 1;
                        problems.push(format!("{name}: wrong: {kind}, and nothing but connections was hit"));
                    }
                    Answer::Failed(kind) if only_cuts && kind == CALLS_TIMEOUT => {
                        counts.lost += 1;
                        problems
                            .push(format!("{name}: lost, its calls did not end, and nothing but connections was hit"));
                    }
                    Answer::Returned => counts.returned += 1,
                    Answer::Failed(_) => counts.failed += 1,
                    Answer::Dropped => counts.dropped += 1,
                    Answer::Wrong(why) => {
                        counts.wrong += 1;
                        problems.push(format!("{name}: wrong: {why}"));
                    }
                    Answer::Left if !submitted.contains(key) => {}
                    Answer::Lost | Answer::Left => {
                        counts.lost += 1;
                        problems.push(format!("{name}: lost, no outcome within its deadline"));
                    }
                }
            }
            if answers.contains(&Answer::Returned) && !self.executions.contains_key(key) {
                counts.wrong += 1;
                problems.push(format!("{name}: returned without having been executed"));
            }
        }
        for (key, executions) in &self.executions {
            counts.executions += executions;
            let announced = 1 + self.tries.get(key).copied().unwrap_or_default();
            if *executions > announced && !self.missed {
                counts.doubled += 1;
                problems.push(format!(
                    "call {}.{}: executed {executions} times, and {announced} tries were announced",
                    key.0, key.1
                ));
            }
        }
        counts.calls = self.below.values().sum();
        let (again, announced) = (counts.calls - self.below.len() as u64, self.early.len() as u64);
        if again > announced && !self.missed {
            counts.doubled += again - announced;
            let often: Vec<_> = self.below.iter().filter(|(_, count)| **count > 1).collect();
            problems.push(format!(
                "calls were executed again {again} times, and {announced} retries were announced: {often:?}"
            ));
        }
        counts.retries += announced;
        (counts, problems)
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.tasks += other.tasks;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.left_running += other.left_running;
        self.wrong += other.wrong;
        self.stuck += other.stuck;
        self.returned += other.returned;
        self.failed += other.failed;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.orphaned += other.orphaned;
        self.executions += other.executions;
        self.calls += other.calls;
        self.retries += other.retries;
        self.faults += other.faults;
    }
}

/// Kinds of errors that say that a process has ended.
const ENDED: [&str; 5] = ["WorkerExited", "NodeLost", "ArtifactLost", "Io", CALL_LOST];

#[cfg(test)]
mod tests {
    use super::*;

    fn submitted(call: u64, tasks: &[u64], each_rank: bool) -> Line {
        Line::Submitted { call, tasks: tasks.to_vec(), each_rank }
    }

    fn answered(call: u64, member: u32, outcome: Answer) -> Line {
        Line::Answered { call, member, outcome }
    }

    fn count(lines: &[Line], executions: &str, client_lived: bool) -> Counts {
        let mut tasks = Tasks::default();
        lines.iter().for_each(|line| tasks.on_line(line));
        tasks.on_executions(executions);
        let (counts, problems) = tasks.count(client_lived, false);
        assert_eq!(counts.is_clean(), problems.is_empty(), "{problems:?}");
        counts
    }

    #[test]
    fn what_returns_once_and_runs_as_often_as_announced_is_clean() {
        let lines = [
            submitted(1, &[10], false),
            Line::Retried { task: 10 },
            answered(1, 0, Answer::Returned),
            Line::Retried { task: 12 },
            submitted(2, &[11, 12], true),
            answered(2, 0, Answer::Returned),
            answered(2, 1, Answer::Failed("WorkerExited".into())),
        ];
        let counts = count(&lines, "1 0 1 77\n1 1 1 78\n2 0 1 77\n2 1 1 78\n2 1 1 79\n", true);
        assert!(counts.is_clean(), "{counts:?}");
        assert_eq!(counts.tasks, 3);
        assert_eq!(counts.returned, 2);
        assert_eq!(counts.failed, 1);
        assert_eq!(counts.retries, 2);
        assert_eq!(counts.executions, 5);
    }

    #[test]
    fn a_task_without_an_outcome_is_lost_unless_its_client_was() {
        let lines = [submitted(1, &[10, 11], true), answered(1, 0, Answer::Returned)];
        assert_eq!(count(&lines, "1 0 1 77\n", true).lost, 1);
        let counts = count(&lines, "1 0 1 77\n", false);
        assert_eq!(counts.lost, 0);
        assert_eq!(counts.orphaned, 1);
        assert_eq!(count(&[submitted(1, &[10], false), answered(1, 0, Answer::Lost)], "", true).lost, 1);
        let left = answered(1, 0, Answer::Left);
        assert_eq!(count(&[submitted(1, &[10], false), left.clone()], "", true).lost, 1);
        assert_eq!(count(&[left], "", true).lost, 0);
    }

    #[test]
    fn what_is_answered_or_executed_too_often_is_doubled() {
        let once = [submitted(1, &[10], false), answered(1, 0, Answer::Returned)];
        let twice = [once.as_slice(), &[answered(1, 0, Answer::Returned)]].concat();
        assert_eq!(count(&twice, "1 0 1 77\n", true).doubled, 1);
        assert_eq!(count(&once, "1 0 1 77\n1 1 1 78\n", true).doubled, 1);
        assert_eq!(count(&[once.as_slice(), &[Line::Missed]].concat(), "1 0 1 77\n1 1 1 78\n", true).doubled, 0);
    }

    #[test]
    fn what_is_not_its_own_is_wrong() {
        let lines = [submitted(1, &[10], false), answered(1, 0, Answer::Wrong("of another".into()))];
        assert_eq!(count(&lines, "", true).wrong, 1);
        let lines = [submitted(1, &[10], false), answered(1, 0, Answer::Returned)];
        assert_eq!(count(&lines, "", true).wrong, 1);
    }

    #[test]
    fn a_cut_connection_explains_no_lost_worker() {
        let mut tasks = Tasks::default();
        tasks.on_line(&submitted(1, &[10, 11], true));
        tasks.on_line(&answered(1, 0, Answer::Failed("WorkerExited".into())));
        tasks.on_line(&answered(1, 1, Answer::Failed("Timeout".into())));
        assert_eq!(tasks.count(true, false).0.wrong, 0);
        assert_eq!(tasks.count(true, true).0.wrong, 1);
    }

    #[test]
    fn a_call_of_a_payload_is_executed_once_for_each_try_that_was_announced() {
        let lines = [submitted(1, &[10], false), answered(1, 0, Answer::Returned)];
        let text = "1 0 1 77\n+ ab 0\n+ ab 1\n+ cd 0\n+ ab 1\n";
        let counts = count(&lines, text, true);
        assert_eq!(counts.doubled, 1);
        assert_eq!(counts.executions, 1);
        assert_eq!(counts.calls, 4);
        let retried = [lines.as_slice(), &[Line::Retried { task: 12 }]].concat();
        let counts = count(&retried, text, true);
        assert_eq!(counts.doubled, 0);
        assert_eq!(counts.retries, 1);
        let missed = [lines.as_slice(), &[Line::Missed]].concat();
        assert_eq!(count(&missed, text, true).doubled, 0);
    }

    #[test]
    fn a_cut_connection_explains_neither_a_lost_call_nor_one_that_does_not_end() {
        for (kind, expected) in [(CALL_LOST, (0, 1)), (CALLS_TIMEOUT, (1, 0))] {
            let mut tasks = Tasks::default();
            tasks.on_line(&submitted(1, &[10], false));
            tasks.on_line(&answered(1, 0, Answer::Failed(kind.into())));
            assert!(tasks.count(true, false).0.is_clean());
            let counts = tasks.count(true, true).0;
            assert_eq!((counts.lost, counts.wrong), expected, "{kind}");
        }
    }

    #[test]
    fn a_call_that_was_not_taken_is_no_task() {
        let failed = |member| answered(1, member, Answer::Failed("NodeLost".into()));
        let counts = count(&[submitted(1, &[], true), failed(0), failed(1)], "", true);
        assert_eq!(counts.tasks, 0);
        assert_eq!(counts.failed, 0);
        assert_eq!(counts.refused, 1);
        assert!(counts.is_clean());
    }
}
