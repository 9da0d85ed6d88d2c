//! Why a host cannot run a node, and the error that lists the reason of each host.

use crate::error::{Error, ErrorKind};

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
    Pool(String),
}

impl Refusal {
    /// Whether a later attempt can succeed without a change to the list of hosts.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Taken(_) => true,
            Self::Short(_) => false,
            Self::Failed(error) => error.is_temporary(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Taken(taken) => taken.iter().map(Taken::describe).collect::<Vec<_>>().join(", "),
            Self::Short(what) => what.clone(),
            Self::Failed(error) => match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            },
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

    fn describe(&self) -> String {
        let slot = &self.slot;
        match &self.by {
            Holder::Unknown => format!("slot {slot} is taken"),
            Holder::User(user) => format!("slot {slot} is taken by the user {user}"),
            Holder::Pool(pool) => format!("slot {slot} is taken by pool {pool}"),
        }
    }
}

impl Holder {
    /// Reads `user NAME`, or `POOL MACHINE`.
    fn read(text: &str) -> Self {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("", _) => Self::Unknown,
            ("user", name) => Self::User(name.to_owned()),
            (pool, _) => Self::Pool(pool.to_owned()),
        }
    }
}

/// The error of a request that no host of the list can meet.
pub(super) fn none_free(message: &str, refused: &[(String, Refusal)]) -> Error {
    let each: Vec<_> = refused.iter().map(|(host, why)| format!("{host}: {}", why.describe())).collect();
    let error = Error::new(ErrorKind::Provider, format!("{message}: {}", each.join("; ")));
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
    fn hosts_that_failed_get_no_advice_about_slots() {
        let failed = Error::new(ErrorKind::Provider, "the key is unknown").with_hint("pin the key");
        let error = none_free("no host can run a node", &[("gpu1".into(), Refusal::Failed(failed))]);
        assert_eq!(error.message(), "no host can run a node: gpu1: the key is unknown; pin the key");
        assert_eq!(error.hint(), None);
    }
}
