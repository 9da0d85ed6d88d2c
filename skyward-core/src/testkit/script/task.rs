//! A task as the rules of a script see it.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::ids::{NodeIndex, Rank};
use crate::payload::value;

/// A task, or a call within a task, that a fake worker begins.
#[derive(Debug)]
pub struct FakeTask<'a> {
    pub(in crate::testkit) entry: &'a str,
    pub(in crate::testkit) sent: Bytes,
    pub(in crate::testkit) args: Bytes,
    pub(in crate::testkit) path: Bytes,
    pub(in crate::testkit) start: u32,
    pub(in crate::testkit) node: u32,
    pub(in crate::testkit) rank: u32,
}

impl FakeTask<'_> {
    /// The entry function of the payload; for a call, of the task that made it.
    pub fn entry(&self) -> &str {
        self.entry
    }

    /// The argument of this name; for a call, of the task that made it. `None` if there is none, or
    /// if it does not fit the type.
    pub fn arg<T: DeserializeOwned + 'static>(&self, name: &str) -> Option<T> {
        value::decode(&value::entry(&self.args, name)?).ok()
    }

    /// The arguments as they are sent; for a call, those of the task that made it, and behind them
    /// its [path](Self::path).
    pub fn sent(&self) -> &[u8] {
        &self.sent
    }

    /// Empty for a task. For a call, its index among the calls of its caller, behind the path of
    /// its caller.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// How often such a task has begun with these arguments on any node, this time included.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// The worker's node.
    pub fn node(&self) -> NodeIndex {
        NodeIndex(self.node)
    }

    /// The worker's rank.
    pub fn rank(&self) -> Rank {
        Rank(self.rank)
    }
}

/// The task with its arguments.
impl fmt::Display for FakeTask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "call {:?} of ", &self.path[..])?;
        }
        write!(f, "`{}(", self.entry)?;
        match value::decode::<BTreeMap<String, serde_json::Value>>(&self.args) {
            Ok(args) => {
                let args: Vec<_> = args.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "{}", args.join(", "))?;
            }
            Err(_) => write!(f, "{} bytes", self.args.len())?,
        }
        write!(f, ")` on rank {}", self.rank)
    }
}
