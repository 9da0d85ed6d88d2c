//! The messages between the player of a round and its client.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The script of a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) provider: Provider,
    /// The seed from which the client draws its tasks.
    pub(crate) seed: u64,
    pub(crate) nodes: u32,
    pub(crate) workers_per_node: u32,
    /// How many nodes a host may carry, if the nodes are on hosts.
    pub(crate) slots: u32,
    /// Whether a plugin joins the workers into one world.
    pub(crate) joined: bool,
    /// Whether a rank of the world hangs when a peer is gone, as in some frameworks; it raises
    /// otherwise.
    pub(crate) hangs: bool,
    /// How many callers dispatch at the same time.
    pub(crate) callers: u32,
    /// How long the callers dispatch, in milliseconds.
    pub(crate) busy: u64,
    /// Whether some tasks run for seconds, in Python and in native code that does not return to
    /// Python.
    pub(crate) long: bool,
    /// Whether the payloads of most tasks make calls.
    pub(crate) calls: bool,
    /// When the client's runtime is blocked, counted from the start of the callers, and for how
    /// long, both in milliseconds.
    pub(crate) freeze: Option<(u64, u64)>,
    /// The file to which each execution of a task adds a line, `<call> <rank> <generation> <pid>`,
    /// and each execution of a call that a payload has made the line
    /// `+ <execution of its caller> <index there>`.
    pub(crate) executions: String,
    /// The folder on the client's host where the checkpoints of trainings are kept.
    pub(crate) storage: String,
}

/// Where a client gets its machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provider {
    /// This host.
    Local,
    /// Containers of an image, with a label, and with a folder of the host bound to a folder of the
    /// container.
    Docker { image: String, label: (String, String), bind: (String, String) },
    /// These hosts.
    Ssh { hosts: Vec<Host> },
    /// Instances in these subnets, reached by their private addresses. The client's environment
    /// names the account, the region and the endpoint.
    Aws { subnets: Vec<String>, ssh_port: u16 },
}

/// A host reached by SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    /// The file of the client's key.
    pub(crate) key: PathBuf,
    /// The host key, as in a `.pub` file.
    pub(crate) host_key: String,
}

/// The messages of a client, one line of JSON each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The pool is ready.
    Ready,
    /// A call was submitted. `tasks` are the numbers of its tasks in the pool: one, or one for each
    /// rank; none if the pool did not take the call.
    Submitted { call: u64, tasks: Vec<u64>, each_rank: bool },
    /// The pool reported that it tries a task again.
    Retried { task: u64 },
    /// The client missed some of the pool's events.
    Missed,
    /// A task of a call has an outcome. `member` is its rank in a call for each rank, and 0
    /// otherwise.
    Answered { call: u64, member: u32, outcome: Answer },
    /// The callers are done, and the scope is about to end.
    Ending,
    /// The scope has ended.
    Ended { error: Option<String> },
}

/// How a task ended for its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// With the expected value.
    Returned,
    /// With an error that a fault explains.
    Failed(String),
    /// The caller dropped it.
    Dropped,
    /// With a wrong value, or with an error that no fault explains.
    Wrong(String),
    /// With no outcome within its deadline.
    Lost,
    /// Its map was dropped before the task had an outcome: lost, if the pool had taken the task by
    /// then.
    Left,
}

/// The first word of a client's command line.
pub(crate) const CLIENT: &str = "client";
/// The error of a task whose payload has lost the worker of a call.
pub(crate) const CALL_LOST: &str = "CallLost";
/// The error of a task that waited for its calls until its timeout.
pub(crate) const CALLS_TIMEOUT: &str = "CallsTimeout";
/// How long the start of a pool of instances may take, in milliseconds.
pub(crate) const START_OF_INSTANCES: u64 = 90_000;
/// How long the end of a pool of instances may take, in milliseconds.
pub(crate) const END_OF_INSTANCES: u64 = 60_000;
/// How long a node lives without a message from its client, in milliseconds.
pub(crate) const LEASE: u64 = 3000;
