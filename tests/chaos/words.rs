//! What the program that makes faults and its clients say to each other. Both compile this file: the one that makes faults depends on no crate of ours.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a client is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) provider: Provider,
    /// What its tasks are drawn from.
    pub(crate) seed: u64,
    pub(crate) nodes: u32,
    pub(crate) workers_per_node: u32,
    /// How many nodes a host may carry, where nodes are on hosts.
    pub(crate) slots: u32,
    /// Whether a plugin joins the workers into one world.
    pub(crate) joined: bool,
    /// What a rank of the world does when it sees that a peer is gone: hang, as some frameworks do, or raise.
    pub(crate) hangs: bool,
    /// How many callers dispatch at the same time.
    pub(crate) callers: u32,
    /// For how long they do, in milliseconds.
    pub(crate) busy: u64,
    /// Whether some tasks run for seconds, in Python and in native code that does not return to it.
    pub(crate) long: bool,
    /// Whether most tasks are those whose payloads make calls.
    pub(crate) calls: bool,
    /// When the client's runtime is blocked, counted from the start of the callers, and for how long, in milliseconds.
    pub(crate) freeze: Option<(u64, u64)>,
    /// Where each execution of a task leaves a line: `<call> <rank> <generation> <pid>`, and each
    /// execution of a call that a payload has made: `+ <execution of its caller> <index there>`.
    pub(crate) executions: String,
}

/// Where a client gets its machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provider {
    /// This host.
    Local,
    /// Containers of an image, with a label, and with a folder of the host at one of their own.
    Docker { image: String, label: (String, String), bind: (String, String) },
    /// These hosts.
    Ssh { hosts: Vec<Host> },
    /// Instances in these subnets, reached by their private addresses. The account, its region and where it is called are in the client's environment.
    Aws { subnets: Vec<String>, ssh_port: u16 },
}

/// A host that is reached by SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    /// Where the client's key is.
    pub(crate) key: PathBuf,
    /// As in a `.pub` file.
    pub(crate) host_key: String,
}

/// What a client says, a line of JSON each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The pool is up.
    Ready,
    /// A call was submitted. `tasks` are its numbers in the pool: one, or one for each rank; none where the pool did not take it.
    Submitted { call: u64, tasks: Vec<u64>, each_rank: bool },
    /// The pool said that it tries a task again.
    Retried { task: u64 },
    /// The pool said so much that the client missed some of it.
    Missed,
    /// A task of a call has an outcome: `member` is its rank in a call for each rank, and else 0.
    Answered { call: u64, member: u32, outcome: Answer },
    /// The callers are done, and the scope is left.
    Ending,
    /// The scope has ended.
    Ended { error: Option<String> },
}

/// How a task ended for its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// With the value that is its own.
    Returned,
    /// With an error that a fault explains.
    Failed(String),
    /// Its caller gave it up.
    Dropped,
    /// With something that is not its own, or with an error that no fault explains.
    Wrong(String),
    /// Not within its deadline.
    Lost,
    /// Its map was given up before it had one: lost, if the pool has taken it by then.
    Left,
}

/// What a task has failed with whose payload has lost the worker of a call.
pub(crate) const CALL_LOST: &str = "CallLost";
/// What a task has failed with that waited for its calls until its timeout.
pub(crate) const CALLS_TIMEOUT: &str = "CallsTimeout";
/// How long the start of a pool of instances may take, in milliseconds.
pub(crate) const START_OF_INSTANCES: u64 = 90_000;
/// How long its end may take, in milliseconds.
pub(crate) const END_OF_INSTANCES: u64 = 60_000;
/// How long a node lives without a word from its client, in milliseconds.
pub(crate) const LEASE: u64 = 3000;
