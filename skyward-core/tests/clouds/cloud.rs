//! A cloud that follows a test's script.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skyward_core::compute::PendingCompute;
use skyward_core::error::Refusal;
use skyward_core::event::{EventItem, Events, PoolEvent};
use skyward_core::payload::{Args, Source};
use skyward_core::provider::{Capabilities, Offer};
use skyward_core::testkit::fake_provider::{Death, FakeProvider, Faults, Forewarning, Turn};
use skyward_core::testkit::fake_worker::{Fate, Work};
use skyward_core::testkit::script::{Answer, FakeTask, Rule, Script};

/// The events in a cloud. By default there is one offer, and everything works.
#[derive(Debug, Clone)]
pub(crate) struct Cloud {
    pub(crate) offers: Vec<Offer>,
    /// By the offer and the number of the call.
    pub(crate) refusal: fn(&str, u32) -> Option<Refusal>,
    /// By the node and the number of the machine.
    pub(crate) forewarning: fn(u32, u32) -> Option<Forewarning>,
    pub(crate) death: fn(u32, u32) -> Option<(Duration, Death)>,
    pub(crate) launch: fn(u32, u32) -> Turn,
    pub(crate) lingers: Duration,
    /// How long after the release of a machine its reports lack the reason.
    pub(crate) explains_after: Duration,
    /// Whether no machine can be terminated.
    pub(crate) is_stuck: bool,
    /// Whether a batch can be launched all or none.
    pub(crate) gangs: bool,
}

impl Default for Cloud {
    fn default() -> Self {
        Self {
            offers: vec![offer("a", "1", 6.0)],
            refusal: |_, _| None,
            forewarning: |_, _| None,
            death: |_, _| None,
            launch: |_, _| Turn::Works(Duration::from_secs(5)),
            lingers: Duration::ZERO,
            explains_after: Duration::ZERO,
            is_stuck: false,
            gangs: false,
        }
    }
}

impl Cloud {
    pub(crate) fn provider(self) -> FakeProvider {
        // The argument `n`, in seconds, is at the end of the map.
        let work = |task: &FakeTask<'_>| {
            Work::Return(Duration::from_secs(task.sent().last().copied().unwrap_or_default().into()))
        };
        FakeProvider::new(Script::new().faults(self).rule(Rule::all().answer(move |task| Answer::does(work(task)))))
    }
}

impl Fate for Cloud {}

impl Faults for Cloud {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new().preemptible().adopts();
        capabilities.gangs = self.gangs;
        capabilities
    }

    fn offers(&self) -> Vec<Offer> {
        self.offers.clone()
    }

    fn refusal(&self, offer: &Offer, call: u32) -> Option<Refusal> {
        (self.refusal)(offer.id.as_str(), call)
    }

    fn forewarning(&self, node: u32, machine: u32) -> Option<Forewarning> {
        (self.forewarning)(node, machine)
    }

    fn death(&self, node: u32, machine: u32) -> Option<(Duration, Death)> {
        (self.death)(node, machine)
    }

    fn launch(&self, node: u32, call: u32) -> Turn {
        (self.launch)(node, call)
    }

    fn terminate(&self, _: u32, _: u32) -> Turn {
        if self.is_stuck { Turn::Fails } else { Turn::Works(Duration::ZERO) }
    }

    fn lingers(&self, _: u32, _: u32) -> Duration {
        self.lingers
    }

    fn explains_after(&self, _: u32, _: u32) -> Duration {
        self.explains_after
    }
}

/// An offer at this price. Its id is its name, and its quota the first letter of the name.
pub(crate) fn offer(name: &str, place: &str, usd_per_hour: f64) -> Offer {
    Offer::new(name, place, 8, 32).usd_per_hour(usd_per_hour).quota(&name[..1])
}

/// A task that takes this many seconds.
pub(crate) fn task(seconds: u32) -> PendingCompute<BTreeMap<String, u32>> {
    PendingCompute::new(Arc::new(Source::file("a.py", "def f(n): ...", "f")), Args::new().with("n", &seconds))
}

/// The ids of the offers that were tried.
pub(crate) fn tried(provider: &FakeProvider) -> Vec<String> {
    provider.tried().iter().map(ToString::to_string).collect()
}

/// All events until the pool ends.
pub(crate) async fn all(mut events: Events) -> Vec<Arc<PoolEvent>> {
    let mut all = Vec::new();
    while let Some(item) = events.next().await {
        if let EventItem::Event(event) = item {
            all.push(event);
        }
    }
    all
}
