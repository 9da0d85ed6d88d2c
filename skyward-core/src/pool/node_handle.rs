//! The handle to one node of a pool: its files.

use std::path::Path;
use std::sync::Arc;

use super::tasks::shared::Shared;
use crate::error::{ErrorKind, Result};
use crate::files::{NodeFiles, NodePath, Source, Tail, changed, of_entries, receive};
use crate::ids::NodeIndex;

/// A node of a pool: [`Pool::node`](super::Pool::node) returns it. It does not keep the pool.
#[derive(Debug, Clone)]
pub struct PoolNode {
    shared: Arc<Shared>,
    node: NodeIndex,
}

impl PoolNode {
    pub(super) fn new(shared: Arc<Shared>, node: NodeIndex) -> Self {
        Self { shared, node }
    }

    /// Copies a file or a folder of the node to this host, as `target`, also after its task or its
    /// worker has failed. A relative path on the node begins at the working folder of the workers.
    ///
    /// Folders above the target are created. A file at the target is replaced; a folder there must be
    /// empty. The target is complete or does not appear: the bytes arrive in a file beside it, whose
    /// name ends in `.part`. Files keep whether they may be executed. A link that is the path itself is
    /// followed; links within a folder stay links.
    ///
    /// This copies what is there at one moment. To copy results of a task, let the task return them
    /// with `sky.artifact`, which makes a snapshot that no later task changes.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// # async fn example(pool: skyward::pool::Pool) -> skyward::Result<()> {
    /// pool.node(1).fetch("outputs/log.csv", "results/log-1.csv").await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the node has no such path, or the pool no such node.
    /// - [`ErrorKind::NodeLost`]: the node has no machine now.
    /// - [`ErrorKind::Changed`]: a file was written while it was read, three times in a row.
    /// - [`ErrorKind::InvalidSpec`]: a device, a pipe or a socket is there, or a link that leads out of
    ///   the folder; or something else is at the target.
    /// - [`ErrorKind::Io`]: the node or this host refuses it, such as for a full disk; temporary if the
    ///   node is there and cannot be reached for a minute.
    /// - [`ErrorKind::Closed`], or the error with which the pool failed, if the pool has ended.
    ///
    /// # Cancel safety
    ///
    /// The target is as it was before, or complete.
    pub async fn fetch(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
        let path = NodePath::new(path.as_ref());
        for _ in 1..TRIES {
            match self.fetch_once(&path, target.as_ref()).await {
                Err(error) if error.kind() == ErrorKind::Changed => {}
                fetched => return fetched,
            }
        }
        self.fetch_once(&path, target.as_ref()).await
    }

    async fn fetch_once(&self, path: &NodePath, target: &Path) -> Result<()> {
        let files = &*self.shared;
        let entries = files.entries(self.node, path).await?;
        let (name, parts) = (path.to_string(), of_entries(entries.clone())?);
        let source = Source { files, node: self.node, name, base: path.clone(), parts };
        let received = receive(source, target).await?;
        // A file that was changed after its last piece was read, or a new one.
        if files.entries(self.node, path).await? != entries {
            return Err(changed(format!("{path} changed while it was read")));
        }
        received.save().await
    }

    /// Follows a file on the node, from its beginning on, while it is written. A relative path begins
    /// at the working folder of the workers.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// # async fn example(pool: skyward::pool::Pool) -> skyward::Result<()> {
    /// let mut log = pool.node(1).tail("train.log");
    /// while let Some(bytes) = log.next().await {
    ///     print!("{}", String::from_utf8_lossy(&bytes?));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn tail(&self, path: impl AsRef<Path>) -> Tail {
        let shared: Arc<dyn NodeFiles> = self.shared.clone();
        Tail::new(shared, self.node, NodePath::new(path.as_ref()))
    }
}

/// How often a copy begins whose files change meanwhile.
const TRIES: usize = 3;
