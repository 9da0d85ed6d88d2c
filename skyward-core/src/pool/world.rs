//! One life of the workers: started together, connected, hooks entered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::bring_up::Guards;
use super::driver::{self, Command};
use super::node::Node;
use super::shared::Shared;
use super::status::NodeStatus;
use crate::error::{Error, ErrorKind, RemoteError, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::plugin::PluginSet;
use crate::spec::ClusterInfo;
use crate::worker::link::{Reader, link};
use crate::worker::message::{
    Cluster, Failure, FromWorker, Peer, Peers, StartHook, StartSpec, StartedWorker, ToWorker,
};
use crate::worker::session;

/// What all generations of a pool have in common.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cluster: ClusterInfo,
    pub(crate) plugins: PluginSet,
    /// What plugins hold until the pool has ended.
    pub(crate) _guards: Guards,
}

/// The nodes as their workers are told of them.
#[derive(Debug)]
struct Roster {
    peers: Peers,
    total: u32,
    /// Its address.
    head: String,
    /// Those that are not in it, because they leave.
    leaving: Vec<NodeIndex>,
}

impl Roster {
    /// Of a node that is lost the last address is known; in a world none is while it is started. One that leaves counts only for itself: `up_to` names it.
    fn of(shared: &Shared, up_to: Option<NodeIndex>) -> Result<Self> {
        let counts = |peer: &NodeStatus| !peer.leaving || up_to.is_some_and(|node| peer.node <= node);
        let (peers, leaving): (Vec<Peer>, Vec<NodeIndex>) = {
            let state = shared.lock();
            let peers = state.nodes.iter().filter(|peer| counts(peer));
            let leaving = state.nodes.iter().filter(|peer| !counts(peer)).map(|peer| peer.node);
            (peers.map(|peer| Peer { node: peer.node.0, addr: peer.address.clone() }).collect(), leaving.collect())
        };
        let head = peers.first().map(|head| head.addr.clone()).unwrap_or_default();
        Ok(Self { total: peers.len() as u32, peers: Peers::new(&peers)?, head, leaving })
    }
}

/// Why workers could not be started.
#[derive(Debug)]
pub(crate) struct NotStarted {
    /// The node on which it failed first.
    pub(crate) node: NodeIndex,
    pub(crate) error: Error,
}

impl From<NotStarted> for Error {
    fn from(failed: NotStarted) -> Self {
        failed.error
    }
}

impl World {
    /// Starts these ranks, which are on these nodes, as workers of a generation, and waits until all of them have entered their hooks. A new generation needs the head among the nodes.
    pub(crate) async fn start(
        &self,
        shared: &Arc<Shared>,
        nodes: &[Arc<Node>],
        generation: Generation,
        ranks: &[Rank],
    ) -> std::result::Result<(), NotStarted> {
        let (number, workers) = (generation.0, ranks.len());
        // Not entered: what is spawned here lives on, and would keep it open.
        let failed = tracing::field::Empty;
        let span = tracing::info_span!(target: "skyward::pool", "workers", generation = number, workers, otel.status_code = failed);
        let began = Instant::now();
        let started = self.start_all(shared, nodes, generation, ranks).await;
        match &started {
            Ok(()) => shared.metrics.step("workers", began.elapsed()),
            Err(_) => drop(span.record("otel.status_code", "ERROR")),
        }
        started
    }

    async fn start_all(
        &self,
        shared: &Arc<Shared>,
        nodes: &[Arc<Node>],
        generation: Generation,
        ranks: &[Rank],
    ) -> std::result::Result<(), NotStarted> {
        let deadline = Instant::now() + shared.limits.hooks;
        shared.emit(PoolEvent::GenerationStarting { generation, workers: ranks.len() as u32 });
        let known = shared.lock().rendezvous.filter(|(of, _)| *of == generation);
        let port = match known {
            // A worker that is started again meets the others where they met.
            Some((_, port)) => port,
            None => {
                let head = nodes.iter().find(|node| node.index == NodeIndex(0));
                let head = head.ok_or_else(|| Error::new(ErrorKind::Start, "the pool's head is not there"));
                let port = match head {
                    Ok(head) => head.agent.reserve_port(ANSWER).await.map_err(|error| lost_if_silent(head, error)),
                    Err(error) => Err(error),
                };
                port.map_err(|error| NotStarted { node: NodeIndex(0), error })?
            }
        };
        {
            let mut state = shared.lock();
            state.generation = generation;
            state.rendezvous = Some((generation, port));
            for rank in ranks {
                if let Some(slot) = state.workers.get_mut(rank.0 as usize) {
                    *slot = slot.replaced(generation, shared.limits.max_frame);
                }
            }
        }
        let cluster = self.cluster_of(shared);
        let roster = Roster::of(shared, None);
        let roster = roster.map_err(|error| NotStarted { node: NodeIndex(0), error })?;
        let per_node = cluster.workers_per_node;
        let mut of_nodes: BTreeMap<NodeIndex, Vec<u32>> = BTreeMap::new();
        for rank in ranks {
            of_nodes.entry(NodeIndex(rank.0 / per_node)).or_default().push(rank.0 % per_node);
        }
        // Each start has all peers in it, and what many links have not written yet is in memory.
        let room = Semaphore::new(STARTS);
        let (cluster, roster, room) = (&cluster, &roster, &room);
        let mine = nodes.iter().filter_map(|node| Some((node, of_nodes.remove(&node.index)?)));
        let starts = mine.map(|(node, workers)| async move {
            let started = self.start_on(shared, (cluster, roster), node, generation, port, (workers, room)).await;
            started.map_err(|error| NotStarted { node: node.index, error })
        });
        let started = tokio::time::timeout_at(deadline, try_join_all(starts)).await;
        match started {
            Ok(result) => result.map(|_| ()),
            Err(_) => Err(self.stragglers(shared, ranks)),
        }
    }

    /// Starts these workers of a node.
    async fn start_on(
        &self,
        shared: &Arc<Shared>,
        (cluster, roster): (&ClusterInfo, &Roster),
        node: &Node,
        generation: Generation,
        port: u16,
        (workers, room): (Vec<u32>, &Semaphore),
    ) -> Result<()> {
        let per_node = cluster.workers_per_node;
        // Nobody closes it.
        let sending = room.acquire().await.ok();
        let spec = match roster.leaving.iter().any(|leaving| *leaving <= node.index) {
            false => self.spec(shared, (cluster, roster), node, generation, port),
            true => self.spec(shared, (cluster, &Roster::of(shared, Some(node.index))?), node, generation, port),
        };
        let received = |worker| {
            let rank = Rank(node.index.0 * per_node + worker);
            shared.lock().slot(rank, generation).map_or([0; 2], |slot| slot.received)
        };
        let started = node.agent.start(generation, workers, spec, received, ANSWER).await;
        drop(sending);
        let started = started.map_err(|error| lost_if_silent(node, error))?;
        try_join_all(started.iter().map(|worker| self.connect(shared, node, generation, worker))).await.map(|_| ())
    }

    /// Which workers have not entered their hooks when the deadline has passed.
    fn stragglers(&self, shared: &Shared, ranks: &[Rank]) -> NotStarted {
        let state = shared.lock();
        let late: Vec<Rank> = ranks.iter().filter(|rank| !state.scheduler.is_ready(**rank)).copied().collect();
        let node = late.first().map_or(NodeIndex(0), |rank| state.scheduler.node_of(*rank));
        let missing: Vec<String> = late.iter().map(ToString::to_string).collect();
        let plugins: Vec<&str> = self
            .plugins
            .iter()
            .filter(|plugin| plugin.around_app(&self.cluster).is_some())
            .map(|plugin| plugin.name())
            .collect();
        let error = Error::new(
            ErrorKind::Hook,
            format!(
                "{} of {} workers had not entered their hooks after {:?}: rank {} (hooks: {})",
                missing.len(), ranks.len(), shared.limits.hooks, missing.join(", "),
                if plugins.is_empty() { "none".to_owned() } else { plugins.join(", ") }
            ),
        )
        .with_hint("the workers' output says how far they came; a rank that cannot reach the head's address waits in the rendezvous; `Limits::hooks` gives more time");
        NotStarted { node, error }
    }

    /// Connects to a started worker; it says hello when its hooks are entered.
    async fn connect(
        &self,
        shared: &Arc<Shared>,
        node: &Node,
        generation: Generation,
        worker: &StartedWorker,
    ) -> Result<()> {
        let rank = Rank(node.index.0 * self.cluster.workers_per_node + worker.worker);
        if let Some(slot) = shared.lock().slot(rank, generation) {
            slot.pid = Some(worker.pid);
            slot.socket = worker.socket.clone();
        }
        let greeted = async {
            let greeted = greet_persistently(shared, node, generation, worker, rank).await;
            if let Err(error) = &greeted
                && error.kind() == ErrorKind::Io
            {
                // Why it cannot be reached is known to its agent, which tells its end before it has stopped it, unless that is gone too.
                let stopped = node.agent.stop(generation, vec![worker.worker], Duration::ZERO, ANSWER).await;
                stopped.map_err(|error| lost_if_silent(node, error))?;
                return Err(ended_early(rank, &shared.exited(rank, generation).await).with_source(error.clone()));
            }
            greeted
        };
        let connected = tokio::select! {
            biased;
            greeted = greeted => greeted?,
            exit = shared.exited(rank, generation) => return Err(ended_early(rank, &exit)),
        };
        let ended = shared.act(|state, now| {
            let Some(slot) = state.slot(rank, generation) else { return Some(WorkerExit::WorldEnded) };
            // Its end may have been told while its hello was on the way, and is not told again.
            let ended = slot.exited.clone();
            if ended.is_none() {
                state.scheduler.on_ready(now, rank);
            }
            ended
        });
        if let Some(exit) = ended {
            return Err(ended_early(rank, &exit));
        }
        shared.emit(PoolEvent::WorkerReady { rank, node: node.index, pid: worker.pid });
        listen(shared, rank, generation, connected);
        Ok(())
    }

    /// The cluster with the nodes that there are.
    fn cluster_of(&self, shared: &Shared) -> ClusterInfo {
        let mut cluster = self.cluster.clone();
        cluster.nodes = shared.lock().nodes.iter().filter(|node| !node.leaving).count() as u32;
        cluster
    }

    fn spec(
        &self,
        shared: &Shared,
        (cluster, roster): (&ClusterInfo, &Roster),
        node: &Node,
        generation: Generation,
        port: u16,
    ) -> (StartSpec, Peers) {
        let total = roster.total;
        let accelerators = self.cluster.accelerator.as_ref().map_or(0, |accelerator| accelerator.count);
        let interpreter = vec![node.ready.python.clone(), "-m".into(), "skyward.worker".into()];
        let command = self.plugins.launcher(interpreter.clone(), cluster);
        let launcher = command.strip_suffix(&interpreter[..]).map(<[String]>::to_vec).unwrap_or_default();
        let spec = StartSpec {
            python: node.ready.python.clone(),
            launcher,
            env: node.ready.env.clone(),
            secrets: shared.secrets.clone(),
            cwd: node.ready.work_dir.clone(),
            hooks: self.hooks(cluster),
            max_frame: shared.limits.max_frame,
            retain_bytes: RETAIN_BYTES,
            store_bytes: shared.limits.store_bytes,
            cluster: Cluster {
                node: node.index.0,
                total_nodes: total,
                workers_per_node: self.cluster.workers_per_node,
                head_addr: roster.head.clone(),
                head_port: port,
                job_id: shared.pool.to_string(),
                addr: node.place.address.clone(),
                accelerators,
                total_accelerators: accelerators * total,
                accelerator: self.cluster.accelerator.clone(),
                generation: generation.0,
                joined: shared.lock().scheduler.is_joined(),
                peers: [],
            },
        };
        (spec, roster.peers.clone())
    }

    fn hooks(&self, cluster: &ClusterInfo) -> Vec<StartHook> {
        let hooks = self.plugins.hooks(cluster).into_iter();
        hooks.map(|(plugin, hook)| StartHook { plugin, hook }).collect()
    }
}

/// An agent that does not answer, or cannot be asked, is gone, and its node with it. What it refuses is another matter.
pub(crate) fn lost_if_silent(node: &Node, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Timeout => {
            Error::new(ErrorKind::NodeLost, format!("node {} was lost while its workers were started", node.index))
                .with_source(error)
        }
        _ => error,
    }
}

/// Exchanges hellos with a worker that is being started. A connection that is cut before the worker answers is opened
/// again, for a while; meanwhile the agent reports a worker that has ended.
async fn greet_persistently(
    shared: &Arc<Shared>,
    node: &Node,
    generation: Generation,
    worker: &StartedWorker,
    rank: Rank,
) -> Result<(Reader, u64)> {
    let mut pause = AGAIN;
    loop {
        let error = match greet(shared, node, generation, worker, rank).await {
            Err(error) if error.kind() == ErrorKind::Io && pause <= LONGEST_AGAIN => error,
            greeted => return greeted,
        };
        tracing::debug!(pool = %shared.pool, rank = rank.0, %error, "the worker is not reached yet");
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

/// Opens a worker's socket and exchanges hellos; returns once the worker has entered its hooks.
async fn greet(
    shared: &Arc<Shared>,
    node: &Node,
    generation: Generation,
    worker: &StartedWorker,
    rank: Rank,
) -> Result<(Reader, u64)> {
    let stream = node.remote.open(&worker.socket).await?;
    let (sender, writer, mut reader) = link(stream, shared.limits.max_frame);
    driver::spawn(async move {
        // The reader sees the same loss, and tells.
        let _ = writer.run().await;
    });
    let (acknowledged, streams) = {
        let mut state = shared.lock();
        let acknowledged = state.slot(rank, generation).map_or(0, |slot| slot.session.received());
        (acknowledged, state.streams(rank))
    };
    let (head, body) = ToWorker::Hello { generation: generation.0, acknowledged, streams: &streams }.encode()?;
    sender.push(&head, body)?;
    sender.flush();
    let mut waiting = VecDeque::new();
    let first = FromWorker::decode(reader.next(&mut waiting).await?)?;
    let FromWorker::Hello(hello) = first else {
        let what = format!("the worker of rank {rank} answered {first:?} where Hello was due");
        return Err(Error::new(ErrorKind::Protocol, what));
    };
    session::check_hello(&hello, worker.pid, generation, rank)?;
    if let Some(failure) = hello.failure {
        return Err(hook_error(&failure, rank));
    }
    let connection = shared.on_worker_connected(rank, generation, &sender, hello.received)?;
    if !waiting.is_empty() {
        shared.on_frames(rank, generation, connection, &mut waiting.into())?;
    }
    Ok((reader, connection))
}

/// Begins to read what a worker sends.
fn listen(shared: &Arc<Shared>, rank: Rank, generation: Generation, connected: (Reader, u64)) {
    let connection = connected.1;
    let reader = driver::spawn(read(Arc::clone(shared), rank, generation, connected)).abort_handle();
    match shared.lock().slot(rank, generation).filter(|slot| slot.connection == connection) {
        Some(slot) => slot.reader = Some(reader),
        None => reader.abort(),
    }
}

/// The error of a worker that ended before it was ready.
fn ended_early(rank: Rank, exit: &WorkerExit) -> Error {
    Error::new(ErrorKind::Start, format!("the worker of rank {rank} {exit} before it took a task"))
        .with_hint("its output says more: `events()`, or the pool's terminal output")
}

/// Hands what a worker sends to the pool until the connection ends.
async fn read(shared: Arc<Shared>, rank: Rank, generation: Generation, (mut reader, connection): (Reader, u64)) {
    let error = reader.each(|frames| shared.on_frames(rank, generation, connection, frames)).await;
    tracing::debug!(pool = %shared.pool, rank = rank.0, ?error, "the connection to the worker ended");
    shared.on_read(rank, generation, connection);
    shared.command(Command::WorkerDisconnected { rank, generation, connection });
}

impl World {
    /// Connects again to a worker whose connection was lost while its process lives. It says hello when it comes to it: the connection stands for so long.
    pub(crate) async fn reconnect(
        &self,
        shared: &Arc<Shared>,
        node: &Node,
        rank: Rank,
        generation: Generation,
        patience: Duration,
    ) -> Result<()> {
        let known = shared.lock().slot(rank, generation).and_then(|slot| Some((slot.pid?, slot.socket.clone())));
        let Some((pid, socket)) = known else { return Ok(()) };
        let worker = StartedWorker { worker: rank.0 % self.cluster.workers_per_node, pid, socket };
        // One that computes answers when it is brought to look at its connection, or has returned.
        let attend = async {
            let mut pause = ATTEND;
            loop {
                tokio::time::sleep(pause).await;
                shared.attend(rank);
                pause = (pause * 2).min(LONGEST_ATTEND);
            }
        };
        let greeted = tokio::time::timeout(patience, greet(shared, node, generation, &worker, rank));
        let connected = tokio::select! {
            biased;
            greeted = greeted => greeted,
            () = attend => return Ok(()),
        };
        let connected = connected.map_err(|_| Error::new(ErrorKind::Timeout, "the worker did not answer"))??;
        listen(shared, rank, generation, connected);
        Ok(())
    }
}

/// The error of a task that a worker says has failed.
pub(crate) fn task_error(failure: &Failure, node: NodeIndex, rank: Rank) -> Error {
    let remote = || RemoteError {
        type_name: failure.qualified_type(),
        message: failure.message.clone(),
        traceback: failure.traceback.clone(),
        node,
        rank,
    };
    let at = failure.path.as_deref().filter(|path| !path.is_empty());
    match failure.kind.as_str() {
        "import" => {
            let error = Error::remote_error(remote());
            match &failure.package {
                Some(package) => error.with_hint(format!(
                    "add the package to the pool's image, `.image(Image::new().pip([\"{package}\"]))`, or to the payload's PEP 723 `dependencies`"
                )),
                None => error,
            }
        }
        "arguments" => {
            Error::new(ErrorKind::Argument, format!("the payload cannot take the arguments: {}", failure.message))
                .with_context("rank", rank)
        }
        "encode" => {
            let place = at.map_or_else(|| "the result".to_owned(), |path| format!("the result at `{path}`"));
            Error::new(ErrorKind::Encode, format!("{place} cannot be sent back: {}", failure.message))
                .with_context("type", failure.value_type.as_deref().unwrap_or("unknown"))
                .with_context("rank", rank)
                .with_hint("return numbers, text, bytes, lists, dicts, dataclasses, pydantic models or arrays")
        }
        "too_large" => Error::new(ErrorKind::Encode, failure.message.clone())
            .with_context("rank", rank)
            .with_hint("raise `Limits::max_frame`, return less, or let the payload be a generator"),
        "exit" => Error::remote_error(RemoteError { type_name: "SystemExit".into(), ..remote() })
            .with_hint("a payload returns its result; `sys.exit` ends only the task"),
        "cancelled" => {
            Error::new(ErrorKind::Cancelled, "the task was cancelled on its worker").with_context("rank", rank)
        }
        "hook" => hook_error(failure, rank),
        _ => Error::remote_error(remote()),
    }
}

/// The error of a plugin's hook.
fn hook_error(failure: &Failure, rank: Rank) -> Error {
    let plugin = failure.plugin.as_deref().unwrap_or("a plugin");
    let phase = if failure.phase.as_deref() == Some("exit") { "leaving" } else { "entering" };
    let mut text = format!(
        "{phase} the hook of plugin `{plugin}` failed on rank {rank}: {}: {}",
        failure.qualified_type(),
        failure.message.trim_end()
    );
    if !failure.traceback.is_empty() {
        text.push('\n');
        text.push_str(failure.traceback.trim_end());
    }
    let error = Error::new(ErrorKind::Hook, text);
    match &failure.package {
        Some(package) => error.with_hint(format!("add `{package}` to the pool's image")),
        None => error,
    }
}

/// How long an agent may take to answer; it does nothing but fork.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// Until a worker that does not answer is brought to look at its connection for the first time; then twice as long each time, up to a bound.
const ATTEND: Duration = Duration::from_millis(20);
const LONGEST_ATTEND: Duration = Duration::from_secs(1);
/// The pauses between greetings of a worker that is being started: the first and the longest. Each is twice as long as
/// the one before.
const AGAIN: Duration = Duration::from_millis(10);
const LONGEST_AGAIN: Duration = Duration::from_secs(2);
/// Nodes whose start is on its way at once.
const STARTS: usize = 128;
/// Results that a worker keeps until they are acknowledged.
const RETAIN_BYTES: usize = 256 << 20;
