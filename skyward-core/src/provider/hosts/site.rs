//! One host with its connection, and the commands that run on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::facts::Facts;
use super::host::Host;
use super::identity::Identity;
use super::refusal::{Refusal, Taken};
use super::timing::{CLAIM_ELSEWHERE, CLAIMING, HOST_ANSWER, TRIED_LAST};
use super::{logind, record};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, PoolId};
use crate::provider::keeper::ENDING;
use crate::provider::timing::UNRECORDED_LEASE;
use crate::provider::{Keeper, KeeperEnd, LaunchRequest, Machine, MachineReport, MachineState, Offer, PoolRecord};
use crate::remote::{Command, CommandOutput, Ssh, quoted};
use crate::spec::hex;

/// A host of the list.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) host: Host,
    /// Its name in messages. Two names may be of one host, and a name may become another host's.
    pub(super) label: String,
    /// The connection for all commands of this provider, and for the machine in the host's first
    /// slot.
    pub(super) ssh: Ssh,
    /// When and why it could not be reached the last time.
    unreachable: Mutex<Option<(Instant, Error)>>,
    facts: Mutex<Option<Facts>>,
    /// What its last answer says that it is.
    identity: Mutex<Option<Identity>>,
    /// Pools of which the host may have machines that no answer has reported: a claim was sent
    /// whose answer did not arrive, or another client has started the pool.
    unanswered: Mutex<BTreeSet<PoolId>>,
    /// Whether a warning was logged that nodes of this host end with their connection.
    warned: AtomicBool,
}

/// The result of a claim.
#[derive(Debug)]
pub(super) enum Claim {
    Made(Machine),
    /// No slot is free, or too few accelerators.
    Refused(Refusal),
}

impl Site {
    pub(super) fn new(host: Host) -> Self {
        let ssh = Ssh::new(host.target.clone());
        Self {
            label: host.to_string(),
            host,
            ssh,
            unreachable: Mutex::default(),
            facts: Mutex::default(),
            identity: Mutex::default(),
            unanswered: Mutex::default(),
            warned: AtomicBool::new(false),
        }
    }

    /// What identifies the host, if it has answered yet.
    pub(super) fn identity(&self) -> Option<Identity> {
        lock(&self.identity).clone()
    }

    /// What identifies the host.
    pub(super) async fn learn(&self) -> Result<Identity> {
        if let Some(known) = self.identity() {
            return Ok(known);
        }
        if let Some(error) = self.unreachable() {
            return Err(error);
        }
        self.ask("report its identity", None, &[], "", HOST_ANSWER).await?;
        self.identity().ok_or_else(|| {
            Error::new(ErrorKind::Provider, format!("{} did not report its identity", self.label)).temporary()
        })
    }

    /// Whether this is the host in a machine's id. Older versions put the name of the host there.
    pub(super) fn is(&self, host: &str) -> bool {
        self.label == host || lock(&self.identity).as_ref().is_some_and(|identity| identity.id == host)
    }

    /// What the host has. With `close` the accelerators' driver is asked too, which may take a
    /// second.
    pub(super) async fn facts(&self, close: bool) -> Result<Facts> {
        let look = if close && self.host.accelerator.is_none() { "close" } else { "quick" };
        let output = self.ask("report its resources", None, &[("look", look)], FACTS, HOST_ANSWER).await?;
        if logind::ends_processes(&output.stdout) && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(host = self.label, hint = logind::HINT, "nodes of this host end with their connection");
        }
        let facts = Facts::read(&output.stdout);
        *lock(&self.facts) = Some(facts.clone());
        Ok(facts)
    }

    /// What the host had when it was last asked.
    pub(super) async fn known(&self, close: bool) -> Result<Facts> {
        let known = lock(&self.facts).clone();
        match known {
            Some(facts) => Ok(facts),
            None => self.facts(close).await,
        }
    }

    /// Claims a slot for a launch, or finds the slot that the launch has.
    pub(super) async fn claim(&self, offer: &Offer, request: &LaunchRequest, devices: &[String]) -> Result<Claim> {
        let identity = self.learn().await?;
        let machine = record::machine_id(&request.launch, &identity.id)?;
        let header = claim_header(offer, request, &machine, devices)?;
        let header: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let sent = Sent::new(self, &request.pool, false);
        let output = self.send(Some(identity), &header, CLAIM, self.claiming(), &sent.begun).await?;
        sent.answered();
        let output = self.judge("claim a slot", output)?;
        if output.status == FULL {
            let short = output.stdout.lines().find_map(|line| line.strip_prefix("skyward-short "));
            return Ok(Claim::Refused(match short {
                Some(short) => {
                    let wanted = count(offer);
                    Refusal::Short(format!("{short} of {wanted} accelerators are missing"))
                }
                None => Refusal::Taken(Taken::read(&output.stdout)),
            }));
        }
        let made = record::machines(&output.stdout, &self.host).pop();
        made.map(|made| Claim::Made(made.machine)).ok_or_else(|| {
            Error::new(ErrorKind::Provider, format!("{} did not report which machine was claimed", self.label))
                .with_context("output", output.stdout.lines().last().unwrap_or("nothing"))
        })
    }

    /// Whether the host may have a machine of this pool that no answer has reported.
    pub(super) fn has_unanswered(&self, pool: &PoolId) -> bool {
        lock(&self.unanswered).contains(pool)
    }

    /// The machines on this host of a pool that another client has started: until the host answers,
    /// it may have some.
    pub(super) async fn learn_machines(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        lock(&self.unanswered).insert(pool.clone());
        match self.unreachable() {
            Some(error) => Err(error),
            None => self.list(pool).await,
        }
    }

    /// The machines of a pool on this host.
    pub(super) async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let header = [("pool", record::simple(pool.as_str())?)];
        let script = format!("{ENDING}{LIST}");
        // The list contains what such a claim has made.
        let sent = Sent::new(self, pool, lock(&self.unanswered).remove(pool));
        let output = self.ask("list its machines", self.identity(), &header, &script, HOST_ANSWER).await?;
        sent.answered();
        Ok(record::machines(&output.stdout, &self.host).into_iter().map(|record| record.machine).collect())
    }

    /// The pools that have something on this host.
    pub(super) async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let output = self.ask("list its pools", self.identity(), &[], &format!("{ENDING}{POOLS}"), HOST_ANSWER).await?;
        Ok(record::pools(&output.stdout, SystemTime::now(), UNRECORDED_LEASE))
    }

    /// The state of machines on this host.
    pub(super) async fn inspect(&self, machines: &[&MachineId]) -> Result<BTreeMap<String, MachineReport>> {
        let named: Vec<_> = machines.iter().map(|machine| format!("{machine}/{}", folder_name(machine))).collect();
        let header = [("machines", named.join(" "))];
        let header = header.each_ref().map(|(name, value)| (*name, value.as_str()));
        let output = self
            .ask("report the state of machines", self.identity(), &header, &format!("{ENDING}{INSPECT}"), HOST_ANSWER)
            .await?;
        let records = record::machines(&output.stdout, &self.host);
        let records: BTreeMap<_, _> =
            records.into_iter().map(|record| (record.machine.id.to_string(), record)).collect();
        let states = output.stdout.lines().filter_map(|line| line.strip_prefix("skyward-state ")?.split_once(' '));
        let reports = states.map(|(machine, state)| {
            let report = match (state, records.get(machine)) {
                ("running", Some(record)) => {
                    let mut report = MachineReport::new(MachineState::Running).at(record.place.clone());
                    report.ends_in = record.ends_in;
                    report
                }
                ("running", None) => MachineReport::new(MachineState::Unknown),
                ("gone", _) => MachineReport::new(MachineState::Gone),
                _ => MachineReport::new(MachineState::Ending),
            };
            (machine.to_owned(), report)
        });
        Ok(reports.collect())
    }

    /// Ends a machine and frees its slot.
    pub(super) async fn end(&self, machine: &MachineId) -> Result<()> {
        let name = folder_name(machine);
        let header = [("machine", machine.as_str()), ("name", &name)];
        self.ask("end a machine", self.identity(), &header, &format!("{ENDING}{END}"), CLAIMING).await.map(|_| ())
    }

    /// Why it could not be reached a moment ago.
    pub(super) fn unreachable(&self) -> Option<Error> {
        let unreachable = lock(&self.unreachable);
        let (since, error) = unreachable.as_ref()?;
        (since.elapsed() < TRIED_LAST).then(|| error.clone())
    }

    /// How long a claim may take. A host makes claims one after another, each claim checks all of
    /// its slots, and all claims of a pool come at the same time.
    fn claiming(&self) -> Duration {
        CLAIMING + Duration::from_secs(self.host.slots.into())
    }

    /// Runs a script on the host, which does nothing if the host is not the expected one.
    async fn ask(
        &self,
        what: &str,
        expected: Option<Identity>,
        header: &[(&str, &str)],
        script: &str,
        limit: Duration,
    ) -> Result<CommandOutput> {
        let output = self.send(expected, header, script, limit, &AtomicBool::default()).await?;
        self.judge(what, output)
    }

    /// Runs a script on the host, which does nothing if the host is not the expected one. `begun` is
    /// set once the host may run the script.
    async fn send(
        &self,
        expected: Option<Identity>,
        header: &[(&str, &str)],
        script: &str,
        limit: Duration,
        begun: &AtomicBool,
    ) -> Result<CommandOutput> {
        let mut text = String::new();
        let expected = expected.map(|expected| expected.told).unwrap_or_default();
        let slots = self.host.slots.to_string();
        let base = self.host.folder.as_deref().unwrap_or_default().trim_end_matches('/');
        for (name, value) in [("base", base), ("slots", slots.as_str()), ("expected", &expected)].iter().chain(header) {
            text.push_str(&format!("{name}={}\n", quoted(value)));
        }
        text.push_str(PLACE);
        text.push_str(script);
        let asked = Asked { site: self, since: Instant::now(), answered: false };
        let result = self.ssh.run_noting(&Command::script(text).deadline(limit), &|_| {}, begun).await;
        let output = asked.answer(result)?;
        if let Some(told) = Identity::read(&output.stdout)
            && let Some(before) = lock(&self.identity).replace(told.clone())
            && before.id != told.id
        {
            tracing::warn!(host = self.label, before = before.id, now = told.id, "another host has this name now");
            *lock(&self.facts) = None;
        }
        Ok(output)
    }

    /// The output of a script that did what was asked; otherwise why it did not.
    fn judge(&self, what: &str, output: CommandOutput) -> Result<CommandOutput> {
        if output.status == OTHER {
            let message = format!("cannot {what} on {}: another host has this name now", self.label);
            return Err(Error::new(ErrorKind::Provider, message)
                .with_hint("add the earlier host to the list, under its present name")
                .temporary());
        }
        if output.success() || output.status == FULL {
            return Ok(output);
        }
        let last = |text: &str| text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned);
        let why = last(&output.stderr).unwrap_or_else(|| format!("exit status {}", output.status));
        let why = why.strip_prefix("error: ").unwrap_or(&why);
        let error = Error::new(ErrorKind::Provider, format!("{} could not {what}: {why}", self.label));
        Err(match why.contains("No space left") {
            true => error.with_hint(
                "its folder's disk is full: make room, or give the host another folder, `.folder(\"/path\")`",
            ),
            false => error.temporary(),
        })
    }
}

/// A command that runs on the host.
struct Asked<'a> {
    site: &'a Site,
    since: Instant,
    answered: bool,
}

impl Asked<'_> {
    fn answer<T>(mut self, result: Result<T>) -> Result<T> {
        self.answered = true;
        let failed = result.as_ref().err().filter(|error| error.is_temporary());
        *lock(&self.site.unreachable) = failed.map(|error| (Instant::now(), error.clone()));
        result
    }
}

/// A command that its caller dropped after a while counts as one that a host did not answer.
impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if !self.answered && waited >= CLAIM_ELSEWHERE / 2 {
            let message = format!("{} did not answer within {waited:?}", self.site.label);
            *lock(&self.site.unreachable) = Some((Instant::now(), Error::new(ErrorKind::Timeout, message).temporary()));
        }
    }
}

/// A claim of a pool on a host. One that the host may have begun, and that is dropped without its
/// answer, may have been made.
struct Sent<'a> {
    site: &'a Site,
    pool: &'a PoolId,
    begun: AtomicBool,
}

impl<'a> Sent<'a> {
    fn new(site: &'a Site, pool: &'a PoolId, begun: bool) -> Self {
        Self { site, pool, begun: AtomicBool::new(begun) }
    }

    fn answered(&self) {
        self.begun.store(false, Ordering::Relaxed);
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if *self.begun.get_mut() {
            lock(&self.site.unanswered).insert(self.pool.clone());
        }
    }
}

/// How many accelerators a node of this offer gets.
fn count(offer: &Offer) -> u32 {
    offer.accelerator.as_ref().map_or(0, |accelerator| accelerator.count)
}

/// The lines in front of the script that claims a slot.
fn claim_header(
    offer: &Offer,
    request: &LaunchRequest,
    machine: &MachineId,
    devices: &[String],
) -> Result<Vec<(&'static str, String)>> {
    // The machine runs at once, and so the first renewal is due within the lease.
    let keeper =
        Keeper::of(request, "").boot(request.lease).end(KeeperEnd::Processes { mark: machine.to_string() }).arguments();
    Ok(vec![
        ("machine", machine.to_string()),
        ("name", folder_name(machine)),
        ("launch", request.launch.to_string()),
        ("pool", record::simple(request.pool.as_str())?.to_owned()),
        ("node", request.number.to_string()),
        // Without the folder, which the script computes, and without the mark, which it gets as
        // `machine`.
        ("keeping", keeper[1..keeper.len() - 1].join(" ")),
        ("lasts", keeper[LIFE].clone()),
        ("lease", request.lease.as_millis().to_string()),
        // How long a machine may live after a renewal, in seconds.
        ("period", (request.lease.as_secs().saturating_mul(5) / 4 + 2).to_string()),
        ("owner", record::one_line(&request.owner)),
        ("devices", devices.join(" ")),
        ("wanted", count(offer).to_string()),
        ("ending", ENDING.to_owned()),
        ("keeper", Keeper::script().to_owned()),
    ])
}

/// The last component of a machine's folder: short, because sockets lie below it.
fn folder_name(machine: &MachineId) -> String {
    hex(&Sha256::digest(machine.as_str())[..5])
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The index of the machine's life in a keeper's arguments.
const LIFE: usize = 4;
const PLACE: &str = include_str!("scripts/place.sh");
const FACTS: &str = concat!(include_str!("scripts/logind.sh"), include_str!("scripts/facts.sh"));
const CLAIM: &str = include_str!("scripts/claim.sh");
const LIST: &str = include_str!("scripts/list.sh");
const POOLS: &str = include_str!("scripts/pools.sh");
const INSPECT: &str = include_str!("scripts/inspect.sh");
const END: &str = include_str!("scripts/end.sh");
/// The exit status of a script that found nothing free.
const FULL: i32 = 75;
/// The exit status of a script on a host that is not the expected one.
const OTHER: i32 = 76;

#[cfg(test)]
mod tests;
