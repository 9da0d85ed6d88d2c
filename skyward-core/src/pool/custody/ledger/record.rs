//! The records in a pool's file: one per line, each with its own checksum.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::owner::Owner;
use super::parts::PartRecord;
use crate::ids::{LaunchId, MachineId, MachineNumber, PoolId};
use crate::provider::Machine;
use crate::spec::hex;

/// A record. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub(crate) enum Record {
    /// The first record, written before anything is requested from the provider.
    Pool(Head),
    /// Written before a machine is requested.
    Intent(Intent),
    /// Written when the provider has returned the machine.
    Fact { machine: Machine, at: u64 },
    /// Written when a machine is confirmed gone while its pool lives on.
    Gone { machine: MachineId, at: u64 },
}

/// The owner of the pool, and the provider that has its machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) version: u32,
    pub(crate) pool: PoolId,
    pub(crate) provider: String,
    /// `None` for a provider with parts.
    pub(crate) identity: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<PartRecord>,
    pub(crate) owner: Owner,
    pub(crate) at: u64,
}

/// A machine that may have been requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) launch: LaunchId,
    #[serde(alias = "node")]
    pub(crate) number: MachineNumber,
    pub(crate) at: u64,
}

/// The records that could be read from a file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Page {
    /// `None` if the first record is damaged.
    pub(crate) head: Option<Head>,
    pub(crate) intents: Vec<Intent>,
    pub(crate) machines: Vec<Machine>,
    /// The number of lines that could not be read.
    pub(crate) damaged: usize,
}

impl Head {
    /// The parts of the provider, also of records of older versions.
    pub(crate) fn whereabouts(&self) -> Vec<PartRecord> {
        match &self.identity {
            Some(identity) => PartRecord::of_record(self.version, &self.provider, identity),
            None => self.parts.clone(),
        }
    }
}

impl Record {
    /// Appends the record as a line. A record contains no secret: the facts that a provider keeps
    /// about a machine besides its id are left out.
    pub(crate) fn write_line(mut self, line: &mut Vec<u8>) -> io::Result<()> {
        if let Self::Fact { machine, .. } = &mut self {
            machine.facts.clear();
        }
        let json = serde_json::to_vec(&self)?;
        write!(line, "{} ", sum(&json))?;
        line.extend(json);
        line.push(b'\n');
        Ok(())
    }

    fn read_line(line: &[u8], newer: bool, page: &mut Page) {
        let json = line
            .split_at_checked(SUM)
            .filter(|(found, rest)| rest.first() == Some(&b' ') && *found == sum(&rest[1..]).as_bytes());
        let record = json.map(|(_, rest)| serde_json::from_slice(&rest[1..]));
        match record {
            Some(Ok(Self::Pool(head))) => page.head = Some(head),
            Some(Ok(Self::Intent(intent))) => page.intents.push(intent),
            Some(Ok(Self::Fact { machine, .. })) => page.machines.push(machine),
            Some(Ok(Self::Gone { machine, .. })) => {
                let gone = page.machines.iter().position(|other| other.id == machine);
                if let Some(gone) = gone.map(|place| page.machines.remove(place)) {
                    page.intents.retain(|intent| intent.launch != gone.launch);
                }
            }
            // A newer version may write records that this version does not know.
            Some(Err(_)) if newer => {}
            _ => page.damaged += 1,
        }
    }
}

impl Page {
    /// Reads the complete records and counts the damaged ones. An incomplete record hides no other.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut page = Self::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\n") {
                Some([]) => {}
                Some(line) => {
                    let newer = page.newer().is_some();
                    Record::read_line(line, newer, &mut page);
                }
                None => page.damaged += 1,
            }
        }
        page
    }

    /// The version of the ledger, if it is newer than the version of this code.
    pub(crate) fn newer(&self) -> Option<u32> {
        self.head.as_ref().map(|head| head.version).filter(|version| *version > VERSION)
    }
}

#[cfg(any(test, fuzzing))]
impl Page {
    /// Reads bytes as they are, and once more line by line with the right checksums. What was read
    /// must be the same after it is written and read again.
    #[allow(clippy::unwrap_used, reason = "a violated property must end the fuzzer")]
    pub(crate) fn check(bytes: &[u8]) {
        Self::read(bytes).check_round();
        let mut lines = Vec::new();
        for json in bytes.split(|byte| *byte == b'\n') {
            lines.extend_from_slice(sum(json).as_bytes());
            lines.push(b' ');
            lines.extend_from_slice(json);
            lines.push(b'\n');
        }
        Self::read(&lines).check_round();
    }

    #[allow(clippy::unwrap_used, reason = "as above")]
    fn check_round(mut self) {
        // Facts are left out where records are written.
        self.machines.iter_mut().for_each(|machine| machine.facts.clear());
        self.damaged = 0;
        let machines = self.machines.iter().cloned().map(|machine| Record::Fact { machine, at: 0 });
        let intents = self.intents.iter().cloned().map(Record::Intent);
        let mut bytes = Vec::new();
        for record in self.head.iter().cloned().map(Record::Pool).chain(intents).chain(machines) {
            record.write_line(&mut bytes).unwrap();
        }
        assert_eq!(Self::read(&bytes), self);
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn sum(json: &[u8]) -> String {
    hex(&Sha256::digest(json)[..SUM / 2])
}

/// The version that this code writes. The form of a line and the fields of the first record stay
/// the same in all later versions.
pub(super) const VERSION: u32 = 3;
/// Hexadecimal digits of a checksum.
const SUM: usize = 16;
