//! The messages between the client and the mover of a node.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;

use super::head::{Elements, pack, protocol, unknown};
use super::{ERROR, PROTOCOL_VERSION};
use crate::error::Result;
use crate::files::{Entry, EntryKind, Identity, NodePath, Piece, path_of};
use crate::worker::codec::Frame;

/// From the client to a mover.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum ToMover {
    Hello { pool: String },
    Stat { path: NodePath },
    Read { path: NodePath, identity: Option<Identity>, offset: u64, length: u64 },
    Drop { artifact: String },
    Attend,
    Deliver { channel: u64, received: u64, body: Bytes },
    Ask { channel: u64, ask: i64 },
    Settle { save: String },
    Restore { commit: String, manifest: Bytes },
    Write { commit: String, path: PathBuf, offset: u64, body: Bytes },
    Complete { commit: String },
    Attach { most: u64, manifest: Bytes },
    Fill { id: String, spans: Vec<(u32, u64, u64)>, body: Bytes },
    Publish { id: String },
}

/// From a mover to the client.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum FromMover {
    Hello { version: u32, pid: u32 },
    Entries { more: bool, entries: Vec<Entry> },
    Piece(Piece),
    Done,
    Failed(Refused),
    Step { step: i64 },
    Restored { path: PathBuf, complete: bool },
    Busy,
    Attached { id: String, path: PathBuf, complete: bool, missing: Vec<u32> },
    Note(Note),
    Error { text: String },
}

/// What a mover reports without a request.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "docs/protocol.md names the fields")]
pub enum Note {
    Sent { channel: u64, number: u64, body: Bytes },
    Closed { channel: u64 },
    Saved { save: String, path: PathBuf, record: Bytes },
}

/// Why a mover did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The kind of failure.
    pub kind: RefusedKind,
    /// What failed, on which path, and why.
    pub words: String,
    /// The number of the system's error; 0 if there was none.
    pub errno: i32,
}

/// The kind of failure of a mover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RefusedKind {
    /// There is nothing at the path.
    Missing,
    /// The file has another identity.
    Changed,
    /// What is at the path is no file, folder or link.
    Kind,
    /// The request is none that a mover understands.
    Invalid,
    /// The system refused it.
    Io,
}

impl ToMover {
    /// The same request, whose relative paths on the node begin at this folder.
    pub(crate) fn within(&self, folder: &str) -> Self {
        let mut request = self.clone();
        if let Self::Stat { path } | Self::Read { path, .. } = &mut request {
            *path = path.within(folder);
        }
        request
    }

    /// The body.
    pub fn body(&self) -> Bytes {
        match self {
            Self::Deliver { body, .. } | Self::Write { body, .. } | Self::Fill { body, .. } => body.clone(),
            Self::Restore { manifest, .. } | Self::Attach { manifest, .. } => manifest.clone(),
            _ => Bytes::new(),
        }
    }

    /// Encodes the head, for the request with this number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::error::ErrorKind::Protocol) when a part cannot be encoded.
    pub fn encode(&self, request: u64) -> Result<Vec<u8>> {
        match self {
            Self::Hello { pool } => pack(&(193, PROTOCOL_VERSION, pool)),
            Self::Stat { path } => pack(&(194, request, path.artifact().unwrap_or_default(), bin(path))),
            Self::Read { path, identity, offset, length } => {
                let identity = identity.map(|it| (it.inode, it.size, it.modified));
                let artifact = path.artifact().unwrap_or_default();
                pack(&(195, request, artifact, bin(path), identity, offset, length))
            }
            Self::Drop { artifact } => pack(&(196, request, artifact)),
            Self::Attend => pack(&(197, request)),
            Self::Deliver { channel, received, .. } => pack(&(198, request, channel, received)),
            Self::Ask { channel, ask } => pack(&(199, request, channel, ask)),
            Self::Settle { save } => pack(&(200, request, save)),
            Self::Restore { commit, .. } => pack(&(201, request, commit)),
            Self::Write { commit, path, offset, .. } => pack(&(202, request, commit, bytes_of(path), offset)),
            Self::Complete { commit } => pack(&(203, request, commit)),
            Self::Attach { most, .. } => pack(&(204, request, most)),
            Self::Fill { id, spans, .. } => pack(&(205, request, id, spans)),
            Self::Publish { id } => pack(&(206, request, id)),
        }
    }
}

fn bin(path: &NodePath) -> Bytes {
    bytes_of(path.path())
}

fn bytes_of(path: &Path) -> Bytes {
    Bytes::copy_from_slice(path.as_os_str().as_bytes())
}

impl FromMover {
    /// Decodes a frame into the number of the request, 0 if the message answers none, and the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::error::ErrorKind::Protocol) for an unknown message number, or a
    /// head or body of another shape.
    pub fn decode(frame: Frame) -> Result<(u64, Self)> {
        let mut head = Elements::of(&frame.head)?;
        Ok(match head.next::<u32>()? {
            225 => (0, Self::Hello { version: head.next()?, pid: head.next()? }),
            226 => (head.next()?, Self::Entries { more: head.next()?, entries: entries(&frame.body)? }),
            227 => {
                let request = head.next()?;
                let identity = Identity { inode: head.next()?, size: head.next()?, modified: head.next()? };
                (request, Self::Piece(Piece { identity, bytes: frame.body }))
            }
            228 => (head.next()?, Self::Done),
            229 => {
                let request = head.next()?;
                (request, Self::Failed(Refused { kind: head.next()?, words: head.next()?, errno: head.next()? }))
            }
            230 => (0, Self::Note(Note::Sent { channel: head.next()?, number: head.next()?, body: frame.body })),
            231 => (0, Self::Note(Note::Closed { channel: head.next()? })),
            232 => {
                let (save, path) = (head.next()?, path_of(&head.next::<Bytes>()?));
                (0, Self::Note(Note::Saved { save, path, record: frame.body }))
            }
            233 => (head.next()?, Self::Step { step: head.next()? }),
            234 => {
                let request = head.next()?;
                (request, Self::Restored { path: path_of(&head.next::<Bytes>()?), complete: head.next()? })
            }
            235 => (head.next()?, Self::Busy),
            236 => {
                let (request, id, path) = (head.next()?, head.next()?, path_of(&head.next::<Bytes>()?));
                let complete = head.next()?;
                let missing = rmp_serde::from_slice(&frame.body).map_err(|error| protocol("list of files", &error))?;
                (request, Self::Attached { id, path, complete, missing })
            }
            ERROR => {
                let _refused: u32 = head.next()?;
                (0, Self::Error { text: head.next()? })
            }
            other => return Err(unknown("mover", other)),
        })
    }
}

/// An entry in the mover's format.
#[derive(Deserialize)]
struct WireEntry(Bytes, WireKind, u64, u64, i64, bool, Bytes);

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireKind {
    File,
    Folder,
    Link,
}

fn entries(body: &[u8]) -> Result<Vec<Entry>> {
    let wire: Vec<WireEntry> = rmp_serde::from_slice(body).map_err(|error| protocol("list of files", &error))?;
    Ok(wire.into_iter().map(Entry::from).collect())
}

impl From<WireEntry> for Entry {
    fn from(WireEntry(path, kind, inode, size, modified, executable, target): WireEntry) -> Self {
        let kind = match kind {
            WireKind::File => EntryKind::File { executable },
            WireKind::Folder => EntryKind::Folder,
            WireKind::Link => EntryKind::Link(path_of(&target)),
        };
        Self::new(path_of(&path), kind, Identity { inode, size, modified })
    }
}
