//! What this process knows of a pool: its network and group, its keys, and its unanswered calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_ec2::types::Instance;
use skyward_core::error::Result;
use skyward_core::ids::{LaunchId, MachineId, PoolId};
use skyward_core::provider::{Architecture, Labels, Machine, clock};
use skyward_core::spec::AcceleratorFamily;

use crate::assign::{self, Assigned, Found, Known};
use crate::call::Call;
use crate::clock::Clock;
use crate::entry::Entry;
use crate::images::Image;
use crate::lease::Renewals;
use crate::machines::{self, Life};
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
    /// From where this client may log in.
    pub(crate) entry: Entry,
    /// The time of EC2, in which its tags and user data are.
    pub(crate) clock: Clock,
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

impl State {
    fn known(&self) -> Known {
        self.made.values().map(|machine| (machine.id.clone(), machine.launch.clone())).collect()
    }
}

#[derive(Debug, Default)]
struct State {
    /// The call of each launch whose outcome is unknown.
    unsettled: HashMap<LaunchId, Arc<Call>>,
    /// The machine of each launch that EC2 has answered, also where the caller did not wait for the
    /// answer.
    made: HashMap<LaunchId, Machine>,
    /// Machines whose launch only this process knows: they lack the tag with it.
    untold: BTreeMap<MachineId, Machine>,
    /// The tokens of calls that EC2 refused because something they named was missing. The next call
    /// has other parameters, and so needs another token.
    refused: BTreeSet<String>,
    machines: HashMap<MachineId, Seen>,
    /// Whether none of the machines that were reached has answered since.
    is_cut_off: bool,
    /// Whether a launch with these parameters was allowed.
    allowed: bool,
    shared: Option<Arc<Shared>>,
}

/// What this process knows of an instance.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// When it was launched, by [`clock::now`].
    pub(crate) launched: Instant,
    /// The user to log in as.
    pub(crate) user: String,
    /// How long it may boot.
    pub(crate) boot: Duration,
    /// The address at which the client reaches it.
    pub(crate) address: Option<String>,
    /// When the client first tried to reach it.
    pub(crate) tried: Option<tokio::time::Instant>,
    /// Whether the client has ever logged in to it.
    pub(crate) reached: bool,
    /// Whether it did not answer the last time that the client tried to reach it.
    pub(crate) is_silent: bool,
    /// Whether it is on its way out, and costs nothing more.
    pub(crate) is_ending: bool,
    /// When its console was last read, and its last lines then.
    pub(crate) console: Option<(tokio::time::Instant, Option<String>)>,
}

impl Pool {
    pub(crate) fn new(id: PoolId, lease: Duration, clock: Clock) -> Result<Self> {
        Ok(Self {
            id,
            lease,
            trust: Trust::new()?,
            making: tokio::sync::Mutex::default(),
            images: tokio::sync::Mutex::default(),
            renewals: Renewals::new(),
            entry: Entry::default(),
            clock,
            state: Mutex::default(),
        })
    }

    /// The expiry of what is made now. It allows for a whole start, because nothing renews the tags
    /// before the pool is ready.
    pub(crate) fn expires(&self) -> SystemTime {
        crate::lease::expires(self.lease, self.clock.now() + crate::timing::POOL_START)
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

    /// The launches of the instances in EC2's answer to a call of this process. Remembers them.
    pub(crate) fn answered<'a>(&self, call: &Call, instances: &'a [Instance]) -> Assigned<'a> {
        let mut state = self.state();
        let assigned = assign::answered(&self.id, call.launches(), instances, &state.known());
        assigned.found.iter().for_each(|found| self.remember(&mut state, found, call));
        assigned
    }

    /// The launches of instances that EC2 lists. Remembers those of a call of this process to which
    /// the answer is missing: what its answer says later about their order does not count any more.
    pub(crate) fn listed<'a>(&self, instances: &'a [Instance]) -> Assigned<'a> {
        let mut state = self.state();
        let assigned = assign::listed(instances, &state.known());
        for found in &assigned.found {
            if let Some(call) = state.unsettled.get(&found.machine.launch).cloned() {
                self.remember(&mut state, found, &call);
            }
        }
        assigned
    }

    /// Records an instance that a call has launched.
    fn remember(&self, state: &mut State, found: &Found<'_>, call: &Call) {
        let Found { machine, is_told, .. } = found;
        self.trust.launched(machine.id.clone(), &call.host_key);
        let boot = call.requests.iter().map(|request| request.boot).max().unwrap_or_default();
        let seen = Seen {
            launched: clock::now(),
            user: call.image.user.clone(),
            boot,
            address: None,
            tried: None,
            reached: false,
            is_silent: false,
            is_ending: false,
            console: None,
        };
        state.machines.entry(machine.id.clone()).or_insert(seen);
        state.made.insert(machine.launch.clone(), machine.clone());
        if !is_told && machines::life(found.instance) == Life::Running {
            state.untold.insert(machine.id.clone(), machine.clone());
        }
    }

    /// Machines that lack the tag with their launch.
    pub(crate) fn untold(&self) -> Vec<Machine> {
        self.state().untold.values().cloned().collect()
    }

    /// Records that a machine has the tag with its launch.
    pub(crate) fn told(&self, machine: &MachineId) {
        self.state().untold.remove(machine);
    }

    pub(crate) fn seen(&self, machine: &MachineId) -> Option<Seen> {
        self.state().machines.get(machine).cloned()
    }

    pub(crate) fn update(&self, machine: &MachineId, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.state().machines.get_mut(machine) {
            change(seen);
        }
    }

    /// The client has reached an instance.
    pub(crate) fn on_reached(&self, machine: &MachineId) {
        let mut state = self.state();
        state.is_cut_off = false;
        if let Some(seen) = state.machines.get_mut(machine) {
            (seen.reached, seen.is_silent) = (true, false);
        }
    }

    /// An instance did not answer.
    pub(crate) fn on_silent(&self, machine: &MachineId) {
        let mut state = self.state();
        if let Some(seen) = state.machines.get_mut(machine) {
            seen.is_silent = true;
            let mut reached = state.machines.values().filter(|seen| seen.reached).peekable();
            let were_any = reached.peek().is_some();
            let is_cut_off = were_any && reached.all(|seen| seen.is_silent);
            state.is_cut_off |= is_cut_off;
        }
    }

    /// An instance is on its way out.
    pub(crate) fn on_ending(&self, machine: &MachineId) {
        self.update(machine, |seen| seen.is_ending = true);
    }

    /// The instances that are there, if none that the client had reached answers any more.
    pub(crate) fn cut_off(&self) -> Option<Vec<MachineId>> {
        let state = self.state();
        let there = state.machines.iter().filter(|(_, seen)| !seen.is_ending);
        state.is_cut_off.then(|| there.map(|(machine, _)| machine.clone()).collect())
    }

    /// Forgets an instance that is gone.
    pub(crate) fn forget(&self, machine: &MachineId) {
        self.trust.forget(machine);
        let mut state = self.state();
        state.machines.remove(machine);
        state.untold.remove(machine);
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
