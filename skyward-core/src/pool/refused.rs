//! Payloads with arguments that have ended their workers again and again: they are not taken a second time. No I/O.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::payload::Task;

/// What is not taken any more; of many, the latest.
#[derive(Debug, Default)]
pub(crate) struct Refused(VecDeque<Refusal>);

#[derive(Debug)]
struct Refusal {
    content: Content,
    error: Error,
}

/// A payload with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    source: String,
    length: usize,
    args: [u8; 32],
}

impl Content {
    /// Reads all of the arguments, so it is asked for only where it may matter.
    pub(crate) fn of(task: &Task) -> Self {
        Self {
            source: task.source.digest().to_owned(),
            length: task.args.len(),
            args: Sha256::digest(&task.args).into(),
        }
    }
}

impl Refused {
    /// Whether it is worth while to look at a task's content.
    pub(crate) fn may_hold(&self, task: &Task) -> bool {
        self.0
            .iter()
            .any(|known| known.content.length == task.args.len() && known.content.source == task.source.digest())
    }

    /// The error for a task with this content, if it is not taken.
    pub(crate) fn get(&self, content: &Content) -> Option<Error> {
        let known = self.0.iter().find(|known| known.content == *content)?;
        let error = Error::new(
            ErrorKind::Poisoned,
            format!("the task is refused: the same payload with the same arguments has ended its workers before, and {}", known.error.message()),
        )
        .with_tries(known.error.tries().to_vec())
        .with_hint("mend the payload, or start another pool to try it again; `Limits::poison` says how many workers one task may end");
        Some(known.error.context().iter().fold(error, |error, (key, value)| error.with_context(key, value)))
    }

    /// Does not take this content any more.
    pub(crate) fn add(&mut self, content: Content, error: Error) {
        if self.0.iter().any(|known| known.content == content) {
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(Refusal { content, error });
    }
}

/// Contents that are remembered.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::ids::TaskId;
    use crate::payload::Source;

    fn task(text: &'static str, args: &[u8]) -> Task {
        Task::new(Arc::new(Source::file("a.py", text, "f")), Bytes::copy_from_slice(args))
    }

    fn poisoned() -> Error {
        Error::poisoned(TaskId(7), 3, &Error::new(ErrorKind::WorkerExited, "it ended")).with_context("entry", "f")
    }

    #[test]
    fn only_the_same_payload_with_the_same_arguments_is_refused() {
        let mut refused = Refused::default();
        let bad = task("def f(x): ...", b"1");
        assert!(!refused.may_hold(&bad));
        refused.add(Content::of(&bad), poisoned());
        assert!(refused.may_hold(&bad));
        let error = refused.get(&Content::of(&bad)).unwrap();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(
            error.to_string().contains("task 7 ended its worker 3 times") && error.to_string().contains("entry: f"),
            "{error}"
        );
        for other in [task("def f(x): ...", b"2"), task("def f(x): pass", b"1"), task("def f(x): ...", b"11")] {
            assert!(refused.get(&Content::of(&other)).is_none());
        }
        assert!(!refused.may_hold(&task("def f(x): ...", b"11")));
    }

    #[test]
    fn it_is_bounded_and_the_latest_stay() {
        let mut refused = Refused::default();
        let of = |number: usize| Content::of(&task("def f(x): ...", number.to_string().as_bytes()));
        for number in 0..=MOST {
            refused.add(of(number), poisoned());
            refused.add(of(number), poisoned());
        }
        assert_eq!(refused.0.len(), MOST);
        assert!(refused.get(&of(0)).is_none() && refused.get(&of(MOST)).is_some());
    }
}
