//! Turns the errors of a rehearsal into findings, each with a kind, the ranks that it concerns, and
//! a hint.

use std::fmt;

use crate::error::{Error, ErrorKind, RankStacks, WorkerExit};
use crate::ids::Rank;

/// A problem or a hint that a rehearsal has found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Finding {
    /// What kind of finding it is.
    pub kind: FindingKind,
    /// The ranks that the finding concerns; empty if it does not concern particular ranks.
    pub ranks: Vec<Rank>,
    /// What happened, and where.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// The error behind the finding, with traceback, stacks and causes; `None` if there is none.
    pub error: Option<Error>,
}

/// What kind of finding it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The plugins, the image, a mesh or another part of the specification do not fit the pool that
    /// the builder describes, or the rehearsed pool. The message says which of the two.
    Refused,
    /// The environment could not be built.
    Environment,
    /// A plugin's hook raised an exception, or did not return in time.
    Hook,
    /// The workers could not be started for another reason.
    Start,
    /// The payload or its arguments are wrong: no such entry function, or an argument that cannot
    /// be serialised.
    Payload,
    /// The payload raised an exception.
    Raised,
    /// No rank made progress: [`Finding::stacks`] shows where each rank was.
    Stalled,
    /// The call did not return in time.
    Deadline,
    /// A worker was killed because this host was out of memory.
    OutOfMemory,
    /// A worker's process ended while it ran the payload.
    WorkerLost,
    /// What the payload returned cannot be sent, or does not have the shape of the Rust type.
    Result,
    /// Something that the payload or a plugin asked of a framework had no effect, and the framework
    /// raised no error: a layout of Keras whose pattern matched no variable.
    NoEffect,
    /// Something else failed.
    Other,
    /// Some machines of the rehearsed pool are not confirmed gone.
    Cleanup,
    /// Not all events of the rehearsed pool could be read, so there may be problems that are not
    /// among the findings.
    Missed,
    /// The payload ran on several ranks that no plugin joins into one world. This is a hint: a
    /// payload whose ranks do not communicate needs no world.
    NoGang,
    /// No rank made progress for a while, and then the ranks went on. This is a hint.
    Silence,
}

/// When an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// While the pool that the builder describes was checked.
    Declared,
    /// While the rehearsed pool was checked.
    Rehearsed,
    Start,
    Call,
    End,
}

/// An error of a rehearsal, with the time and the ranks at which it occurred.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) stage: Stage,
    /// The ranks that failed with the error; empty if they are not known.
    pub(super) ranks: Vec<Rank>,
    pub(super) error: Error,
}

impl Finding {
    /// Whether the finding is only a hint, so that nothing has failed.
    pub fn is_hint(&self) -> bool {
        matches!(self.kind, FindingKind::NoGang | FindingKind::Silence)
    }

    /// Where each rank was; empty if the finding has no stacks.
    pub fn stacks(&self) -> &[RankStacks] {
        self.error.as_ref().map(Error::stacks).unwrap_or_default()
    }
}

/// Makes findings of failures: equal failures become one finding with all the ranks that failed so.
/// The findings are in the order in which the failures occurred. `exits` are the ends of workers
/// that were reported, the first one first.
pub(super) fn findings(failures: Vec<Failure>, exits: &[(Rank, WorkerExit)]) -> Vec<Finding> {
    let mut groups: Vec<Failure> = Vec::new();
    for mut failure in failures {
        if let Some(exception) = failure.error.exception() {
            // A rank that was lost because another rank raised fails with the same exception.
            failure.ranks = vec![exception.rank];
        }
        match groups.iter_mut().find(|group| is_same(group, &failure)) {
            Some(group) => {
                group.ranks.extend(failure.ranks);
                let (stacks, more) = (group.error.stacks(), failure.error.stacks());
                if stacks != more {
                    group.error = group.error.clone().with_stacks([stacks, more].concat());
                }
            }
            None => groups.push(failure),
        }
    }
    groups.into_iter().map(|group| finding(group, exits)).collect()
}

/// Whether two failures are the same failure, on different ranks. The errors of ranks that raise
/// the same exception differ in their rank numbers.
fn is_same(one: &Failure, other: &Failure) -> bool {
    let content = |failure: &Failure| match failure.error.exception() {
        Some(exception) => (exception.type_name.clone(), exception.message.clone(), exception.traceback.clone()),
        None => (failure.error.message().to_owned(), String::new(), String::new()),
    };
    // If the real pool and the rehearsed pool are refused with the same error, it is reported once.
    let time = |failure: &Failure| if failure.stage == Stage::Rehearsed { Stage::Declared } else { failure.stage };
    time(one) == time(other) && one.error.kind() == other.error.kind() && content(one) == content(other)
}

fn finding(failure: Failure, exits: &[(Rank, WorkerExit)]) -> Finding {
    let Failure { stage, mut ranks, error } = failure;
    let kind = kind(stage, &error);
    let mut ended = exits.iter().filter(|(_, exit)| error.exit() == Some(exit)).map(|(rank, _)| *rank);
    // All ranks of a world fail when one of its workers ends; without a world, each rank has its
    // own exit.
    if let (Some(first), false) = (ended.next(), ranks.len() == 1 && exits.iter().any(|(rank, _)| *rank == ranks[0])) {
        ranks = vec![first];
    }
    ranks.sort();
    ranks.dedup();
    let message = match (stage, error.exception()) {
        (_, Some(exception)) if !ranks.is_empty() => {
            let where_ = of_ranks(&ranks);
            format!("the payload raised {} on {where_}: {}", exception.type_name, exception.message.trim_end())
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

/// The kind of finding that an error becomes.
fn kind(stage: Stage, error: &Error) -> FindingKind {
    match (stage, error.kind()) {
        (Stage::Declared | Stage::Rehearsed, _) => FindingKind::Refused,
        (Stage::End, _) => FindingKind::Cleanup,
        _ if error.exit() == Some(&WorkerExit::OutOfMemory) => FindingKind::OutOfMemory,
        (_, ErrorKind::Environment | ErrorKind::Bootstrap) => FindingKind::Environment,
        (_, ErrorKind::Hook) => FindingKind::Hook,
        (_, ErrorKind::Raised) => FindingKind::Raised,
        (_, ErrorKind::Stalled) => FindingKind::Stalled,
        (_, ErrorKind::Timeout | ErrorKind::QueueTimeout) => FindingKind::Deadline,
        (_, ErrorKind::WorkerExited | ErrorKind::NodeLost | ErrorKind::Poisoned | ErrorKind::Failed) => {
            FindingKind::WorkerLost
        }
        (_, ErrorKind::Encode | ErrorKind::Decode) => FindingKind::Result,
        (_, ErrorKind::Payload | ErrorKind::Argument) => FindingKind::Payload,
        (_, ErrorKind::InvalidSpec | ErrorKind::Plugins) => FindingKind::Refused,
        (Stage::Start, _) => FindingKind::Start,
        _ => FindingKind::Other,
    }
}

/// What to do about a finding: the error's own hint where it is the better one, otherwise, or in
/// addition, a hint for rehearsals.
fn hint(kind: FindingKind, stage: Stage, error: &Error) -> String {
    let own = match kind {
        FindingKind::Refused if stage == Stage::Rehearsed => {
            "a rehearsal has one worker on each node, no accelerator, and for JAX the number of CPU devices in \
             each worker that you set: choose ranks and devices that the plugins can serve, such as a mesh with as \
             many places as devices"
        }
        FindingKind::Raised => {
            "the traceback shows where; when a rank raises, the other ranks wait in their next collective"
        }
        FindingKind::Stalled => {
            "compare where the ranks were: all must reach the same collectives, in the same order and the same \
             number of times; a payload that computes without output reports progress with `sky.progress()`; \
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
            "the last output of the worker shows why: `.terminal(Terminal::auto())` shows it, and `tracing` has it \
             with the target `skyward::output`"
        }
        FindingKind::Result => "make the Rust type fit what the payload returns, or return what fits it",
        FindingKind::Cleanup => "the leases end what is left; `skyward::reap()` ends it now",
        _ => "fix the problem and rehearse again",
    };
    match (kind, error.hint()) {
        // The call can have a timeout of its own; then the error's hint names the right limit.
        (FindingKind::Deadline, Some(hint)) if stage == Stage::Call => hint.to_owned(),
        // The error's hint names limits of the real pool, which do not apply here.
        (FindingKind::Stalled | FindingKind::Deadline | FindingKind::OutOfMemory, _) | (_, None) => own.to_owned(),
        (FindingKind::Refused, Some(hint)) if stage == Stage::Rehearsed => format!("{hint}\n{own}"),
        (_, Some(hint)) => hint.to_owned(),
    }
}

/// The error's message and its facts.
fn stated(error: &Error) -> String {
    format!("{}{}", error.message(), error.facts())
}

/// Formats ranks: `rank 1`, `ranks 0, 2`, `ranks 0 to 7`.
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
            Self::NoEffect => "no effect",
            Self::Other => "other",
            Self::Cleanup => "cleanup",
            Self::Missed => "missed",
            Self::NoGang => "no gang",
            Self::Silence => "silence",
        })
    }
}

/// One line with kind, ranks and message, then the details of the error, then the hint.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if !self.ranks.is_empty() {
            write!(f, ", {}", of_ranks(&self.ranks))?;
        }
        write!(f, ": {}", self.message)?;
        // The details are empty, or begin with a line break.
        f.write_str(&self.error.as_ref().map(Error::details).unwrap_or_default())?;
        write!(f, "\nhint: {}", self.hint)
    }
}

#[cfg(test)]
mod tests;
