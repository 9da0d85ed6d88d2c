//! The commands of a machine's programs to systemd, which the hypervisor plays: `systemctl`,
//! `shutdown` and their kin.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::machine::Machine;
use super::services::State;
use crate::guard;
use crate::http::Abort;
use crate::timing::ARGUMENTS;

/// A parsed command line. No I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Nothing that has to be done here.
    Nothing,
    Say(String),
    PowerOff,
    Start {
        units: Vec<String>,
        is_waiting: bool,
    },
    Stop(Vec<String>),
    Restart(Vec<String>),
    Reload(Vec<String>),
    Enable {
        units: Vec<String>,
        is_started: bool,
    },
    IsActive {
        units: Vec<String>,
        is_quiet: bool,
    },
}

impl Request {
    /// Parses a program's arguments, or returns why the hypervisor cannot obey them.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let (program, rest) = words.split_first().ok_or("there is no program")?;
        let (options, names): (Vec<&str>, Vec<&str>) =
            rest.iter().map(String::as_str).partition(|word| word.starts_with('-'));
        match program.as_str() {
            "poweroff" | "halt" if names.is_empty() => Ok(Self::PowerOff),
            "shutdown" => match names.as_slice() {
                ["now" | "+0", ..] if !options.iter().any(|option| ["-r", "--reboot", "-c"].contains(option)) => {
                    Ok(Self::PowerOff)
                }
                _ => Err(format!("the loopback EC2 heeds `shutdown now` alone, not `{}`", words.join(" "))),
            },
            "systemctl" => Self::systemctl(&options, &names),
            _ => Err(format!("the loopback EC2 does not heed `{}`", words.join(" "))),
        }
    }

    fn systemctl(options: &[&str], names: &[&str]) -> Result<Self, String> {
        let has = |option: &str| options.contains(&option);
        if has("--version") {
            return Ok(Self::Say("systemd 255 (played by the loopback EC2)\n".into()));
        }
        let known = ["--no-block", "--now", "--quiet", "-q", "--no-wall", "--no-pager", "--system", "--force", "-f"];
        if let Some(option) = options.iter().find(|option| !known.contains(option)) {
            return Err(format!("systemctl's option {option} is not played by the loopback EC2"));
        }
        let (verb, units) =
            names.split_first().ok_or("systemctl without a command is not played by the loopback EC2")?;
        let units: Vec<String> = units.iter().map(|unit| (*unit).to_owned()).collect();
        match *verb {
            "daemon-reload" | "daemon-reexec" | "reset-failed" => Ok(Self::Nothing),
            "poweroff" | "halt" => Ok(Self::PowerOff),
            "is-system-running" => Ok(Self::Say("running\n".into())),
            "enable" | "reenable" => Ok(Self::Enable { units, is_started: has("--now") }),
            "start" => Ok(Self::Start { units, is_waiting: !has("--no-block") }),
            "stop" => Ok(Self::Stop(units)),
            "disable" if has("--now") => Ok(Self::Stop(units)),
            "disable" => Ok(Self::Nothing),
            "restart" | "try-restart" => Ok(Self::Restart(units)),
            "reload" | "reload-or-restart" | "try-reload-or-restart" => Ok(Self::Reload(units)),
            "is-active" | "is-failed" => Ok(Self::IsActive { units, is_quiet: has("--quiet") || has("-q") }),
            other => Err(format!("`systemctl {other}` is not played by the loopback EC2")),
        }
    }
}

/// Listens on a free port of an address for the programs of a machine.
pub(crate) async fn listen(address: IpAddr) -> Result<(TcpListener, SocketAddr)> {
    guard::loopback(address)?;
    let listener = TcpListener::bind((address, 0)).await.with_context(|| format!("cannot listen on {address}"))?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Answers them until the task is aborted.
pub(crate) fn serve(listener: TcpListener, machine: Arc<Machine>) -> Abort<()> {
    Abort(tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        loop {
            while open.try_join_next().is_some() {}
            let Ok((stream, _)) = listener.accept().await else { return };
            let machine = Arc::clone(&machine);
            // It is no error when a program goes away before its answer.
            open.spawn(async move { converse(stream, &machine).await.unwrap_or_default() });
        }
    }))
}

async fn converse(stream: TcpStream, machine: &Arc<Machine>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut words = Vec::new();
    loop {
        let mut line = String::new();
        timeout(ARGUMENTS, stream.read_line(&mut line)).await??;
        match line.trim_end_matches('\n') {
            "" => break,
            word => words.push(word.to_owned()),
        }
    }
    machine.console.write("systemd", format!("$ {}", words.join(" ")));
    let (code, text) = match Request::parse(&words) {
        Ok(request) => perform(request, machine).await.unwrap_or_else(|error| (1, format!("{error:#}\n"))),
        Err(refusal) => (1, format!("{refusal}\n")),
    };
    if code != 0 && !text.is_empty() {
        machine.console.write("systemd", &text);
    }
    stream.get_mut().write_all(format!("{code}\n{text}").as_bytes()).await?;
    Ok(())
}

async fn perform(request: Request, machine: &Arc<Machine>) -> Result<(u8, String)> {
    let services = machine.services().context("the machine is not up")?;
    match request {
        Request::Nothing => {}
        Request::Say(text) => return Ok((0, text)),
        Request::PowerOff => machine.power_off(),
        Request::Start { units, is_waiting } => {
            for unit in units.iter().filter(|unit| !is_ssh(unit)) {
                services.verify(unit).await?;
                services.start(unit, is_waiting).await?;
            }
        }
        Request::Stop(units) => {
            for unit in &units {
                if is_ssh(unit) {
                    machine.stop_sshd();
                } else {
                    services.stop(unit).await?;
                }
            }
        }
        Request::Restart(units) => {
            for unit in &units {
                if is_ssh(unit) {
                    machine.stop_sshd();
                    machine.start_sshd().await?;
                } else {
                    services.stop(unit).await?;
                    services.start(unit, true).await?;
                }
            }
        }
        Request::Reload(units) => {
            for unit in &units {
                if !is_ssh(unit) {
                    anyhow::bail!("Failed to reload {unit}: Job type reload is not applicable for unit {unit}.");
                }
                machine.reload_sshd()?;
            }
        }
        Request::Enable { units, is_started } => {
            for unit in units.iter().filter(|unit| !is_ssh(unit)) {
                services.read(unit).await?;
                machine.enable(unit);
                if is_started {
                    services.verify(unit).await?;
                    services.start(unit, true).await?;
                }
            }
        }
        Request::IsActive { units, is_quiet } => {
            let states: Vec<State> = units.iter().map(|unit| state(machine, &services, unit)).collect();
            let words: String = states.iter().map(|state| format!("{}\n", state.word())).collect();
            let code = if states.iter().all(|state| *state == State::Active) { 0 } else { 3 };
            return Ok((code, if is_quiet { String::new() } else { words }));
        }
    }
    Ok((0, String::new()))
}

fn state(machine: &Machine, services: &super::services::Services, unit: &str) -> State {
    match is_ssh(unit) {
        true if machine.sshd().is_some() => State::Active,
        true => State::Inactive,
        false => services.state(unit),
    }
}

/// Whether a unit is the SSH server: Ubuntu names it `ssh`, other systems `sshd`.
fn is_ssh(unit: &str) -> bool {
    ["ssh", "ssh.service", "sshd", "sshd.service"].contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, String> {
        Request::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_ways_to_power_off_are_known() {
        for line in
            ["poweroff", "poweroff -f", "shutdown -P now", "shutdown -h +0", "systemctl poweroff --no-wall", "halt"]
        {
            assert_eq!(parse(line), Ok(Request::PowerOff), "{line}");
        }
        for line in ["shutdown -r now", "shutdown -P +5", "reboot", "systemctl kexec", "systemctl --user start x"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn units_are_started_as_asked() {
        let units = vec!["a.service".to_owned()];
        assert_eq!(
            parse("systemctl start --no-block a.service"),
            Ok(Request::Start { units: units.clone(), is_waiting: false })
        );
        assert_eq!(parse("systemctl enable --now a.service"), Ok(Request::Enable { units, is_started: true }));
        assert_eq!(parse("systemctl daemon-reload"), Ok(Request::Nothing));
        assert!(is_ssh("sshd") && is_ssh("ssh.service") && !is_ssh("sshguard"));
    }
}
