//! Where the machines of an example come from, as its command line says.

use std::path::PathBuf;
use std::sync::Arc;

use skyward::prelude::*;
use skyward::provider::{Docker, Host, Hosts};
use skyward::remote::ssh::{HostKeys, Key};

/// `--provider`, and what each kind of machines needs to know.
#[derive(Default)]
pub(crate) struct Machines {
    kind: Kind,
    hosts: Vec<Host>,
    identity: Option<PathBuf>,
    known_hosts: Option<PathBuf>,
    image: Option<String>,
}

#[derive(Default)]
enum Kind {
    #[default]
    Local,
    Ssh,
    Docker,
}

impl Machines {
    pub(crate) const USAGE: &str = "[--provider local|ssh|docker] [--host USER@ADDRESS[:PORT]]… [--identity FILE] [--known-hosts FILE] [--image NAME]";

    /// Reads an option with its value. `None`: it is not one of these, or its value cannot be read.
    pub(crate) fn read(&mut self, option: &str, words: &mut impl Iterator<Item = String>) -> Option<()> {
        match option {
            "--provider" => {
                self.kind = match words.next()?.as_str() {
                    "local" => Kind::Local,
                    "ssh" => Kind::Ssh,
                    "docker" => Kind::Docker,
                    _ => return None,
                }
            }
            "--host" => self.hosts.push(words.next()?.parse().ok()?),
            "--identity" => self.identity = Some(words.next()?.into()),
            "--known-hosts" => self.known_hosts = Some(words.next()?.into()),
            "--image" => self.image = Some(words.next()?),
            _ => return None,
        }
        Some(())
    }

    /// The provider that was chosen.
    pub(crate) fn provider(self) -> Arc<dyn Provider> {
        match self.kind {
            Kind::Local => Arc::new(Local::default()),
            Kind::Ssh => {
                let (identity, known_hosts) = (self.identity, self.known_hosts);
                // Without these, the keys of the agent and of ~/.ssh, and the hosts that `ssh` knows.
                Arc::new(Hosts::new(self.hosts.into_iter().map(|mut host| {
                    if let Some(file) = &identity {
                        host = host.key(Key::file(file));
                    }
                    if let Some(file) = &known_hosts {
                        host = host.host_keys(HostKeys::known_hosts(file));
                    }
                    host
                })))
            }
            Kind::Docker => Arc::new(Docker::new(self.image.unwrap_or_else(|| IMAGE.to_owned()))),
        }
    }
}

/// Any image with a shell will do; one with Python has less to install.
const IMAGE: &str = "python:3.13-slim";
