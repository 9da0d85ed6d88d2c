//! What this process knows of a pool: its network and group, its keys, and its unanswered calls.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use skyward_core::error::Result;
use skyward_core::ids::{LaunchId, MachineId, PoolId};
use skyward_core::provider::{Architecture, Labels, Machine};
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
    pub(crate) lease: Duration,
    pub(crate) trust: Trust,
    /// Held while this process makes what the machines share.
    pub(crate) making: tokio::sync::Mutex<()>,
    /// The image for each purpose, which stays the same for the pool's whole life.
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
    /// The call of each launch whose outcome is unknown.
    unsettled: HashMap<LaunchId, Arc<Call>>,
    /// The machine of each launch that EC2 has answered, also where the caller did not wait for the
    /// answer.
    made: HashMap<LaunchId, Machine>,
    /// The tokens of calls that EC2 refused because something they named was missing. The next call
    /// has other parameters, and so needs another token.
    refused: BTreeSet<String>,
    machines: HashMap<MachineId, Seen>,
    /// Whether a launch with these parameters was allowed.
    allowed: bool,
    shared: Option<Arc<Shared>>,
}

/// What this process knows of an instance.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// When it was launched.
    pub(crate) launched: Instant,
    /// The user to log in as.
    pub(crate) user: String,
    /// How long it may boot.
    pub(crate) boot: Duration,
    /// The address at which the client reaches it.
    pub(crate) address: Option<String>,
    /// When the client first tried to reach it.
    pub(crate) tried: Option<Instant>,
    /// Whether the client has ever logged in to it.
    pub(crate) reached: bool,
    /// When its console was last read, and its last lines then.
    pub(crate) console: Option<(Instant, Option<String>)>,
}

impl Pool {
    pub(crate) fn new(id: PoolId, lease: Duration) -> Result<Self> {
        Ok(Self {
            id,
            lease,
            trust: Trust::new()?,
            making: tokio::sync::Mutex::default(),
            images: tokio::sync::Mutex::default(),
            renewals: Renewals::new(),
            state: Mutex::default(),
        })
    }

    /// The expiry of what is made now. It allows for a whole start, because nothing renews the tags
    /// before the pool is ready.
    pub(crate) fn expires(&self) -> SystemTime {
        crate::lease::expires(self.lease, SystemTime::now() + crate::timing::POOL_START)
    }

    /// The tags of everything that belongs to the pool, of this owner and with these labels. The
    /// provider's own tags win over labels of the same name.
    pub(crate) fn tags(&self, owner: &str, labels: &Labels, own: &Labels) -> Tags {
        let mut tags = tags::of_labels(labels);
        tags.extend(tags::common(&self.id, owner, own));
        tags.insert(tags::EXPIRES.to_owned(), tags::seconds(self.expires()));
        tags
    }

    /// What its machines share, if it has been made.
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.state().shared.clone()
    }

    /// Records what the machines share, or that it is gone.
    pub(crate) fn share(&self, shared: Option<Arc<Shared>>) {
        self.state().shared = shared;
    }

    pub(crate) fn unsettled(&self, launch: &LaunchId) -> Option<Arc<Call>> {
        self.state().unsettled.get(launch).cloned()
    }

    /// Records a call before it is made. Returns false, and records nothing, if another call has made
    /// one of its launches, or is about to: the two would have the same token, and other parameters.
    pub(crate) fn begin(&self, call: &Arc<Call>) -> bool {
        let mut state = self.state();
        let is_begun = |launch| state.unsettled.contains_key(launch) || state.made.contains_key(launch);
        if call.requests.iter().any(|request| is_begun(&request.launch)) {
            return false;
        }
        state.unsettled.extend(call.requests.iter().map(|request| (request.launch.clone(), Arc::clone(call))));
        true
    }

    /// Forgets a call that EC2 has answered.
    pub(crate) fn settle(&self, call: &Call) {
        self.state().unsettled.retain(|_, other| other.token != call.token);
    }

    /// Whether EC2 has refused a call with this token because something that the call named was
    /// missing.
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

    /// Records an instance that was launched.
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

    /// Whether the pool has launched nothing yet: the first launch is checked before it is made.
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
