//! Files on the nodes of a pool: what is there, how they are saved on this host, read and followed.

#[cfg(test)]
pub(crate) mod memory;
mod node_files;
mod parts;
mod pieces;
mod progress;
mod reader;
mod save;
mod slices;
mod tail;
mod timing;

pub use node_files::{Entry, EntryKind, Identity, NodeFiles, NodePath, Piece};
pub(crate) use node_files::{LARGEST_PIECE, path_of};
pub(crate) use parts::{
    Check, MOST_ENTRIES, Part, PartKind, checked, manifest_of, of_entries, of_manifest, total_size,
};
pub(crate) use pieces::{Source, changed};
pub(crate) use progress::Progress;
pub use reader::FileReader;
pub(crate) use save::receive;
pub(crate) use slices::write_sliced;
pub use tail::Tail;
