//! The client of a round: this program once more, which the player starts in a process of its own
//! and kills, with its machines, agents and workers, at random moments.
//!
//! Its command line begins with [`CLIENT`](crate::words::CLIENT), and goes on with one of these:
//!
//! - `play SCRIPT` starts a pool, keeps it busy and reports what happens.
//! - `warm PROVIDER` builds the workers' environment.
//! - `reap PROVIDER` ends what a killed client left.

#[path = "../../../skyward-core/tests/support/freeze.rs"]
mod freeze;
mod recorder;
mod script;

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use skyward::pool::Pool;
use skyward::provider::{Docker, Host, Hosts, Local};
use skyward::remote::ssh::{HostKeys, Key};
use tokio::runtime;

use crate::words::Provider;

/// Does what the words after the first one demand.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.context("the client cannot start its runtime")?;
    runtime.block_on(async {
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["play", script] => script::play(script).await,
            ["warm", provider] => warm(&read(provider)?).await,
            ["reap", provider] => reap(&read(provider)?).await,
            _ => {
                bail!("`client` needs `play SCRIPT`, `warm PROVIDER` or `reap PROVIDER`; only `chaos` itself starts it")
            }
        }
    })
}

/// Starts a pool and ends it, so that other pools find the environment of its workers.
async fn warm(wanted: &Provider) -> Result<()> {
    let warmed = Pool::builder().shared_provider(provider(wanted, 1)?).scope(async |_| Ok(())).await;
    warmed.map_err(|error| anyhow!("{error:?}"))
}

/// Reaps, and prints a line for each pool that could not be ended, or that lives elsewhere.
async fn reap(wanted: &Provider) -> Result<()> {
    let reaped = skyward::reap([provider(wanted, 1)?]).await.inspect_err(|error| println!("cannot reap: {error}"))?;
    reaped.unconfirmed.iter().for_each(|left| println!("left {}: {}", left.pool, left.error));
    reaped.elsewhere.iter().for_each(|other| println!("alive {}", other.pool));
    Ok(())
}

fn read(wanted: &str) -> Result<Provider> {
    serde_json::from_str(wanted).context("the provider cannot be read")
}

/// The provider of the machines; an error if this program was built without it.
fn provider(wanted: &Provider, slots: u32) -> Result<Arc<dyn skyward::provider::Provider>> {
    Ok(match wanted {
        Provider::Local => Arc::new(Local::default()),
        Provider::Docker { image, label, bind } => {
            Arc::new(Docker::new(image).label(&label.0, &label.1).bind(&bind.0, &bind.1))
        }
        Provider::Ssh { hosts } => Arc::new(Hosts::new(hosts.iter().map(|host| {
            Host::new(&host.address)
                .port(host.port)
                .user(&host.user)
                .key(Key::file(&host.key))
                .host_keys(HostKeys::pinned(&host.host_key))
                .slots(slots)
        }))),
        #[cfg(feature = "aws")]
        Provider::Aws { subnets, ssh_port } => {
            use skyward::provider::{Addressing, Aws};
            Arc::new(Aws::new().subnets(subnets).addressing(Addressing::Private).ssh_port(*ssh_port))
        }
        #[cfg(not(feature = "aws"))]
        Provider::Aws { .. } => bail!("this program was built without the feature `aws`"),
    })
}

/// The number of threads of the runtime.
const THREADS: usize = 2;
