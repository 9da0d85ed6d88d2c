//! The service behind the small provider of these tests: what is really there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::{MachineId, PoolId};
use skyward_core::provider::Machine;
use tokio::time::Instant;

/// A data center. Its machines are folders of this host.
#[derive(Debug)]
pub(crate) struct Center {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    machines: BTreeMap<MachineId, Rented>,
    /// The owners of the pools that were prepared.
    pools: BTreeMap<PoolId, String>,
    fails: bool,
    holds: bool,
    limit: Option<u32>,
}

/// A machine of the center. It is there until its end, whether it is listed or not.
#[derive(Debug, Clone)]
pub(crate) struct Rented {
    pub(crate) machine: Machine,
    pub(crate) bought: Instant,
    /// From when on lists have it; `None` for never.
    pub(crate) listed: Option<Instant>,
    /// Whether a repeated launch finds it.
    pub(crate) is_known: bool,
    pub(crate) is_gang: bool,
    pub(crate) is_queued: bool,
    /// When the machine ends by itself.
    pub(crate) ends: Option<Instant>,
    /// When the center takes the machine back.
    pub(crate) preempted: Option<Instant>,
    pub(crate) connected: Option<Instant>,
}

impl Center {
    pub(crate) fn new(root: PathBuf) -> Self {
        std::fs::create_dir_all(&root).unwrap();
        Self { root, state: Mutex::default() }
    }

    /// Fails while all calls fail.
    pub(crate) fn answer(&self) -> Result<()> {
        match self.state().fails {
            true => Err(Error::new(ErrorKind::Provider, "the service does not answer").temporary()),
            false => Ok(()),
        }
    }

    pub(crate) fn folder(&self, machine: &MachineId) -> PathBuf {
        self.root.join(machine.as_str())
    }

    /// Adds a machine.
    pub(crate) fn buy(&self, machine: Machine, listed: Option<Instant>, ends_in: Option<Duration>) {
        std::fs::create_dir_all(self.folder(&machine.id)).unwrap();
        let mut state = self.state();
        state.limit = state.limit.map(|left| left.saturating_sub(1));
        let rented = Rented {
            bought: Instant::now(),
            listed,
            is_known: true,
            is_gang: false,
            is_queued: state.holds,
            ends: ends_in.map(|left| Instant::now() + left),
            preempted: None,
            connected: None,
            machine,
        };
        state.machines.insert(rented.machine.id.clone(), rented);
    }

    /// Ends a machine with everything on it.
    pub(crate) fn end(&self, machine: &MachineId) {
        self.state().machines.remove(machine);
        let _ = std::fs::remove_dir_all(self.folder(machine));
    }

    /// Changes what is known of a machine.
    pub(crate) fn change(&self, machine: &MachineId, change: impl FnOnce(&mut Rented)) {
        if let Some(rented) = self.state().machines.get_mut(machine) {
            change(rented);
        }
    }

    /// The machine, unless it has ended.
    pub(crate) fn get(&self, machine: &MachineId) -> Option<Rented> {
        let found = self.state().machines.get(machine).cloned();
        match found {
            Some(rented) if rented.ends.is_some_and(|end| end <= Instant::now()) => {
                self.end(machine);
                None
            }
            found => found,
        }
    }

    pub(crate) fn all(&self) -> Vec<Rented> {
        let ids: Vec<MachineId> = self.state().machines.keys().cloned().collect();
        ids.iter().filter_map(|id| self.get(id)).collect()
    }

    /// How many machines can be bought.
    pub(crate) fn has(&self) -> u32 {
        self.state().limit.unwrap_or(u32::MAX)
    }

    pub(crate) fn prepare(&self, pool: &PoolId, owner: &str) {
        self.state().pools.insert(pool.clone(), owner.to_owned());
    }

    pub(crate) fn teardown(&self, pool: &PoolId) {
        self.state().pools.remove(pool);
    }

    pub(crate) fn pools(&self) -> BTreeMap<PoolId, String> {
        self.state().pools.clone()
    }

    pub(crate) fn fail(&self, fails: bool) {
        self.state().fails = fails;
    }

    pub(crate) fn limit(&self, machines: Option<u32>) {
        self.state().limit = machines;
    }

    /// Holds new machines in the queue, or lets all start.
    pub(crate) fn hold(&self, holds: bool) {
        let mut state = self.state();
        state.holds = holds;
        if !holds {
            state.machines.values_mut().for_each(|rented| rented.is_queued = false);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Center {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}
