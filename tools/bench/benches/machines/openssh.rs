//! The `ssh` of this host with the same server: the least that a call and its bytes can cost
//! through it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use skyward_tools::sshd::Sshd;

use super::common::bytes::SIZE;
use super::common::median;

/// A program at the other end of a channel.
struct Channel {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

/// Microseconds until a few bytes are back, the median.
pub(crate) fn echo_p50_us(sshd: &Sshd, count: usize) -> io::Result<f64> {
    let mut channel = Channel::open(sshd, "cat")?;
    let (message, mut back) = ([7; MESSAGE], [0; MESSAGE]);
    let mut micros = Vec::with_capacity(count);
    for round in 0..count + count / 10 {
        let begin = Instant::now();
        channel.input.write_all(&message)?;
        channel.output.read_exact(&mut back)?;
        // The first rounds find cold caches on both sides.
        if round >= count / 10 {
            micros.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    channel.close()?;
    Ok(median(micros))
}

/// Bytes per second through `cat`, counted in both directions; the best of all rounds.
pub(crate) fn there_and_back(sshd: &Sshd, times: usize) -> io::Result<f64> {
    let mut channel = Channel::open(sshd, "cat")?;
    let mut back = vec![0; SIZE];
    let mut best = f64::MAX;
    for _ in 0..times {
        let begin = Instant::now();
        let Channel { input, output, .. } = &mut channel;
        thread::scope(|scope| {
            let writer = scope.spawn(|| input.write_all(&vec![7; SIZE]));
            output.read_exact(&mut back)?;
            writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer was interrupted")))
        })?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    channel.close()?;
    Ok(2.0 * SIZE as f64 / best)
}

/// Seconds until a command on the host has written its first line, the median.
pub(crate) fn first_line_s(sshd: &Sshd, command: &str, times: usize) -> io::Result<f64> {
    let seconds = (0..times).map(|_| first_line(&mut ssh(sshd, command)?));
    Ok(median(seconds.collect::<io::Result<_>>()?))
}

/// Seconds until a program has written its first line. Also waits for the program to end.
pub(crate) fn first_line(command: &mut Command) -> io::Result<f64> {
    let begin = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or_else(no_pipes)?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    let took = begin.elapsed().as_secs_f64();
    io::copy(&mut output, &mut io::sink())?;
    let status = child.wait()?;
    match line.is_empty() || !status.success() {
        true => Err(io::Error::other(format!("{command:?} ended with {status}"))),
        false => Ok(took),
    }
}

/// `ssh` to a server, without the user's own configuration.
pub(crate) fn ssh(sshd: &Sshd, command: &str) -> io::Result<Command> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-T").args(options(sshd)?);
    ssh.args(["-p", &sshd.port().to_string(), "-l", &sshd.user(), sshd.address(), command]);
    Ok(ssh)
}

/// The options that `ssh`, `scp` and `rsync` have in common, without the port.
pub(crate) fn options(sshd: &Sshd) -> io::Result<Vec<String>> {
    let known = sshd.path("known_hosts");
    fs::write(&known, format!("[{}]:{} {}\n", sshd.address(), sshd.port(), sshd.host_key()))?;
    let (known, key) = (format!("UserKnownHostsFile={}", known.display()), sshd.client_key().display().to_string());
    let options = ["-F", "none", "-c", CIPHER, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes"];
    let more = ["-o", "LogLevel=ERROR", "-o", &known, "-i", &key];
    Ok(options.into_iter().chain(more).map(str::to_owned).collect())
}

fn no_pipes() -> io::Error {
    io::Error::other("a program was started without its pipes")
}

impl Channel {
    fn open(sshd: &Sshd, command: &str) -> io::Result<Self> {
        let mut child = ssh(sshd, command)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or_else(no_pipes)?;
        let output = child.stdout.take().ok_or_else(no_pipes)?;
        Ok(Self { child, input, output })
    }

    fn close(self) -> io::Result<()> {
        let Self { mut child, input, output } = self;
        drop((input, output));
        child.wait().map(drop)
    }
}

/// The cipher that Skyward's client uses too.
const CIPHER: &str = "aes256-gcm@openssh.com";
/// About the size of an empty call and its answer.
const MESSAGE: usize = 32;
