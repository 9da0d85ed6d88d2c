//! Where the machines of a pool are, as its first record says.

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::pool::custody::timing::PART_ANSWER;
use crate::provider::{Machine, Part, Provider, client};

/// A part of the pool's provider, which may have machines of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    /// The part's name when the pool was started, for people; of a part without an identity it is all
    /// that is known.
    pub(crate) name: String,
    /// `None` if the part did not answer when the pool was started.
    pub(crate) identity: Option<String>,
}

impl PartRecord {
    /// The parts of a provider; none of one that has no parts. A part that does not answer keeps no
    /// pool from starting on the others.
    pub(super) async fn all_of(provider: &dyn Provider) -> Vec<Self> {
        let record = async |part: Part| Self { identity: identity(&part).await.ok(), name: part.name };
        join_all(provider.parts().into_iter().map(record)).await
    }

    /// Where the machines are by an identity in a record of this version. A provider without parts is one
    /// part.
    pub(super) fn of_record(version: u32, provider: &str, identity: &str) -> Vec<Self> {
        let one = |identity: &str| vec![Self { name: identity.to_owned(), identity: Some(identity.to_owned()) }];
        if version > LAST_OF_PLACES {
            return one(identity);
        }
        // Identities of older versions named the client's machine, because names were a part of them.
        match (provider, identity.rsplit_once(" from ")) {
            ("hosts", Some((names, machine))) if machine == client::machine() => {
                names.split(',').map(|name| Self { name: name.to_owned(), identity: None }).collect()
            }
            _ => match (provider, identity.rsplit_once(" at ")) {
                ("docker", Some((engine, _))) => one(engine),
                _ => one(identity),
            },
        }
    }

    /// Whether a machine is in this part.
    pub(crate) fn has(&self, machine: &Machine) -> bool {
        part_of(machine).is_some_and(|part| match &self.identity {
            Some(identity) => part == identity,
            // Older versions put the name into the ids of machines.
            None => part == self.name,
        })
    }
}

/// The identity of a part, which it is asked once for.
pub(crate) async fn identity(part: &Part) -> Result<String> {
    let asked = tokio::time::timeout(PART_ANSWER, part.provider.identity()).await;
    asked.unwrap_or_else(|_| {
        let message = format!("{} did not report its identity within {PART_ANSWER:?}", part.name);
        Err(crate::Error::new(crate::error::ErrorKind::Timeout, message).temporary())
    })
}

/// The identity of the part that a machine is in, for providers with parts.
pub(crate) fn part_of(machine: &Machine) -> Option<&str> {
    machine.id.as_str().split_once('@').map(|(_, part)| part)
}

/// The last version of the ledger whose identities contained names and places.
const LAST_OF_PLACES: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MachineId, PoolId};
    use crate::pool::custody::ledger::tests::machine;

    #[test]
    fn records_of_older_versions_say_where_machines_are_without_what_can_change() {
        let one = |name: &str| vec![PartRecord { name: name.into(), identity: Some(name.into()) }];
        let by_name = |name: &str| PartRecord { name: name.into(), identity: None };
        let here = client::machine();
        let hosts = PartRecord::of_record(2, "hosts", &format!("ada@gpu1:22,ada@gpu2:22 from {here}"));
        assert_eq!(hosts, [by_name("ada@gpu1:22"), by_name("ada@gpu2:22")]);
        let elsewhere = "ada@gpu1:22 from machine 0000000000000000";
        assert_eq!(PartRecord::of_record(2, "hosts", elsewhere), one(elsewhere), "names may mean other hosts there");
        let docker =
            PartRecord::of_record(2, "docker", "engine AB:CD at unix:///run/docker.sock, for machine 0000000000000000");
        assert_eq!(docker, one("engine AB:CD"));
        assert_eq!(PartRecord::of_record(2, "aws", "account 1 in eu-west-1"), one("account 1 in eu-west-1"));
        let local = format!("/run/user/1000/skyward-1000 on {here}");
        assert_eq!(PartRecord::of_record(2, "local", &local), one(&local));
        // A later identity may contain such words.
        assert_eq!(PartRecord::of_record(3, "docker", "engine X at Y"), one("engine X at Y"));
    }

    #[test]
    fn a_machine_is_in_the_part_that_its_id_names() {
        let mut machine = machine(&PoolId::random(), 0);
        let known = PartRecord { name: "ada@gpu1:22".into(), identity: Some("0011223344556677".into()) };
        let named = PartRecord { name: "ada@gpu1:22".into(), identity: None };
        assert!(!known.has(&machine) && part_of(&machine).is_none());
        for (part, by_identity, by_name) in
            [("0011223344556677", true, false), ("ada@gpu1:22", false, true), ("8899aabbccddeeff", false, false)]
        {
            machine.id = MachineId::new(format!("p-1-n0-a1@{part}"));
            assert_eq!(known.has(&machine), by_identity, "{part}");
            assert_eq!(named.has(&machine), by_name, "{part}");
        }
    }
}
