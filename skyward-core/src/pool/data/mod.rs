//! The data sets of a pool: each is brought to a machine once, before its workers start or when a
//! payload uses it first.

mod bring;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::sleep;

pub(crate) use self::bring::Site;
use crate::data::{Data, Tree};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MachineId;

/// The data sets of a pool, by their names.
#[derive(Debug)]
pub(crate) struct DataSets {
    sets: BTreeMap<String, DataSet>,
    /// Where each data set is on each machine.
    places: Mutex<HashMap<(MachineId, String), Place>>,
    /// For transfers to several machines at a time.
    room: Semaphore,
}

/// The path of the folder on the machine, once it is there. Who brings it holds the lock.
type Place = Arc<tokio::sync::Mutex<Option<String>>>;

#[derive(Debug)]
struct DataSet {
    data: Data,
    tree: OnceCell<Arc<Tree>>,
}

impl DataSets {
    pub(crate) fn new(sets: impl IntoIterator<Item = (String, Data)>) -> Self {
        let sets = sets.into_iter().map(|(name, data)| (name, DataSet { data, tree: OnceCell::new() }));
        Self { sets: sets.collect(), places: Mutex::default(), room: Semaphore::new(AT_A_TIME) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Their names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.keys().map(String::as_str)
    }

    /// Checks that all folders can be brought, before anything is started.
    ///
    /// # Errors
    ///
    /// As [`Tree::check`].
    pub(crate) async fn check(&self) -> Result<()> {
        let checks = self.sets.iter().map(|(name, set)| async move {
            Tree::check(&set.data).await.map_err(|error| error.with_context("data set", name))
        });
        try_join_all(checks).await.map(drop)
    }

    /// Reads the files of all data sets that machines get before they are ready, while the machines
    /// start. Who needs one reports the error.
    pub(crate) async fn read(&self) {
        for (name, set) in self.eager() {
            if let Err(error) = set.tree().await {
                tracing::debug!(name, %error, "a data set cannot be read");
            }
        }
    }

    /// Brings all data sets to a machine that its workers have from their start.
    ///
    /// # Errors
    ///
    /// As [`bring`](Self::bring).
    pub(crate) async fn bring_all(&self, site: &dyn Site) -> Result<()> {
        for (name, _) in self.eager() {
            self.bring(name, site).await?;
        }
        Ok(())
    }

    /// Brings a data set to a machine, unless it is there. Returns the path of its folder there.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the pool has no such data set.
    /// - [`ErrorKind::Changed`]: the folder on this host has changed since the pool began to use it.
    /// - [`ErrorKind::Io`]: this host cannot read it, or the machine cannot write it; with the reason,
    ///   such as a full disk. Temporary if the machine cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// What the machine has stays there, and the next call goes on from it.
    pub(crate) async fn bring(&self, name: &str, site: &dyn Site) -> Result<String> {
        let Some(set) = self.sets.get(name) else { return Err(self.unknown(name)) };
        let place = Arc::clone(self.places().entry((site.machine().clone(), name.to_owned())).or_default());
        let mut place = place.lock().await;
        if let Some(path) = &*place {
            return Ok(path.clone());
        }
        let brought = self.persist(name, set, site).await.map_err(|error| error.with_context("data set", name))?;
        *place = Some(brought.clone());
        Ok(brought)
    }

    /// Forgets what is on a machine, whose mover has ended or may have: only a mover keeps others from
    /// removing it.
    pub(crate) fn forget(&self, machine: &MachineId) {
        self.places().retain(|(known, _), _| known != machine);
    }

    async fn persist(&self, name: &str, set: &DataSet, site: &dyn Site) -> Result<String> {
        let tree = set.tree().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            // The semaphore is never closed.
            let room = self.room.acquire().await;
            let brought = bring::once(name, &tree, set.data.most_bytes(), site).await;
            drop(room);
            match brought {
                // Another mover knows nothing of what the first one was filling.
                Err(error) if error.is_temporary() && tries < TRIES => {
                    tracing::debug!(node = site.node().0, name, %error, "a data set is not on the node yet");
                    sleep(PAUSE * tries).await;
                }
                brought => return brought,
            }
        }
    }

    fn eager(&self) -> impl Iterator<Item = (&str, &DataSet)> {
        self.sets.iter().filter(|(_, set)| !set.data.is_lazy()).map(|(name, set)| (name.as_str(), set))
    }

    fn unknown(&self, name: &str) -> Error {
        let names: Vec<&str> = self.names().collect();
        let shown: String = name.chars().take(100).collect();
        let message = match names.as_slice() {
            [] => format!("this pool has no data sets, and `{shown}` was asked for"),
            names => format!("this pool has no data set `{shown}`; it has {}", names.join(", ")),
        };
        Error::new(ErrorKind::NotFound, message)
            .with_hint(format!("give it to the pool: `Pool::builder().data(\"{shown}\", Data::folder(…))`"))
    }

    fn places(&self) -> MutexGuard<'_, HashMap<(MachineId, String), Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DataSet {
    async fn tree(&self) -> Result<Arc<Tree>> {
        let read = || async { Tree::of(&self.data).await.map(Arc::new) };
        self.tree.get_or_try_init(read).await.map(Arc::clone)
    }
}

/// How many machines get files at a time: each has some pieces of 2 MiB in this process's memory.
const AT_A_TIME: usize = 4;
/// How often a transfer is tried that failed for a reason that may pass.
const TRIES: u32 = 8;
/// The pause before the second try; it grows.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
