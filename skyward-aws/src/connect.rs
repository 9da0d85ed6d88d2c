//! Reaches an instance, and adds the console's last lines to the error of one that does not boot.

use std::time::Duration;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::ProvideErrorMetadata;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::MachineId;
use skyward_core::remote::Ssh;
use skyward_core::remote::ssh::Target;
use tokio::time::Instant;

use crate::client::Clients;
use crate::describe;
use crate::entry;
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
    let mut looked = Ok(None);
    let mut connected = pool.trust.connect(machine, &target).await;
    if is_silent(&connected) {
        looked = pool.entry.look(clients, options, pool).await;
        if let Ok(Some(_)) = looked {
            connected = pool.trust.connect(machine, &target).await;
        }
    }
    if is_silent(&connected) {
        pool.on_silent(machine);
    }
    let error = match connected {
        Ok(instance) => {
            pool.on_reached(machine);
            return Ok(instance);
        }
        Err(error) => error,
    };
    let error = if seen.reached { error } else { explain(clients, pool, machine, &seen, tried.elapsed(), error).await };
    match error.kind() {
        ErrorKind::Io | ErrorKind::Timeout => Err(entry::explain(error, looked, options)),
        _ => Err(error),
    }
}

/// Whether nothing answers at the address, as where a security group does not let the client in.
fn is_silent<T>(connected: &Result<T>) -> bool {
    connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout)
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
    // Before the machine has booted, its server refuses every login, and the error is the same as
    // that of a final refusal.
    let early = error.kind() == ErrorKind::Login && tried < REFUSED_LOGINS;
    let mut error = if early { error.temporary() } else { error };
    let is_over = !error.is_temporary();
    let mut last = seen.console.clone();
    let is_old = last.as_ref().is_none_or(|(read, _)| read.elapsed() > CONSOLE_PAUSE);
    if (is_over || tried > seen.boot.min(LONG_BOOT) / 2) && is_old {
        last = Some((Instant::now(), console(&clients.ec2, machine).await));
        pool.update(machine, |seen| seen.console.clone_from(&last));
    }
    if let Some((_, Some(console))) = last {
        error = error.with_context("console", console);
    }
    error
}

/// The last lines that an instance wrote to its console. Without the option `Latest`, EC2 returns
/// what the instance had written shortly after its start. Instances that are not of the Nitro system
/// do not support that option:
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html>.
async fn console(ec2: &Client, machine: &MachineId) -> Option<String> {
    let ask = || ec2.get_console_output().instance_id(machine.as_str());
    let mut asked = ask().latest(true).send().await;
    if asked.as_ref().is_err_and(|error| error.code().is_some_and(|code| NO_LATEST.contains(&code))) {
        asked = ask().send().await;
    }
    let output =
        asked.inspect_err(|error| tracing::debug!(%machine, %error, "the console cannot be read")).ok()?.output?;
    let text = STANDARD.decode(output.trim()).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(LINES);
    (!lines.is_empty()).then(|| lines[last..].join("\n"))
}

/// EC2's codes for instances that do not support the option `Latest`.
const NO_LATEST: [&str; 3] = ["UnsupportedOperation", "Unsupported", "InvalidParameterCombination"];
/// How many lines of a console an error shows.
const LINES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{Loopback, ec2};

    #[tokio::test]
    async fn the_latest_lines_of_a_console_are_asked_for_and_those_of_the_start_where_there_are_no_others() {
        let console = |lines: &str| {
            format!("<GetConsoleOutputResponse><output>{}</output></GetConsoleOutputResponse>", STANDARD.encode(lines))
        };
        for (has_latest, lines) in [(true, "late"), (false, "early")] {
            let service = Loopback::start(move |body| match (body.contains("Latest=true"), has_latest) {
                (true, true) => (200, console("late\n\n")),
                (true, false) => (400, ec2::error("UnsupportedOperation", "It is not supported for this instance.")),
                (false, _) => (200, console("early\n")),
            });
            assert_eq!(super::console(&service.ec2(), &MachineId::new("i-1")).await.as_deref(), Some(lines));
        }
    }
}
