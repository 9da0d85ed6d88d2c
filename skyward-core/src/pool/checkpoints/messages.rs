//! What a worker and the client say to each other about checkpoints and data sets. Movers pass it on
//! unread.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// From a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FromPayload {
    Open(Opening),
    /// The ranks should agree on a step at which they save; this one is at a step.
    Due {
        open: String,
        step: i64,
    },
    /// Answer when what the rank has saved up to this step is committed.
    Wait {
        n: u64,
        open: String,
        step: i64,
    },
    Close {
        open: String,
    },
    /// Answer when a data set is on the machine.
    Data {
        n: u64,
        name: String,
    },
}

/// A message as a payload writes it: a map without nested values that matter.
#[derive(Debug, Deserialize)]
struct Said {
    kind: String,
    #[serde(default)]
    n: u64,
    open: String,
    #[serde(default)]
    step: i64,
    #[serde(default)]
    name: String,
    #[serde(default)]
    keep: Option<u32>,
    #[serde(default)]
    writers: Writers,
    #[serde(default)]
    own: bool,
    #[serde(default, rename = "try")]
    key: String,
    #[serde(default)]
    rank: u32,
    #[serde(default)]
    ranks: u32,
    #[serde(default)]
    worker_rank: u32,
    #[serde(default)]
    generation: u64,
}

/// A rank begins to use a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    /// The number of the request.
    pub(super) n: u64,
    /// The id of this use of the name.
    pub(super) open: String,
    pub(super) name: String,
    pub(super) keep: Option<u32>,
    pub(super) writers: Writers,
    /// Whether the rank restores its own files alone.
    pub(super) own: bool,
    /// The same for all ranks of one try.
    pub(super) key: String,
    /// The rank among those of the try.
    pub(super) rank: u32,
    pub(super) ranks: u32,
    /// The rank of the worker in its pool.
    pub(super) worker_rank: u32,
    pub(super) generation: u64,
}

/// Which ranks save.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Writers {
    #[default]
    All,
    Head,
}

/// What the record of a save says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Record {
    pub(super) name: String,
    #[serde(rename = "try")]
    pub(super) key: String,
    pub(super) step: i64,
    pub(super) rank: u32,
    /// JSON.
    pub(super) meta: String,
}

/// To a worker.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum ToPayload {
    /// What a try begins with.
    Opened {
        n: u64,
        step: Option<i64>,
        meta: Option<String>,
        path: Option<String>,
    },
    Done {
        n: u64,
    },
    /// Where a data set is.
    Brought {
        n: u64,
        path: String,
    },
    Refused {
        n: u64,
        error: Failure,
    },
    /// All ranks save at this step; `None` if they cannot agree any more.
    Target {
        target: i64,
        step: Option<i64>,
    },
    /// No further save of the try is committed.
    Failed {
        failed: Failure,
    },
}

/// Why something failed, for the payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Failure {
    message: String,
    hint: Option<String>,
}

impl FromPayload {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for bytes that are none: a payload may send anything.
    pub(super) fn read(body: &[u8]) -> Result<Self> {
        let said: Said = decode("message", body)?;
        let lengths = [said.kind.len(), said.open.len(), said.name.len(), said.key.len()];
        if lengths.into_iter().any(|length| length > LONGEST_TEXT) {
            return Err(unreadable("message", &"it has too long a text"));
        }
        let Said { n, open, step, name, keep, writers, own, key, rank, ranks, worker_rank, generation, .. } = said;
        Ok(match &*said.kind {
            "open" => {
                Self::Open(Opening { n, open, name, keep, writers, own, key, rank, ranks, worker_rank, generation })
            }
            "due" => Self::Due { open, step },
            "wait" => Self::Wait { n, open, step },
            "close" => Self::Close { open },
            "data" => Self::Data { n, name },
            other => return Err(unreadable("message", &format!("its kind is {other:?}"))),
        })
    }
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for bytes that are none.
    pub(super) fn read(body: &[u8]) -> Result<Self> {
        decode("record of a save", body)
    }
}

impl ToPayload {
    /// The answer to a request that cannot be met.
    pub(super) fn refused(n: u64, error: &Error) -> Self {
        Self::Refused { n, error: Failure::from(error) }
    }

    /// The message as the worker reads it.
    pub(super) fn body(&self) -> Bytes {
        // A map of texts and numbers can always be encoded.
        rmp_serde::to_vec_named(self).unwrap_or_default().into()
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self { message: error.summary().to_string(), hint: error.hint().map(ToOwned::to_owned) }
    }
}

fn unreadable(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, format!("a {what} cannot be read: {error}"))
}

/// Decodes what a payload has written, which may be anything: neither deep nor large values.
fn decode<T: serde::de::DeserializeOwned>(what: &str, body: &[u8]) -> Result<T> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(body);
    reader.set_max_depth(DEEPEST);
    T::deserialize(&mut reader).map_err(|error| unreadable(what, &error))
}

/// The most bytes of an id, a name or a key.
const LONGEST_TEXT: usize = 100;
/// The most levels of a message.
const DEEPEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(value: &serde_json::Value) -> Vec<u8> {
        rmp_serde::to_vec_named(value).unwrap()
    }

    #[test]
    fn messages_of_payloads_are_bounded() {
        let close = |open: &str| packed(&serde_json::json!({"kind": "close", "open": open, "failed": true}));
        assert_eq!(FromPayload::read(&close("a")).unwrap(), FromPayload::Close { open: "a".into() });
        let mut deep = serde_json::Value::Null;
        for _ in 0..100 {
            deep = serde_json::json!([deep]);
        }
        for wrong in [
            close(&"a".repeat(101)),
            packed(&serde_json::json!({"z": deep, "kind": "close", "open": "a"})),
            packed(&serde_json::json!({"kind": "open"})),
            packed(&serde_json::json!({"kind": "none", "open": "a"})),
            b"\xc1".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(FromPayload::read(&wrong).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
