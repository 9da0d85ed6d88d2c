//! The thread of a cloud: starts the cloud's parts in order, and ends them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::address_service::{self, AddressService};
use crate::firewall::Firewall;
use crate::hypervisor::{Ec2, Hypervisor, Rack};
use crate::moto::Moto;
use crate::network::{self, Addresses, Vpc};
use crate::options::CloudOptions;
use crate::proxy::{Calls, Proxy};
use crate::python;
use crate::rules::Rules;
use crate::shims::Backend;

/// The parts that a cloud's thread has started.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) endpoint: String,
    pub(crate) region: String,
    pub(crate) vpc: Vpc,
    pub(crate) ssh_port: u16,
    pub(crate) folder: PathBuf,
    pub(crate) rules: Rules,
    pub(crate) calls: Calls,
    pub(crate) backend: Arc<Backend>,
    pub(crate) ec2: Ec2,
    pub(crate) hypervisor: Option<Arc<Hypervisor>>,
    pub(crate) address_service: AddressService,
    /// Why the rules of security groups are not enforced, if they are not.
    pub(crate) unenforced: Option<String>,
}

/// The cloud's thread: from its start to its end.
pub(crate) fn run(
    options: CloudOptions,
    started: &blocking::Sender<Result<(Arc<Inside>, Handle)>>,
    stopping: oneshot::Receiver<()>,
) {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error.into()));
            return;
        }
    };
    let handle = runtime.handle().clone();
    runtime.block_on(async {
        let folder = match make_folder() {
            Ok(folder) => folder,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        match come_up(options, &folder).await {
            Ok((inside, moto, _proxy, _addresses)) => {
                let inside = Arc::new(inside);
                if started.send(Ok((Arc::clone(&inside), handle))).is_ok() {
                    let _ = stopping.await;
                }
                if let Some(firewall) = &inside.backend.firewall {
                    firewall.close().await;
                }
                if let Some(hypervisor) = &inside.hypervisor {
                    hypervisor.stop().await;
                }
                moto.stop().await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
        let _ = fs::remove_dir_all(&folder);
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}

async fn come_up(options: CloudOptions, folder: &Path) -> Result<(Inside, Moto, Proxy, Addresses)> {
    let addresses = Addresses::take()?;
    let moto = Moto::start(folder, &addresses).await?;
    let zones: Vec<String> = ["a", "b", "c"].map(|letter| format!("{}{letter}", options.region)).to_vec();
    let ec2 = Ec2::new(moto.address, &options.region);
    let (firewall, unenforced) = match options.has_machines {
        true => match Firewall::start(&addresses).await? {
            Ok(firewall) => (Some(Arc::new(firewall)), None),
            Err(reason) => (None, Some(reason)),
        },
        false => (None, Some("this cloud has no machines".to_owned())),
    };
    let address_service = address_service::start(addresses.network().address_service()).await?;
    let backend = Arc::new(Backend::new(&moto, &options.region, zones.clone(), firewall.clone()));
    backend.settings().phases = options.phases;
    let vpc = network::make(&ec2.client, &addresses, &zones).await.context("cannot make the network")?;
    let proxy = Proxy::start(Arc::clone(&backend)).await?;
    let ssh_port = options.ssh_port.map_or_else(|| addresses.free_port(), Ok)?;
    let hypervisor = if options.has_machines {
        let (sender, powered_off) = mpsc::unbounded_channel();
        let rack = Rack {
            folder: folder.to_owned(),
            cache: make_cache(options.cache)?,
            user: options.user,
            ssh_port,
            boot_delay: options.boot_delay,
            gpus: options.gpus,
            firewall,
            powered_off: sender,
        };
        Some(Hypervisor::start(ec2.clone(), Arc::clone(&backend), rack, powered_off))
    } else {
        None
    };
    let inside = Inside {
        endpoint: format!("http://{}", proxy.address),
        region: options.region,
        vpc,
        ssh_port,
        folder: folder.to_owned(),
        rules: proxy.rules.clone(),
        calls: proxy.calls.clone(),
        backend,
        ec2,
        hypervisor,
        address_service,
        unenforced,
    };
    Ok((inside, moto, proxy, addresses))
}

/// Makes a folder for this cloud, and removes those of processes that were killed.
fn make_folder() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let base = std::env::temp_dir();
    for entry in fs::read_dir(&base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split('-').next()?.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let folder = base.join(format!("{FOLDER}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    fs::write(folder.join("empty"), "")?;
    Ok(folder)
}

/// The folder that all machines share as their user's cache, which is the user's.
fn make_cache(folder: Option<PathBuf>) -> Result<PathBuf> {
    let folder = match folder {
        Some(folder) => folder,
        None => python::cache()?.join("loopback-ec2"),
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    std::os::unix::fs::chown(&folder, Some(USER), Some(USER))
        .with_context(|| format!("cannot give {} to the user of the machines", folder.display()))?;
    Ok(folder)
}

const FOLDER: &str = "skyward-ec2-";
/// The id of the machines' user.
const USER: u32 = 1000;
