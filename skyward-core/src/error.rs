//! The error type of the whole crate: what was tried, on what, why it failed, what to do next.

mod cause;
mod exit;
mod format;
mod kind;
mod last_words;
mod record;
mod refusal;
mod stacks;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use cause::{Cause, Try};
pub use exit::WorkerExit;
pub use kind::ErrorKind;
#[doc(hidden)]
pub use last_words::LastWords;
pub use refusal::Refusal;
use serde::Serialize;
pub use stacks::RankStacks;
pub(crate) use stacks::{Listed, places, silence};

use crate::ids::{NodeIndex, Rank, TaskId};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a Skyward operation.
///
/// The formats differ in how much they show:
///
/// - `{}`: one line with the message and the facts, for a log that prints
///   [`source`](std::error::Error::source) too; [`summary`](Self::summary) has the causes as well.
/// - `{:#}`: the traceback, stacks, tries and hint too, each on lines of its own.
/// - `{:?}`: the same as `{:#}`, and the chain of causes, which
///   [`source`](std::error::Error::source) returns.
///
/// An error is cheap to clone, so all tasks that wait for one operation get the same error.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::error::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::InvalidSpec, "the pool has 0 nodes").with_hint("ask for at least 1: `.nodes(1)`");
/// assert_eq!(error.kind(), ErrorKind::InvalidSpec);
/// assert_eq!(error.to_string(), "the pool has 0 nodes");
/// assert_eq!(format!("{error:#}"), "the pool has 0 nodes\nhint: ask for at least 1: `.nodes(1)`");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    temporary: bool,
    message: String,
    context: Vec<(&'static str, String)>,
    hint: Option<String>,
    exception: Option<Exception>,
    exit: Option<WorkerExit>,
    refusal: Option<Refusal>,
    tries: Vec<Try>,
    last_lines: Option<Arc<str>>,
    /// May be long, so the errors of a gang's members share them.
    stacks: Option<Arc<[RankStacks]>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// An exception that the payload raised, as Python reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Exception {
    /// The exception's class, with its module unless the module is `builtins`: `ValueError`,
    /// `numpy.linalg.LinAlgError`.
    pub type_name: String,
    /// `str(exception)`.
    pub message: String,
    /// Python's traceback, from the payload's first frame, with the payload's own file names and
    /// line numbers.
    pub traceback: String,
    /// The node that ran the payload.
    pub node: NodeIndex,
    /// The rank that ran the payload.
    pub rank: Rank,
}

impl Error {
    /// A permanent error: the same call will fail again. The message says what was tried and why it
    /// failed, and begins with a lower-case letter.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            temporary: false,
            message: message.into(),
            context: Vec::new(),
            hint: None,
            exception: None,
            exit: None,
            refusal: None,
            tries: Vec::new(),
            last_lines: None,
            stacks: None,
            source: None,
        }))
    }

    /// The error of a provider that refused a call and started nothing. It is
    /// [temporary](Self::is_temporary) for [`Refusal::Throttled`], and permanent otherwise.
    pub fn refused(refusal: Refusal, message: impl Into<String>) -> Self {
        let error = Self::new(ErrorKind::Provider, message);
        let throttled = matches!(refusal, Refusal::Throttled(_));
        let error = error.edit(|inner| inner.refusal = Some(refusal));
        if throttled { error.temporary() } else { error }
    }

    /// The error of a payload that raised an exception.
    pub fn raised(exception: Exception) -> Self {
        let message = format!(
            "the payload raised {} on rank {}: {}",
            exception.type_name,
            exception.rank,
            exception.message.trim_end()
        );
        Self::new(ErrorKind::Raised, message).edit(|inner| inner.exception = Some(exception))
    }

    /// The error of a task whose worker ended. The kind is [`ErrorKind::NodeLost`] if the worker
    /// was lost with its node, and [`ErrorKind::WorkerExited`] otherwise.
    pub fn worker_exited(rank: Rank, exit: WorkerExit) -> Self {
        let kind = if exit.is_node_loss() { ErrorKind::NodeLost } else { ErrorKind::WorkerExited };
        let error = Self::new(kind, format!("the worker of rank {rank} {exit} while it ran the task"));
        let error = match exit.hint() {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
        error.edit(|inner| inner.exit = Some(exit))
    }

    /// The error of a task that ran on a node that was lost. [`exit`](Self::exit) is the exit of
    /// the cause, or [`WorkerExit::AgentGone`] if the cause has none.
    pub fn node_lost(node: NodeIndex, rank: Rank, cause: Self) -> Self {
        let exit = cause.exit().filter(|exit| exit.is_node_loss()).cloned().unwrap_or(WorkerExit::AgentGone);
        Self::new(ErrorKind::NodeLost, format!("node {node} was lost while its rank {rank} ran the task"))
            .with_source(cause)
            .edit(|inner| inner.exit = Some(exit))
    }

    /// Sets how the workers end, of a node that is lost by this error.
    pub(crate) fn with_exit(self, exit: WorkerExit) -> Self {
        self.edit(|inner| inner.exit = Some(exit))
    }

    /// Takes the exit of the workers from another error, if that error has one.
    pub(crate) fn with_exit_of(self, other: &Self) -> Self {
        match other.exit() {
            Some(exit) => self.with_exit(exit.clone()),
            None => self,
        }
    }

    /// The error of a task that has ended so many workers that it is not retried.
    pub(crate) fn poisoned(task: TaskId, deaths: u32, last: &Self) -> Self {
        let times = if deaths == 1 { "once".to_owned() } else { format!("{deaths} times") };
        Self::new(ErrorKind::Poisoned, format!("task {task} ended its worker {times}, and is not retried"))
            .with_hint(
                "run the payload alone with these arguments, and read the last output of its worker; \
                 `Limits::poison` sets how many workers one task may end",
            )
            .edit(|inner| {
                inner.exit = last.exit().cloned();
                inner.last_lines.clone_from(&last.0.last_lines);
                inner.stacks.clone_from(&last.0.stacks);
            })
    }

    /// Adds what the worker of this rank has written last on standard error.
    pub(crate) fn with_last_words(self, rank: Rank, words: &LastWords) -> Self {
        let error = match words.lines.is_empty() {
            true => self,
            false => self.edit(|inner| inner.last_lines = Some(Arc::clone(&words.lines))),
        };
        match words.stacks.is_empty() {
            true => error,
            false => error.with_stacks(vec![RankStacks::new(rank, &words.stacks, MOST_STACKS)]),
        }
    }

    /// The error of a gang that made no progress for this time, with the stacks of its ranks.
    pub(crate) fn stalled(silent: Duration, stacks: Vec<RankStacks>) -> Self {
        Self::new(ErrorKind::Stalled, silence(silent, &stacks))
            .with_hint(
                "a rank that never enters a collective operation blocks all other ranks in it; \
                 a payload that computes for long without output reports progress with `sky.progress()`; \
                 a larger `Limits::stall` allows more time",
            )
            .with_stacks(stacks)
    }

    /// Adds how each try ended.
    pub(crate) fn with_tries(self, tries: Vec<Try>) -> Self {
        self.edit(|inner| inner.tries = tries)
    }

    /// Adds why not everything that was started is confirmed gone, if that is so.
    #[must_use]
    pub(crate) fn with_left(self, ended: Result<()>) -> Self {
        match ended {
            Ok(()) => self,
            Err(left) => self.with_context("cleanup", left),
        }
    }

    /// Marks the error as temporary: a retry may help. [`is_temporary`](Self::is_temporary) reports it.
    #[must_use]
    pub fn temporary(self) -> Self {
        self.edit(|inner| inner.temporary = true)
    }

    /// Adds what to do next, as a full sentence or a command.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        self.edit(|inner| inner.hint = Some(hint.into()))
    }

    /// Adds a fact, such as `node` or `path`.
    #[must_use]
    pub fn with_context(self, key: &'static str, value: impl fmt::Display) -> Self {
        self.edit(|inner| inner.context.push((key, value.to_string())))
    }

    /// Adds the cause. The message does not repeat the cause, because what prints an error prints
    /// its causes too.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        #[cfg(test)]
        {
            let cause = source.to_string();
            assert!(cause.is_empty() || !self.to_string().contains(&cause), "the message repeats its cause: {self}");
        }
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later. The same call after any other error fails again.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::error::{Error, ErrorKind, Refusal};
    ///
    /// let cut = Error::new(ErrorKind::Io, "the connection was cut");
    /// assert!(!cut.is_temporary() && cut.temporary().is_temporary());
    /// assert!(Error::refused(Refusal::Throttled(None), "too many requests").is_temporary());
    /// assert!(!Error::refused(Refusal::Capacity, "no machine is free").is_temporary());
    /// ```
    pub fn is_temporary(&self) -> bool {
        self.0.temporary
    }

    /// The message alone, without facts and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The facts, in the order in which they were added.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }

    /// The Python exception that the payload raised, if it raised one.
    pub fn exception(&self) -> Option<&Exception> {
        self.0.exception.as_ref()
    }

    /// How the worker ended, if its end is the reason of the error.
    pub fn exit(&self) -> Option<&WorkerExit> {
        self.0.exit.as_ref()
    }

    /// Why a provider refused the call, if it refused one.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.0.refusal.as_ref()
    }

    /// How each try at the task ended, including the last one. Empty if there was only one try. At
    /// most the last 16 tries are kept.
    pub fn tries(&self) -> &[Try] {
        &self.0.tries
    }

    /// The last lines that the worker wrote on standard error, if its end is the reason of the
    /// error: at most 20 lines and 4 KiB, without the stacks that Python writes on a fatal signal.
    /// Values of the image's secrets are replaced by their names.
    pub fn last_lines(&self) -> Option<&str> {
        self.0.last_lines.as_deref()
    }

    /// Where Python was:
    ///
    /// - each rank of a gang that made no progress ([`ErrorKind::Stalled`]);
    /// - a task that ran longer than its timeout ([`ErrorKind::Timeout`]), before it was interrupted; of
    ///   a gang, each rank;
    /// - a worker that a fatal signal ended, such as SIGSEGV or SIGABRT ([`WorkerExit::Signal`]); the
    ///   thread that got the signal is the last one. The kernel's SIGKILL leaves no stacks.
    ///
    /// Empty for other errors.
    pub fn stacks(&self) -> &[RankStacks] {
        self.0.stacks.as_deref().unwrap_or_default()
    }

    /// Adds the cause, if there is one.
    pub(crate) fn caused_by(self, cause: Option<Self>) -> Self {
        match cause {
            Some(cause) => self.with_source(cause),
            None => self,
        }
    }

    /// Adds to what to do next.
    pub(crate) fn with_further_hint(self, more: &str) -> Self {
        let hint = self.hint().map_or_else(|| more.to_owned(), |hint| format!("{hint}; {more}"));
        self.with_hint(hint)
    }

    /// Replaces the kind.
    pub(crate) fn with_kind(self, kind: ErrorKind) -> Self {
        self.edit(|inner| inner.kind = kind)
    }

    /// Replaces the message.
    pub(crate) fn with_message(self, message: String) -> Self {
        self.edit(|inner| inner.message = message)
    }

    /// Adds the stacks of each rank.
    pub(crate) fn with_stacks(self, stacks: Vec<RankStacks>) -> Self {
        self.edit(|inner| inner.stacks = Some(stacks.into()))
    }

    /// About how many bytes the texts have, except the last lines, which are few. Of the stacks it
    /// counts the part of one rank, because the ranks of a gang share the stacks.
    pub(crate) fn size(&self) -> usize {
        let exception = self.0.exception.as_ref().map_or(0, |raised| raised.message.len() + raised.traceback.len());
        let stacks: usize = self.stacks().iter().map(|one| one.text.len()).sum();
        self.message().len() + exception + stacks / self.stacks().len().max(1)
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The most bytes of stacks of a worker that has ended.
const MOST_STACKS: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_exit_names_its_signal() {
        let error = Error::worker_exited(Rank(1), WorkerExit::Signal(11));
        assert_eq!(format!("{error:#}"), "the worker of rank 1 was ended by SIGSEGV (signal 11) while it ran the task");
        assert_eq!(error.exit(), Some(&WorkerExit::Signal(11)));
    }
}
