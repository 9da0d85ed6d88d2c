//! The connection over which a worker calls others: its messages, and which of them have arrived.
//! No I/O.
//!
//! Messages are numbered, in each direction and over the life of the worker's process. The sender
//! keeps each message until the other side has acknowledged it. So a connection that is cut loses
//! nothing: the hellos of the next connection report how far both sides are, and a repeated message
//! changes nothing.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use super::codec::Frame;
use super::message::{ERROR, Elements, Failure, PROTOCOL_VERSION, pack, refused_by_worker, unknown, unreadable};
use super::session::Outgoing;
use crate::error::{Cause, Error, ErrorKind, Result};
use crate::payload::RetryPolicy;
use crate::spec::Limits;

/// From the client to the calls connection of a worker.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum ToCaller {
    /// The outcome of a call.
    Outcome { call: u64, ok: bool, micros: u64, body: Bytes },
    /// Run a call within the worker: while its main thread waits in `within`, or on another thread
    /// (`aside`).
    Help { help: u64, within: CallFrame, depth: u32, aside: bool, body: Bytes },
    /// Nobody waits for a helped call any more.
    CancelHelp { help: u64 },
    /// A worker of another node needs a part of a file that this worker has put into its node's
    /// store.
    Read { read: u64, digest: String, offset: u64, length: u64 },
    /// That part, for the worker that requested it.
    Fetched { fetch: u64, body: Bytes },
    /// The file no longer exists.
    NotFetched { fetch: u64 },
}

/// From a worker, over its calls connection.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum FromCaller {
    Hello(CallerHello),
    Submit {
        n: u64,
        call: u64,
        frame: CallFrame,
        options: CallOptions,
        body: Bytes,
    },
    Wait {
        n: u64,
        frame: CallFrame,
    },
    Waited {
        n: u64,
    },
    Helped {
        n: u64,
        help: u64,
        micros: u64,
        value: Bytes,
    },
    HelpFailed {
        n: u64,
        help: u64,
        micros: u64,
        failure: Failure,
    },
    Refuse {
        n: u64,
        help: u64,
    },
    Drop {
        n: u64,
        call: u64,
    },
    /// Requests a part of a file that the worker with this rank has put into its node's store.
    Fetch {
        n: u64,
        fetch: u64,
        rank: u32,
        digest: String,
        offset: u64,
        length: u64,
    },
    /// Answers a `Read`.
    Piece {
        n: u64,
        read: u64,
        body: Bytes,
    },
    /// Answers a `Read` of a file that no longer exists.
    Missing {
        n: u64,
        read: u64,
    },
    Ack {
        received: u64,
    },
}

/// The first message of a worker on its calls connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerHello {
    /// The version of its protocol.
    pub version: u32,
    /// Its process id.
    pub pid: u32,
    /// The generation of its world.
    pub generation: u64,
    /// Its rank in that world.
    pub rank: u32,
    /// The messages up to this number have arrived.
    pub received: u64,
}

/// The caller of a call: a run of the worker, or a call that the worker helps with meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFrame {
    /// The number of the run.
    pub run: u64,
    /// The number of the helped call; 0 for the run itself.
    pub help: u64,
}

/// The options of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallOptions {
    /// How often it is retried, by cause.
    pub retry: RetryPolicy,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// How long it may wait for a worker.
    pub queue_timeout: Option<Duration>,
    /// Whether its caller's worker may run it.
    pub help: bool,
}

/// The messages of both sides over the calls connections of one worker process.
#[derive(Debug, Default)]
pub(crate) struct CallsSession {
    /// The number of the last message to the worker.
    sent: u64,
    /// The messages that the worker has not acknowledged.
    kept: VecDeque<(u64, Outgoing)>,
    /// Messages of the worker up to this number have arrived.
    received: u64,
    acknowledged: u64,
    unacknowledged_bytes: usize,
}

impl ToCaller {
    /// The client's first message on a connection.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when it cannot be encoded.
    pub fn hello(generation: u64, received: u64) -> Result<Outgoing> {
        Ok((pack(&(129, PROTOCOL_VERSION, generation, received))?, Bytes::new()))
    }

    /// Acknowledges the messages up to this number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when it cannot be encoded.
    pub fn ack(received: u64) -> Result<Outgoing> {
        Ok((pack(&(133, received))?, Bytes::new()))
    }

    /// Encodes head and body, as message `n`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when a part cannot be encoded.
    pub fn encode(self, n: u64) -> Result<Outgoing> {
        Ok(match self {
            Self::Outcome { call, ok, micros, body } => (pack(&(130, n, call, ok, micros))?, body),
            Self::Help { help, within, depth, aside, body } => {
                (pack(&(131, n, help, within.run, within.help, depth, aside))?, body)
            }
            Self::CancelHelp { help } => (pack(&(132, n, help))?, Bytes::new()),
            Self::Read { read, digest, offset, length } => {
                (pack(&(134, n, read, digest, offset, length))?, Bytes::new())
            }
            Self::Fetched { fetch, body } => (pack(&(135, n, fetch))?, body),
            Self::NotFetched { fetch } => (pack(&(136, n, fetch))?, Bytes::new()),
        })
    }
}

impl FromCaller {
    /// Decodes a frame.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for an unknown message number or a head of another shape.
    pub fn decode(frame: Frame) -> Result<Self> {
        let mut head = Elements::of(&frame.head)?;
        Ok(match head.next::<u32>()? {
            161 => {
                let (version, pid, generation, rank) = (head.next()?, head.next()?, head.next()?, head.next()?);
                let received = if version == PROTOCOL_VERSION { head.next()? } else { 0 };
                Self::Hello(CallerHello { version, pid, generation, rank, received })
            }
            162 => {
                let (n, call, frame_of) = (head.next()?, head.next()?, head.frame()?);
                let options = head.next::<Option<WireOptions>>()?.unwrap_or_default().try_into()?;
                Self::Submit { n, call, frame: frame_of, options, body: frame.body }
            }
            163 => Self::Wait { n: head.next()?, frame: head.frame()? },
            164 => Self::Waited { n: head.next()? },
            165 => Self::Helped { n: head.next()?, help: head.next()?, micros: head.next()?, value: frame.body },
            166 => {
                let (n, help, micros) = (head.next()?, head.next()?, head.next()?);
                Self::HelpFailed { n, help, micros, failure: Failure::decode(&frame.body)? }
            }
            167 => Self::Refuse { n: head.next()?, help: head.next()? },
            168 => Self::Drop { n: head.next()?, call: head.next()? },
            169 => Self::Ack { received: head.next()? },
            170 => {
                let (n, fetch, rank) = (head.next()?, head.next()?, head.next()?);
                Self::Fetch { n, fetch, rank, digest: head.next()?, offset: head.next()?, length: head.next()? }
            }
            171 => Self::Piece { n: head.next()?, read: head.next()?, body: frame.body },
            172 => Self::Missing { n: head.next()?, read: head.next()? },
            ERROR => return Err(refused_by_worker(&mut head)?),
            other => return Err(unknown("worker", other)),
        })
    }

    /// Its number; none for a message without a number.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Hello(_) | Self::Ack { .. } => None,
            Self::Submit { n, .. }
            | Self::Wait { n, .. }
            | Self::Waited { n }
            | Self::Helped { n, .. }
            | Self::HelpFailed { n, .. }
            | Self::Refuse { n, .. }
            | Self::Drop { n, .. }
            | Self::Fetch { n, .. }
            | Self::Piece { n, .. }
            | Self::Missing { n, .. } => Some(*n),
        }
    }

    fn body_length(&self) -> usize {
        match self {
            Self::Submit { body, .. } => body.len(),
            Self::Helped { value, .. } => value.len(),
            Self::Piece { body, .. } => body.len(),
            _ => 0,
        }
    }
}

impl Elements<'_> {
    fn frame(&mut self) -> Result<CallFrame> {
        Ok(CallFrame { run: self.next()?, help: self.next()? })
    }
}

/// The options of a call in the worker's format.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireOptions {
    crash: Option<u32>,
    out_of_memory: Option<u32>,
    node_lost: Option<u32>,
    preempted: Option<u32>,
    timeout: Option<f64>,
    queue_timeout: Option<f64>,
    help: Option<bool>,
}

impl TryFrom<WireOptions> for CallOptions {
    type Error = Error;

    fn try_from(wire: WireOptions) -> Result<Self> {
        let given = [
            (Cause::Crash, wire.crash),
            (Cause::OutOfMemory, wire.out_of_memory),
            (Cause::NodeLost, wire.node_lost),
            (Cause::Preempted, wire.preempted),
        ];
        let given = given.into_iter().filter_map(|(cause, count)| Some((cause, count?)));
        let retry = given.fold(RetryPolicy::for_calls(), |retry, (cause, count)| retry.on(cause, count));
        let (timeout, queue_timeout) = (duration(wire.timeout)?, duration(wire.queue_timeout)?);
        Ok(Self { retry, timeout, queue_timeout, help: wire.help.unwrap_or(true) })
    }
}

fn duration(seconds: Option<f64>) -> Result<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds >= 0.0 => {
            Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(Limits::LONGEST).min(Limits::LONGEST)))
        }
        Some(seconds) => Err(unreadable(&format!("a timeout of {seconds} seconds"))),
    }
}

impl CallsSession {
    /// Numbers a message, keeps it, and returns what to send.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when it cannot be encoded. Then it gets no number.
    pub(crate) fn push(&mut self, message: ToCaller) -> Result<Outgoing> {
        let encoded = message.encode(self.sent + 1)?;
        self.sent += 1;
        self.kept.push_back((self.sent, encoded.clone()));
        Ok(encoded)
    }

    /// Notes a new connection over which the worker has received up to this number, and returns
    /// what to send again, in order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when the worker reports more messages than were sent.
    pub(crate) fn on_connected(&mut self, received: u64) -> Result<Vec<Outgoing>> {
        self.on_ack(received)?;
        Ok(self.kept.iter().map(|(_, outgoing)| outgoing.clone()).collect())
    }

    /// Notes that the worker has received up to this number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when fewer messages were sent.
    pub(crate) fn on_ack(&mut self, received: u64) -> Result<()> {
        if received > self.sent {
            let what = format!(
                "the worker reports {received} received messages on its calls connection, but only {} were sent",
                self.sent
            );
            return Err(Error::new(ErrorKind::Protocol, what));
        }
        while self.kept.front().is_some_and(|(n, _)| *n <= received) {
            self.kept.pop_front();
        }
        Ok(())
    }

    /// Whether a message is the next one. A repeated message is not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when messages before it are missing.
    pub(crate) fn accept(&mut self, message: &FromCaller) -> Result<bool> {
        let Some(n) = message.number() else { return Ok(true) };
        if n <= self.received {
            return Ok(false);
        }
        if n > self.received + 1 {
            let what = format!("the worker sent message {n} on its calls connection after message {}", self.received);
            return Err(Error::new(ErrorKind::Protocol, what));
        }
        self.received = n;
        self.unacknowledged_bytes += message.body_length();
        Ok(true)
    }

    /// The number to acknowledge now, if an acknowledgement is due.
    pub(crate) fn due(&mut self) -> Option<u64> {
        let due = self.received - self.acknowledged >= ACK_MESSAGES || self.unacknowledged_bytes >= ACK_BYTES;
        due.then(|| self.acknowledge())
    }

    /// Acknowledges everything received, and returns the number to send.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        self.acknowledged = self.received;
        self.unacknowledged_bytes = 0;
        self.received
    }
}

/// The numbers of messages, and of bytes in bodies, after which an acknowledgement is due.
const ACK_MESSAGES: u64 = 64;
const ACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: u64) -> FromCaller {
        FromCaller::Refuse { n, help: 1 }
    }

    fn numbers(sent: &[Outgoing]) -> Vec<u64> {
        sent.iter().map(|(head, _)| rmp_serde::from_slice::<(u32, u64, u64)>(head).unwrap().1).collect()
    }

    #[test]
    fn unacknowledged_messages_are_sent_again_in_order() {
        let mut session = CallsSession::default();
        (1..=5).for_each(|help| drop(session.push(ToCaller::CancelHelp { help }).unwrap()));
        session.on_ack(2).unwrap();
        assert_eq!(numbers(&session.on_connected(3).unwrap()), [4, 5]);
        assert_eq!(numbers(&session.on_connected(3).unwrap()), [4, 5]);
        assert_eq!(session.on_ack(6).unwrap_err().kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_message_counts_once_and_none_is_skipped() {
        let mut session = CallsSession::default();
        assert!(session.accept(&message(1)).unwrap());
        assert!(!session.accept(&message(1)).unwrap());
        assert_eq!(session.accept(&message(3)).unwrap_err().kind(), ErrorKind::Protocol);
        assert!(session.accept(&message(2)).unwrap());
    }

    #[test]
    fn an_acknowledgement_is_due_by_number_and_by_bytes() {
        let mut session = CallsSession::default();
        for n in 1..ACK_MESSAGES {
            session.accept(&message(n)).unwrap();
            assert_eq!(session.due(), None);
        }
        session.accept(&message(ACK_MESSAGES)).unwrap();
        assert_eq!(session.due(), Some(ACK_MESSAGES));
        assert_eq!(session.due(), None);
        let value = vec![0; ACK_BYTES].into();
        session.accept(&FromCaller::Helped { n: ACK_MESSAGES + 1, help: 1, micros: 1, value }).unwrap();
        assert_eq!(session.due(), Some(ACK_MESSAGES + 1));
    }

    #[test]
    fn options_have_defaults_and_a_timeout_is_a_duration() {
        let read = |options: serde_json::Value| {
            let head = rmp_serde::to_vec(&(162, 1, 1, 7, 0, options)).unwrap();
            FromCaller::decode(Frame { head: head.into(), body: Bytes::new() })
        };
        let Ok(FromCaller::Submit { options, frame, .. }) = read(serde_json::Value::Null) else { panic!("a call") };
        assert_eq!(options.timeout, None);
        assert!(options.help);
        assert_eq!(frame, CallFrame { run: 7, help: 0 });
        let Ok(FromCaller::Submit { options, .. }) = read(serde_json::json!({"timeout": 1.5, "crash": 0})) else {
            panic!("a call")
        };
        assert_eq!(options.timeout, Some(Duration::from_millis(1500)));
        // More than a duration can be, and more than fits into a sum of times.
        for seconds in [1e300, 1e15] {
            let Ok(FromCaller::Submit { options, .. }) = read(serde_json::json!({"timeout": seconds})) else {
                panic!("a call")
            };
            assert_eq!(options.timeout, Some(Limits::LONGEST));
        }
        for option in ["timeout", "queue_timeout"] {
            assert_eq!(read(serde_json::json!({option: -1.0})).unwrap_err().kind(), ErrorKind::Protocol);
        }
        let Ok(FromCaller::Submit { options, .. }) = read(serde_json::json!({"queue_timeout": 2.0, "help": false}))
        else {
            panic!("a call")
        };
        assert_eq!(options.timeout, None);
        assert_eq!(options.queue_timeout, Some(Duration::from_secs(2)));
        assert!(!options.help);
    }
}
