//! Payloads that, with the same arguments, ended their workers again and again: the pool refuses
//! them after that. No I/O.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::payload::Task;

/// The contents that are refused; of many, the latest.
#[derive(Debug, Default)]
pub(crate) struct Refused(VecDeque<Refusal>);

#[derive(Debug)]
struct Refusal {
    content: Content,
    error: Error,
}

/// A payload together with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    source: String,
    length: usize,
    args: [u8; 32],
}

impl Content {
    /// Reads all of the arguments, so it is called only if the content may matter.
    pub(crate) fn of(task: &Task) -> Self {
        Self {
            source: task.source.digest().to_owned(),
            length: task.args.len(),
            args: Sha256::digest(&task.args).into(),
        }
    }
}

impl Refused {
    /// Whether the content of this task must be compared.
    pub(crate) fn may_hold(&self, task: &Task) -> bool {
        self.0
            .iter()
            .any(|known| known.content.length == task.args.len() && known.content.source == task.source.digest())
    }

    /// The error for a task with this content; `None` if the content is not refused.
    pub(crate) fn get(&self, content: &Content) -> Option<Error> {
        let known = self.0.iter().find(|known| known.content == *content)?;
        let error = Error::new(
            ErrorKind::Poisoned,
            format!("the task is refused: the same payload with the same arguments has ended its workers before: {}", known.error.message()),
        )
        .with_tries(known.error.tries().to_vec())
        .with_hint("fix the payload, or start another pool to try it again; `Limits::poison` sets how many workers one task may end");
        Some(known.error.context().iter().fold(error, |error, (key, value)| error.with_context(key, value)))
    }

    /// Refuses this content from now on.
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

/// The most contents that are remembered.
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
            format!("{error:#}").contains("task 7 ended its worker 3 times")
                && format!("{error:#}").contains("entry: f"),
            "{error}"
        );
        for other in [task("def f(x): ...", b"2"), task("def f(x): pass", b"1"), task("def f(x): ...", b"11")] {
            assert!(refused.get(&Content::of(&other)).is_none());
        }
        assert!(!refused.may_hold(&task("def f(x): ...", b"11")));
    }

    #[test]
    fn the_refused_contents_are_bounded_and_the_latest_are_kept() {
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
