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
    /// Why the machine is ending or gone, where the provider reports that. A machine that is ending
    /// or released may be reported without the reason first, and with it later: the pool then
    /// inspects the machine once more before it reports the loss. For a running machine: why the
    /// machine will end.
    pub reason: Option<Reason>,
    /// The provider's own words about the state, for people.
    pub words: Option<String>,
    /// The time after which the provider ends the machine, where that is known: the notice of a
    /// preemption, with that [reason](Self::reason), or a time limit that the machine was bought
    /// with.
    pub ends_in: Option<Duration>,
    /// For a machine that is over: the time from its launch until it ended, where the provider
    /// knows that. Subtract two times of one clock of the provider's, such as its records of both
    /// events: then neither the client's clock nor the time for which the client was suspended
    /// counts. The pool charges the machine for that time. Without it, the pool charges a machine
    /// until its end is reported, or until its [keeper](super::Capabilities::keeper) must have ended
    /// it.
    pub lived: Option<Duration>,
    /// Where the machine can be reached, once it runs. From then on, the pool tries
    /// [`connect`](super::Provider::connect).
    pub place: Option<Place>,
}

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MachineState {
    /// Not known, because the provider's service cannot be asked now. The pool concludes nothing
    /// from this state.
    Unknown,
    /// Bought, but held back: a batch system has not started it.
    Queued,
    /// Being started; not reachable yet.
    Starting,
    /// Running.
    Running,
    /// Ending.
    Ending,
    /// Ending for good, and no longer billed. The provider may still hold resources of the machine.
    Released,
    /// No longer there, with no resource of the machine left.
    Gone,
}

/// Why a machine ends, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// This client or a person requested the end.
    Asked,
    /// The provider took the machine back.
    Preempted,
    /// The machine failed, or could not be started.
    Failed,
    /// The time for which the machine was bought, or its lease, is over.
    Expired,
}

impl MachineReport {
    /// Creates a report of this state, without further details.
    pub fn new(state: MachineState) -> Self {
        Self { state, reason: None, words: None, ends_in: None, lived: None, place: None }
    }

    /// Sets where the machine can be reached.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Sets why the machine is ending or gone.
    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Sets the time after which the provider ends the machine.
    #[must_use]
    pub fn ends_in(mut self, ends_in: Duration) -> Self {
        self.ends_in = Some(ends_in);
        self
    }

    /// Sets the time from the launch of a machine that is over until it ended.
    #[must_use]
    pub fn lived(mut self, lived: Duration) -> Self {
        self.lived = Some(lived);
        self
    }

    /// Whether a later report may have the reason that this one lacks.
    pub(crate) fn may_be_explained(&self) -> bool {
        matches!(self.state, MachineState::Ending | MachineState::Released) && self.reason.is_none()
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
            Self::Expired => "its walltime or its lease is over",
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
