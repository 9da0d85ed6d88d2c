//! The messages between the client and a worker.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::head::{Elements, pack, unknown, unreadable};
use super::{ERROR, PROTOCOL_VERSION};
use crate::error::{Error, ErrorKind, Result};
use crate::payload::TraceContext;
use crate::worker::codec::Frame;

/// An attempt of a gang: the same for all of its tasks, and different for each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangTry {
    /// The number of the gang's first task.
    pub first: u64,
    /// The number of the attempt.
    pub attempt: u32,
    /// How many ranks run it, from rank 0 on.
    pub ranks: u32,
}

/// From the client to a worker.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum ToWorker<'a> {
    Hello {
        generation: u64,
        acknowledged: u64,
        streams: &'a [Awaited],
    },
    Load {
        payload: u32,
        digest: &'a str,
        body: Bytes,
    },
    Run {
        run: u64,
        payload: u32,
        acknowledged: u64,
        granted: u64,
        trace: Option<&'a TraceContext>,
        gang: Option<GangTry>,
        /// How many callers are above it; 0 for a task that Rust has submitted.
        depth: u32,
        args: Bytes,
    },
    Ack {
        sequence: u64,
    },
    Credit(Awaited),
    Cancel {
        run: u64,
    },
    Bye,
    /// The worker's machine ends in this many seconds, at most
    /// [`LONGEST_NOTICE`](super::LONGEST_NOTICE).
    Notice {
        kind: &'a str,
        seconds: f64,
        words: &'a str,
    },
    /// The pool may have this many workers, at least 1.
    Size {
        workers: u32,
    },
}

/// The client's progress with the items of a run. Both numbers only grow, so late or repeated
/// values do no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaited {
    /// The number of the run.
    pub run: u64,
    /// The items before this index have arrived.
    pub arrived: u64,
    /// The items before this index may be sent.
    pub granted: u64,
}

/// From a worker to the client.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum FromWorker {
    Hello(WorkerHello),
    Result {
        end: TaskEnd,
        value: Bytes,
    },
    Failure {
        end: TaskEnd,
        failure: Failure,
    },
    Item {
        run: u64,
        index: u64,
        value: Bytes,
    },
    Report {
        sequence: u64,
        run: u64,
        value: Bytes,
    },
    /// The worker begins to import the payload of a run, or has imported it.
    Import {
        run: u64,
        begins: bool,
    },
}

/// The first message of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerHello {
    /// The version of its protocol.
    pub version: u32,
    /// Its process id.
    pub pid: u32,
    /// The generation of its world.
    pub generation: u64,
    /// Its rank in that world.
    pub rank: u32,
    /// The interpreter's version.
    pub python: String,
    /// The runs up to this number have arrived.
    pub received: u64,
    /// Why its hooks could not be entered, or a payload not be imported, if that failed.
    pub failure: Option<Failure>,
}

/// A worker's report on a task that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEnd {
    /// The number of this result on its worker, from 1.
    pub sequence: u64,
    /// The number of the run.
    pub run: u64,
    /// The offset at which standard output ended.
    pub stdout: u64,
    /// The offset at which standard error ended.
    pub stderr: u64,
    /// How long the payload ran, in microseconds.
    pub micros: u64,
    /// What had no effect.
    pub warnings: Vec<Warning>,
}

/// Something that a task asked of a framework, and that had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Warning {
    /// What had no effect.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// A module that an import did not find, and what the node knows about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Missing {
    /// The name of the module.
    pub module: String,
    /// The package of the index that contains it, by the worker's table.
    pub package: Option<String>,
    /// Where the outermost package of the module is.
    pub there: Option<String>,
    /// The path below the working folder, one folder too deep for an import.
    pub lies: Option<String>,
    /// A package of the module's name that does not contain it, with its version.
    pub installed: Option<String>,
    /// Set if the module belongs to Python's own library.
    pub standard: Option<String>,
}

/// Why a task or a hook failed, in the worker's words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The kind of failure; see the table in docs/protocol.md.
    pub kind: String,
    /// The exception's class.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The class's module.
    pub module: String,
    /// `str(exception)`.
    pub message: String,
    /// Python's traceback.
    pub traceback: String,
    /// The path within the value.
    pub path: Option<String>,
    /// The Python type of the value that could not be converted.
    pub value_type: Option<String>,
    /// The module that an import did not find.
    pub missing: Option<Box<Missing>>,
    /// The plugin whose hook failed.
    pub plugin: Option<String>,
    /// `enter` or `exit`.
    pub phase: Option<String>,
    /// The digest of the payload that could not be imported before the pool was ready.
    pub payload: Option<String>,
}

impl ToWorker<'_> {
    /// Encodes head and body.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when a part cannot be encoded.
    pub fn encode(self) -> Result<(Vec<u8>, Bytes)> {
        Ok(match self {
            Self::Hello { generation, acknowledged, streams } => {
                let streams: Vec<_> = streams.iter().map(|at| (at.run, at.arrived, at.granted)).collect();
                (pack(&(65, PROTOCOL_VERSION, generation, acknowledged, streams))?, Bytes::new())
            }
            Self::Load { payload, digest, body } => (pack(&(66, payload, digest))?, body),
            Self::Run { run, payload, acknowledged, granted, trace, gang, depth, args } => {
                let trace = trace.map(|trace| (trace.parent(), trace.state().unwrap_or_default()));
                let head = match (gang, depth) {
                    (None, 0) => pack(&(67, run, payload, acknowledged, granted, trace))?,
                    (Some(gang), 0) => pack(&(67, run, payload, acknowledged, granted, trace, gang))?,
                    (gang, depth) => pack(&(67, run, payload, acknowledged, granted, trace, gang, depth))?,
                };
                (head, args)
            }
            Self::Ack { sequence } => (pack(&(68, sequence))?, Bytes::new()),
            Self::Credit(Awaited { run, arrived, granted }) => (pack(&(69, run, granted, arrived))?, Bytes::new()),
            Self::Cancel { run } => (pack(&(70, run))?, Bytes::new()),
            Self::Bye => (pack(&(71,))?, Bytes::new()),
            Self::Notice { kind, seconds, words } => (pack(&(73, kind, seconds, words))?, Bytes::new()),
            Self::Size { workers } => (pack(&(74, workers))?, Bytes::new()),
        })
    }
}

impl FromWorker {
    /// Decodes a frame.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for an unknown message number or a head of another shape.
    pub fn decode(frame: Frame) -> Result<Self> {
        let mut head = Elements::of(&frame.head)?;
        Ok(match head.next::<u32>()? {
            97 => {
                let (version, pid, generation, rank) = (head.next()?, head.next()?, head.next()?, head.next()?);
                if version != PROTOCOL_VERSION {
                    // The rest depends on that version.
                    let (python, received, failure) = (String::new(), 0, None);
                    return Ok(Self::Hello(WorkerHello { version, pid, generation, rank, python, received, failure }));
                }
                let (ready, python, received) = (head.next()?, head.next()?, head.next()?);
                let failure = if ready { None } else { Some(Failure::decode(&frame.body)?) };
                Self::Hello(WorkerHello { version, pid, generation, rank, python, received, failure })
            }
            98 => Self::Result { end: TaskEnd::decode(&mut head)?, value: frame.body },
            99 => Self::Failure { end: TaskEnd::decode(&mut head)?, failure: Failure::decode(&frame.body)? },
            100 => Self::Item { run: head.next()?, index: head.next()?, value: frame.body },
            101 => Self::Report { sequence: head.next()?, run: head.next()?, value: frame.body },
            102 => Self::Import { run: head.next()?, begins: head.next()? },
            ERROR => return Err(refused_by_worker(&mut head)?),
            other => return Err(unknown("worker", other)),
        })
    }
}

impl TaskEnd {
    /// By hand, because every call returns one.
    fn decode(head: &mut Elements<'_>) -> Result<Self> {
        let (sequence, run, stdout) = (head.number()?, head.number()?, head.number()?);
        let (stderr, micros) = (head.number()?, head.number()?);
        Ok(Self { sequence, run, stdout, stderr, micros, warnings: head.rest().unwrap_or_default() })
    }
}

impl Failure {
    pub(in crate::worker) fn decode(body: &[u8]) -> Result<Self> {
        rmp_serde::from_slice(body).map_err(|error| unreadable(&error))
    }

    /// The class with its module, as in a traceback's last line.
    pub fn qualified_type(&self) -> String {
        if self.module.is_empty() || self.module == "builtins" {
            self.type_name.clone()
        } else {
            format!("{}.{}", self.module, self.type_name)
        }
    }
}

/// The error of a message that the worker refused.
pub(in crate::worker) fn refused_by_worker(head: &mut Elements<'_>) -> Result<Error> {
    let (refused, text): (u32, String) = (head.next()?, head.next()?);
    Ok(Error::new(ErrorKind::Protocol, format!("the worker refused message {refused}: {text}")))
}
