//! What a provider says of a machine.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Place;

/// What a provider says of a machine.
///
/// ```
/// use skyward_core::provider::{MachineReport, MachineState, Place, Reason};
///
/// let there = MachineReport::new(MachineState::Running).at(Place::new("10.0.0.7", "/skyward/node"));
/// let queued = MachineReport::new(MachineState::Queued).saying("PENDING (Resources), starts 14:00");
/// let gone = MachineReport::new(MachineState::Gone).because(Reason::Preempted);
/// assert!(there.place.is_some() && queued.words.is_some() && gone.reason == Some(Reason::Preempted));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineReport {
    /// Where it is in its life.
    pub state: MachineState,
    /// Why it is ending or gone, where the provider says so; of a machine that runs, why it will end.
    pub reason: Option<Reason>,
    /// The provider's own words about its state, for people.
    pub words: Option<String>,
    /// After which time the provider ends it, where that is known: the notice of a preemption, with that [reason](Self::reason), or a time limit that the machine was bought with.
    pub ends_in: Option<Duration>,
    /// Where it is, once it runs: [`connect`](super::Provider::connect) may be tried from then on.
    pub place: Option<Place>,
}

/// Where a machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MachineState {
    /// It cannot be said now, because what knows the machine cannot be asked. Nothing is concluded from it.
    Unknown,
    /// Bought, and not begun: a batch system holds it back.
    Queued,
    /// On its way in; not reachable yet.
    Starting,
    /// There.
    Running,
    /// On its way out.
    Ending,
    /// On its way out for good, and nothing is paid for it any more. What it used may still be held.
    Released,
    /// No longer there, and nothing of it left.
    Gone,
}

/// Why a machine ends, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// Somebody asked for its end: this client, or a person.
    Asked,
    /// The provider took it back.
    Preempted,
    /// It failed, or could not be started.
    Failed,
    /// The time for which it was bought, or its lease, is over.
    Expired,
}

impl MachineReport {
    /// A report of this state, which says nothing else.
    pub fn new(state: MachineState) -> Self {
        Self { state, reason: None, words: None, ends_in: None, place: None }
    }

    /// Adds where the machine is.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Adds why it is ending or gone.
    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Adds after which time the provider ends it.
    #[must_use]
    pub fn ends_in(mut self, ends_in: Duration) -> Self {
        self.ends_in = Some(ends_in);
        self
    }

    /// Adds the provider's own words.
    #[must_use]
    pub fn saying(mut self, words: impl Into<String>) -> Self {
        self.words = Some(words.into());
        self
    }
}

impl MachineState {
    /// Whether the machine is on its way out, or gone.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Ending | Self::Released | Self::Gone)
    }

    /// Whether nothing is paid for it any more.
    pub fn is_released(self) -> bool {
        matches!(self, Self::Released | Self::Gone)
    }
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Released => "released",
            Self::Gone => "gone",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "its end was asked for",
            Self::Preempted => "it was preempted",
            Self::Failed => "it failed",
            Self::Expired => "its time is over",
        })
    }
}

/// The state, with the reason and the provider's words where they are known.
impl fmt::Display for MachineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, reason, words, .. } = self;
        write!(f, "{state}")?;
        if let Some(reason) = reason {
            write!(f, ", because {reason}")?;
        }
        match words {
            Some(words) => write!(f, ": {words}"),
            None => Ok(()),
        }
    }
}
