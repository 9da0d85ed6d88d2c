//! One machine: boots from the parameters of its launch, and ends when EC2 ends the instance.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Signal, kill_process};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Child;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};

use super::console::Console;
use super::metadata::Metadata;
use super::namespace::{Namespace, PATH, Root, child_of};
use super::services::Services;
use super::steps::{self, Step};
use super::user_data::CloudConfig;
use super::{control, sshd};
use crate::firewall::Firewall;
use crate::guard;
use crate::http::Abort;
use crate::timing::{SSH_SERVER, SSH_SERVER_POLL};

/// What EC2 knows of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) region: String,
    pub(crate) zone: String,
    pub(crate) is_spot: bool,
    pub(crate) private: String,
    pub(crate) public: Option<String>,
    pub(crate) user_data: String,
    /// The public key of its key pair.
    pub(crate) key: Option<String>,
}

/// What machines of one host have in common.
#[derive(Debug, Clone)]
pub(crate) struct Rack {
    pub(crate) folder: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) user: String,
    pub(crate) ssh_port: u16,
    pub(crate) boot_delay: Duration,
    pub(crate) gpus: u32,
    pub(crate) firewall: Option<Arc<Firewall>>,
    /// The channel on which a machine reports that it was powered off from within.
    pub(crate) powered_off: UnboundedSender<String>,
}

/// A machine. Whatever runs on it ends with [`Machine::kill`].
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) facts: Arc<Facts>,
    pub(crate) console: Console,
    rack: Rack,
    life: Mutex<Life>,
}

#[derive(Debug, Default)]
struct Life {
    is_over: bool,
    is_booted: bool,
    boot: Option<Abort<()>>,
    control: Option<Abort<()>>,
    services: Option<Arc<Services>>,
    metadata: Option<Metadata>,
    sshd: Option<Child>,
    /// The units that each boot starts.
    enabled: BTreeSet<String>,
}

impl Facts {
    /// Its name in EC2's DNS.
    pub(crate) fn name(&self) -> String {
        format!("ip-{}", self.private.replace('.', "-"))
    }

    /// A random number.
    pub(crate) fn secret(&self) -> u64 {
        RandomState::new().hash_one(&self.id)
    }
}

impl Machine {
    /// Boots it. With `fails` its system does not come up.
    pub(crate) fn boot(facts: Facts, console: Console, rack: Rack, fails: bool) -> Arc<Self> {
        let facts = Arc::new(facts);
        let machine = Arc::new(Self { facts, console, rack, life: Mutex::default() });
        let own = Arc::clone(&machine);
        let boot = tokio::spawn(async move {
            sleep(own.rack.boot_delay).await;
            if fails {
                own.console
                    .write("kernel", "Kernel panic - not syncing: VFS: Unable to mount root fs, as the test asked");
                own.console.post();
                return;
            }
            if let Err(error) = own.come_up().await {
                own.console.write("cloud-init", format!("ERROR: the boot failed: {error:#}"));
            }
            own.console.post();
        });
        machine.life().boot = Some(Abort(boot));
        machine
    }

    async fn come_up(self: &Arc<Self>) -> Result<()> {
        let facts = &self.facts;
        let addresses = guard::only_loopback([facts.private.as_str()].into_iter().chain(facts.public.as_deref()));
        let Some(own) = addresses.first().copied() else {
            bail!("neither {} nor {:?} is an address of the loopback interface", facts.private, facts.public);
        };
        let metadata = Metadata::start(own, Arc::clone(facts)).await?;
        let (listener, control) = control::listen(own).await?;
        let folder = self.folder();
        std::fs::create_dir_all(&folder)?;
        let root = Root {
            folder: &folder,
            cache: &self.rack.cache,
            user: &self.rack.user,
            name: &facts.name(),
            address: &own.to_string(),
            control: &format!("{}/{}", control.ip(), control.port()),
            gpus: self.rack.gpus,
        };
        let group = match &self.rack.firewall {
            Some(firewall) => {
                Some(firewall.admit(&facts.id, v4(&facts.private), facts.public.as_deref().and_then(v4)).await?)
            }
            None => None,
        };
        let namespace = Namespace::start(&root, group).await?;
        let environment = vec![
            ("PATH".to_owned(), PATH.to_owned()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), format!("http://{}", metadata.address)),
        ];
        let services = Arc::new(Services::new(namespace, self.console.clone(), environment));
        {
            let mut life = self.life();
            if life.is_over {
                return Ok(());
            }
            life.control = Some(control::serve(listener, Arc::clone(self)));
            life.metadata = Some(metadata);
            life.services = Some(Arc::clone(&services));
        }
        let enabled = self.life().enabled.clone();
        for unit in enabled {
            services.start(&unit, false).await?;
        }
        let config = CloudConfig::read(&facts.user_data)?;
        for step in steps::network(&config, &self.rack.user, facts.key.as_deref())? {
            self.perform(&services, step).await?;
        }
        let text =
            sshd::config(&addresses, self.rack.ssh_port, &services.environment, config.disable_root == Some(false));
        let write = ["/bin/sh", "-c", "cat >/etc/ssh/sshd_config"].map(str::to_owned);
        services.run("cloud-init", &write, text.as_bytes()).await?;
        self.start_sshd().await?;
        for step in steps::last(&config)? {
            self.perform(&services, step).await?;
        }
        self.console.write("cloud-init", "finished");
        self.life().is_booted = true;
        Ok(())
    }

    /// Runs a command of the boot. The console reports a failure, and the boot continues, as that
    /// of cloud-init does.
    async fn perform(&self, services: &Services, step: Step) -> Result<()> {
        self.console.write("cloud-init", format!("running {}", step.what));
        let (is_success, _) = services.run("cloud-init", &step.program, &step.input).await?;
        if !is_success {
            self.console.write("cloud-init", format!("ERROR: {} failed", step.what));
        }
        Ok(())
    }

    /// Starts the SSH server, and waits until it listens.
    pub(crate) async fn start_sshd(&self) -> Result<()> {
        let services = self.services().context("the machine is not up")?;
        let end = Instant::now() + SSH_SERVER;
        loop {
            let words = ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/sshd_config"];
            let mut command = services.namespace.command(words);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
            services.follow("sshd", &mut child);
            if self.listens(&mut child).await? {
                self.life().sshd = Some(child);
                return Ok(());
            }
            // The machine that had the address before may still be about to end.
            if Instant::now() > end {
                bail!("the SSH server does not listen on {}:{}", self.facts.private, self.rack.ssh_port);
            }
            sleep(SSH_SERVER_POLL * 5).await;
        }
    }

    /// Waits until the SSH server listens; `false` when it has ended, or does not listen in time.
    async fn listens(&self, child: &mut Child) -> Result<bool> {
        let addresses =
            guard::only_loopback([self.facts.private.as_str()].into_iter().chain(self.facts.public.as_deref()));
        let end = Instant::now() + SSH_SERVER;
        while Instant::now() < end {
            if child.try_wait()?.is_some() {
                return Ok(false);
            }
            let mut is_open = true;
            for address in &addresses {
                is_open &= connect_to_itself(*address, self.rack.ssh_port).await.is_ok();
            }
            // Another server on the address would answer too, while this one ends.
            sleep(SSH_SERVER_POLL).await;
            if is_open && child.try_wait()?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the SSH server read its keys and configuration again; sessions go on.
    pub(crate) fn reload_sshd(&self) -> Result<()> {
        let sshd = self.sshd().context("the SSH server does not run")?;
        kill_process(sshd, Signal::HUP).context("cannot reload the SSH server")
    }

    /// Ends the SSH server; sessions go on.
    pub(crate) fn stop_sshd(&self) {
        if let Some(sshd) = self.sshd() {
            let _ = kill_process(sshd, Signal::KILL);
        }
        self.life().sshd = None;
    }

    /// Ends the SSH server with all sessions.
    pub(crate) fn kill_sshd(&self) {
        if let Some(services) = self.services() {
            for name in SSHD {
                services.namespace.signal(name, Signal::KILL);
            }
        }
        self.life().sshd = None;
    }

    /// Stops or continues the SSH server with all sessions: connections are neither answered nor
    /// refused.
    pub(crate) fn block_sshd(&self, is_blocked: bool) {
        if let Some(services) = self.services() {
            for name in SSHD {
                services.namespace.signal(name, if is_blocked { Signal::STOP } else { Signal::CONT });
            }
            if !is_blocked {
                services.namespace.wake();
            }
        }
    }

    /// The process of the SSH server that takes connections, as the host counts.
    pub(crate) fn sshd(&self) -> Option<rustix::process::Pid> {
        let life = self.life();
        child_of(life.sshd.as_ref()?.id()?)
    }

    /// Shuts the machine down from within: EC2 decides whether the instance stops or terminates.
    pub(crate) fn power_off(&self) {
        self.console.write("systemd", "Powering off.");
        let _ = self.rack.powered_off.send(self.facts.id.clone());
    }

    /// Makes each boot start a unit from now on.
    pub(crate) fn enable(&self, unit: &str) {
        self.life().enabled.insert(unit.to_owned());
    }

    /// Reboots the machine at once, with what is left on its disk.
    pub(crate) async fn reboot(self: &Arc<Self>) -> Result<()> {
        let services = {
            let mut life = self.life();
            if !life.is_booted {
                bail!("the machine has not booted yet");
            }
            (life.is_booted, life.control, life.metadata) = (false, None, None);
            life.services.take().context("the machine is not up")?
        };
        self.console.write("kernel", "reboot: Restarting system");
        services.halt();
        services.namespace.kill();
        services.namespace.gone().await;
        self.life().sshd = None;
        let up = self.come_up().await;
        self.console.post();
        up
    }

    /// Ends the machine at once, with all that runs on it.
    pub(crate) fn kill(&self) {
        let mut life = self.life();
        if !life.is_over {
            life.is_over = true;
            self.console.post();
            life.boot = None;
            life.control = None;
            life.metadata = None;
            if let Some(services) = &life.services {
                services.halt();
                services.namespace.kill();
            }
        }
    }

    /// Waits until nothing of it is left, and removes its files.
    pub(crate) async fn gone(&self) {
        let services = self.services();
        if let Some(services) = services {
            services.namespace.gone().await;
        }
        self.life().sshd = None;
        if let Some(firewall) = &self.rack.firewall
            && let Err(error) = firewall.dismiss(&self.facts.id).await
        {
            self.console.write("hypervisor", format!("{error:#}"));
        }
        let folder = self.folder();
        let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
    }

    pub(crate) fn services(&self) -> Option<Arc<Services>> {
        self.life().services.clone()
    }

    pub(crate) fn is_booted(&self) -> bool {
        self.life().is_booted
    }

    /// Calls a function with its metadata service, if it has one already.
    pub(crate) fn with_metadata<T>(&self, act: impl FnOnce(&Metadata) -> T) -> Option<T> {
        self.life().metadata.as_ref().map(act)
    }

    fn folder(&self) -> PathBuf {
        self.rack.folder.join(&self.facts.id)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address of loopback in its fourth version.
fn v4(address: &str) -> Option<Ipv4Addr> {
    address.parse().ok().filter(Ipv4Addr::is_loopback)
}

/// Connects to an address of a machine as the machine itself, whom no firewall keeps out.
async fn connect_to_itself(address: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind((address, 0).into())?;
    socket.connect((address, port).into()).await
}

/// The names of the processes of OpenSSH's server; a newer one has one for each session.
const SSHD: [&str; 3] = ["sshd", "sshd-session", "sshd-auth"];
