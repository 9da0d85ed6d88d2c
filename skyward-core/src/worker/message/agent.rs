//! The messages between the client and the agent of a node.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::head::{Elements, pack, protocol, unknown};
use super::start::{Peers, StartSpec};
use super::{ERROR, PROTOCOL_VERSION};
use crate::error::Result;
use crate::worker::codec::Frame;

/// From the client to an agent.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum ToAgent {
    Hello { pool: String, max_frame_bytes: usize },
    Start { request: u64, generation: u64, workers: Vec<u32>, spec: Box<StartSpec>, peers: Peers },
    ReservePort { request: u64 },
    Signal { generation: u64, worker: u32, signal: Signal },
    Stop { request: u64, generation: u64, workers: Vec<u32>, grace: f64 },
    Ping { sequence: u64, lease: f64 },
    Logs { generation: u64, worker: u32, stdout: u64, stderr: u64 },
    Shutdown { request: u64, grace: f64 },
    Recall { generation: u64, worker: u32, pid: u32, upto: u64 },
    Watch { command: Vec<String> },
    Mover { request: u64 },
}

/// What an agent does to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// Send SIGINT. It interrupts only a task that the client has cancelled.
    Interrupt,
    /// Kill the whole process tree.
    Kill,
    /// Have the stacks of all threads sent.
    Stacks,
    /// Make a computing worker look at its connection. Payloads notice this only through the
    /// functions that they have registered for notices.
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
        /// What is installed on the node: a MessagePack map of versions by names.
        installed: Bytes,
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
        /// The end of what the process wrote on standard error.
        last_words: Bytes,
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
    /// The machine ends in this many seconds, at most
    /// [`LONGEST_NOTICE`](super::LONGEST_NOTICE).
    Notice {
        kind: String,
        seconds: f64,
        words: String,
    },
    /// The worker has made a call, and listens at this path for its calls connection.
    Calls {
        generation: u64,
        worker: u32,
        pid: u32,
        path: String,
    },
    /// The node's mover runs, and listens at this path.
    Mover {
        request: u64,
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

impl ToAgent {
    /// The message number, by which an agent refers to the message when it refuses it.
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
            Self::Mover { .. } => 11,
        }
    }

    /// Encodes head and body; the body continues with [`shared`](Self::shared).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::error::ErrorKind::Protocol) when a part cannot be encoded.
    pub fn encode(&self) -> Result<(Vec<u8>, Bytes)> {
        let number = self.number();
        let head = match self {
            Self::Hello { pool, max_frame_bytes } => pack(&(number, PROTOCOL_VERSION, pool, max_frame_bytes))?,
            Self::Start { request, generation, workers, spec, .. } => {
                let mut body = Vec::new();
                crate::payload::value::encode_into(&mut body, spec).map_err(|error| protocol("start spec", &error))?;
                // The empty list, which the peers replace.
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
            Self::Mover { request } => pack(&(number, request))?,
        };
        Ok((head, Bytes::new()))
    }

    /// The end of the body, which is the same for many nodes.
    pub fn shared(&self) -> Bytes {
        match self {
            Self::Start { peers, .. } => peers.encoded(),
            _ => Bytes::new(),
        }
    }
}

impl FromAgent {
    /// Whether the message is about one worker of the node, and no answer to a request.
    pub fn is_about_worker(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. }
                | Self::Log { .. }
                | Self::LogEnd { .. }
                | Self::Progress { .. }
                | Self::Stacks { .. }
                | Self::Recalled { .. }
                | Self::Calls { .. }
        )
    }

    /// Decodes a frame.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::error::ErrorKind::Protocol) for an unknown message number or
    /// a head of another shape.
    pub fn decode(frame: Frame) -> Result<Self> {
        let mut head = Elements::of(&frame.head)?;
        Ok(match head.next::<u32>()? {
            33 => Self::Hello { version: head.next()?, pid: head.next()?, python: head.next()?, installed: frame.body },
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
                last_words: frame.body,
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
            48 => Self::Mover { request: head.next()?, pid: head.next()?, path: head.next()? },
            other => return Err(unknown("agent", other)),
        })
    }
}
