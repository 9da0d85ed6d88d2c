//! What a provider reports about a machine.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Place;

/// What a provider reports about a machine.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::provider::{MachineReport, MachineState, Place, Reason};
///
/// let there = MachineReport::new(MachineState::Running).at(Place::new("10.0.0.7", "/skyward/node"));
/// let queued = MachineReport::new(MachineState::Queued).saying("PENDING (Resources), starts 14:00");
/// let gone = MachineReport::new(MachineState::Gone).because(Reason::Preempted);
/// assert!(there.place.is_some() && queued.words.is_some() && gone.reason == Some(Reason::Preempted));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineReport {
    /// The state of the machine.
    pub state: MachineState,
    /// Why it is ending or gone, where the provider reports that. For a running machine: why it
    /// will end.
    pub reason: Option<Reason>,
    /// The provider's own words about the state, for people.
    pub words: Option<String>,
    /// After which time the provider ends it, where that is known: the notice of a preemption, with
    /// that [reason](Self::reason), or a time limit that the machine was bought with.
    pub ends_in: Option<Duration>,
    /// Where it can be reached, once it runs: the pool tries [`connect`](super::Provider::connect)
    /// from then on.
    pub place: Option<Place>,
}

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MachineState {
    /// Not known now, because what knows the machine cannot be asked. The pool concludes nothing
    /// from it.
    Unknown,
    /// Bought, but held back: a batch system has not started it.
    Queued,
    /// Being started; not reachable yet.
    Starting,
    /// Running.
    Running,
    /// Ending.
    Ending,
    /// Ending for good, and no longer billed. What it used may still be held.
    Released,
    /// No longer there, with nothing of it left.
    Gone,
}

/// Why a machine ends, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// Its end was requested, by this client or by a person.
    Asked,
    /// The provider took it back.
    Preempted,
    /// It failed, or could not be started.
    Failed,
    /// The time for which it was bought, or its lease, is over.
    Expired,
}

impl MachineReport {
    /// Creates a report of this state, without further details.
    pub fn new(state: MachineState) -> Self {
        Self { state, reason: None, words: None, ends_in: None, place: None }
    }

    /// Sets where the machine can be reached.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Sets why it is ending or gone.
    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Sets after which time the provider ends it.
    #[must_use]
    pub fn ends_in(mut self, ends_in: Duration) -> Self {
        self.ends_in = Some(ends_in);
        self
    }

    /// Sets the provider's own words.
    #[must_use]
    pub fn saying(mut self, words: impl Into<String>) -> Self {
        self.words = Some(words.into());
        self
    }
}

impl MachineState {
    /// Whether the machine is ending or gone.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Ending | Self::Released | Self::Gone)
    }

    /// Whether the machine is no longer billed.
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
            Self::Asked => "its end was requested",
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
