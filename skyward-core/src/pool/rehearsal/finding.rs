//! What a rehearsal has found: which error becomes which finding.

use std::fmt;

use crate::error::{Error, ErrorKind, RankStacks, WorkerExit};
use crate::ids::Rank;

/// Something that a rehearsal has found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Finding {
    /// What sort of thing.
    pub kind: FindingKind,
    /// The ranks that it concerns; empty where it is not about single ranks.
    pub ranks: Vec<Rank>,
    /// What happened, on what.
    pub message: String,
    /// What to do.
    pub hint: String,
    /// The error that it is made of, with traceback, stacks and causes, where there is one.
    pub error: Option<Error>,
}

/// What sort of thing a rehearsal has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The plugins, the image, a mesh or another part of the specification do not fit the pool that
    /// the builder describes, or the rehearsed one. The message says which.
    Refused,
    /// The environment could not be built.
    Environment,
    /// A plugin's hook raised, or did not return in time.
    Hook,
    /// The workers could not be started for another reason.
    Start,
    /// The payload or its arguments are wrong in themselves: no such entry, an argument that cannot be serialised.
    Payload,
    /// The payload raised.
    Raised,
    /// No rank made progress: [`Finding::stacks`] says where each was.
    Stalled,
    /// The call did not return in time.
    Deadline,
    /// A worker was ended because this host was out of memory.
    OutOfMemory,
    /// A worker's process ended while it ran the payload.
    WorkerLost,
    /// What the payload returned cannot be sent, or does not have the shape of the Rust type.
    Result,
    /// Something else failed.
    Other,
    /// Not all of the rehearsed pool is confirmed gone.
    Cleanup,
    /// Not all that the rehearsed pool told could be read, so more may have gone wrong than was found.
    Missed,
    /// The payload ran on several ranks that no plugin joins into one world. A hint: a payload
    /// whose ranks do not talk to each other needs no world.
    NoGang,
    /// No rank made progress for a while, and then they went on. A hint.
    Silence,
}

/// When an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// While the pool was checked that the builder describes.
    Declared,
    /// While the rehearsed pool was checked.
    Rehearsed,
    Start,
    Call,
    End,
}

/// Something that has failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) stage: Stage,
    /// Those that failed with it; empty where nobody knows.
    pub(super) ranks: Vec<Rank>,
    pub(super) error: Error,
}

impl Finding {
    /// Whether it is only worth knowing, and nothing has failed.
    pub fn is_hint(&self) -> bool {
        matches!(self.kind, FindingKind::NoGang | FindingKind::Silence)
    }

    /// Where each rank was, of a finding that knows it.
    pub fn stacks(&self) -> &[RankStacks] {
        self.error.as_ref().map(Error::stacks).unwrap_or_default()
    }
}

/// What failed, each thing once with all the ranks that failed with it, in the order in which it
/// came. `exits` are the ends of workers that were told, the first one first.
pub(super) fn findings(failures: Vec<Failure>, exits: &[(Rank, WorkerExit)]) -> Vec<Finding> {
    let mut groups: Vec<Failure> = Vec::new();
    for mut failure in failures {
        if let Some(remote) = failure.error.remote() {
            // Another rank that was lost with the one that raised fails with the same.
            failure.ranks = vec![remote.rank];
        }
        match groups.iter_mut().find(|group| is_same(group, &failure)) {
            Some(group) => group.ranks.extend(failure.ranks),
            None => groups.push(failure),
        }
    }
    groups.into_iter().map(|group| finding(group, exits)).collect()
}

/// Ranks that raise the same have other numbers in their errors.
fn is_same(one: &Failure, other: &Failure) -> bool {
    let said = |failure: &Failure| match failure.error.remote() {
        Some(remote) => (remote.type_name.clone(), remote.message.clone(), remote.traceback.clone()),
        None => (failure.error.message().to_owned(), String::new(), String::new()),
    };
    // What keeps a pool from being made is told once, where it is the same for both.
    let time = |failure: &Failure| if failure.stage == Stage::Rehearsed { Stage::Declared } else { failure.stage };
    time(one) == time(other) && one.error.kind() == other.error.kind() && said(one) == said(other)
}

fn finding(failure: Failure, exits: &[(Rank, WorkerExit)]) -> Finding {
    let Failure { stage, mut ranks, error } = failure;
    let kind = kind(stage, &error);
    let mut ended = exits.iter().filter(|(_, exit)| error.exit() == Some(exit)).map(|(rank, _)| *rank);
    // All ranks of its world fail with the end of one worker; without a world each has its own.
    if let (Some(first), false) = (ended.next(), ranks.len() == 1 && exits.iter().any(|(rank, _)| *rank == ranks[0])) {
        ranks = vec![first];
    }
    ranks.sort();
    ranks.dedup();
    let message = match (stage, error.remote()) {
        (_, Some(remote)) if !ranks.is_empty() => {
            let where_ = of_ranks(&ranks);
            format!("the payload raised {} on {where_}: {}", remote.type_name, remote.message.trim_end())
        }
        (Stage::Declared, _) => format!("the pool would be refused before anything starts: {}", stated(&error)),
        (Stage::Rehearsed, _) => format!("the rehearsal is refused before anything starts: {}", stated(&error)),
        (Stage::Start, _) => format!("the rehearsed pool did not start: {}", stated(&error)),
        (Stage::End, _) => format!("the rehearsed pool did not end: {}", stated(&error)),
        (Stage::Call, _) => stated(&error),
    };
    let hint = hint(kind, stage, &error);
    Finding { kind, ranks, message, hint, error: Some(error) }
}

/// The kind of finding that an error is.
fn kind(stage: Stage, error: &Error) -> FindingKind {
    match (stage, error.kind()) {
        (Stage::Declared | Stage::Rehearsed, _) => FindingKind::Refused,
        (Stage::End, _) => FindingKind::Cleanup,
        _ if error.exit() == Some(&WorkerExit::OutOfMemory) => FindingKind::OutOfMemory,
        (_, ErrorKind::Environment | ErrorKind::Bootstrap) => FindingKind::Environment,
        (_, ErrorKind::Hook) => FindingKind::Hook,
        (_, ErrorKind::Remote) => FindingKind::Raised,
        (_, ErrorKind::Stalled) => FindingKind::Stalled,
        (_, ErrorKind::Timeout | ErrorKind::QueueTimeout) => FindingKind::Deadline,
        (_, ErrorKind::WorkerExited | ErrorKind::NodeLost | ErrorKind::Poisoned) => FindingKind::WorkerLost,
        (_, ErrorKind::Encode | ErrorKind::Decode) => FindingKind::Result,
        (_, ErrorKind::Payload | ErrorKind::Argument) => FindingKind::Payload,
        (_, ErrorKind::InvalidSpec | ErrorKind::Plugins) => FindingKind::Refused,
        (Stage::Start, _) => FindingKind::Start,
        _ => FindingKind::Other,
    }
}

/// What to do about it: what the error says where it knows best, and what this means for a rehearsal.
fn hint(kind: FindingKind, stage: Stage, error: &Error) -> String {
    let module = error.remote().is_some_and(|remote| remote.type_name == "ModuleNotFoundError");
    let own = match kind {
        FindingKind::Refused if stage == Stage::Rehearsed => {
            "a rehearsal has one worker on each of its nodes, no accelerator, and for JAX so many CPU devices in \
             each worker as you say: choose ranks and devices that the plugins can serve, such as a mesh with as \
             many places"
        }
        FindingKind::Raised if module => {
            "add the package to the image, `.pip([…])`, or declare the payload, `.payload::<…>()`, so that the \
             dependencies in its `# /// script` block are installed"
        }
        FindingKind::Raised => {
            "the traceback says where; a rank that raises leaves the others in their next collective"
        }
        FindingKind::Stalled => {
            "compare where the ranks were: all must reach the same collectives in the same order, the same number \
             of times; a payload that computes in silence says that it goes on with `sky.progress()`; \
             `RehearsalLimits::stall` gives more time"
        }
        FindingKind::Deadline => {
            "rehearse a few steps of little data; `RehearsalLimits::call` gives the call more time, and \
             `RehearsalLimits::start` the start"
        }
        FindingKind::OutOfMemory => {
            "all ranks share the memory of this host: rehearse with fewer ranks, or with a smaller model and \
             batch"
        }
        FindingKind::WorkerLost => {
            "what the worker wrote last says why: `.terminal(Terminal::auto())` shows it, and `tracing` has it \
             with the target `skyward::output`"
        }
        FindingKind::Result => "make the Rust type fit what the payload returns, or return what fits it",
        FindingKind::Cleanup => "what is left ends by its lease; `skyward::reap()` ends it now",
        _ => "mend it, and rehearse again",
    };
    match (kind, error.hint()) {
        // A bound of the call's own is another one than the rehearsal's.
        (FindingKind::Deadline, Some(said)) if stage == Stage::Call => said.to_owned(),
        // What it says of the pool's own limits does not hold here.
        (FindingKind::Stalled | FindingKind::Deadline | FindingKind::OutOfMemory, _) | (_, None) => own.to_owned(),
        (FindingKind::Refused, Some(said)) if stage == Stage::Rehearsed => format!("{said}\n{own}"),
        (_, Some(said)) => said.to_owned(),
    }
}

/// Message and facts.
fn stated(error: &Error) -> String {
    format!("{}{}", error.message(), error.facts())
}

/// `rank 1`, `ranks 0, 2`, `ranks 0 to 7`.
pub(super) fn of_ranks(ranks: &[Rank]) -> String {
    match ranks {
        [one] => format!("rank {one}"),
        [first, .., last] if ranks.len() > 2 && (last.0 - first.0) as usize == ranks.len() - 1 => {
            format!("ranks {first} to {last}")
        }
        _ => format!("ranks {}", ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Environment => "environment",
            Self::Hook => "hook",
            Self::Start => "start",
            Self::Payload => "payload",
            Self::Raised => "raised",
            Self::Stalled => "stalled",
            Self::Deadline => "deadline",
            Self::OutOfMemory => "out of memory",
            Self::WorkerLost => "worker lost",
            Self::Result => "result",
            Self::Other => "other",
            Self::Cleanup => "cleanup",
            Self::Missed => "missed",
            Self::NoGang => "no gang",
            Self::Silence => "silence",
        })
    }
}

/// One line of what it is about, then what the error has to say, then what to do.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if !self.ranks.is_empty() {
            write!(f, ", {}", of_ranks(&self.ranks))?;
        }
        write!(f, ": {}", self.message)?;
        // Each of its lines follows a line's end.
        f.write_str(&self.error.as_ref().map(Error::details).unwrap_or_default())?;
        write!(f, "\nhint: {}", self.hint)
    }
}

#[cfg(test)]
mod tests;
