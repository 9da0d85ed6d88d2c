//! The one error type: what was tried, on what, why it failed, what to do next.

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

/// What a Skyward operation failed with.
///
/// `Display` shows what went wrong, on what, and what to do next; [`source`](std::error::Error::source) has the cause. An error is cheap to clone, so that every
/// waiter of one failure gets the same error.
///
/// ```
/// use skyward_core::error::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::InvalidSpec, "the pool has 0 nodes").with_hint("ask for at least 1: `.nodes(1)`");
/// assert_eq!(error.kind(), ErrorKind::InvalidSpec);
/// assert_eq!(error.to_string(), "the pool has 0 nodes\nhint: ask for at least 1: `.nodes(1)`");
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
    remote: Option<RemoteError>,
    exit: Option<WorkerExit>,
    refusal: Option<Refusal>,
    tries: Vec<Try>,
    /// Shared by the errors of a gang's members, as they may be long.
    stacks: Option<Arc<[RankStacks]>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What sort of thing failed; match on it to react.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for cannot be: zero nodes, an unknown accelerator, a contradiction. Found before anything starts.
    InvalidSpec,
    /// The plugins do not fit together: a wrong order, a duplicate, a missing requirement, a conflict. Found before anything starts.
    Plugins,
    /// The payload itself is wrong: no such entry, a file is missing, it is larger than a frame may be.
    Payload,
    /// An argument could not be serialised; nothing was sent.
    Argument,
    /// The Python value that the payload returned cannot be converted for the way back.
    Encode,
    /// The result arrived but does not have the shape of the Rust type.
    Decode,
    /// The payload raised; see [`Error::remote`].
    Remote,
    /// The worker process ended while it ran the task; see [`Error::exit`].
    WorkerExited,
    /// A node of the pool was lost: its agent or its machine is gone.
    NodeLost,
    /// The task has ended its worker again and again, and is not tried any more; see [`Error::tries`].
    Poisoned,
    /// The gang made no progress for as long as it may.
    Stalled,
    /// The task waited in the queue for longer than it may, and was not started.
    QueueTimeout,
    /// The environment (interpreter, packages) could not be built.
    Environment,
    /// A machine could not be made ready.
    Bootstrap,
    /// A host does not prove that it is the one that is meant.
    HostKey,
    /// A host does not let the client in.
    Login,
    /// A provider refused or failed.
    Provider,
    /// What the pool may cost is spent, or would be; see [`Budget`](crate::spec::Budget).
    Budget,
    /// A plugin's hook raised or did not return in time.
    Hook,
    /// The workers did not all come up in time.
    Start,
    /// A deadline passed.
    Timeout,
    /// The task was cancelled.
    Cancelled,
    /// The pool is shutting down, or has.
    Closed,
    /// Something that was named does not exist: a rank, a node.
    NotFound,
    /// A provider is another one than the one on record: another engine at the same path, another machine.
    Identity,
    /// The node answered something that it should not have.
    Protocol,
    /// The operating system refused something on this host.
    Io,
    /// What is started could not be recorded, and so was not started; or what was left behind could not be read.
    Ledger,
}

/// Whether trying again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorStatus {
    /// The same call may succeed later.
    Temporary,
    /// The same call will fail again.
    Permanent,
}

/// An exception that the payload raised, as Python told it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteError {
    /// The exception's class, with its module unless that is `builtins`: `ValueError`, `numpy.linalg.LinAlgError`.
    pub type_name: String,
    /// `str(exception)`.
    pub message: String,
    /// Python's traceback, from the payload's first frame, with the payload's own file names and line numbers.
    pub traceback: String,
    /// The node that ran it.
    pub node: NodeIndex,
    /// The rank that ran it.
    pub rank: Rank,
}

impl Error {
    /// An error that is [`ErrorStatus::Permanent`], with a lower-case message that says what was tried and why it failed.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            status: ErrorStatus::Permanent,
            message: message.into(),
            context: Vec::new(),
            hint: None,
            remote: None,
            exit: None,
            refusal: None,
            tries: Vec::new(),
            stacks: None,
            source: None,
        }))
    }

    /// The error of a provider that refused a call and started nothing; [`ErrorStatus::Temporary`] where it is throttled.
    pub fn refused(refusal: Refusal, message: impl Into<String>) -> Self {
        let error = Self::new(ErrorKind::Provider, message);
        let throttled = matches!(refusal, Refusal::Throttled(_));
        let error = error.edit(|inner| inner.refusal = Some(refusal));
        if throttled { error.temporary() } else { error }
    }

    /// The error of a payload that raised.
    pub fn remote_error(remote: RemoteError) -> Self {
        let message =
            format!("the payload raised {} on rank {}: {}", remote.type_name, remote.rank, remote.message.trim_end());
        Self::new(ErrorKind::Remote, message).edit(|inner| inner.remote = Some(remote))
    }

    /// The error of a task whose worker ended; [`ErrorKind::NodeLost`] where it was lost with its node.
    pub fn worker_exited(rank: Rank, exit: WorkerExit) -> Self {
        let kind = if exit.is_node_loss() { ErrorKind::NodeLost } else { ErrorKind::WorkerExited };
        let error = Self::new(kind, format!("the worker of rank {rank} {exit} while it ran the task"));
        let error = match exit.hint() {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
        error.edit(|inner| inner.exit = Some(exit))
    }

    /// The error of a task that ran on a node that was lost. How its worker ended is what the cause says, or else that its agent is gone.
    pub fn node_lost(node: NodeIndex, rank: Rank, cause: Self) -> Self {
        let exit = cause.exit().filter(|exit| exit.is_node_loss()).cloned().unwrap_or(WorkerExit::AgentGone);
        Self::new(ErrorKind::NodeLost, format!("node {node} was lost while its rank {rank} ran the task"))
            .with_source(cause)
            .edit(|inner| inner.exit = Some(exit))
    }

    /// Says how the workers of a node end by what is lost.
    pub(crate) fn with_exit(self, exit: WorkerExit) -> Self {
        self.edit(|inner| inner.exit = Some(exit))
    }

    /// The same end of the workers as another error says, if it says one.
    pub(crate) fn with_exit_of(self, other: &Self) -> Self {
        match other.exit() {
            Some(exit) => self.with_exit(exit.clone()),
            None => self,
        }
    }

    /// The error of a task that has ended its worker so often that it is not tried again.
    pub(crate) fn poisoned(task: TaskId, deaths: u32, last: &Self) -> Self {
        let times = if deaths == 1 { "once".to_owned() } else { format!("{deaths} times") };
        Self::new(ErrorKind::Poisoned, format!("task {task} ended its worker {times}, and is not tried again"))
            .with_hint("run the payload with these arguments by itself, and read what its worker wrote last; `Limits::poison` says how many workers one task may end")
            .edit(|inner| inner.exit = last.exit().cloned())
    }

    /// The error of a gang that made no progress for so long, with where its ranks were.
    pub(crate) fn stalled(silent: Duration, stacks: Vec<RankStacks>) -> Self {
        Self::new(ErrorKind::Stalled, silence(silent, &stacks))
            .with_hint("a rank that never reaches a collective keeps all others in it; a payload that computes in silence says that it goes on with `sky.progress()`; `Limits::stall` gives more time")
            .with_stacks(stacks)
    }

    /// Adds how each try ended.
    pub(crate) fn with_tries(self, tries: Vec<Try>) -> Self {
        self.edit(|inner| inner.tries = tries)
    }

    /// Says that trying again may help.
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

    /// Adds the cause.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// What sort of thing failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether trying again may help.
    pub fn status(&self) -> ErrorStatus {
        self.0.status
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

    /// The Python exception, if that is what it was.
    pub fn remote(&self) -> Option<&RemoteError> {
        self.0.remote.as_ref()
    }

    /// How the worker ended, if that is what it was.
    pub fn exit(&self) -> Option<&WorkerExit> {
        self.0.exit.as_ref()
    }

    /// Why a provider refused, if that is what it was.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.0.refusal.as_ref()
    }

    /// How each try at the task ended, the last one included; empty where there was one try alone. Of many tries the last 16 are kept.
    pub fn tries(&self) -> &[Try] {
        &self.0.tries
    }

    /// Where each rank of a gang was that made no progress ([`ErrorKind::Stalled`]); empty for other errors.
    pub fn stacks(&self) -> &[RankStacks] {
        self.0.stacks.as_deref().unwrap_or_default()
    }

    /// The facts in brackets, after a space; nothing where there are none.
    pub(crate) fn facts(&self) -> String {
        let facts: Vec<_> = self.0.context.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) }
    }

    /// Traceback, stacks and tries, each line after a line's end.
    fn particulars(&self) -> String {
        let mut text = match &self.0.remote {
            Some(remote) if !remote.traceback.is_empty() => format!("\n{}", remote.traceback.trim_end()),
            _ => String::new(),
        };
        text += &Listed(self.stacks()).to_string();
        text.extend(self.0.tries.iter().map(|one| format!("\n{one}")));
        text
    }

    /// The same and the chain of causes.
    pub(crate) fn details(&self) -> String {
        let mut text = self.particulars();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text += &format!("\ncaused by: {cause}");
            source = cause.source();
        }
        text
    }

    /// The same with another message.
    pub(crate) fn with_message(self, message: String) -> Self {
        self.edit(|inner| inner.message = message)
    }

    /// Says where each rank was.
    pub(crate) fn with_stacks(self, stacks: Vec<RankStacks>) -> Self {
        self.edit(|inner| inner.stacks = Some(stacks.into()))
    }

    /// About how many bytes its texts have. Of the stacks it counts one rank's part, as each rank has such an error.
    pub(crate) fn size(&self) -> usize {
        let remote = self.0.remote.as_ref().map_or(0, |remote| remote.message.len() + remote.traceback.len());
        let stacks: usize = self.stacks().iter().map(|one| one.text.len()).sum();
        self.message().len() + remote + stacks / self.stacks().len().max(1)
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.0.message, self.facts(), self.particulars())?;
        if let Some(hint) = &self.0.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// Like `Display`, and with the chain of causes: what `fn main() -> skyward::Result<()>` prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            write!(f, "\ncaused by: {cause}")?;
            source = cause.source();
        }
        Ok(())
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
    fn display_shows_facts_and_hint_and_debug_the_causes() {
        let error = Error::new(ErrorKind::Io, "cannot read the file")
            .with_context("path", "/x")
            .with_source(std::io::Error::other("disk on fire"))
            .with_hint("put it out");
        assert_eq!(error.to_string(), "cannot read the file (path: /x)\nhint: put it out");
        assert!(format!("{error:?}").ends_with("caused by: disk on fire"));
    }

    #[test]
    fn a_worker_exit_names_its_signal() {
        let error = Error::worker_exited(Rank(1), WorkerExit::Signal(11));
        assert_eq!(error.to_string(), "the worker of rank 1 was ended by SIGSEGV (signal 11) while it ran the task");
        assert_eq!(error.exit(), Some(&WorkerExit::Signal(11)));
    }
}
