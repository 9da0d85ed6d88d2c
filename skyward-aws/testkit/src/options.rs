//! The options of an emulated cloud.

use std::path::PathBuf;
use std::time::Duration;

use crate::bootable;
use crate::phases::Phases;

/// The options of an emulated cloud.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    pub(crate) region: String,
    pub(crate) user: String,
    pub(crate) ssh_port: Option<u16>,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) boot_delay: Duration,
    pub(crate) gpus: u32,
    pub(crate) phases: Phases,
    pub(crate) has_machines: bool,
}

impl Default for CloudOptions {
    fn default() -> Self {
        Self {
            region: "us-east-1".into(),
            user: "ubuntu".into(),
            ssh_port: None,
            cache: None,
            boot_delay: Duration::ZERO,
            gpus: 0,
            phases: Phases::default(),
            has_machines: true,
        }
    }
}

impl CloudOptions {
    /// `us-east-1`, with machines that boot at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// The region; its first three zones have a subnet each.
    #[must_use]
    pub fn region(mut self, region: &str) -> Self {
        self.region = region.into();
        self
    }

    /// Sets the user of the images. The default is `ubuntu`.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = user.into();
        self
    }

    /// Sets the port of the machines' SSH servers. The default is a free port.
    #[must_use]
    pub fn ssh_port(mut self, port: u16) -> Self {
        self.ssh_port = Some(port);
        self
    }

    /// Sets the folder of this host that is `~/.cache` on all machines, so that they share what
    /// they build. The default is a folder in the user's cache, which is kept between runs.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Sets how long a machine takes until its system boots.
    #[must_use]
    pub fn boot_delay(mut self, delay: Duration) -> Self {
        self.boot_delay = delay;
        self
    }

    /// Sets how many GPUs `nvidia-smi` shows; with 0, machines do not have the program.
    #[must_use]
    pub fn gpus(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        self
    }

    /// Sets how long the phases of instances last.
    #[must_use]
    pub fn phases(mut self, phases: Phases) -> Self {
        self.phases = phases;
        self
    }

    /// Boots no machines, so that the cloud answers calls only. This needs no superuser.
    #[must_use]
    pub fn without_machines(mut self) -> Self {
        self.has_machines = false;
        self
    }
}

/// Why this host cannot boot machines; none if it can.
pub fn missing() -> Option<String> {
    bootable::missing()
}
