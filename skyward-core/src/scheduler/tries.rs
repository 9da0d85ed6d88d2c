//! The tries at a task: the number of the current one, how earlier ones ended, and whether there is
//! another.

use crate::error::{Cause, Error, Try};
use crate::ids::{Attempt, TaskId};
use crate::payload::RetryPolicy;

/// The tries at a task, or at a gang.
#[derive(Debug)]
pub(super) struct Tries {
    pub(super) attempt: Attempt,
    /// `None` until a try has failed, which is the usual case.
    failed: Option<Box<Failed>>,
}

#[derive(Debug, Default)]
struct Failed {
    /// How many tries failed, by the index of the cause.
    counts: [u32; Cause::ALL.len()],
    last: Vec<Try>,
}

/// What follows a failed try.
#[derive(Debug)]
pub(super) enum Next {
    /// Another try; the error is that of the failed one.
    Again(Attempt, Error),
    /// No other try: the task fails with this error.
    Over(Error),
}

impl Tries {
    /// Counts a try that failed with this error, and returns what follows. `poison` is how many
    /// workers one task may end.
    pub(super) fn next(&mut self, task: TaskId, error: Error, retry: RetryPolicy, poison: u32) -> Next {
        let failed = self.failed.get_or_insert_default();
        if failed.last.len() == MOST {
            failed.last.remove(0);
        }
        failed.last.push(Try::new(self.attempt, &error));
        let Some(cause) = Cause::of(&error) else { return self.over(error) };
        let count = &mut failed.counts[cause.index()];
        *count += 1;
        let spent = *count > retry.limit(cause);
        let deaths: u32 =
            Cause::ALL.iter().filter(|cause| cause.ended_worker()).map(|cause| failed.counts[cause.index()]).sum();
        if cause.ended_worker() && deaths >= poison {
            return Next::Over(Error::poisoned(task, deaths, &error).with_tries(failed.last.clone()));
        }
        if spent {
            return self.over(error);
        }
        self.attempt.0 += 1;
        Next::Again(self.attempt, error)
    }

    /// The end of the task. The error lists the tries if there were several.
    fn over(&self, error: Error) -> Next {
        match &self.failed {
            Some(failed) if self.attempt.0 > 1 => Next::Over(error.with_tries(failed.last.clone())),
            _ => Next::Over(error),
        }
    }
}

impl Default for Tries {
    fn default() -> Self {
        Self { attempt: Attempt(1), failed: None }
    }
}

/// How many tries are kept.
const MOST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, WorkerExit};
    use crate::ids::Rank;

    fn lost(exit: WorkerExit) -> Error {
        Error::worker_exited(Rank(0), exit)
    }

    fn again(tries: &mut Tries, error: Error, retry: RetryPolicy, poison: u32) -> bool {
        matches!(tries.next(TaskId(1), error, retry, poison), Next::Again(..))
    }

    #[test]
    fn each_cause_has_its_own_count_and_limit() {
        let retry = RetryPolicy::never().crash(1).out_of_memory(1).node_lost(2).preempted(1).peer_lost(1);
        let exits = [
            (WorkerExit::Code(1), 1),
            (WorkerExit::OutOfMemory, 1),
            (WorkerExit::LeaseEnded, 2),
            (WorkerExit::Preempted, 1),
            (WorkerExit::WorldEnded, 1),
        ];
        let mut tries = Tries::default();
        for (exit, limit) in &exits {
            for _ in 0..*limit {
                assert!(again(&mut tries, lost(exit.clone()), retry, 100), "{exit}");
            }
        }
        assert_eq!(tries.attempt, Attempt(7));
        for (exit, _) in exits {
            let mut spent = Tries { attempt: tries.attempt, failed: None };
            std::mem::swap(&mut spent, &mut tries);
            assert!(!again(&mut spent, lost(exit.clone()), retry, 100), "{exit}");
            tries = spent;
        }
    }

    #[test]
    fn exits_with_one_cause_share_a_count() {
        let retry = RetryPolicy::never().node_lost(2);
        let mut tries = Tries::default();
        assert!(again(&mut tries, lost(WorkerExit::AgentGone), retry, 3));
        assert!(again(&mut tries, lost(WorkerExit::LeaseEnded), retry, 3));
        assert!(!again(&mut tries, lost(WorkerExit::LeaseEnded), retry, 3));
    }

    #[test]
    fn a_raised_exception_is_not_tried_again_by_default_and_an_error_without_a_cause_never() {
        let mut tries = Tries::default();
        assert!(!again(&mut tries, Error::new(ErrorKind::Raised, "no"), RetryPolicy::default(), 3));
        assert!(!again(&mut tries, Error::new(ErrorKind::Timeout, "late"), RetryPolicy::times(9), 3));
        assert!(!again(&mut tries, Error::new(ErrorKind::Argument, "no"), RetryPolicy::times(9), 3));
    }

    #[test]
    fn a_task_without_tries_left_lists_how_each_try_ended() {
        let retry = RetryPolicy::never().crash(1).preempted(1);
        let mut tries = Tries::default();
        assert!(again(&mut tries, lost(WorkerExit::Code(7)), retry, 100));
        assert!(again(&mut tries, lost(WorkerExit::Preempted), retry, 100));
        let Next::Over(error) = tries.next(TaskId(1), lost(WorkerExit::Signal(11)), retry, 100) else {
            panic!("it has no try left")
        };
        assert_eq!(
            format!("{error:#}"),
            "the worker of rank 0 was ended by SIGSEGV (signal 11) while it ran the task\n\
             try 1: the worker of rank 0 exited with code 7 while it ran the task\n\
             try 2: the worker of rank 0 was lost because the provider took its machine back while it ran the task\n\
             try 3: the worker of rank 0 was ended by SIGSEGV (signal 11) while it ran the task"
        );
        let causes: Vec<_> = error.tries().iter().map(|one| one.cause).collect();
        assert_eq!(causes, [Some(Cause::Crash), Some(Cause::Preempted), Some(Cause::Crash)]);
    }

    #[test]
    fn a_task_that_repeatedly_ends_its_worker_is_poison_whatever_its_retries_allow() {
        let mut tries = Tries::default();
        assert!(again(&mut tries, lost(WorkerExit::Code(1)), RetryPolicy::times(100), 3));
        assert!(
            again(&mut tries, lost(WorkerExit::LeaseEnded), RetryPolicy::times(100), 3),
            "a lost node is not its fault"
        );
        assert!(again(&mut tries, lost(WorkerExit::OutOfMemory), RetryPolicy::times(100), 3));
        let Next::Over(error) = tries.next(TaskId(5), lost(WorkerExit::Signal(6)), RetryPolicy::times(100), 3) else {
            panic!("it is poison")
        };
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert_eq!(error.exit(), Some(&WorkerExit::Signal(6)));
        assert!(error.message().starts_with("task 5 ended its worker 3 times"), "{error}");
        assert_eq!(error.tries().len(), 4);
    }

    #[test]
    fn only_the_last_tries_are_kept() {
        let mut tries = Tries::default();
        for _ in 0..40 {
            assert!(again(&mut tries, lost(WorkerExit::Preempted), RetryPolicy::times(40), 3));
        }
        let Next::Over(error) = tries.next(TaskId(1), lost(WorkerExit::Preempted), RetryPolicy::times(40), 3) else {
            panic!("none is left")
        };
        assert_eq!(error.tries().len(), MOST);
        assert_eq!(error.tries().last().map(|one| one.attempt), Some(Attempt(41)));
    }
}
