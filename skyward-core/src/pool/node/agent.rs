//! The connection to a node's agent: requests with their answers, and the messages that the agent
//! sends by itself.

use std::collections::VecDeque;
use std::iter::repeat;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::renewals::Renewals;
use super::requests::Requests;
use super::round_trip::RoundTrip;
use super::timing::FIRST_RENEWAL_PAUSES;
use crate::error::{Error, ErrorKind, LastWords, Result, WorkerExit};
use crate::event::{DrainReason, OutputStream};
use crate::ids::{Generation, LaunchId, NodeIndex, Rank};
use crate::layout::Layout;
use crate::pool::command::Command;
use crate::pool::environment::Environment;
use crate::pool::tasks::shared::Shared;
use crate::provider::clock;
use crate::remote::ByteStream;
use crate::worker::codec::Frame;
use crate::worker::link::{Reader, Sender, Writer, link};
use crate::worker::message::{FromAgent, PROTOCOL_VERSION, Peers, StartSpec, StartedWorker, ToAgent};

/// The connection to a node's agent.
#[derive(Debug)]
pub(crate) struct Agent {
    sender: Sender,
    /// Distinguishes this connection from earlier ones.
    pub(crate) connection: u64,
    /// What is installed on the node.
    pub(crate) environment: Environment,
    gone: Arc<OnceLock<Error>>,
    lease: Duration,
    requests: Arc<Requests>,
    round_trip: Arc<RoundTrip>,
    /// The index of the node in the pool.
    node: Arc<AtomicU32>,
    has_left: Arc<AtomicBool>,
    tasks: [AbortHandle; 3],
}

/// Reads the messages of an agent and passes them to the pool.
struct Listener {
    shared: Arc<Shared>,
    node: Arc<AtomicU32>,
    /// Whether another machine may have the node's place by now.
    has_left: Arc<AtomicBool>,
    layout: Layout,
    connection: u64,
    gone: Arc<OnceLock<Error>>,
    requests: Arc<Requests>,
    round_trip: Arc<RoundTrip>,
    renewals: Arc<Renewals>,
}

impl Agent {
    /// Exchanges hellos with the agent of a launched machine over a stream to its socket, and begins
    /// to read its messages.
    pub(crate) async fn connect(
        shared: &Arc<Shared>,
        launch: &LaunchId,
        node: NodeIndex,
        layout: Layout,
        stream: ByteStream,
    ) -> Result<Self> {
        let max_frame_bytes = shared.limits.max_frame_bytes;
        let (sender, writer, mut reader) = link(stream, max_frame_bytes);
        // The task writes what cannot be written at once, including this hello; it ends with the
        // last sender.
        let write = crate::pool::spawn::spawn(write(writer)).abort_handle();
        let hello = ToAgent::Hello { pool: shared.pool.to_string(), max_frame_bytes };
        let (head, body) = hello.encode()?;
        sender.push(&head, body)?;
        sender.flush();
        let mut waiting = VecDeque::new();
        let first = FromAgent::decode(reader.next(&mut waiting).await?)?;
        let FromAgent::Hello { version: PROTOCOL_VERSION, pid, python, installed } = first else {
            return Err(unexpected("Hello", &first));
        };
        tracing::debug!(pool = %shared.pool, node = node.0, pid, python, "agent connected");
        let requests = Arc::new(Requests::default());
        let round_trip = Arc::new(RoundTrip::default());
        let renewals = Arc::new(Renewals::new(launch.clone()));
        let connection = shared.next_connection.fetch_add(1, Ordering::Relaxed);
        let gone = Arc::new(OnceLock::new());
        let node = Arc::new(AtomicU32::new(node.0));
        let has_left = Arc::new(AtomicBool::new(false));
        let listener = Listener {
            shared: Arc::clone(shared),
            node: Arc::clone(&node),
            has_left: Arc::clone(&has_left),
            layout,
            connection,
            gone: Arc::clone(&gone),
            requests: Arc::clone(&requests),
            round_trip: Arc::clone(&round_trip),
            renewals: Arc::clone(&renewals),
        };
        let lease = shared.limits.lease;
        let renew = renew(Arc::clone(shared), sender.clone(), Arc::clone(&requests), Arc::clone(&round_trip), renewals);
        let tasks = [
            crate::pool::spawn::spawn(renew).abort_handle(),
            write,
            crate::pool::spawn::spawn(listener.run(reader, waiting)).abort_handle(),
        ];
        let environment = Environment::of(&installed);
        Ok(Self { sender, connection, environment, gone, lease, requests, round_trip, node, has_left, tasks })
    }

    /// Gives the agent's node its place in the pool. Until then no worker runs there, and nothing
    /// is reported about it.
    pub(crate) fn take_place(&self, node: NodeIndex) {
        self.node.store(node.0, Ordering::Relaxed);
    }

    /// The machine has left its place, or is lost. What it still reports of its workers does not
    /// count as a report of the workers of the next machine there, which have the same ranks.
    pub(crate) fn leave_place(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    pub(crate) fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Why the connection has ended; `None` while it lasts.
    pub(crate) fn gone(&self) -> Option<&Error> {
        self.gone.get()
    }

    /// The time that a message to the agent and the answer take; zero if it is not known yet.
    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip.least()
    }

    /// Checks that the agent answers a ping, which needs no work by the agent.
    pub(crate) async fn check(&self, deadline: Duration) -> Result<()> {
        let lease = self.lease.as_secs_f64();
        match self.request(|sequence| ToAgent::Ping { sequence, lease }, deadline).await? {
            FromAgent::Pong { .. } => Ok(()),
            other => Err(unexpected("Pong", &other)),
        }
    }

    /// Makes the agent run the watch command, whose lines are notices of the end of the machine.
    pub(crate) fn watch(&self, command: &[String]) -> Result<()> {
        self.push(&ToAgent::Watch { command: command.to_vec() })?;
        self.sender.flush();
        Ok(())
    }

    /// Subscribes to the output of a worker, from the offsets up to which it has been received. A
    /// new connection has no subscriptions.
    pub(crate) fn follow(&self, generation: Generation, worker: u32, received: [u64; 2]) -> Result<()> {
        let [stdout, stderr] = received;
        self.push(&ToAgent::Logs { generation: generation.0, worker, stdout, stderr })?;
        self.sender.flush();
        Ok(())
    }

    /// Reserves a port on the node for a rendezvous.
    pub(crate) async fn reserve_port(&self, deadline: Duration) -> Result<u16> {
        match self.request(|request| ToAgent::ReservePort { request }, deadline).await? {
            FromAgent::Port { port, .. } => Ok(port),
            other => Err(unexpected("Port", &other)),
        }
    }

    /// Makes sure that the node's mover runs. Returns its process id and the path of its socket.
    pub(crate) async fn mover(&self, deadline: Duration) -> Result<(u32, String)> {
        match self.request(|request| ToAgent::Mover { request }, deadline).await? {
            FromAgent::Mover { pid, path, .. } => Ok((pid, path)),
            other => Err(unexpected("Mover", &other)),
        }
    }

    /// Starts workers, and subscribes to their output from the offsets that `received` returns.
    pub(crate) async fn start(
        &self,
        generation: Generation,
        workers: Vec<u32>,
        spec: StartSpec,
        peers: Peers,
        received: impl Fn(u32) -> [u64; 2],
        deadline: Duration,
    ) -> Result<Vec<StartedWorker>> {
        let start =
            |request| ToAgent::Start { request, generation: generation.0, workers, spec: Box::new(spec), peers };
        let started = match self.request(start, deadline).await? {
            FromAgent::Started { workers, .. } => workers,
            other => return Err(unexpected("Started", &other)),
        };
        for worker in &started {
            self.follow(generation, worker.worker, received(worker.worker))?;
        }
        Ok(started)
    }

    /// Stops workers; they have `grace` to leave their hooks.
    pub(crate) async fn stop(
        &self,
        generation: Generation,
        workers: Vec<u32>,
        grace: Duration,
        deadline: Duration,
    ) -> Result<()> {
        let (generation, grace) = (generation.0, grace.as_secs_f64());
        match self.request(|request| ToAgent::Stop { request, generation, workers, grace }, deadline).await? {
            FromAgent::Stopped { .. } => Ok(()),
            other => Err(unexpected("Stopped", &other)),
        }
    }

    /// Ends the agent and every process that it started.
    pub(crate) async fn shutdown(&self, grace: Duration, deadline: Duration) -> Result<()> {
        let grace = grace.as_secs_f64();
        match self.request(|request| ToAgent::Shutdown { request, grace }, deadline).await? {
            FromAgent::Bye { .. } => Ok(()),
            other => Err(unexpected("Bye", &other)),
        }
    }

    fn push(&self, message: &ToAgent) -> Result<()> {
        let (head, body) = message.encode()?;
        self.sender.push_in_parts(&head, [body, message.shared()])
    }

    /// Sends a request, and waits for the answer with the same number.
    async fn request(&self, message: impl FnOnce(u64) -> ToAgent, deadline: Duration) -> Result<FromAgent> {
        let request = self.requests.begin();
        self.push(&message(request.number()))?;
        self.sender.flush();
        match tokio::time::timeout(deadline, request.answer()).await {
            Ok(Some(FromAgent::Error { text, .. })) => {
                Err(Error::new(ErrorKind::Start, format!("the node's agent refused: {text}")))
            }
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Error::new(ErrorKind::Io, "the connection to the node's agent is lost").temporary()),
            Err(_) => {
                Err(Error::new(ErrorKind::Timeout, format!("the node's agent did not answer within {deadline:?}")))
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.sender.close();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Listener {
    async fn run(self, mut reader: Reader, waiting: VecDeque<Frame>) {
        let mut frames: Vec<Frame> = waiting.into();
        let error = loop {
            for frame in frames.drain(..) {
                match FromAgent::decode(frame) {
                    Ok(message) => {
                        if let FromAgent::Exited { generation, worker, pid, .. } = message
                            && !self.has_left()
                        {
                            self.shared.on_ended(self.rank(worker), Generation(generation), pid).await;
                        }
                        self.on_message(message);
                    }
                    Err(error) => {
                        tracing::error!(pool = %self.shared.pool, node = self.node().0, error = error.summary(), "a message of the agent was dropped")
                    }
                }
            }
            // The agent answers each renewal of the lease. If it is silent for a whole lease, no
            // renewal arrives there, and the node is lost or ends itself.
            let lease = self.shared.limits.lease;
            match tokio::time::timeout(lease, reader.read(&mut frames)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => break Error::new(ErrorKind::Io, "the agent ended its connection"),
                Ok(Err(error)) => break error,
                Err(_) => {
                    self.shared.metrics.lease_silent();
                    let silent = format!("the agent did not answer for {lease:?}");
                    break Error::new(ErrorKind::Timeout, silent).with_exit(WorkerExit::LeaseEnded);
                }
            }
        };
        // The workers may have ended with the agent; answers that they sent before that count.
        self.shared.heard(self.layout.ranks_of(self.node())).await;
        let _ = self.gone.set(error);
    }

    fn on_message(&self, message: FromAgent) {
        if message.is_about_worker() && self.has_left() {
            return;
        }
        match message {
            FromAgent::Exited { generation, worker, pid, code, signal, out_of_memory, begun, last_words } => {
                let exit = match (out_of_memory, signal, code) {
                    (true, ..) => WorkerExit::OutOfMemory,
                    (_, Some(signal), _) => WorkerExit::Signal(signal),
                    (_, None, code) => WorkerExit::Code(code.unwrap_or_default()),
                };
                let words = LastWords::read(&self.shared.secrets.conceal(&String::from_utf8_lossy(&last_words)));
                self.shared.on_exited(self.rank(worker), Generation(generation), pid, &exit, words, begun);
            }
            FromAgent::Log { generation, worker, stream, offset, bytes } => {
                let stream = if stream == 1 { OutputStream::Stdout } else { OutputStream::Stderr };
                self.shared.on_output(self.rank(worker), Generation(generation), stream, offset, bytes);
            }
            FromAgent::LogEnd { generation, worker, .. } => {
                self.shared.on_output_end(self.rank(worker), Generation(generation));
            }
            FromAgent::Progress { generation, worker } => {
                self.shared.on_progress(self.rank(worker), Generation(generation));
            }
            FromAgent::Stacks { generation, worker, text } => {
                self.shared.on_stacks(self.rank(worker), Generation(generation), &text);
            }
            FromAgent::Recalled { generation, worker, pid, upto, begun } => {
                self.shared.on_recalled(self.rank(worker), Generation(generation), pid, upto, begun);
            }
            FromAgent::Calls { generation, worker, pid, path } => {
                self.shared.on_calls(self.rank(worker), Generation(generation), pid, path);
            }
            FromAgent::Hello { .. } => {}
            FromAgent::Notice { kind, seconds, words } => {
                let reason = if kind == "preempted" { DrainReason::Preempted } else { DrainReason::Expired };
                let ends_in = Duration::from_secs_f64(seconds);
                let (node, connection) = (self.node(), self.connection);
                self.shared.command(Command::Notice { node, connection, reason, ends_in, words });
            }
            FromAgent::Pong { sequence } => {
                self.round_trip.on_pong(sequence, Instant::now());
                self.renewals.on_answered(&mut self.shared.account(), sequence);
                // Unless a request waits for it, a pong is the answer to a renewal.
                if self.requests.end(sequence, message).is_some() {
                    self.shared.metrics.lease_renewed();
                }
            }
            FromAgent::Started { request, .. }
            | FromAgent::Port { request, .. }
            | FromAgent::Stopped { request, .. }
            | FromAgent::Mover { request, .. }
            | FromAgent::Error { request, .. }
            | FromAgent::Bye { request } => {
                if let Some(late) = self.requests.end(request, message) {
                    tracing::debug!(pool = %self.shared.pool, answer = ?late, "an answer of the agent came after its request had ended");
                }
            }
        }
    }

    fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    fn node(&self) -> NodeIndex {
        NodeIndex(self.node.load(Ordering::Relaxed))
    }

    fn rank(&self, worker: u32) -> Rank {
        self.layout.rank(self.node(), worker)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Set first: a request without an answer reads the reason here, and a driver that does not
        // know this connection yet drops the command. A reader that panicked has set nothing.
        let _ = self.gone.set(Error::new(ErrorKind::Io, "the client does not read the agent's messages any more"));
        self.requests.close();
        self.shared.command(Command::AgentGone { node: self.node(), connection: self.connection });
    }
}

/// Renews the node's lease for as long as the connection lasts and the budget is not spent, and
/// measures the round trip.
async fn renew(
    shared: Arc<Shared>,
    sender: Sender,
    requests: Arc<Requests>,
    round_trip: Arc<RoundTrip>,
    renewals: Arc<Renewals>,
) {
    let lease = shared.limits.lease;
    // The first renewals follow each other quickly: the agent may be busy at one of them, and the
    // workers, which need the round trip, are ready after some tenths of a second.
    for pause in FIRST_RENEWAL_PAUSES.into_iter().chain(repeat(lease / 4)) {
        if !shared.is_paid() {
            return;
        }
        let sequence = requests.number();
        round_trip.on_ping(sequence, Instant::now());
        renewals.on_sent(&mut shared.account(), sequence, clock::now());
        let ping = ToAgent::Ping { sequence, lease: lease.as_secs_f64() };
        let pushed = ping.encode().and_then(|(head, body)| sender.push(&head, body));
        if pushed.is_err() {
            return;
        }
        sender.flush();
        tokio::time::sleep(pause).await;
    }
}

async fn write(writer: Writer) {
    // The reader notices the same loss and reports it.
    let _ = writer.run().await;
}

fn unexpected(wanted: &str, got: &FromAgent) -> Error {
    Error::new(ErrorKind::Protocol, format!("the node's agent answered {got:?} instead of {wanted}"))
        .with_hint("the worker package on the node is of another version than this client")
}

#[cfg(test)]
mod tests;
