//! Why a host cannot run a node, and the error that lists the reason of each host.

use super::record::host_of;
use crate::error::{Error, ErrorKind, ErrorStatus};
use crate::ids::MachineId;

/// Why a host cannot run a node.
#[derive(Debug)]
pub(super) enum Refusal {
    /// All its slots are taken.
    Taken(Vec<Taken>),
    /// It has too little for the node.
    Short(String),
    /// It did not answer as expected.
    Failed(Error),
}

/// A slot in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    slot: String,
    by: Holder,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    /// The claim names nobody: it is being written, or was cut off.
    Unknown,
    /// A slot of another user, because pools are private to their users.
    User(String),
    Pool {
        pool: String,
        /// Empty if the claim does not name it.
        machine: MachineId,
    },
}

impl Refusal {
    /// Whether a later attempt can succeed without a change to the list of hosts.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Taken(_) => true,
            Self::Short(_) => false,
            Self::Failed(error) => error.status() == ErrorStatus::Temporary,
        }
    }

    /// The reason, for the entry `host` of the list.
    fn describe(&self, host: &str) -> String {
        match self {
            Self::Taken(taken) => taken.iter().map(|taken| taken.describe(host)).collect::<Vec<_>>().join(", "),
            Self::Short(what) => what.clone(),
            Self::Failed(error) => match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            },
        }
    }

    /// The other entry of the list by which a pool has a slot of this host.
    fn other_name(&self, host: &str) -> Option<&str> {
        match self {
            Self::Taken(taken) => taken.iter().find_map(|taken| taken.other_name(host)),
            Self::Short(_) | Self::Failed(_) => None,
        }
    }
}

impl Taken {
    /// The slots that a script reports as taken.
    pub(super) fn read(text: &str) -> Vec<Self> {
        let taken = text.lines().filter_map(|line| line.strip_prefix("skyward-taken "));
        let taken = taken.map(|line| line.split_once(' ').unwrap_or((line, "")));
        taken.map(|(slot, by)| Self { slot: slot.to_owned(), by: Holder::read(by) }).collect()
    }

    fn describe(&self, host: &str) -> String {
        let slot = &self.slot;
        match (&self.by, self.other_name(host)) {
            (Holder::Unknown, _) => format!("slot {slot} is taken"),
            (Holder::User(user), _) => format!("slot {slot} is taken by the user {user}"),
            (Holder::Pool { pool, .. }, None) => format!("slot {slot} is taken by pool {pool}"),
            (Holder::Pool { pool, .. }, Some(other)) => {
                format!("slot {slot} is taken by pool {pool}, which reaches this host as {other}")
            }
        }
    }

    fn other_name(&self, host: &str) -> Option<&str> {
        match &self.by {
            Holder::Pool { machine, .. } => host_of(machine).filter(|name| *name != host),
            Holder::Unknown | Holder::User(_) => None,
        }
    }
}

impl Holder {
    /// Reads `user NAME`, or `POOL MACHINE`.
    fn read(text: &str) -> Self {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("", _) => Self::Unknown,
            ("user", name) => Self::User(name.to_owned()),
            (pool, machine) => Self::Pool { pool: pool.to_owned(), machine: MachineId::new(machine) },
        }
    }
}

/// The error of a request that no host of the list can meet.
pub(super) fn none_free(message: &str, refused: &[(String, Refusal)]) -> Error {
    let each: Vec<_> = refused.iter().map(|(host, why)| format!("{host}: {}", why.describe(host))).collect();
    let error = Error::new(ErrorKind::Provider, format!("{message}: {}", each.join("; ")));
    let listed = |name: &str| refused.iter().any(|(host, _)| host == name);
    let twice = refused.iter().find_map(|(host, why)| Some((host, why.other_name(host).filter(|name| listed(name))?)));
    if let Some((host, other)) = twice {
        return error.with_hint(format!(
            "{host} and {other} are the same host: list it once, and let it run more nodes: `.slots(2)`"
        ));
    }
    // The reason of a host that failed includes what to do about it.
    if refused.iter().all(|(_, why)| matches!(why, Refusal::Failed(_))) {
        return error;
    }
    error.with_hint("wait until a slot is free, list more hosts, or let a host run more nodes: `.slots(2)`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, text: &str) -> (String, Refusal) {
        (host.to_owned(), Refusal::Taken(Taken::read(text)))
    }

    #[test]
    fn each_taken_slot_names_who_has_it() {
        let text =
            "skyward-taken 0 p-a p-a-n0-a1@gpu1\nskyward-taken 2 \nskyward-taken 3 user bob\nskyward-taken 4 p-b\n";
        let error = none_free("no host can run a node", &[refused("gpu1", text)]);
        assert_eq!(
            error.message(),
            "no host can run a node: gpu1: slot 0 is taken by pool p-a, slot 2 is taken, slot 3 is taken by the user \
             bob, slot 4 is taken by pool p-b"
        );
        assert!(error.hint().unwrap().starts_with("wait until a slot is free"), "{error:#}");
    }

    #[test]
    fn a_host_that_is_listed_by_two_names_is_reported_as_one() {
        let all =
            [refused("a@gpu1", "skyward-taken 0 p-a p-a-n1-a1@a@lab1\n"), refused("a@lab1", "skyward-taken 0 p-b\n")];
        let error = none_free("no host has a free slot", &all);
        assert!(error.message().contains("a@gpu1: slot 0 is taken by pool p-a, which reaches this host as a@lab1"));
        assert!(error.hint().unwrap().starts_with("a@gpu1 and a@lab1 are the same host"), "{error:#}");
        // Another client may reach a host by a name of its own.
        let error = none_free("no host has a free slot", &all[..1]);
        assert!(error.hint().unwrap().starts_with("wait until"), "{error:#}");
    }

    #[test]
    fn hosts_that_failed_get_no_advice_about_slots() {
        let failed = Error::new(ErrorKind::Provider, "the key is unknown").with_hint("pin the key");
        let error = none_free("no host can run a node", &[("gpu1".into(), Refusal::Failed(failed))]);
        assert_eq!(
            (error.message(), error.hint()),
            ("no host can run a node: gpu1: the key is unknown; pin the key", None)
        );
    }
}
