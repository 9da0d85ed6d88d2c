//! What this process knows of a pool: its network and group, its keys, and the calls that are under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use skyward_core::error::Result;
use skyward_core::ids::{LaunchId, MachineId, PoolId};
use skyward_core::provider::{Architecture, Labels, Machine, PoolRequest};
use skyward_core::spec::AcceleratorFamily;
use tokio::time::Instant;

use crate::call::Call;
use crate::images::Image;
use crate::lease::Renewals;
use crate::network::Network;
use crate::tags::{self, Tags};
use crate::trust::Trust;

/// A pool of this process.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    pub(crate) owner: String,
    pub(crate) lease: Duration,
    pub(crate) labels: Labels,
    pub(crate) trust: Trust,
    /// Held while what the machines share is made.
    pub(crate) making: tokio::sync::Mutex<()>,
    /// The image of each kind of machine, by what it is chosen for: the same for the pool's whole life.
    pub(crate) images: tokio::sync::Mutex<HashMap<(Architecture, Option<AcceleratorFamily>), Image>>,
    pub(crate) renewals: Renewals,
    state: Mutex<State>,
}

/// What the machines of a pool share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) network: Network,
    pub(crate) group: String,
    /// Whether the group was made for the pool.
    pub(crate) is_ours: bool,
    pub(crate) placement_group: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    /// The call of each launch of which it is not known what became.
    unsettled: HashMap<LaunchId, Arc<Call>>,
    /// When the last of them was made.
    asked: Option<Instant>,
    /// The machine of each launch that a call was answered with, also for those who did not wait for the answer.
    made: HashMap<LaunchId, Machine>,
    /// The tokens of calls that were refused for want of what they named, which is made again: the next call says something else.
    refused: BTreeSet<String>,
    machines: HashMap<MachineId, Seen>,
    /// Whether a launch with these parameters was allowed.
    allowed: bool,
    shared: Option<Arc<Shared>>,
}

/// What was seen of an instance.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// When it was launched.
    pub(crate) launched: Instant,
    /// The user to log in as.
    pub(crate) user: String,
    /// How long it may boot.
    pub(crate) boot: Duration,
    /// Where the client reaches it.
    pub(crate) address: Option<String>,
    /// When it was first tried to be reached.
    pub(crate) tried: Option<Instant>,
    /// Whether it was ever logged in to.
    pub(crate) reached: bool,
    /// When its console was read the last time, and what its last lines were.
    pub(crate) console: Option<(Instant, Option<String>)>,
}

impl Pool {
    pub(crate) fn new(request: &PoolRequest) -> Result<Self> {
        Ok(Self {
            id: request.pool.clone(),
            owner: request.owner.clone(),
            lease: request.lease,
            labels: request.labels.clone(),
            trust: Trust::new()?,
            making: tokio::sync::Mutex::default(),
            images: tokio::sync::Mutex::default(),
            renewals: Renewals::new(),
            state: Mutex::default(),
        })
    }

    /// When what is made now expires. Nothing renews it until the pool serves, and environments take their time.
    pub(crate) fn expires(&self) -> SystemTime {
        crate::lease::expires(self.lease, SystemTime::now() + crate::lease::START)
    }

    /// What everything of the pool is tagged with: the provider's own tags hold, whatever the labels are.
    pub(crate) fn tags(&self, own: &Labels) -> Tags {
        let mut tags = tags::of_labels(&self.labels);
        tags.extend(tags::common(&self.id, &self.owner, own));
        tags.insert(tags::EXPIRES.to_owned(), tags::seconds(self.expires()));
        tags
    }

    /// What its machines share, once it is made.
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.state().shared.clone()
    }

    /// Notes what was made, or that it is not there any more.
    pub(crate) fn share(&self, shared: Option<Arc<Shared>>) {
        self.state().shared = shared;
    }

    pub(crate) fn unsettled(&self, launch: &LaunchId) -> Option<Arc<Call>> {
        self.state().unsettled.get(launch).cloned()
    }

    /// Notes a call before it is made.
    pub(crate) fn begin(&self, call: &Arc<Call>) {
        let mut state = self.state();
        state.asked = Some(Instant::now());
        state.unsettled.extend(call.requests.iter().map(|request| (request.launch.clone(), Arc::clone(call))));
    }

    /// Forgets a call that was answered.
    pub(crate) fn settle(&self, call: &Call) {
        self.state().unsettled.retain(|_, other| other.token != call.token);
    }

    /// Whether a call with this token said something else and was refused.
    pub(crate) fn was_refused(&self, token: &str) -> bool {
        self.state().refused.contains(token)
    }

    pub(crate) fn refuse(&self, call: &Call) {
        self.state().refused.insert(call.token.clone());
    }

    /// The machine that was made for a launch.
    pub(crate) fn made(&self, launch: &LaunchId) -> Option<Machine> {
        self.state().made.get(launch).cloned()
    }

    pub(crate) fn make(&self, machine: &Machine) {
        self.state().made.insert(machine.launch.clone(), machine.clone());
    }

    /// Since when the outcome of a call is not known, if there is such a call.
    pub(crate) fn unsettled_since(&self) -> Option<Instant> {
        let state = self.state();
        state.asked.filter(|_| !state.unsettled.is_empty())
    }

    /// Notes an instance that was launched.
    pub(crate) fn launched(&self, machine: MachineId, call: &Call) {
        self.trust.launched(machine.clone(), &call.host_key);
        let boot = call.requests.iter().map(|request| request.boot).max().unwrap_or_default();
        let seen = Seen {
            launched: Instant::now(),
            user: call.image.user.clone(),
            boot,
            address: None,
            tried: None,
            reached: false,
            console: None,
        };
        self.state().machines.entry(machine).or_insert(seen);
    }

    pub(crate) fn seen(&self, machine: &MachineId) -> Option<Seen> {
        self.state().machines.get(machine).cloned()
    }

    pub(crate) fn update(&self, machine: &MachineId, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.state().machines.get_mut(machine) {
            change(seen);
        }
    }

    /// Forgets an instance that is gone.
    pub(crate) fn forget(&self, machine: &MachineId) {
        self.trust.forget(machine);
        let mut state = self.state();
        state.machines.remove(machine);
        state.made.retain(|_, made| made.id != *machine);
    }

    /// Whether the first launch is still to come, which is checked before it is made.
    pub(crate) fn is_unchecked(&self) -> bool {
        !self.state().allowed
    }

    pub(crate) fn checked(&self) {
        self.state().allowed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
