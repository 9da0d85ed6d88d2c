//! Output of workers.

use bytes::Bytes;

use crate::ids::{Generation, NodeIndex, Rank, TaskId};

/// Bytes that a worker wrote, exactly as it wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The bytes.
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

/// Standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}
