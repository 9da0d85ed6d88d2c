//! The connections to the movers of nodes: requests with their answers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::spawn::{OnEnd, spawn};
use crate::error::{Error, ErrorKind, Result};
use crate::files::Entry;
use crate::ids::{MachineId, NodeIndex, PoolId};
use crate::remote::ByteStream;
use crate::worker::codec::Frame;
use crate::worker::link::{Reader, Sender, link};
use crate::worker::message::{FromMover, PROTOCOL_VERSION, Refused, RefusedKind, ToMover};

/// The latest connection to the mover of each node whose files were read.
#[derive(Debug, Default)]
pub(crate) struct Movers(Mutex<HashMap<NodeIndex, Mover>>);

/// A connection to the mover of a node. It ends with its last clone.
#[derive(Debug, Clone)]
pub(crate) struct Mover(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    /// The machine of the node when the mover was reached.
    machine: MachineId,
    /// The working folder of the workers there.
    work_dir: String,
    sender: Sender,
    requests: Arc<Requests>,
    tasks: [AbortHandle; 2],
}

/// The requests that wait for their answers.
#[derive(Debug, Default)]
struct Requests(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    is_closed: bool,
    answers: HashMap<u64, mpsc::UnboundedSender<FromMover>>,
}

/// A request that waits for its answers. Dropping it forgets the request.
struct Request<'m> {
    number: u64,
    requests: &'m Requests,
    answers: mpsc::UnboundedReceiver<FromMover>,
}

impl Mover {
    /// Exchanges hellos with the mover with this process id over a stream to its socket, and begins to
    /// read its answers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the connection is lost, and [`ErrorKind::Protocol`] if another process
    /// answers.
    pub(crate) async fn greet(
        pool: &PoolId,
        machine: MachineId,
        work_dir: String,
        pid: u32,
        stream: ByteStream,
    ) -> Result<Self> {
        let (sender, writer, mut reader) = link(stream, MOST_BODY);
        let write = spawn(async move {
            // The reader notices the same loss and reports it.
            let _ = writer.run().await;
        });
        let write = write.abort_handle();
        sender.push(&ToMover::Hello { pool: pool.to_string() }.encode(0)?, bytes::Bytes::new())?;
        sender.flush();
        let mut waiting = VecDeque::new();
        let (_, first) = FromMover::decode(reader.next(&mut waiting).await?)?;
        if first != (FromMover::Hello { version: PROTOCOL_VERSION, pid }) {
            let message = format!("the node's mover, process {pid}, answered {first:?} instead of Hello");
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        let requests = Arc::new(Requests::default());
        let read = spawn(read(reader, waiting, Arc::clone(&requests))).abort_handle();
        Ok(Self(Arc::new(Connection { machine, work_dir, sender, requests, tasks: [write, read] })))
    }

    /// Whether the connection lasts, and is one to this machine.
    fn is_of(&self, machine: &MachineId) -> bool {
        self.0.machine == *machine && !self.0.requests.lock().is_closed
    }

    /// Sends a request, and returns its answer; all entries of an answer in several parts.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Io`], temporary, if the connection is lost first.
    /// - What the mover reports.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the answer.
    pub(crate) async fn ask(&self, request: &ToMover) -> Result<FromMover> {
        let Connection { work_dir, sender, requests, .. } = &*self.0;
        let mut waiting = requests.begin();
        sender.push(&request.within(work_dir).encode(waiting.number)?, bytes::Bytes::new())?;
        sender.flush();
        let mut all: Vec<Entry> = Vec::new();
        loop {
            match waiting.answers.recv().await {
                Some(FromMover::Entries { more, entries }) => {
                    all.extend(entries);
                    if !more {
                        return Ok(FromMover::Entries { more, entries: all });
                    }
                }
                Some(FromMover::Failed(refused)) => return Err(refused.into()),
                Some(answer) => return Ok(answer),
                None => return Err(lost()),
            }
        }
    }
}

impl Movers {
    /// The connection of a node whose machine is this one, if there is one that lasts.
    pub(crate) fn get(&self, node: NodeIndex, machine: &MachineId) -> Option<Mover> {
        self.lock().get(&node).filter(|mover| mover.is_of(machine)).cloned()
    }

    /// Keeps the connection of a node.
    pub(crate) fn put(&self, node: NodeIndex, mover: Mover) {
        self.lock().insert(node, mover);
    }

    /// Ends the connection of a node, for those who ask for it later.
    pub(crate) fn forget(&self, node: NodeIndex) {
        self.lock().remove(&node);
    }

    /// Ends all connections, when the pool ends.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeIndex, Mover>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.sender.close();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Requests {
    fn begin(&self) -> Request<'_> {
        let (sender, answers) = mpsc::unbounded_channel();
        let mut waiting = self.lock();
        waiting.last += 1;
        let number = waiting.last;
        if !waiting.is_closed {
            waiting.answers.insert(number, sender);
        }
        Request { number, requests: self, answers }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.requests.lock().answers.remove(&self.number);
    }
}

/// Passes answers to the requests that wait for them, until the connection ends.
async fn read(mut reader: Reader, waiting: VecDeque<Frame>, requests: Arc<Requests>) {
    let _end = OnEnd(|| {
        let mut waiting = requests.lock();
        waiting.is_closed = true;
        waiting.answers.clear();
    });
    let pass_on = |frame| -> Result<()> {
        let (number, answer) = FromMover::decode(frame)?;
        if let FromMover::Error { text } = answer {
            return Err(Error::new(ErrorKind::Protocol, format!("the node's mover refused a message: {text}")));
        }
        if let Some(request) = requests.lock().answers.get(&number) {
            // One that is dropped meanwhile needs no answer.
            let _ = request.send(answer);
        }
        Ok(())
    };
    let early = waiting.into_iter().try_for_each(pass_on);
    let error = match early {
        Ok(()) => reader.each(|frames| frames.drain(..).try_for_each(pass_on)).await,
        Err(error) => Some(error),
    };
    tracing::debug!(?error, "the connection to a mover ended");
}

impl From<Refused> for Error {
    fn from(Refused { kind, words, errno }: Refused) -> Self {
        match kind {
            // The file may be there later.
            RefusedKind::Missing => Self::new(ErrorKind::NotFound, words).temporary(),
            RefusedKind::Changed => Self::new(ErrorKind::Changed, words)
                .temporary()
                .with_hint("wait until its writer has closed it, or follow it with `tail`"),
            RefusedKind::Kind => Self::new(ErrorKind::InvalidSpec, words)
                .with_hint("files, folders and links are brought along: name another path, or remove it"),
            RefusedKind::Io if errno == 0 => Self::new(ErrorKind::Io, words),
            RefusedKind::Io => Self::new(ErrorKind::Io, words).with_source(std::io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The error of a connection to a mover that is lost.
fn lost() -> Error {
    Error::new(ErrorKind::Io, "the connection to the node's mover is lost").temporary()
}

/// The most bytes of a body: a piece of a file, or a list of entries of which one may be long.
const MOST_BODY: usize = 4 << 20;
