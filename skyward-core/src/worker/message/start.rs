//! What an agent needs to start the workers of a generation: the interpreter, the environment, the
//! hooks, and the nodes of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::head::protocol;
use crate::error::Result;
use crate::payload::Source;
use crate::plugin::Hook;
use crate::spec::Secrets;

/// How an agent starts the workers of a generation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartSpec {
    /// The interpreter.
    pub python: String,
    /// The words before the interpreter on the command line.
    pub launcher: Vec<String>,
    /// The workers' environment variables, in addition to the agent's.
    pub env: BTreeMap<String, String>,
    /// Further environment variables, which the agent passes to the workers and stores nowhere.
    pub(crate) secrets: Secrets,
    /// The workers' working folder.
    pub cwd: String,
    /// The hooks, outermost first.
    pub hooks: Vec<StartHook>,
    /// The payloads that workers import after they have entered their hooks.
    pub payloads: Vec<StartPayload>,
    /// The largest body of a frame, in bytes.
    pub max_frame_bytes: usize,
    /// How many bytes of unacknowledged results a worker keeps.
    pub retain_bytes: usize,
    /// How many bytes of large arrays the node's store keeps.
    pub store_bytes: u64,
    /// The cluster as the workers see it. It must be the last field, and the peers the last field
    /// in it.
    pub cluster: Cluster,
}

/// The cluster as a worker sees it, with the nodes that really exist.
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
    /// Whether all nodes are on one host, and share its cores.
    pub shared_host: bool,
    /// Whether the pool has a storage for checkpoints.
    pub storage: bool,
    /// The names of the pool's data sets.
    pub data: Vec<String>,
    /// Empty here: [`Peers`] replace it.
    pub(crate) peers: [Peer; 0],
}

/// The nodes of a cluster, encoded once and shared by the messages to all nodes.
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
    /// The name of the plugin.
    pub plugin: String,
    /// The hook itself.
    #[serde(flatten)]
    pub hook: Hook,
}

/// A payload that workers import before the pool is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartPayload(Arc<Source>);

impl StartPayload {
    /// A payload with this source.
    pub fn new(source: &Arc<Source>) -> Self {
        Self(Arc::clone(source))
    }
}

impl Serialize for StartPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        (self.0.digest(), SourceMap::of(&self.0)).serialize(serializer)
    }
}

/// A source as workers read it.
#[derive(Debug, Serialize)]
pub(crate) struct SourceMap<'a> {
    entry: &'a str,
    main: &'a str,
    first_line: u32,
    files: Vec<(&'a str, &'a str)>,
}

impl<'a> SourceMap<'a> {
    pub(crate) fn of(source: &'a Source) -> Self {
        let files = source.files().iter().map(|file| (&*file.path, &*file.text)).collect();
        Self { entry: source.entry(), main: source.main(), first_line: source.first_line(), files }
    }
}

impl Peers {
    /// Encodes the nodes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::error::ErrorKind::Protocol) when a node cannot be encoded.
    pub fn new(peers: &[Peer]) -> Result<Self> {
        let mut encoded = Vec::new();
        crate::payload::value::encode_into(&mut encoded, &peers).map_err(|error| protocol("peer", &error))?;
        Ok(Self(encoded.into()))
    }

    /// The nodes, as they are sent.
    pub(super) fn encoded(&self) -> Bytes {
        self.0.clone()
    }
}
