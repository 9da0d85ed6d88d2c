//! The connections to the movers of nodes: requests with their answers.

mod timing;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use self::timing::MOVER_SILENCE;
use super::foreign::answer;
use super::spawn::{OnEnd, spawn};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Entry, MOST_ENTRIES, changed};
use crate::ids::{MachineId, NodeIndex, PoolId};
use crate::remote::ByteStream;
use crate::worker::codec::Frame;
use crate::worker::link::{Reader, Sender, link};
use crate::worker::message::{FromMover, Note, PROTOCOL_VERSION, Refused, RefusedKind, ToMover};

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
    queue: Arc<Mutex<Queue>>,
    tasks: [AbortHandle; 2],
}

/// What a mover reports without a request, and the end of the connection over which it does.
#[derive(Debug)]
pub(crate) struct News {
    /// The machine of the mover.
    pub(crate) machine: MachineId,
    /// `None` when the connection has ended.
    pub(crate) note: Option<Note>,
}

/// Who gets the news of a mover.
#[derive(Debug)]
struct Listener {
    machine: MachineId,
    news: mpsc::UnboundedSender<News>,
}

impl Listener {
    /// Passes on a note, or the end of the connection. Nobody listens when the pool ends.
    fn pass(&self, note: Option<Note>) {
        let _ = self.news.send(News { machine: self.machine.clone(), note });
    }
}

/// The requests without an answer, in their order, which is the order of the answers.
#[derive(Debug, Default)]
struct Queue {
    last: u64,
    asked: VecDeque<Asked>,
    /// The entries of the answer that is arriving, and their number.
    entries: Vec<Entry>,
    count: usize,
    /// Why the connection has ended.
    ended: Option<Error>,
}

/// A request. Its caller may be gone, and its answer comes all the same.
#[derive(Debug)]
struct Asked {
    number: u64,
    at: Instant,
    caller: oneshot::Sender<Result<FromMover>>,
}

/// A caller, and the answer to its request.
type Answer = (oneshot::Sender<Result<FromMover>>, Result<FromMover>);

impl Mover {
    /// Exchanges hellos with the mover with this process id over a stream to its socket, and begins to
    /// read its answers, and its news if somebody listens.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the connection is lost, and [`ErrorKind::Protocol`] if another process
    /// answers, or the mover refuses the connection.
    pub(crate) async fn greet(
        pool: &PoolId,
        machine: MachineId,
        work_dir: String,
        pid: u32,
        stream: ByteStream,
        news: Option<mpsc::UnboundedSender<News>>,
    ) -> Result<Self> {
        let (sender, writer, mut reader) = link(stream, MOST_BODY);
        let write = spawn(async move {
            // The reader notices the same loss and reports it.
            let _ = writer.run().await;
        });
        let write = write.abort_handle();
        sender.push(&ToMover::Hello { pool: pool.to_string() }.encode(0)?, Bytes::new())?;
        sender.flush();
        let mut early = VecDeque::new();
        match FromMover::decode(reader.next(&mut early).await?)? {
            (_, FromMover::Hello { version: PROTOCOL_VERSION, pid: answered }) if answered == pid => {}
            (_, FromMover::Error { text }) => return Err(refused(&text)),
            _ => {
                let message = format!("another process than the node's mover, process {pid}, answers at its socket");
                return Err(Error::new(ErrorKind::Protocol, message));
            }
        }
        let queue = Arc::new(Mutex::default());
        let listener = news.map(|news| Listener { machine: machine.clone(), news });
        let read = spawn(read(reader, early, Arc::clone(&queue), listener)).abort_handle();
        Ok(Self(Arc::new(Connection { machine, work_dir, sender, queue, tasks: [write, read] })))
    }

    /// Whether the connection lasts, and is one to this machine.
    pub(crate) fn is_of(&self, machine: &MachineId) -> bool {
        self.0.machine == *machine && lock(&self.0.queue).ended.is_none()
    }

    /// Sends a request, and returns its answer; all entries of an answer in several parts. The wait
    /// ends with the answer or with the connection, which ends when it is silent.
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
        let Connection { work_dir, sender, queue, .. } = &*self.0;
        let answered = {
            let mut queue = lock(queue);
            if let Some(error) = &queue.ended {
                return Err(error.clone());
            }
            let number = queue.last + 1;
            // Within the lock, so that requests are sent in the order of the queue.
            sender.push(&request.within(work_dir).encode(number)?, request.body())?;
            queue.last = number;
            let (caller, answered) = oneshot::channel();
            queue.asked.push_back(Asked { number, at: Instant::now(), caller });
            answered
        };
        sender.flush();
        match answered.await.unwrap_or_else(|_| Err(lost()))? {
            FromMover::Failed(refused) => Err(refused.into()),
            answer => Ok(answer),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.sender.close();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Queue {
    /// An answer, or a part of one, has arrived. Returns the caller that it is for, and the answer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] for a message that is not the next answer; the connection ends.
    fn on_answer(&mut self, number: u64, message: FromMover) -> Result<Option<Answer>> {
        let Some(front) = self.asked.front_mut().filter(|front| front.number == number) else {
            return Err(Error::new(ErrorKind::Protocol, "the node's mover sent an answer that nobody waits for"));
        };
        let answer = match message {
            FromMover::Busy => {
                front.at = Instant::now();
                return Ok(None);
            }
            FromMover::Entries { more, entries } => {
                self.count += entries.len();
                if self.count <= MOST_ENTRIES {
                    self.entries.extend(entries);
                }
                if self.count > MOST_ENTRIES * 4 {
                    return Err(Error::new(ErrorKind::Protocol, "the node's mover lists files without end"));
                }
                if more {
                    front.at = Instant::now();
                    return Ok(None);
                }
                let entries = std::mem::take(&mut self.entries);
                if self.count <= MOST_ENTRIES { Ok(FromMover::Entries { more, entries }) } else { Err(too_many()) }
            }
            other => Ok(other),
        };
        self.entries.clear();
        self.count = 0;
        // The next answer begins to be overdue now.
        if let Some(next) = self.asked.get_mut(1) {
            next.at = Instant::now();
        }
        Ok(self.asked.pop_front().map(|asked| (asked.caller, answer)))
    }

    /// Whether an answer is due for long, and nothing has come.
    fn is_overdue(&self) -> bool {
        self.asked.front().is_some_and(|asked| asked.at.elapsed() >= MOVER_SILENCE)
    }
}

/// Passes answers to the callers that wait for them, until the connection ends.
async fn read(mut reader: Reader, early: VecDeque<Frame>, queue: Arc<Mutex<Queue>>, listener: Option<Listener>) {
    let mut error = None;
    let _end = OnEnd(|| {
        if let Some(listener) = &listener {
            listener.pass(None);
        }
        let mut queue = lock(&queue);
        let error = queue.ended.get_or_insert_with(lost).clone();
        let asked = std::mem::take(&mut queue.asked);
        drop(queue);
        asked.into_iter().for_each(|asked| answer(asked.caller, Err(error.clone())));
    });
    let mut frames: Vec<Frame> = early.into();
    while error.is_none() {
        for frame in frames.drain(..) {
            match on_frame(frame, &queue, listener.as_ref()) {
                Ok(Some((caller, given))) => answer(caller, given),
                Ok(None) => {}
                Err(wrong) => {
                    error = Some(wrong);
                    break;
                }
            }
        }
        if error.is_some() {
            break;
        }
        // A frame that has begun to arrive has a deadline for each of its bytes.
        let arrived = match reader.is_mid_frame() {
            true => Ok(reader.read(&mut frames).await),
            false => timeout(MOVER_SILENCE / 4, reader.read(&mut frames)).await,
        };
        error = match arrived {
            Ok(Ok(true)) => None,
            Ok(Ok(false)) => Some(lost()),
            Ok(Err(error)) => Some(error),
            Err(_) if !reader.is_mid_frame() && lock(&queue).is_overdue() => Some(silent()),
            Err(_) => None,
        };
    }
    tracing::debug!(?error, "the connection to a mover ended");
    lock(&queue).ended = error;
}

/// A frame has arrived. Returns the caller that it is the answer for, and the answer; news are
/// passed on.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] for a frame that is neither; the connection ends.
fn on_frame(frame: Frame, queue: &Mutex<Queue>, listener: Option<&Listener>) -> Result<Option<Answer>> {
    match (FromMover::decode(frame)?, listener) {
        ((_, FromMover::Error { text }), _) => Err(refused(&text)),
        ((_, FromMover::Note(note)), Some(listener)) => {
            listener.pass(Some(note));
            Ok(None)
        }
        ((number, message), _) => lock(queue).on_answer(number, message),
    }
}

impl From<Refused> for Error {
    fn from(Refused { kind, words, errno }: Refused) -> Self {
        match kind {
            // The file may be there later.
            RefusedKind::Missing => Self::new(ErrorKind::NotFound, words).temporary(),
            RefusedKind::Changed => changed(words),
            RefusedKind::Kind => Self::new(ErrorKind::InvalidSpec, words)
                .with_hint("files, folders and links are brought along: name another path, or remove it"),
            RefusedKind::Invalid => Self::new(ErrorKind::InvalidSpec, words),
            RefusedKind::Io if errno == 0 => Self::new(ErrorKind::Io, words),
            RefusedKind::Io => Self::new(ErrorKind::Io, words).with_source(std::io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The error of a connection to a mover that is lost.
fn lost() -> Error {
    Error::new(ErrorKind::Io, "the connection to the node's mover is lost").temporary()
}

/// The error of a connection over which an answer is due and nothing comes.
fn silent() -> Error {
    Error::new(ErrorKind::Io, format!("the node's mover did not answer for {MOVER_SILENCE:?}")).temporary()
}

fn too_many() -> Error {
    let message = format!("a folder of the node has more than {MOST_ENTRIES} files, folders and links");
    Error::new(ErrorKind::InvalidSpec, message)
        .with_hint("copy the folders in it one by one, or pack them into one file on the node")
}

fn refused(text: &str) -> Error {
    let text: String = text.chars().take(MOST_WORDS).collect();
    Error::new(ErrorKind::Protocol, format!("the node's mover refused a message: {text}"))
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most bytes of a body: a piece of a file, a list of entries of which one may be long, or the
/// numbers of all files of a data set.
const MOST_BODY: usize = 8 << 20;
/// The most characters of a refusal that an error shows.
const MOST_WORDS: usize = 1000;

/// What a connection to a mover serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Line {
    /// Pieces of files, of which many are under way at a time.
    Files,
    /// Short messages, which must not wait for pieces of files; and news.
    Control,
    /// Data sets: a mover may wait long until it answers.
    Data,
}

/// The connections to the movers of nodes.
#[derive(Debug, Default)]
pub(crate) struct Movers(Mutex<Routes>);

#[derive(Debug, Default)]
struct Routes {
    is_closed: bool,
    routes: HashMap<(NodeIndex, Line), Arc<Route>>,
}

/// One of the connections to the mover of one node. Of those who need one at the same time, one opens it for all.
#[derive(Debug, Default)]
pub(crate) struct Route(tokio::sync::Mutex<Attempts>);

#[derive(Debug, Default)]
struct Attempts {
    mover: Option<Mover>,
    /// When the last attempt failed, and why.
    failed: Option<(Instant, Error)>,
}

impl Movers {
    /// The route to a node's mover; `None` if the pool has ended.
    pub(crate) fn route(&self, node: NodeIndex, line: Line) -> Option<Arc<Route>> {
        let mut all = self.lock();
        (!all.is_closed).then(|| Arc::clone(all.routes.entry((node, line)).or_default()))
    }

    /// Ends all connections, when the pool ends.
    pub(crate) fn close(&self) {
        let mut all = self.lock();
        all.is_closed = true;
        all.routes.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Routes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Route {
    /// The connection to this machine, if one lasts; otherwise a new one that `reach` opens.
    ///
    /// # Errors
    ///
    /// Those of `reach`, also if another caller has tried it while this one waited.
    pub(crate) async fn mover(&self, machine: &MachineId, reach: impl Future<Output = Result<Mover>>) -> Result<Mover> {
        let began = Instant::now();
        let mut attempts = self.0.lock().await;
        if let Some(mover) = attempts.mover.as_ref().filter(|mover| mover.is_of(machine)) {
            return Ok(mover.clone());
        }
        if let Some((at, error)) = &attempts.failed
            && *at > began
        {
            return Err(error.clone());
        }
        attempts.mover = None;
        let reached = reach.await;
        match &reached {
            Ok(mover) => attempts.mover = Some(mover.clone()),
            Err(error) => attempts.failed = Some((Instant::now(), error.clone())),
        }
        reached
    }
}

#[cfg(test)]
mod tests;
