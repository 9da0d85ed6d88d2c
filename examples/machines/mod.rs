//! The provider of an example's machines, by the command line.

use std::path::PathBuf;
use std::sync::Arc;

use skyward::prelude::*;
#[cfg(feature = "aws")]
use skyward::provider::{Addressing, Aws};
use skyward::provider::{Docker, Host, Hosts};
use skyward::remote::ssh::{HostKeys, Key};

/// `--provider`, and the options of each provider.
#[derive(Default)]
pub(crate) struct Machines {
    kind: Kind,
    hosts: Vec<Host>,
    identity: Option<PathBuf>,
    known_hosts: Option<PathBuf>,
    image: Option<String>,
    #[cfg(feature = "aws")]
    aws: Aws,
}

#[derive(Default)]
enum Kind {
    #[default]
    Local,
    Ssh,
    Docker,
    #[cfg(feature = "aws")]
    Aws,
}

impl Machines {
    #[cfg(not(feature = "aws"))]
    pub(crate) const USAGE: &str = "[--provider local|ssh|docker] [--host USER@ADDRESS[:PORT]]… [--identity FILE] [--known-hosts FILE] [--image NAME]";
    #[cfg(feature = "aws")]
    pub(crate) const USAGE: &str = "[--provider local|ssh|docker|aws] [--host USER@ADDRESS[:PORT]]… [--identity FILE] [--known-hosts FILE] [--image NAME] [--region NAME] [--subnet ID]… [--private] [--ssh-port PORT]";

    /// Reads an option with its value. `None` for other options, and for values that cannot be
    /// read.
    pub(crate) fn read(&mut self, option: &str, words: &mut dyn Iterator<Item = String>) -> Option<()> {
        match option {
            "--provider" => {
                self.kind = match words.next()?.as_str() {
                    "local" => Kind::Local,
                    "ssh" => Kind::Ssh,
                    "docker" => Kind::Docker,
                    #[cfg(feature = "aws")]
                    "aws" => Kind::Aws,
                    _ => return None,
                }
            }
            "--host" => self.hosts.push(words.next()?.parse().ok()?),
            "--identity" => self.identity = Some(words.next()?.into()),
            "--known-hosts" => self.known_hosts = Some(words.next()?.into()),
            "--image" => self.image = Some(words.next()?),
            #[cfg(feature = "aws")]
            other => self.aws = Self::read_aws(std::mem::take(&mut self.aws), other, words)?,
            #[cfg(not(feature = "aws"))]
            _ => return None,
        }
        Some(())
    }

    #[cfg(feature = "aws")]
    fn read_aws(aws: Aws, option: &str, words: &mut dyn Iterator<Item = String>) -> Option<Aws> {
        Some(match option {
            "--region" => aws.region(words.next()?),
            "--subnet" => aws.subnet(words.next()?),
            "--private" => aws.addressing(Addressing::Private),
            "--ssh-port" => aws.ssh_port(words.next()?.parse().ok()?),
            _ => return None,
        })
    }

    /// The provider that was chosen.
    pub(crate) fn provider(self) -> Arc<dyn Provider> {
        match self.kind {
            Kind::Local => Arc::new(Local::default()),
            Kind::Ssh => {
                let (identity, known_hosts) = (self.identity, self.known_hosts);
                // The default is the keys of the agent and of ~/.ssh, and the hosts in
                // `known_hosts`.
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
            #[cfg(feature = "aws")]
            Kind::Aws => Arc::new(match self.image {
                Some(image) => self.aws.image(image),
                None => self.aws,
            }),
        }
    }
}

/// Reads the words of the command line, each option with its value by `read`. Ends the program,
/// with its usage, at one that `read` does not know or whose value it cannot read.
pub(crate) fn read_words(usage: &str, mut read: impl FnMut(&str, &mut dyn Iterator<Item = String>) -> Option<()>) {
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if read(&word, &mut words).is_none() {
            eprintln!("usage: {usage} {}; cannot read `{word}`", Machines::USAGE);
            std::process::exit(2);
        }
    }
}

/// Any image with a shell works; an image with Python needs fewer installations.
const IMAGE: &str = "python:3.13-slim";
