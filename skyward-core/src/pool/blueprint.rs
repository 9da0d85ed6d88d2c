//! A pool that has been checked and not started: its provider, image, plugins and requirements.

pub(crate) mod decorated;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use self::decorated::Decorated;
use super::fleet::account::Account;
use super::fleet::shortlist::Shortlist;
use super::spawn::spawn_blocking;
use crate::bootstrap::Inputs;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::PoolId;
use crate::plugin::PluginSet;
use crate::provider::{Checked, Labels, PoolRequest, Provider, Requirements};
use crate::spec::{Accelerator, ClusterInfo, Image, Nodes};

/// A pool that has been checked and not started.
#[derive(Debug)]
pub(crate) struct Blueprint {
    pub(crate) provider: Checked,
    pub(crate) nodes: Nodes,
    pub(crate) requirements: Requirements,
    pub(crate) cluster: ClusterInfo,
    pub(crate) image: Image,
    pub(crate) plugins: PluginSet,
    pub(crate) declared: Declared,
    pub(crate) labels: Labels,
    pub(crate) owner: String,
}

/// What the user asked for, before plugins changed it; it decides which sizes the pool can have.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    /// The image before the plugins added to it.
    pub(crate) image: Image,
    /// Whether all workers form one world.
    pub(crate) joined: bool,
    /// The world that a payload joins by its decorator.
    pub(crate) decorated: Option<Decorated>,
}

impl Blueprint {
    /// Returns the offers that meet the requirements, at least one. Offers that the plugins cannot
    /// serve or that the budget does not cover are marked as excluded.
    pub(crate) async fn shortlist(&self, account: &Mutex<Account>) -> Result<Shortlist> {
        let requirements = self.wanted();
        let offers = self.provider.candidates(&requirements).await?;
        let mut shortlist = Shortlist::new(self.provider.name(), offers, requirements.same_zone);
        shortlist.exclude(ErrorKind::Plugins, |offer| {
            let wanted = self.cluster.accelerator.as_ref()?;
            let offered = offer.accelerator.clone().map(|offered| Accelerator { count: wanted.count, ..offered });
            self.plugins.check(&self.cluster.clone().accelerator(offered)).err().map(|error| error.message().to_owned())
        });
        {
            let account = account.lock().unwrap_or_else(PoisonError::into_inner);
            shortlist.exclude(ErrorKind::Budget, |offer| account.objection(offer, self.nodes.least()));
        }
        Ok(shortlist)
    }

    pub(crate) fn request(&self, pool: &PoolId, lease: Duration) -> PoolRequest {
        PoolRequest::new(pool.clone(), lease)
            .owner(&self.owner)
            .nodes(self.nodes)
            .joined(self.declared.joined)
            .wanted(self.wanted())
            .labels(self.labels.clone())
    }

    /// What each machine must have.
    fn wanted(&self) -> Requirements {
        self.requirements.clone().same_zone(self.declared.joined)
    }

    /// Reads the client's files that the image names, on a thread of the blocking pool.
    pub(crate) async fn read_inputs(&self, deadline: Duration) -> Result<Inputs> {
        if Inputs::are_none(&self.image) {
            return Ok(Inputs::default());
        }
        let image = self.image.clone();
        let read = spawn_blocking(move || Inputs::read(&image));
        match tokio::time::timeout(deadline, read).await {
            Ok(Ok(inputs)) => inputs,
            Ok(Err(error)) => {
                Err(Error::new(ErrorKind::Start, "the image's files could not be read").with_source(error))
            }
            Err(_) => {
                Err(Error::new(ErrorKind::Timeout, format!("the image's files were not read within {deadline:?}"))
                    .with_hint(
                        "check whether one of them is on a network file system that does not answer; `Limits::start` gives more time",
                    ))
            }
        }
    }
}

/// Checks that a pool with these nodes has at most [`MOST_WORKERS`] workers.
pub(crate) fn check_workers(nodes: Nodes, per_node: u32) -> Result<()> {
    let most = nodes.most();
    if most.checked_mul(per_node).is_none_or(|all| all > MOST_WORKERS) {
        let what = format!("{most} nodes with {per_node} workers each are more than {MOST_WORKERS} workers");
        return Err(Error::new(ErrorKind::InvalidSpec, what).with_hint("start several pools"));
    }
    Ok(())
}

/// The most workers of one pool: a broadcast to all of them must fit the count of the queue.
const MOST_WORKERS: u32 = 100_000;
