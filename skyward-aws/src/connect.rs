//! Reaches an instance, and adds the console's last lines to the error of one that does not boot.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::MachineId;
use skyward_core::remote::Ssh;
use skyward_core::remote::ssh::Target;
use tokio::time::Instant;

use crate::client::Clients;
use crate::describe;
use crate::machines;
use crate::options::Options;
use crate::pool::{Pool, Seen};
use crate::timing::{CONSOLE_PAUSE, LONG_BOOT, REFUSED_LOGINS};
use crate::trust;

/// Connects to an instance.
///
/// # Errors
///
/// A temporary error while the instance may still be booting; otherwise those of [`Ssh::connect`].
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

/// Explains the error of an instance that the client has never reached, with the console's last
/// lines if the instance has had time to boot.
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
    // Before the machine has booted, its server refuses every login, and the error is the same as
    // that of a final refusal.
    let early = error.kind() == ErrorKind::Login && tried < REFUSED_LOGINS;
    let mut error = if early { error.temporary() } else { error };
    let is_over = !error.is_temporary();
    let mut last = seen.console.clone();
    let is_old = last.as_ref().is_none_or(|(read, _)| read.elapsed() > CONSOLE_PAUSE);
    if (is_over || tried > seen.boot.min(LONG_BOOT) / 2) && is_old {
        last = Some((Instant::now(), console(clients, machine).await));
        pool.update(machine, |seen| seen.console.clone_from(&last));
    }
    if let Some((_, Some(console))) = last {
        error = error.with_context("console", console);
    }
    if error.kind() == ErrorKind::Io || error.kind() == ErrorKind::Timeout {
        return error.with_hint(
            "the security group of the pool allows the address that this client had when the pool started. If a VPN has changed that address, name the networks that may log in: `.ssh_from([…])`. If a firewall or proxy blocks the port, use another one: `.ssh_port(…)`",
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

/// How many lines of a console an error shows.
const LINES: usize = 20;
