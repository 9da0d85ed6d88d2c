//! One try to bring a data set to a machine: the machine says what it lacks, and gets that.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::data::{Pack, Tree, blocking};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Transfer;
use crate::files::Progress;
use crate::ids::{MachineId, NodeIndex};
use crate::worker::message::{FromMover, ToMover};

/// A machine that gets files.
#[async_trait]
pub(crate) trait Site: Send + Sync {
    fn node(&self) -> NodeIndex;

    fn machine(&self) -> &MachineId;

    /// Sends a request to the mover of the machine, again if a connection is lost.
    async fn ask(&self, request: &ToMover) -> Result<FromMover>;

    /// Gets how far a transfer is.
    fn report(&self, transfer: &Transfer);
}

/// The answer of a machine.
struct Attached {
    id: String,
    path: PathBuf,
    complete: bool,
    missing: Vec<u32>,
}

/// Brings what the machine lacks. Returns the path of the folder.
///
/// # Errors
///
/// As [`DataSets::bring`](super::DataSets::bring).
pub(super) async fn once(name: &str, tree: &Arc<Tree>, most: u64, site: &dyn Site) -> Result<String> {
    let mut attached = attach(site, ToMover::Attach { most, manifest: tree.manifest() }).await?;
    if !attached.complete {
        let id = attached.id.clone();
        let filled = fill(name, tree, attached, site).await;
        if let Err(error) = &filled
            && error.is_temporary()
        {
            return Err(error.clone());
        }
        // Also after an error: other pools wait until the mover has ended this.
        let published = attach(site, ToMover::Publish { id }).await;
        filled?;
        attached = published?;
    }
    match attached.path.to_str() {
        Some(path) if attached.complete => Ok(path.to_owned()),
        Some(_) => Err(unexpected()),
        None => {
            let message = format!("the folder of data sets on the node, {}, is no text", attached.path.display());
            Err(Error::new(ErrorKind::InvalidSpec, message))
        }
    }
}

async fn attach(site: &dyn Site, request: ToMover) -> Result<Attached> {
    match site.ask(&request).await? {
        FromMover::Attached { id, path, complete, missing } => Ok(Attached { id, path, complete, missing }),
        _ => Err(unexpected()),
    }
}

/// Sends the missing files.
async fn fill(name: &str, tree: &Arc<Tree>, Attached { id, missing, .. }: Attached, site: &dyn Site) -> Result<()> {
    let (bytes, files) = tree.sizes(&missing);
    let mut progress = Progress::to_node(site.node(), name, bytes, files, |transfer| site.report(transfer));
    let id = &id;
    stream::iter(tree.packs(missing))
        .map(|pack| {
            let tree = Arc::clone(tree);
            blocking(move || tree.read(&pack).map(|body| (pack, body)))
        })
        .buffered(READ_AHEAD)
        .map_ok(|(Pack { spans, ends, .. }, body)| async move {
            let length = body.len();
            let spans = spans.iter().map(|span| (span.index, span.offset, span.length)).collect();
            match site.ask(&ToMover::Fill { id: id.clone(), spans, body }).await? {
                FromMover::Done => Ok((length, ends)),
                _ => Err(unexpected()),
            }
        })
        .try_buffered(SENT_AHEAD)
        .try_for_each(|(length, ends)| {
            progress.add(length, ends);
            std::future::ready(Ok(()))
        })
        .await?;
    progress.end();
    Ok(())
}

fn unexpected() -> Error {
    Error::new(ErrorKind::Protocol, "the node's mover gave another answer about a data set than was asked for")
}

/// How many packs are read ahead from this host's disk.
const READ_AHEAD: usize = 4;
/// How many packs are under way to the machine.
const SENT_AHEAD: usize = 8;
