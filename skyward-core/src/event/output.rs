//! Output of workers.

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};

use crate::ids::{Generation, NodeIndex, Rank, TaskId};

/// Bytes that a worker wrote, exactly as it wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutputChunk {
    /// The worker's node.
    pub node: NodeIndex,
    /// The worker's rank.
    pub rank: Rank,
    /// The descriptor that the bytes were written to.
    pub stream: OutputStream,
    /// The generation in which the bytes were written. Offsets begin at 0 in each generation.
    pub generation: Generation,
    /// How many bytes the worker had written to the descriptor before these bytes.
    pub offset: u64,
    /// The task that wrote the bytes, if it is known yet.
    pub task: Option<TaskId>,
    /// The bytes. In their form by serde they are text, where bytes that are no UTF-8 are replaced.
    #[serde(rename = "text", serialize_with = "lossy")]
    pub bytes: Bytes,
}

impl OutputChunk {
    /// Output of a worker whose task is not known.
    pub fn new(
        node: NodeIndex,
        rank: Rank,
        stream: OutputStream,
        generation: Generation,
        offset: u64,
        bytes: impl Into<Bytes>,
    ) -> Self {
        Self { node, rank, stream, generation, offset, task: None, bytes: bytes.into() }
    }
}

fn lossy<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

/// Standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}
