//! The error type of the whole crate: what was tried, on what, why it failed, what to do next.

mod cause;
mod exit;
mod refusal;
mod stacks;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use cause::{Cause, Try};
pub use exit::WorkerExit;
pub use refusal::Refusal;
pub use stacks::RankStacks;
pub(crate) use stacks::{Listed, silence};

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
    status: ErrorStatus,
    message: String,
    context: Vec<(&'static str, String)>,
    hint: Option<String>,
    exception: Option<Exception>,
    exit: Option<WorkerExit>,
    refusal: Option<Refusal>,
    tries: Vec<Try>,
    /// May be long, so the errors of a gang's members share them.
    stacks: Option<Arc<[RankStacks]>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The kind of an error; match on it to react.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The specification is invalid: zero nodes, an unknown accelerator, a contradiction. Reported
    /// before anything starts.
    InvalidSpec,
    /// The plugins do not fit together: a wrong order, a duplicate, a missing requirement, a
    /// conflict. Reported before anything starts.
    Plugins,
    /// The payload itself is invalid: the entry does not exist, a file is missing, or the payload
    /// is larger than a frame may be.
    Payload,
    /// An argument could not be serialised; nothing was sent.
    Argument,
    /// A value cannot be converted to its wire form, such as the Python value that the payload
    /// returned.
    Encode,
    /// The result arrived, but does not fit the Rust type.
    Decode,
    /// The payload raised an exception; see [`Error::exception`].
    Raised,
    /// The worker process ended while it ran the task; see [`Error::exit`].
    WorkerExited,
    /// A node of the pool was lost: its agent or its machine is gone.
    NodeLost,
    /// The task ended its worker repeatedly and is not retried any more; see [`Error::tries`].
    Poisoned,
    /// The gang made no progress for longer than [`Limits::stall`](crate::spec::Limits::stall)
    /// allows; see [`Error::stacks`].
    Stalled,
    /// The task waited in the queue for longer than its limit, and was not started.
    QueueTimeout,
    /// The environment (interpreter, packages) could not be built.
    Environment,
    /// A machine could not be made ready.
    Bootstrap,
    /// A host did not prove its identity: its host key is not the expected one.
    HostKey,
    /// A host refused the client's login.
    Login,
    /// A provider refused or failed; see [`Error::refusal`].
    Provider,
    /// The pool's [`Budget`](crate::spec::Budget) is spent, or a launch would exceed it.
    Budget,
    /// A plugin's hook raised an exception or did not return in time.
    Hook,
    /// Not all machines or workers became ready in time.
    Start,
    /// A deadline passed.
    Timeout,
    /// The task was cancelled.
    Cancelled,
    /// The pool is shutting down, or has shut down.
    Closed,
    /// The node, rank or other item that was named does not exist.
    NotFound,
    /// A provider is not the one on record: another engine at the same path, another machine.
    Identity,
    /// The node sent an answer that violates the protocol.
    Protocol,
    /// The operating system refused something on this host.
    Io,
    /// The ledger could not be written, and nothing was started without a record; or the ledger
    /// could not be read.
    Ledger,
}

/// Whether a retry may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorStatus {
    /// The same call may succeed later.
    Temporary,
    /// The same call will fail again.
    Permanent,
}

/// An exception that the payload raised, as Python reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// An error that is [`ErrorStatus::Permanent`]. The message says what was tried and why it
    /// failed, and begins with a lower-case letter.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            status: ErrorStatus::Permanent,
            message: message.into(),
            context: Vec::new(),
            hint: None,
            exception: None,
            exit: None,
            refusal: None,
            tries: Vec::new(),
            stacks: None,
            source: None,
        }))
    }

    /// The error of a provider that refused a call and started nothing. It is
    /// [`ErrorStatus::Temporary`] for [`Refusal::Throttled`], and permanent otherwise.
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
            .edit(|inner| inner.exit = last.exit().cloned())
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

    /// Marks the error as [`ErrorStatus::Temporary`]: a retry may help.
    #[must_use]
    pub fn temporary(self) -> Self {
        self.edit(|inner| inner.status = ErrorStatus::Temporary)
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

    /// Whether a retry may help.
    pub fn status(&self) -> ErrorStatus {
        self.0.status
    }

    /// The message alone, without facts and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// One line: the message and facts of this error, then those of each cause after a `: `, for
    /// a log that shows no [`source`](std::error::Error::source).
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::error::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Io, "cannot read the settings")
    ///     .with_context("path", "/x")
    ///     .with_source(std::io::Error::other("disk on fire"));
    /// assert_eq!(error.to_string(), "cannot read the settings (path: /x)");
    /// assert_eq!(error.summary(), "cannot read the settings (path: /x): disk on fire");
    /// ```
    pub fn summary(&self) -> String {
        let mut text = self.to_string();
        text.extend(self.causes().map(|cause| format!(": {}", cause.to_string().lines().next().unwrap_or_default())));
        text
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

    /// The stacks of each rank of a gang that made no progress ([`ErrorKind::Stalled`]); empty for
    /// other errors.
    pub fn stacks(&self) -> &[RankStacks] {
        self.0.stacks.as_deref().unwrap_or_default()
    }

    /// The facts in brackets, after a space; empty if there are none.
    pub(crate) fn facts(&self) -> String {
        let facts: Vec<_> = self.0.context.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) }
    }

    /// Traceback, stacks and tries. Each line begins with a line break.
    fn particulars(&self) -> String {
        let mut text = match &self.0.exception {
            Some(exception) if !exception.traceback.is_empty() => format!("\n{}", exception.traceback.trim_end()),
            _ => String::new(),
        };
        text += &Listed(self.stacks()).to_string();
        text.extend(self.0.tries.iter().map(|one| format!("\n{one}")));
        text
    }

    /// The particulars and the chain of causes.
    pub(crate) fn details(&self) -> String {
        let mut text = self.particulars();
        text.extend(self.causes().map(|cause| format!("\ncaused by: {cause:#}")));
        text
    }

    /// The chain of causes, beginning with the source.
    fn causes(&self) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
        std::iter::successors(std::error::Error::source(self), |cause| cause.source())
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

    /// About how many bytes the texts have. Of the stacks it counts the part of one rank, because
    /// the ranks of a gang share the stacks.
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

/// One line: the message, and the facts in brackets. With `{:#}` also traceback, stacks, tries and
/// hint, each on lines of its own.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            let line = self.0.message.lines().next().unwrap_or_default();
            return write!(f, "{line}{}", self.facts().replace('\n', " "));
        }
        write!(f, "{}{}{}", self.0.message, self.facts(), self.particulars())?;
        if let Some(hint) = &self.0.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// Like `Display` with `{:#}`, and the chain of causes. `fn main() -> skyward::Result<()>` prints
/// this text.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")?;
        self.causes().try_for_each(|cause| write!(f, "\ncaused by: {cause:#}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_shows_the_first_line_of_a_message_of_several_lines() {
        let error =
            Error::new(ErrorKind::Hook, "entering the hook failed\nTraceback:\n  x").with_context("last", "a\nb");
        assert_eq!(error.to_string(), "entering the hook failed (last: a b)");
        assert_eq!(format!("{error:#}"), "entering the hook failed\nTraceback:\n  x (last: a\nb)");
    }

    #[test]
    fn display_is_one_line_alternate_adds_the_hint_and_debug_the_causes() {
        let error = Error::new(ErrorKind::Io, "cannot read the file")
            .with_context("path", "/x")
            .with_source(std::io::Error::other("disk on fire"))
            .with_hint("put it out");
        assert_eq!(error.to_string(), "cannot read the file (path: /x)");
        assert_eq!(format!("{error:#}"), "cannot read the file (path: /x)\nhint: put it out");
        assert!(format!("{error:?}").ends_with("caused by: disk on fire"));
    }

    #[test]
    fn a_worker_exit_names_its_signal() {
        let error = Error::worker_exited(Rank(1), WorkerExit::Signal(11));
        assert_eq!(format!("{error:#}"), "the worker of rank 1 was ended by SIGSEGV (signal 11) while it ran the task");
        assert_eq!(error.exit(), Some(&WorkerExit::Signal(11)));
    }
}
