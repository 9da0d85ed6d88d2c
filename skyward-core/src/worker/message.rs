//! The messages of the protocol, version 2; `docs/protocol.md` says what they mean.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec::Frame;
use crate::error::{Error, ErrorKind, Result};
use crate::payload::TraceContext;
use crate::plugin::Hook;
use crate::spec::Secrets;

/// What the client and the node speak.
pub const PROTOCOL_VERSION: u32 = 2;

/// Seconds. No notice of a machine's end is longer: both sides refuse a message that says so.
pub const LONGEST_NOTICE: f64 = 1e9;

/// The message by which either side of a node refuses what it got.
pub(super) const ERROR: u32 = 41;

/// From the client to an agent.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum ToAgent {
    Hello { pool: String, max_frame: usize },
    Start { request: u64, generation: u64, workers: Vec<u32>, spec: Box<StartSpec>, peers: Peers },
    ReservePort { request: u64 },
    Signal { generation: u64, worker: u32, signal: Signal },
    Stop { request: u64, generation: u64, workers: Vec<u32>, grace: f64 },
    Ping { sequence: u64, lease: f64 },
    Logs { generation: u64, worker: u32, stdout: u64, stderr: u64 },
    Shutdown { request: u64, grace: f64 },
    Recall { generation: u64, worker: u32, pid: u32, upto: u64 },
    Watch { command: Vec<String> },
}

/// What an agent does to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// SIGINT; it hits only a task that the client has cancelled.
    Interrupt,
    /// Ends the whole process tree.
    Kill,
    /// Has the stacks of all threads sent.
    Stacks,
    /// Has a worker that computes look at its connection. No payload notices, but for the functions that it has registered to be told of a notice.
    Attend,
}

/// From an agent to the client.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum FromAgent {
    Hello {
        version: u32,
        pid: u32,
        python: String,
    },
    Started {
        request: u64,
        generation: u64,
        workers: Vec<StartedWorker>,
    },
    Port {
        request: u64,
        port: u16,
    },
    Exited {
        generation: u64,
        worker: u32,
        pid: u32,
        code: Option<i32>,
        signal: Option<i32>,
        out_of_memory: bool,
        begun: u64,
    },
    Pong {
        sequence: u64,
    },
    Log {
        generation: u64,
        worker: u32,
        stream: u8,
        offset: u64,
        bytes: Bytes,
    },
    LogEnd {
        generation: u64,
        worker: u32,
        stdout: u64,
        stderr: u64,
    },
    Stopped {
        request: u64,
        generation: u64,
        workers: Vec<u32>,
    },
    Error {
        refused: u32,
        text: String,
        request: u64,
    },
    Bye {
        request: u64,
    },
    Progress {
        generation: u64,
        worker: u32,
    },
    Stacks {
        generation: u64,
        worker: u32,
        text: Bytes,
    },
    Recalled {
        generation: u64,
        worker: u32,
        pid: u32,
        upto: u64,
        begun: u64,
    },
    /// The machine ends in so many seconds, at most [`LONGEST_NOTICE`].
    Notice {
        kind: String,
        seconds: f64,
        words: String,
    },
    /// The worker has made a call, and listens at this path for the connection over which it calls.
    Calls {
        generation: u64,
        worker: u32,
        pid: u32,
        path: String,
    },
}

/// A worker process that an agent started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StartedWorker {
    /// Its number on the node.
    pub worker: u32,
    /// Its process id.
    pub pid: u32,
    /// The path of its socket.
    pub socket: String,
}

/// A try at a gang: the same for all of its tasks, and for no other try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangTry {
    /// The number of the gang's first task.
    pub first: u64,
    /// Which try it is.
    pub attempt: u32,
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
        slot: u32,
        digest: &'a str,
        body: Bytes,
    },
    Run {
        run: u64,
        slot: u32,
        acknowledged: u64,
        granted: u64,
        trace: Option<&'a TraceContext>,
        gang: Option<GangTry>,
        /// How many callers stand above it; 0 for what Rust has submitted.
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
    /// The worker's machine ends in so many seconds, at most [`LONGEST_NOTICE`].
    Notice {
        kind: &'a str,
        seconds: f64,
        words: &'a str,
    },
}

/// How far the client has come with the items of a run. Both numbers only grow, so that what is late or repeated does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaited {
    /// Which run.
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
    Result { end: TaskEnd, value: Bytes },
    Failure { end: TaskEnd, failure: Failure },
    Item { run: u64, index: u64, value: Bytes },
    Report { sequence: u64, run: u64, value: Bytes },
}

/// The first message of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerHello {
    /// What it speaks.
    pub version: u32,
    /// Its process.
    pub pid: u32,
    /// The world that it belongs to.
    pub generation: u64,
    /// Its rank there.
    pub rank: u32,
    /// The interpreter's version.
    pub python: String,
    /// The runs up to this number have arrived.
    pub received: u64,
    /// Why its hooks could not be entered, where they could not.
    pub failure: Option<Failure>,
}

/// What a worker says of a task that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TaskEnd {
    /// The number of this result on its worker, from 1.
    pub sequence: u64,
    /// Which run.
    pub run: u64,
    /// Where standard output ended.
    pub stdout: u64,
    /// Where standard error ended.
    pub stderr: u64,
    /// How long the payload ran.
    pub micros: u64,
}

/// Why a task or a hook failed, as the worker tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// What sort of failure; the table in docs/protocol.md.
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
    /// Where in the value.
    pub path: Option<String>,
    /// The Python type of what could not be converted.
    pub value_type: Option<String>,
    /// The package to add.
    pub package: Option<String>,
    /// The plugin whose hook failed.
    pub plugin: Option<String>,
    /// `enter` or `exit`.
    pub phase: Option<String>,
}

/// How an agent starts the workers of a generation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartSpec {
    /// The interpreter.
    pub python: String,
    /// What stands before the interpreter on the command line.
    pub launcher: Vec<String>,
    /// The workers' environment, beside the agent's.
    pub env: BTreeMap<String, String>,
    /// More of it, which the agent hands to the workers' environment and keeps nowhere.
    pub(crate) secrets: Secrets,
    /// The workers' working folder.
    pub cwd: String,
    /// The hooks, outermost first.
    pub hooks: Vec<StartHook>,
    /// The largest body of a frame.
    pub max_frame: usize,
    /// How many bytes of unacknowledged results a worker keeps.
    pub retain_bytes: usize,
    /// How many bytes of large arrays the store of the node keeps.
    pub store_bytes: u64,
    /// The cluster as the workers see it. It comes last, and the peers last in it.
    pub cluster: Cluster,
}

/// The cluster as a worker sees it: what is really there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields of `sky.instance_info()`")]
pub struct Cluster {
    pub node: u32,
    pub total_nodes: u32,
    pub workers_per_node: u32,
    pub head_addr: String,
    pub head_port: u16,
    pub job_id: String,
    pub addr: String,
    pub accelerators: u32,
    pub total_accelerators: u32,
    pub accelerator: Option<crate::spec::Accelerator>,
    pub generation: u64,
    pub joined: bool,
    /// Empty here: [`Peers`] come in its place.
    pub(crate) peers: [Peer; 0],
}

/// The nodes of a cluster, as all of them are told: encoded once, and shared by what is sent to each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers(Bytes);

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields of `sky.instance_info().peers`")]
pub struct Peer {
    pub node: u32,
    pub addr: String,
}

/// A plugin's hook.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartHook {
    /// Whose it is.
    pub plugin: String,
    /// What it is.
    #[serde(flatten)]
    pub hook: Hook,
}

impl ToAgent {
    /// The number by which an agent names it when it refuses it.
    pub fn number(&self) -> u32 {
        match self {
            Self::Hello { .. } => 1,
            Self::Start { .. } => 2,
            Self::ReservePort { .. } => 3,
            Self::Signal { .. } => 4,
            Self::Stop { .. } => 5,
            Self::Ping { .. } => 6,
            Self::Logs { .. } => 7,
            Self::Shutdown { .. } => 8,
            Self::Recall { .. } => 9,
            Self::Watch { .. } => 10,
        }
    }

    /// Head and body; the body goes on with what [`shared`](Self::shared) gives.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when a part cannot be encoded.
    pub fn encode(&self) -> Result<(Vec<u8>, Bytes)> {
        let number = self.number();
        let head = match self {
            Self::Hello { pool, max_frame } => pack(&(number, PROTOCOL_VERSION, pool, max_frame))?,
            Self::Start { request, generation, workers, spec, .. } => {
                let mut body = Vec::new();
                crate::payload::value::encode_into(&mut body, spec).map_err(|error| protocol("start spec", &error))?;
                // The empty list, in whose place the peers come.
                body.pop();
                return Ok((pack(&(number, request, generation, workers))?, body.into()));
            }
            Self::ReservePort { request } => pack(&(number, request))?,
            Self::Signal { generation, worker, signal } => pack(&(number, generation, worker, signal))?,
            Self::Stop { request, generation, workers, grace } => pack(&(number, request, generation, workers, grace))?,
            Self::Ping { sequence, lease } => pack(&(number, sequence, lease))?,
            Self::Logs { generation, worker, stdout, stderr } => pack(&(number, generation, worker, stdout, stderr))?,
            Self::Shutdown { request, grace } => pack(&(number, request, grace))?,
            Self::Recall { generation, worker, pid, upto } => pack(&(number, generation, worker, pid, upto))?,
            Self::Watch { command } => pack(&(number, command))?,
        };
        Ok((head, Bytes::new()))
    }

    /// The end of the body, which is the same for many nodes.
    pub fn shared(&self) -> Bytes {
        match self {
            Self::Start { peers, .. } => peers.0.clone(),
            _ => Bytes::new(),
        }
    }
}

impl Peers {
    /// Encodes them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when one cannot be encoded.
    pub fn new(peers: &[Peer]) -> Result<Self> {
        let mut encoded = Vec::new();
        crate::payload::value::encode_into(&mut encoded, &peers).map_err(|error| protocol("peer", &error))?;
        Ok(Self(encoded.into()))
    }
}

impl ToWorker<'_> {
    /// Head and body.
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
            Self::Load { slot, digest, body } => (pack(&(66, slot, digest))?, body),
            Self::Run { run, slot, acknowledged, granted, trace, gang, depth, args } => {
                let trace = trace.map(|trace| (trace.parent(), trace.state().unwrap_or_default()));
                let head = match (gang, depth) {
                    (None, 0) => pack(&(67, run, slot, acknowledged, granted, trace))?,
                    (Some(gang), 0) => pack(&(67, run, slot, acknowledged, granted, trace, gang))?,
                    (gang, depth) => pack(&(67, run, slot, acknowledged, granted, trace, gang, depth))?,
                };
                (head, args)
            }
            Self::Ack { sequence } => (pack(&(68, sequence))?, Bytes::new()),
            Self::Credit(Awaited { run, arrived, granted }) => (pack(&(69, run, granted, arrived))?, Bytes::new()),
            Self::Cancel { run } => (pack(&(70, run))?, Bytes::new()),
            Self::Bye => (pack(&(71,))?, Bytes::new()),
            Self::Notice { kind, seconds, words } => (pack(&(73, kind, seconds, words))?, Bytes::new()),
        })
    }
}

impl FromAgent {
    /// Reads a frame.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for an unknown number or a head of another shape.
    pub fn decode(frame: Frame) -> Result<Self> {
        let mut head = Elements::of(&frame.head)?;
        Ok(match head.next::<u32>()? {
            33 => Self::Hello { version: head.next()?, pid: head.next()?, python: head.next()? },
            34 => Self::Started { request: head.next()?, generation: head.next()?, workers: head.next()? },
            35 => {
                let request = head.next()?;
                let _address: String = head.next()?;
                Self::Port { request, port: head.next()? }
            }
            36 => Self::Exited {
                generation: head.next()?,
                worker: head.next()?,
                pid: head.next()?,
                code: head.next()?,
                signal: head.next()?,
                out_of_memory: head.next()?,
                begun: head.next()?,
            },
            37 => Self::Pong { sequence: head.next()? },
            38 => Self::Log {
                generation: head.next()?,
                worker: head.next()?,
                stream: head.next()?,
                offset: head.next()?,
                bytes: frame.body,
            },
            39 => Self::LogEnd {
                generation: head.next()?,
                worker: head.next()?,
                stdout: head.next()?,
                stderr: head.next()?,
            },
            40 => Self::Stopped { request: head.next()?, generation: head.next()?, workers: head.next()? },
            ERROR => Self::Error { refused: head.next()?, text: head.next()?, request: head.next()? },
            42 => Self::Bye { request: head.next()? },
            43 => Self::Progress { generation: head.next()?, worker: head.next()? },
            44 => Self::Stacks { generation: head.next()?, worker: head.next()?, text: frame.body },
            45 => Self::Recalled {
                generation: head.next()?,
                worker: head.next()?,
                pid: head.next()?,
                upto: head.next()?,
                begun: head.next()?,
            },
            46 => Self::Notice { kind: head.next()?, seconds: head.seconds()?, words: head.next()? },
            47 => Self::Calls { generation: head.next()?, worker: head.next()?, pid: head.next()?, path: head.next()? },
            other => return Err(unknown("agent", other)),
        })
    }
}

impl FromWorker {
    /// Reads a frame.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for an unknown number or a head of another shape.
    pub fn decode(frame: Frame) -> Result<Self> {
        let mut head = Elements::of(&frame.head)?;
        Ok(match head.next::<u32>()? {
            97 => {
                let (version, pid, generation, rank) = (head.next()?, head.next()?, head.next()?, head.next()?);
                if version != PROTOCOL_VERSION {
                    // What follows is what that version says.
                    let (python, received, failure) = (String::new(), 0, None);
                    return Ok(Self::Hello(WorkerHello { version, pid, generation, rank, python, received, failure }));
                }
                let (ready, python, received) = (head.next()?, head.next()?, head.next()?);
                let failure = if ready { None } else { Some(Failure::decode(&frame.body)?) };
                Self::Hello(WorkerHello { version, pid, generation, rank, python, received, failure })
            }
            98 => Self::Result { end: head.task_end()?, value: frame.body },
            99 => Self::Failure { end: head.task_end()?, failure: Failure::decode(&frame.body)? },
            100 => Self::Item { run: head.next()?, index: head.next()?, value: frame.body },
            101 => Self::Report { sequence: head.next()?, run: head.next()?, value: frame.body },
            ERROR => return Err(refused_by_worker(&mut head)?),
            other => return Err(unknown("worker", other)),
        })
    }
}

/// The elements of a head, one after the other. What a later version has appended is not looked at.
pub(super) struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    pub(super) fn of(head: &'a [u8]) -> Result<Self> {
        let mut rest = head;
        let length = rmp::decode::read_array_len(&mut rest);
        length.map_err(|error| protocol("head", &error))?;
        Ok(Self(rest))
    }

    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<T> {
        T::deserialize(&mut rmp_serde::Deserializer::new(&mut self.0)).map_err(|error| unreadable(&error))
    }

    /// What can be added to a point in time.
    fn seconds(&mut self) -> Result<f64> {
        let seconds = self.next::<f64>()?;
        match (0.0..=LONGEST_NOTICE).contains(&seconds) {
            true => Ok(seconds),
            false => Err(unreadable(&format!("{seconds} is no number of seconds between 0 and {LONGEST_NOTICE}"))),
        }
    }

    /// By hand, because one comes back from every call.
    fn task_end(&mut self) -> Result<TaskEnd> {
        let mut number = || rmp::decode::read_int::<u64, _>(&mut self.0).map_err(|error| unreadable(&error));
        Ok(TaskEnd { sequence: number()?, run: number()?, stdout: number()?, stderr: number()?, micros: number()? })
    }
}

impl Failure {
    pub(super) fn decode(body: &[u8]) -> Result<Self> {
        rmp_serde::from_slice(body).map_err(|error| unreadable(&error))
    }

    /// The class with its module, as a traceback's last line shows it.
    pub fn qualified_type(&self) -> String {
        if self.module.is_empty() || self.module == "builtins" {
            self.type_name.clone()
        } else {
            format!("{}.{}", self.module, self.type_name)
        }
    }
}

/// The error of a message that the worker did not take.
pub(super) fn refused_by_worker(head: &mut Elements<'_>) -> Result<Error> {
    let (refused, text): (u32, String) = (head.next()?, head.next()?);
    Ok(Error::new(ErrorKind::Protocol, format!("the worker refused message {refused}: {text}")))
}

pub(super) fn pack<T: Serialize>(head: &T) -> Result<Vec<u8>> {
    rmp_serde::to_vec(head).map_err(|error| protocol("head", &error))
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> Error {
    protocol("message", error).with_hint("the worker package on the node is of another version than this client")
}

fn protocol(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, format!("a {what} of the worker protocol cannot be read or written: {error}"))
}

pub(super) fn unknown(from: &str, number: u32) -> Error {
    Error::new(ErrorKind::Protocol, format!("the {from} sent message {number}, which this version does not know"))
        .with_hint("the worker package on the node is newer than this client; build both from one version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_appends_is_not_looked_at() {
        let frame = |head: Vec<u8>| Frame { head: head.into(), body: Bytes::new() };
        let pong = FromAgent::decode(frame(pack(&(37, 7, "more")).unwrap())).unwrap();
        assert_eq!(pong, FromAgent::Pong { sequence: 7 });
        let result = FromWorker::decode(frame(pack(&(98, 1, 2, 3, 4, 5, [6])).unwrap())).unwrap();
        assert!(matches!(result, FromWorker::Result { end: TaskEnd { sequence: 1, micros: 5, .. }, .. }));
    }

    #[test]
    fn a_notice_is_read_only_with_seconds_that_a_deadline_can_be_made_of() {
        let read = |seconds: f64| {
            let head = pack(&(46, "preempted", seconds, "the market wants it back")).unwrap();
            FromAgent::decode(Frame { head: head.into(), body: Bytes::new() })
        };
        for seconds in [0.0, 0.5, 120.0, LONGEST_NOTICE] {
            let words = "the market wants it back".to_owned();
            assert_eq!(read(seconds).unwrap(), FromAgent::Notice { kind: "preempted".into(), seconds, words });
        }
        for seconds in [-0.1, 2e9, f64::INFINITY, f64::NAN] {
            assert_eq!(read(seconds).unwrap_err().kind(), ErrorKind::Protocol, "{seconds}");
        }
    }

    #[test]
    fn a_watch_and_a_notice_are_written_as_the_node_reads_them() {
        let watch = ToAgent::Watch { command: vec!["poll".into(), "--every=5".into()] };
        let (head, body) = watch.encode().unwrap();
        let read: (u32, Vec<String>) = rmp_serde::from_slice(&head).unwrap();
        assert_eq!((read.0, read.1.join(" ").as_str(), body.len()), (watch.number(), "poll --every=5", 0));
        let notice = ToWorker::Notice { kind: "budget", seconds: 90.5, words: "" };
        let (head, body) = notice.encode().unwrap();
        let read: (u32, String, f64, String) = rmp_serde::from_slice(&head).unwrap();
        assert_eq!((read, body.len()), ((73, "budget".into(), 90.5, String::new()), 0));
    }

    #[test]
    fn peers_are_the_end_of_a_start_spec() {
        let peers = [("10.0.0.1", 0), ("10.0.0.2", 1)].map(|(addr, node)| Peer { node, addr: addr.into() });
        let cluster = Cluster {
            node: 1,
            total_nodes: 2,
            workers_per_node: 1,
            head_addr: "10.0.0.1".into(),
            head_port: 4242,
            job_id: "p-1".into(),
            addr: "10.0.0.2".into(),
            accelerators: 0,
            total_accelerators: 0,
            accelerator: None,
            generation: 1,
            joined: true,
            peers: [],
        };
        let spec = StartSpec {
            python: "python".into(),
            launcher: Vec::new(),
            env: BTreeMap::new(),
            secrets: Secrets::default(),
            cwd: "/work".into(),
            hooks: Vec::new(),
            max_frame: 1,
            retain_bytes: 1,
            store_bytes: 1,
            cluster,
        };
        let peers = Peers::new(&peers).unwrap();
        let start = ToAgent::Start { request: 1, generation: 1, workers: vec![0], spec: Box::new(spec), peers };
        let (_, body) = start.encode().unwrap();
        let body: serde_json::Value = rmp_serde::from_slice(&[body, start.shared()].concat()).unwrap();
        let told = serde_json::json!([{"node": 0, "addr": "10.0.0.1"}, {"node": 1, "addr": "10.0.0.2"}]);
        assert_eq!((&body["cluster"]["peers"], &body["python"]), (&told, &"python".into()), "{body}");
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for head in [
            &b""[..],
            b"\xc0",
            b"\x90",
            b"\x91\x62",
            b"\x91\xcc\xff",
            b"\x92\x25\xa1x",
            b"\x93\x22\x01\xdd\xff\xff\xff\xff",
        ] {
            let frame = Frame { head: Bytes::copy_from_slice(head), body: Bytes::new() };
            assert_eq!(FromAgent::decode(frame.clone()).unwrap_err().kind(), ErrorKind::Protocol, "{head:?}");
            assert_eq!(FromWorker::decode(frame).unwrap_err().kind(), ErrorKind::Protocol, "{head:?}");
        }
    }
}
