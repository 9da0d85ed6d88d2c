//! Plays the machines of EC2: boots the instances that EC2 lists as running, from their launch
//! parameters alone, and ends all others.

mod console;
mod control;
mod ec2;
mod machine;
mod metadata;
mod namespace;
mod services;
mod sshd;
mod steps;
mod unit;
mod user_data;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

pub(crate) use self::console::Consoles;
pub(crate) use self::ec2::Ec2;
use self::machine::Machine;
pub(crate) use self::machine::Rack;
use crate::http::Abort;
use crate::phases::Phase;
use crate::shims::Backend;
use crate::timing::INSTANCE_LIST_PAUSE;

/// All machines of a cloud.
#[derive(Debug)]
pub(crate) struct Hypervisor {
    pub(crate) ec2: Ec2,
    backend: Arc<Backend>,
    rack: Rack,
    machines: Mutex<BTreeMap<String, Arc<Machine>>>,
    /// How many of the next boots fail.
    failing: AtomicU32,
    tasks: Mutex<Vec<Abort<()>>>,
}

/// An instance that has a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// As EC2 calls it.
    pub id: String,
    /// Its type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// Whether it is a spot instance.
    pub is_spot: bool,
    /// Its address within its VPC.
    pub private: String,
    /// Its public address.
    pub public: Option<String>,
    /// Whether cloud-init has finished.
    pub is_booted: bool,
    /// The id of its first process on this host.
    pub pid: Option<u32>,
    /// The ids of all its processes on this host.
    pub processes: Vec<u32>,
    /// The URL of its metadata service.
    pub metadata: Option<String>,
}

impl Hypervisor {
    pub(crate) fn start(
        ec2: Ec2,
        backend: Arc<Backend>,
        rack: Rack,
        mut powered_off: UnboundedReceiver<String>,
    ) -> Arc<Self> {
        let (machines, failing, tasks) = (Mutex::default(), AtomicU32::new(0), Mutex::default());
        let hypervisor = Arc::new(Self { ec2, backend, rack, machines, failing, tasks });
        let own = Arc::clone(&hypervisor);
        let watch = tokio::spawn(async move {
            loop {
                // moto may be busy or ending: the next round asks again.
                let _ = own.reconcile().await;
                let _ = timeout(INSTANCE_LIST_PAUSE, own.backend.changed.notified()).await;
            }
        });
        let own = Arc::clone(&hypervisor);
        let shutdowns = tokio::spawn(async move {
            while let Some(id) = powered_off.recv().await {
                if let Err(error) = own.shut_down(&id).await {
                    own.backend.consoles.of(&id).write("hypervisor", format!("{error:#}"));
                }
            }
        });
        let own = Arc::clone(&hypervisor);
        let ends = tokio::spawn(async move {
            loop {
                own.backend.terminated.notified().await;
                own.end_terminated();
            }
        });
        hypervisor.lock_tasks().extend([Abort(watch), Abort(shutdowns), Abort(ends)]);
        hypervisor
    }

    /// Boots and ends machines as EC2 lists them.
    async fn reconcile(self: &Arc<Self>) -> Result<()> {
        let listed = {
            // No instance is listed before its record is complete.
            let _settled = self.backend.settled().await;
            self.ec2.running().await?
        };
        let running: HashSet<&str> = listed.iter().map(|one| one.id.as_str()).collect();
        let over: Vec<String> = self.machines().keys().filter(|id| !running.contains(id.as_str())).cloned().collect();
        for id in over {
            self.end(&id);
        }
        for one in &listed {
            if self.machines().contains_key(&one.id) || !self.is_up(&one.id) {
                continue;
            }
            let facts = self.ec2.facts(one).await?;
            // The instance was terminated after moto had listed it.
            if !self.is_up(&one.id) {
                continue;
            }
            let fails =
                self.failing.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            let machine = Machine::boot(facts, self.backend.consoles.of(&one.id), self.rack.clone(), fails);
            self.machines().insert(one.id.clone(), machine);
        }
        Ok(())
    }

    /// Ends the machines of terminated instances at once, before moto lists them so: when a client
    /// has the answer that an instance is terminated, none of its processes must be left.
    fn end_terminated(&self) {
        let over: Vec<String> = self.machines().keys().filter(|id| self.is_over(id)).cloned().collect();
        over.iter().for_each(|id| self.end(id));
    }

    fn is_over(&self, id: &str) -> bool {
        self.backend.records.get(id).is_some_and(|record| record.is_over())
    }

    /// Whether an instance that moto lists is neither pending nor over.
    fn is_up(&self, id: &str) -> bool {
        let records = &self.backend.records;
        records.get(id).is_none_or(|record| record.phase(records.clock.now()) == Phase::Up)
    }

    /// Ends the machine of an instance at once.
    fn end(&self, id: &str) {
        if let Some(machine) = self.machines().remove(id) {
            machine.kill();
            tokio::spawn(async move { machine.gone().await });
        }
    }

    /// Handles a machine that was powered off from within.
    async fn shut_down(&self, id: &str) -> Result<()> {
        if self.is_over(id) {
            return Ok(());
        }
        let words = "Client.InstanceInitiatedShutdown: Instance initiated shutdown";
        let reason = ("Client.InstanceInitiatedShutdown", words);
        if self.ec2.terminates_at_shutdown(id).await? {
            self.terminate(id, Some(reason)).await
        } else {
            self.backend.records.explain(id, reason.0, reason.1);
            self.ec2.stop(id).await?;
            self.end(id);
            Ok(())
        }
    }

    /// Ends an instance, with a reason unless its user ended it.
    pub(crate) async fn terminate(&self, id: &str, reason: Option<(&str, &str)>) -> Result<()> {
        if self.backend.records.get(id).is_none() {
            bail!("there is no instance {id:?}");
        }
        self.backend.end(id, reason).await?;
        self.end(id);
        Ok(())
    }

    /// Takes a spot instance back: gives notice, and ends the instance when the time is over.
    pub(crate) fn interrupt(self: &Arc<Self>, id: &str, notice: Duration) -> Result<()> {
        let machine = self.machine(id)?;
        let time = in_future(notice);
        machine.with_metadata(|metadata| metadata.notify(|notices| notices.action = Some(time))).context(EARLY)?;
        let (own, id) = (Arc::clone(self), id.to_owned());
        let task = tokio::spawn(async move {
            sleep(notice).await;
            let reason =
                ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination");
            if let Err(error) = own.terminate(&id, Some(reason)).await {
                own.backend.consoles.of(&id).write("hypervisor", format!("{error:#}"));
            }
        });
        self.lock_tasks().push(Abort(task));
        Ok(())
    }

    /// Recommends a rebalance of a spot instance.
    pub(crate) fn rebalance(&self, id: &str) -> Result<()> {
        let time = in_future(Duration::ZERO);
        let machine = self.machine(id)?;
        machine.with_metadata(|metadata| metadata.notify(|notices| notices.rebalance = Some(time))).context(EARLY)
    }

    /// Schedules an event for the host of an instance.
    pub(crate) fn schedule(&self, id: &str, code: &str, after: Duration) -> Result<()> {
        let event = serde_json::json!({
            "Code": code,
            "Description": "The instance is running on degraded hardware",
            "EventId": format!("instance-event-{:017x}", 1),
            "NotBefore": in_future(after),
            "State": "active",
        });
        let machine = self.machine(id)?;
        machine.with_metadata(|metadata| metadata.notify(|notices| notices.events.push(event))).context(EARLY)
    }

    /// Reboots an instance at once.
    pub(crate) async fn reboot(&self, id: &str) -> Result<()> {
        self.machine(id)?.reboot().await
    }

    pub(crate) fn machine(&self, id: &str) -> Result<Arc<Machine>> {
        self.machines().get(id).cloned().with_context(|| format!("there is no machine for the instance {id:?}"))
    }

    pub(crate) fn fail_boots(&self, count: u32) {
        self.failing.store(count, Ordering::Relaxed);
    }

    /// The instances that have a machine.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        self.machines().values().map(|machine| view(machine)).collect()
    }

    /// Ends all machines, and waits until nothing of them is left.
    pub(crate) async fn stop(&self) {
        self.lock_tasks().clear();
        let machines: Vec<_> = std::mem::take(&mut *self.machines()).into_values().collect();
        for machine in &machines {
            machine.kill();
        }
        for machine in machines {
            machine.gone().await;
        }
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Machine>>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tasks(&self) -> MutexGuard<'_, Vec<Abort<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn view(machine: &Machine) -> Instance {
    let services = machine.services();
    let processes = services.as_ref().map(|services| services.namespace.processes()).unwrap_or_default();
    let facts = &machine.facts;
    Instance {
        id: facts.id.clone(),
        instance_type: facts.instance_type.clone(),
        zone: facts.zone.clone(),
        is_spot: facts.is_spot,
        private: facts.private.clone(),
        public: facts.public.clone(),
        is_booted: machine.is_booted(),
        pid: services.map(|services| services.namespace.id()),
        processes: processes.iter().map(|process| process.id.as_raw_nonzero().get().unsigned_abs()).collect(),
        metadata: machine.with_metadata(|metadata| format!("http://{}", metadata.address)),
    }
}

/// A time as the metadata service writes it.
fn in_future(after: Duration) -> String {
    let now = DateTime::from(std::time::SystemTime::now() + after);
    DateTime::from_secs(now.secs()).fmt(DateTimeFormat::DateTime).unwrap_or_default()
}

const EARLY: &str = "the machine has no metadata service yet";
