//! What happens to the machines and calls of a fake provider.

use std::time::Duration;

use crate::error::Refusal;
use crate::provider::{Capabilities, Offer, Reason};
use crate::testkit::fake_worker::{Fate, Faultless};

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turn {
    /// The call succeeds after this time.
    Works(Duration),
    /// The call fails; the same call may work later.
    FailsForNow,
    /// The call fails for good.
    Fails,
    /// The call never answers. A launch starts its machine all the same.
    Never,
    /// The call never answers. A launch starts its machine after this time, also if the call is
    /// dropped.
    Late(Duration),
}

/// How a machine ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Death {
    /// The machine is gone.
    Machine,
    /// The machine is gone, because the provider took it back.
    Preemption,
    /// The agent and the workers are gone; the machine runs on.
    Agent,
    /// Nothing on the machine answers any more, and no connection ends.
    Freezes,
}

/// The notice of a machine's end that its provider gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forewarning {
    /// The time from the launch until the provider's reports contain the notice.
    pub after: Duration,
    /// The time from the notice until the end.
    pub ends_in: Duration,
    /// The reason: [`Reason::Preempted`], or [`Reason::Expired`] for a walltime.
    pub reason: Reason,
}

impl Forewarning {
    /// A notice that the provider takes the machine back.
    pub fn preemption(after: Duration, ends_in: Duration) -> Self {
        Self { after, ends_in, reason: Reason::Preempted }
    }

    /// A notice that the machine was bought for this time.
    pub fn walltime(ends_in: Duration) -> Self {
        Self { after: Duration::ZERO, ends_in, reason: Reason::Expired }
    }
}

/// How long a machine takes from its launch until it is ready to connect to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// How long the machine is queued at first.
    pub queued: Duration,
    /// How long the machine then takes to start.
    pub starting: Duration,
}

impl Arrival {
    /// An arrival with these times.
    pub fn after(queued: Duration, starting: Duration) -> Self {
        Self { queued, starting }
    }
}

/// The faults of the machines of a [`FakeProvider`](super::FakeProvider), and of what runs on them:
/// a part of a [`Script`](crate::testkit::script::Script). By default every call works at once.
pub trait Faults: Fate {
    /// The outcome of the `call`-th launch (from 0) of a node.
    fn launch(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// The outcome of the `call`-th try to connect to a node's machine.
    fn connect(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// The outcome of the `call`-th command on a node.
    fn command(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// The outcome of the `call`-th `terminate` of a node's machine. When the call works, the
    /// machine is ending at once, and gone after the time of the [`Turn`].
    fn terminate(&self, node: u32, call: u32) -> Turn {
        let _ = (node, call);
        Turn::Works(Duration::ZERO)
    }

    /// How long the `machine`-th machine (from 0) of a node is released, and not yet gone, after
    /// `terminate`.
    fn lingers(&self, node: u32, machine: u32) -> Duration {
        let _ = (node, machine);
        Duration::ZERO
    }

    /// How long after its release the reports of the `machine`-th machine (from 0) of a node lack the
    /// reason of its end.
    fn explains_after(&self, node: u32, machine: u32) -> Duration {
        let _ = (node, machine);
        Duration::ZERO
    }

    /// How long the `machine`-th machine (from 0) of a node [lived](crate::provider::MachineReport::lived)
    /// by its reports, if they say that. It has lived for the time `lived`.
    fn reported_life(&self, node: u32, machine: u32, lived: Duration) -> Option<Duration> {
        let _ = (node, machine);
        Some(lived)
    }

    /// How long the `machine`-th machine (from 0) of a node takes to arrive.
    fn arrival(&self, node: u32, machine: u32) -> Arrival {
        let _ = (node, machine);
        Arrival::default()
    }

    /// Whether the `call`-th `inspect` of a node's machine reports its state as unknown.
    fn is_unknown(&self, node: u32, call: u32) -> bool {
        let _ = (node, call);
        false
    }

    /// What the provider can do beyond its methods. With
    /// [`gangs`](Capabilities::gangs), a batch that is all or none starts nothing if one of its
    /// machines is [refused](Self::refusal).
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().preemptible().adopts()
    }

    /// The offers, the best first.
    fn offers(&self) -> Vec<Offer> {
        vec![Offer::new("fake", "nowhere", 64, 256)]
    }

    /// Why the `call`-th launch (from 0) of this offer is refused, if it is.
    fn refusal(&self, offer: &Offer, call: u32) -> Option<Refusal> {
        let _ = (offer, call);
        None
    }

    /// The notice that the provider gives of the end of the `machine`-th machine (from 0) of a
    /// node, if any.
    fn forewarning(&self, node: u32, machine: u32) -> Option<Forewarning> {
        let _ = (node, machine);
        None
    }

    /// How and when the `machine`-th machine (from 0) of a node ends before its time, if it does.
    /// The time counts from its launch.
    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        let _ = (node, machine);
        None
    }
}

impl Faults for Faultless {}
