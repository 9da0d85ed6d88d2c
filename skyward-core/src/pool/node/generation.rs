//! Starts the workers of a generation: together, connected, and with their hooks entered.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::greeting::{greet, greet_persistently, listen};
use super::make::Node;
use super::mover::NewNode;
use super::timing::AGENT_ANSWER;
use crate::error::{Error, ErrorKind, LastWords, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::plugin::PluginSet;
use crate::pool::tasks::shared::Shared;
use crate::pool::tasks::timing::{ATTEND_PAUSE, LONGEST_ATTEND_PAUSE};
use crate::spec::ClusterInfo;
use crate::worker::message::{Cluster, Peer, Peers, StartHook, StartPayload, StartSpec, StartedWorker};

/// Guards that plugins hold for the life of the pool.
pub(crate) type Guards = Vec<Box<dyn Any + Send + Sync>>;

/// What all generations of a pool have in common.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cluster: ClusterInfo,
    pub(crate) plugins: PluginSet,
    /// Guards that plugins hold until the pool has ended.
    pub(crate) _guards: Guards,
}

/// The list of nodes that workers receive when they are started.
#[derive(Debug)]
struct Roster {
    peers: Peers,
    total: u32,
    /// The address of the head.
    head: String,
    /// The nodes that are left out of the list because they leave.
    draining: Vec<NodeIndex>,
}

impl Roster {
    /// The list of the present nodes. A lost node has its last known address; no node of a world is
    /// lost while the world is started. Nodes that leave are left out, except those up to `up_to`:
    /// the workers of a node that leaves need a list that includes their own node.
    fn of(shared: &Shared, up_to: Option<NodeIndex>) -> Result<Self> {
        let (peers, draining): (Vec<Peer>, Vec<NodeIndex>) = {
            let state = shared.lock();
            let counts = |node| !state.fleet.is_draining(node) || up_to.is_some_and(|last| node <= last);
            let peers = state.nodes.iter().filter(|(node, _)| counts(*node));
            let draining = state.nodes.iter().map(|(node, _)| node).filter(|node| !counts(*node));
            (
                peers.map(|(node, row)| Peer { node: node.0, addr: row.place.address.clone() }).collect(),
                draining.collect(),
            )
        };
        let head = peers.first().map(|head| head.addr.clone()).unwrap_or_default();
        Ok(Self { total: peers.len() as u32, peers: Peers::new(&peers)?, head, draining })
    }
}

/// What the starts of one generation on several nodes have in common.
struct Starts<'s> {
    shared: &'s Arc<Shared>,
    cluster: &'s ClusterInfo,
    roster: &'s Roster,
    generation: Generation,
    /// The port of the rendezvous.
    port: u16,
    /// How many starts may be under way at once.
    room: &'s Semaphore,
}

/// Why workers could not be started.
#[derive(Debug)]
pub(crate) struct NotStarted {
    /// The node on which the start failed first.
    pub(crate) node: NodeIndex,
    pub(crate) error: Error,
}

impl From<NotStarted> for Error {
    fn from(failed: NotStarted) -> Self {
        failed.error
    }
}

impl World {
    /// Starts these ranks, which are on these nodes, as workers of a generation, and waits until
    /// all of them have entered their hooks. For a new generation, the head must be among the
    /// nodes.
    pub(crate) async fn start(
        &self,
        shared: &Arc<Shared>,
        nodes: &[Arc<Node>],
        generation: Generation,
        ranks: &[Rank],
    ) -> std::result::Result<(), NotStarted> {
        let (number, workers) = (generation.0, ranks.len());
        // The span is not entered: tasks that are spawned here live on and would keep it open.
        let failed = tracing::field::Empty;
        let span = tracing::info_span!(target: "skyward::pool", "workers", generation = number, workers, otel.status_code = failed);
        bring_data(shared, nodes).await?;
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
        let known = shared.lock().rendezvous.port(generation);
        let port = match known {
            // A worker that is restarted meets the others at their port.
            Some(port) => port,
            None => {
                let head = nodes.iter().find(|node| node.index == NodeIndex(0));
                let head = head.ok_or_else(|| Error::new(ErrorKind::Start, "the pool has no head node"));
                let port = match head {
                    Ok(head) => {
                        head.agent.reserve_port(AGENT_ANSWER).await.map_err(|error| lost_if_silent(head, error))
                    }
                    Err(error) => Err(error),
                };
                port.map_err(|error| NotStarted { node: NodeIndex(0), error })?
            }
        };
        {
            let mut state = shared.lock();
            state.rendezvous.begin(generation, port);
            for rank in ranks {
                if let Some(row) = state.workers.get_mut(*rank) {
                    *row = row.replaced(generation, shared.limits.max_frame_bytes);
                }
            }
        }
        let cluster = self.cluster_of(shared);
        let roster = Roster::of(shared, None);
        let roster = roster.map_err(|error| NotStarted { node: NodeIndex(0), error })?;
        let layout = cluster.layout();
        let mut of_nodes: BTreeMap<NodeIndex, Vec<u32>> = BTreeMap::new();
        for rank in ranks {
            of_nodes.entry(layout.node(*rank)).or_default().push(layout.worker(*rank));
        }
        // Each start message contains all peers, and stays in memory until its link has written it;
        // so only some starts are under way at once.
        let room = Semaphore::new(STARTS);
        let starts = &Starts { shared, cluster: &cluster, roster: &roster, generation, port, room: &room };
        let mine = nodes.iter().filter_map(|node| Some((node, of_nodes.remove(&node.index)?)));
        let started = mine.map(|(node, workers)| async move {
            let started = self.start_on(starts, node, workers).await;
            started.map_err(|error| NotStarted { node: node.index, error })
        });
        let started = tokio::time::timeout_at(deadline, try_join_all(started)).await;
        match started {
            Ok(result) => result.map(|_| ()),
            Err(_) => Err(self.stragglers(shared, ranks)),
        }
    }

    /// Starts workers on a node.
    async fn start_on(&self, starts: &Starts<'_>, node: &Node, workers: Vec<u32>) -> Result<()> {
        let Starts { shared, cluster, roster, generation, room, .. } = *starts;
        let layout = cluster.layout();
        // The semaphore is never closed.
        let sending = room.acquire().await.ok();
        let is_left = roster.draining.iter().any(|draining| *draining <= node.index);
        let own = is_left.then(|| Roster::of(shared, Some(node.index))).transpose()?;
        let roster = own.as_ref().unwrap_or(roster);
        let spec = self.spec(&Starts { roster, ..*starts }, node);
        let received = |worker| {
            let rank = layout.rank(node.index, worker);
            shared.lock().row(rank, generation).map_or([0; 2], |row| row.output.received())
        };
        let started = node.agent.start(generation, workers, spec, roster.peers.clone(), received, AGENT_ANSWER).await;
        drop(sending);
        let started = started.map_err(|error| lost_if_silent(node, error))?;
        try_join_all(started.iter().map(|worker| self.connect(shared, node, generation, worker))).await.map(|_| ())
    }

    /// The error for workers that have not entered their hooks at the deadline.
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
        let payloads: Vec<&str> = shared.imports.iter().map(|source| source.main()).collect();
        let named = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let error = Error::new(
            ErrorKind::Hook,
            format!(
                "{} of {} workers had not entered their hooks and imported their payloads after {:?}: rank {} (hooks: {}; \
                 payloads: {})",
                missing.len(), ranks.len(), shared.limits.hooks, missing.join(", "), named(&plugins), named(&payloads)
            ),
        )
        .with_hint("the workers' output shows how far they got; a rank that cannot reach the head's address waits in the rendezvous; `Limits::hooks` gives more time");
        NotStarted { node, error }
    }

    /// Connects to a started worker, which says hello when it has entered its hooks.
    async fn connect(
        &self,
        shared: &Arc<Shared>,
        node: &Node,
        generation: Generation,
        worker: &StartedWorker,
    ) -> Result<()> {
        let rank = self.cluster.layout().rank(node.index, worker.worker);
        if let Some(row) = shared.lock().row(rank, generation) {
            row.process.on_started(worker.pid, worker.socket.clone());
        }
        let greeted = async {
            let greeted = greet_persistently(shared, node, generation, worker, rank).await;
            if let Err(error) = &greeted
                && error.kind() == ErrorKind::Io
            {
                // The agent knows why the worker cannot be reached, and reports the end of the
                // worker before it answers this request, unless the agent is gone too.
                let stopped = node.agent.stop(generation, vec![worker.worker], Duration::ZERO, AGENT_ANSWER).await;
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
        let round_trip = node.agent.round_trip();
        let ended = shared.act(|state, now| {
            let Some(row) = state.row(rank, generation) else {
                return Some((WorkerExit::WorldEnded, LastWords::default()));
            };
            // The end of the worker may have been reported while its hello was under way, and is
            // not reported again.
            let ended = row.process.end();
            if ended.is_none() {
                state.scheduler.on_ready(now, rank, round_trip);
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

    /// The cluster with the number of nodes that do not leave.
    fn cluster_of(&self, shared: &Shared) -> ClusterInfo {
        let mut cluster = self.cluster.clone();
        cluster.nodes = {
            let state = shared.lock();
            state.nodes.iter().filter(|(node, _)| !state.fleet.is_draining(*node)).count() as u32
        };
        cluster
    }

    fn spec(&self, starts: &Starts<'_>, node: &Node) -> StartSpec {
        let Starts { shared, cluster, roster, generation, port, .. } = *starts;
        let total = roster.total;
        let accelerators = self.cluster.accelerator.as_ref().map_or(0, |accelerator| accelerator.count);
        let interpreter = vec![node.ready.python.clone(), "-m".into(), "skyward.worker".into()];
        let command = self.plugins.launcher(interpreter.clone(), cluster);
        let launcher = command.strip_suffix(&interpreter[..]).map(<[String]>::to_vec).unwrap_or_default();
        StartSpec {
            python: node.ready.python.clone(),
            launcher,
            env: node.ready.env.clone(),
            secrets: shared.secrets.clone(),
            cwd: node.ready.work_dir.clone(),
            hooks: self.hooks(cluster),
            payloads: shared.imports.iter().map(StartPayload::new).collect(),
            max_frame_bytes: shared.limits.max_frame_bytes,
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
                shared_host: self.cluster.shared_host,
                storage: shared.storage.is_some(),
                data: shared.data.names().map(ToOwned::to_owned).collect(),
                peers: [],
            },
        }
    }

    fn hooks(&self, cluster: &ClusterInfo) -> Vec<StartHook> {
        let hooks = self.plugins.hooks(cluster).into_iter();
        hooks.map(|(plugin, hook)| StartHook { plugin, hook }).collect()
    }
}

/// Brings the data sets of the pool to the nodes that lack them.
async fn bring_data(shared: &Shared, nodes: &[Arc<Node>]) -> std::result::Result<(), NotStarted> {
    if shared.data.is_empty() {
        return Ok(());
    }
    let began = Instant::now();
    let brings = nodes.iter().map(|node| async move {
        let brought = shared.data.bring_all(&NewNode { shared, node }).await;
        brought.map_err(|error| {
            let error = if error.is_temporary() { lost_if_silent(node, error) } else { error };
            NotStarted { node: node.index, error }
        })
    });
    try_join_all(brings).await?;
    shared.metrics.step("data", began.elapsed());
    Ok(())
}

/// Turns the error of an agent that does not answer, or cannot be reached, into the loss of its
/// node. A request that the agent refuses keeps its error.
pub(crate) fn lost_if_silent(node: &Node, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Timeout => {
            Error::new(ErrorKind::NodeLost, format!("node {} was lost while its workers were started", node.index))
                .with_source(error)
        }
        _ => error,
    }
}

/// The error of a worker that ended before it was ready.
fn ended_early(rank: Rank, (exit, words): &(WorkerExit, LastWords)) -> Error {
    Error::new(ErrorKind::Start, format!("the worker of rank {rank} {exit} before it took a task"))
        .with_hint("the worker's output may show the reason: read it from `events()` or on the terminal")
        .with_last_words(rank, words)
}

impl World {
    /// Reconnects to a worker whose connection was lost while its process lives. The worker answers
    /// only when it looks at its connection, so the client waits for the hello for up to
    /// `patience`.
    pub(crate) async fn reconnect(
        &self,
        shared: &Arc<Shared>,
        node: &Node,
        rank: Rank,
        generation: Generation,
        patience: Duration,
    ) -> Result<()> {
        let worker = {
            let mut state = shared.lock();
            let address = state.row(rank, generation).and_then(|row| row.process.address());
            let Some((pid, socket)) = address else { return Ok(()) };
            StartedWorker { worker: self.cluster.layout().worker(rank), pid, socket: socket.to_owned() }
        };
        // A worker that computes answers when it is made to look at its connection, or when its
        // payload has returned.
        let attend = async {
            let mut pause = ATTEND_PAUSE;
            loop {
                tokio::time::sleep(pause).await;
                shared.attend(rank);
                pause = (pause * 2).min(LONGEST_ATTEND_PAUSE);
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

/// The number of nodes whose starts are under way at once.
const STARTS: usize = 128;
/// Bytes of results that a worker keeps until they are acknowledged.
const RETAIN_BYTES: usize = 256 << 20;
