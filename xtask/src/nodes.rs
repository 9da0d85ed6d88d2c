//! Nodes on this host that are reached as remote ones are: SSH servers, containers, instances of an
//! EC2 on loopback.

use std::path::PathBuf;
use std::{env, fs, process};

use anyhow::{Context as _, Result, bail};

use crate::context::Context;
use crate::ec2::{Build, Ec2};
use crate::image::Images;
use crate::needs;
use crate::process::Run;
use crate::sshd::{Options, Sshd};

/// Where the nodes of an example are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Ssh,
    Docker,
    Aws,
}

/// The nodes. Dropping this removes them.
pub(crate) struct Nodes {
    /// The words of an example's command line that say where they are.
    arguments: Vec<String>,
    /// What containers are made of; empty for others.
    pub(crate) image: String,
    ec2: Option<Ec2>,
    _servers: Vec<Sshd>,
    _folder: Option<Folder>,
}

/// A folder with all that is in it. Dropping it removes it.
struct Folder(PathBuf);

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::Ssh, Self::Docker, Self::Aws];
}

impl Nodes {
    /// Makes so many nodes, or what they are made of, with programs of this build. The inner error
    /// is the reason why there can be none here.
    pub(crate) fn make(place: Place, count: usize, context: &Context, build: Build) -> Result<Result<Self, String>> {
        match place {
            Place::Ssh => match needs::SSHD.missing(context)? {
                None => Self::servers(count).map(Ok),
                Some(reason) => Ok(Err(reason.to_owned())),
            },
            Place::Docker => Ok(Images::ensure(context)?.map(|images| Self::containers(images.node))),
            Place::Aws => Ok(Ec2::start(context, build)?.map(Self::instances)),
        }
    }

    /// A command of a program that uses these nodes, with its arguments and environment variables.
    pub(crate) fn given_to(&self, run: Run) -> Run {
        let environment = self.ec2.iter().flat_map(Ec2::environment);
        let run = environment.fold(run, |run, (name, value)| run.quiet_env(name, value));
        run.args(&self.arguments)
    }

    /// Fails when clients that have ended have left something that their provider made.
    pub(crate) fn check_left(&self) -> Result<()> {
        let left = self.ec2.as_ref().map(Ec2::left).transpose()?.unwrap_or_default();
        if !left.is_empty() {
            bail!("resources are left in EC2: {}", left.join("; "));
        }
        Ok(())
    }

    /// Servers on addresses of their own, which let in one key.
    fn servers(count: usize) -> Result<Self> {
        // They are one host, and each has claims and machines of its own. The path is short because
        // of the sockets in it.
        let folder = Folder(env::temp_dir().join(format!("skyward-demo-{}", process::id())));
        fs::create_dir(&folder.0).with_context(|| format!("cannot make the folder {}", folder.0.display()))?;
        let start = |options: Options, number: usize| {
            let options = options.env("SKYWARD_RUNTIME_DIR", &folder.0.join(number.to_string()).display().to_string());
            Sshd::start(&options).context("cannot start an SSH server")
        };
        let first = start(Options::new(), 0)?;
        let (identity, known_hosts) = (first.client_key(), first.path("known_hosts"));
        let key = fs::read_to_string(identity.with_extension("pub"))?;
        let mut servers = vec![first];
        for number in 1..count {
            servers.push(start(Options::new().authorized(key.trim()), number)?);
        }
        let mut arguments = vec!["--provider".to_owned(), "ssh".to_owned()];
        let mut keys = String::new();
        for server in &servers {
            let (user, address, port) = (server.user(), server.address(), server.port());
            arguments.extend(["--host".to_owned(), format!("{user}@{address}:{port}")]);
            keys += &format!("[{address}]:{port} {}\n", server.host_key());
        }
        fs::write(&known_hosts, keys)?;
        arguments.extend(["--identity".to_owned(), identity.display().to_string()]);
        arguments.extend(["--known-hosts".to_owned(), known_hosts.display().to_string()]);
        Ok(Self { arguments, image: String::new(), ec2: None, _servers: servers, _folder: Some(folder) })
    }

    /// The containers themselves are the provider's to make.
    fn containers(image: String) -> Self {
        let arguments = ["--provider", "docker", "--image", &image].map(str::to_owned).to_vec();
        Self { arguments, image, ec2: None, _servers: Vec::new(), _folder: None }
    }

    /// The instances, too.
    fn instances(ec2: Ec2) -> Self {
        let arguments = ec2.arguments();
        Self { arguments, image: String::new(), ec2: Some(ec2), _servers: Vec::new(), _folder: None }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ssh => "SSH",
            Self::Docker => "Docker",
            Self::Aws => "AWS",
        })
    }
}
