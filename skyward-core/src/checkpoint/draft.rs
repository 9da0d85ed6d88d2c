//! What ranks have saved, and a commit is made of.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::layout::SaveId;
use crate::files::Part;
use crate::spec::hex;

/// A save of all its ranks that is uploaded and not committed yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    pub(crate) save: SaveId,
    pub(crate) step: i64,
    /// The try of the task, as text.
    pub(crate) attempt: String,
    /// JSON, as the payload gave it.
    pub(crate) meta: String,
    pub(crate) ranks: Vec<RankFiles>,
    /// How many commits are kept, with this one; `None` for all.
    pub(crate) keep: Option<u32>,
    /// A save whose commit stays all the same: ranks of a try may still have to begin with it.
    pub(crate) spared: Option<SaveId>,
}

/// What one rank has saved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RankFiles {
    pub(crate) rank: u32,
    /// The root folder first, parents before children; files have digests. The parts have the files one
    /// after another in this order.
    pub(crate) files: Vec<Part>,
    /// The uploaded parts, from number 0 on. Without bytes there is none.
    pub(crate) parts: Vec<PartInfo>,
}

/// An uploaded part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartInfo {
    pub(crate) size: u64,
    /// 64 hexadecimal digits.
    pub(crate) sha256: String,
}

impl PartInfo {
    pub(crate) fn of(bytes: &Bytes) -> Self {
        Self { size: bytes.len() as u64, sha256: hex(&Sha256::digest(bytes)) }
    }
}
