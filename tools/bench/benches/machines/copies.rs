//! Copies of a folder to and from a host by other programs: `rsync`, `scp`, and `tar` through `ssh`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use skyward_tools::sshd::Sshd;

use super::openssh::{options, ssh};

/// A program that copies folders.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Copier {
    Rsync,
    Scp,
    Tar,
}

impl Copier {
    pub(crate) const ALL: [Self; 3] = [Self::Rsync, Self::Scp, Self::Tar];

    /// As in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rsync => "rsync",
            Self::Scp => "scp",
            Self::Tar => "tar",
        }
    }

    /// Seconds to copy a folder to a new folder of a host.
    pub(crate) fn upload(self, sshd: &Sshd, from: &Path, to: &Path) -> io::Result<f64> {
        let target = format!("{}@{}:{}", sshd.user(), sshd.address(), to.display());
        let begin = Instant::now();
        match self {
            Self::Rsync => {
                run(Command::new("rsync").args(["-a", "-e", &shell(sshd)?]).arg(with_slash(from)).arg(target))
            }
            Self::Scp => run(scp(sshd)?.arg(from).arg(target)),
            Self::Tar => {
                let mut tar =
                    Command::new("tar").arg("-C").arg(from).args(["-cf", "-", "."]).stdout(Stdio::piped()).spawn()?;
                let to = to.display();
                let mut unpack = ssh(sshd, &format!("mkdir -p {to} && tar -C {to} -xf -"))?;
                unpack.stdin(tar.stdout.take().ok_or_else(|| io::Error::other("tar has no output"))?);
                run(&mut unpack)?;
                succeeded("tar", tar.wait()?)
            }
        }?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Seconds to copy a file of a host to a new file here.
    pub(crate) fn download(self, sshd: &Sshd, from: &Path, to: &Path) -> io::Result<f64> {
        let source = format!("{}@{}:{}", sshd.user(), sshd.address(), from.display());
        let begin = Instant::now();
        match self {
            Self::Rsync => run(Command::new("rsync").args(["-a", "-e", &shell(sshd)?]).arg(source).arg(to)),
            Self::Scp => run(scp(sshd)?.arg(source).arg(to)),
            // One file needs no archive.
            Self::Tar => run(ssh(sshd, &format!("cat {}", from.display()))?.stdout(std::fs::File::create(to)?)),
        }?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

fn scp(sshd: &Sshd) -> io::Result<Command> {
    let mut scp = Command::new("scp");
    // Its first protocol: the servers have no subsystem for files.
    scp.args(["-O", "-r", "-q"]).args(options(sshd)?).args(["-P", &sshd.port().to_string()]);
    Ok(scp)
}

/// The command of `ssh` as `rsync` takes it.
fn shell(sshd: &Sshd) -> io::Result<String> {
    Ok(format!("ssh -p {} {}", sshd.port(), options(sshd)?.join(" ")))
}

fn with_slash(folder: &Path) -> String {
    format!("{}/", folder.display())
}

fn run(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    succeeded(&format!("{command:?}"), status)
}

fn succeeded(what: &str, status: std::process::ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{what} ended with {status}"))) }
}
