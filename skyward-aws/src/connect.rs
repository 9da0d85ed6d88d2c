//! Reaches an instance, and says what its console says when it does not boot.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use skyward_core::error::{Error, ErrorKind, ErrorStatus, Result};
use skyward_core::ids::MachineId;
use skyward_core::remote::Ssh;
use skyward_core::remote::ssh::Target;
use tokio::time::Instant;

use crate::client::Clients;
use crate::describe;
use crate::machines;
use crate::options::Options;
use crate::pool::{Pool, Seen};
use crate::trust;

/// Connects to an instance.
///
/// # Errors
///
/// Temporary while it may still be booting; those of [`Ssh::connect`] otherwise.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn connect(clients: &Clients, options: &Options, pool: &Pool, machine: &MachineId) -> Result<Ssh> {
    let seen = pool.seen(machine).ok_or_else(|| trust::foreign(machine))?;
    let address = match &seen.address {
        Some(address) => address.clone(),
        None => find_address(clients, options, pool, machine).await?,
    };
    let tried = seen.tried.unwrap_or_else(Instant::now);
    pool.update(machine, |seen| seen.tried = Some(tried));
    let mut target = Target::new(&address).port(options.ssh_port).user(&seen.user);
    if let Some(bastion) = &options.bastion {
        target = target.jump(bastion.clone());
    }
    match pool.trust.connect(machine, &target).await {
        Ok(instance) => {
            pool.update(machine, |seen| seen.reached = true);
            Ok(instance)
        }
        Err(error) => Err(explain(clients, pool, machine, &seen, tried.elapsed(), error).await),
    }
}

async fn find_address(clients: &Clients, options: &Options, pool: &Pool, machine: &MachineId) -> Result<String> {
    let found = describe::by_id(clients, std::slice::from_ref(machine)).await?;
    let address = found.first().and_then(|instance| machines::reached_at(instance, options.addressing));
    let address = address
        .map(str::to_owned)
        .ok_or_else(|| Error::new(ErrorKind::Provider, format!("{machine} has no address yet")).temporary())?;
    pool.update(machine, |seen| seen.address = Some(address.clone()));
    Ok(address)
}

/// What an error of an instance means that was never reached, with the console's last lines when it had time to boot.
async fn explain(
    clients: &Clients,
    pool: &Pool,
    machine: &MachineId,
    seen: &Seen,
    tried: Duration,
    error: Error,
) -> Error {
    if seen.reached {
        return error;
    }
    // A server lets nobody in before the machine has booted, and refuses as it does for good.
    let early = error.kind() == ErrorKind::Login && tried < LOGIN;
    let mut error = if early { error.temporary() } else { error };
    let is_over = error.status() != ErrorStatus::Temporary;
    let mut told = seen.console.clone();
    let is_old = told.as_ref().is_none_or(|(read, _)| read.elapsed() > AGAIN);
    if (is_over || tried > seen.boot.min(LONG_BOOT) / 2) && is_old {
        told = Some((Instant::now(), console(clients, machine).await));
        pool.update(machine, |seen| seen.console.clone_from(&told));
    }
    if let Some((_, Some(console))) = told {
        error = error.with_context("console", console);
    }
    if error.kind() == ErrorKind::Io || error.kind() == ErrorKind::Timeout {
        return error.with_hint(
            "the security group of the pool lets in the address that this client had when it started; a firewall or proxy on the way may block the port, a VPN may have changed the address: `.ssh_from([…])`, `.ssh_port(…)`",
        );
    }
    error
}

/// The last lines that an instance wrote to its console.
async fn console(clients: &Clients, machine: &MachineId) -> Option<String> {
    let asked = clients.ec2.get_console_output().instance_id(machine.as_str()).send().await;
    let output =
        asked.inspect_err(|error| tracing::debug!(%machine, %error, "the console cannot be read")).ok()?.output?;
    let text = STANDARD.decode(output.trim()).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(LINES);
    (!lines.is_empty()).then(|| lines[last..].join("\n"))
}

/// For how long a server may refuse to let the client in because its machine boots.
const LOGIN: Duration = Duration::from_secs(90);
/// After half of this, or of the time to boot where that is shorter, the console is of interest.
const LONG_BOOT: Duration = Duration::from_secs(240);
/// The pause between two looks at a console.
const AGAIN: Duration = Duration::from_secs(30);
/// As many lines of a console as are shown.
const LINES: usize = 20;
