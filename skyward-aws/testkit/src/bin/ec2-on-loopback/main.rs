//! Starts an EC2 on loopback, prints how to reach it as a line of JSON, executes the orders on its
//! standard input, and ends the EC2 when standard input ends, or at SIGTERM or SIGINT.
//!
//! It answers each order with a line of JSON; [`orders`] lists the orders. On a host that cannot
//! run the machines, it prints the reason on standard error and exits with 69.

mod orders;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use skyward_aws_testkit::{Cloud, CloudOptions, end_importer, missing};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};

fn main() -> ExitCode {
    let (options, has_machines) = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => return fail(&error),
    };
    if let Some(reason) = missing().filter(|_| has_machines) {
        eprintln!("{reason}");
        return ExitCode::from(UNAVAILABLE);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(options)));
    end_importer();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

async fn run(options: CloudOptions) -> Result<()> {
    // From here on, a signal ends the cloud before the program.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cloud = Cloud::start(options).await?;
    say(&serde_json::json!({
        "endpoint": cloud.endpoint(),
        "environment": cloud.environment(),
        "subnets": cloud.subnets(),
        "ssh_port": cloud.ssh_port(),
        "region": cloud.region(),
    }));
    let mut lines = lines_of_input();
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            line = lines.recv() => match line {
                Some(line) => say(&orders::answer(&cloud, &line).await),
                None => return Ok(()),
            },
        }
    }
}

/// The parent may read no more than the first line.
fn say(line: &serde_json::Value) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// The lines of standard input. A thread reads them, and ends with the process.
fn lines_of_input() -> UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in BufReader::new(std::io::stdin()).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The options, and whether instances get machines.
fn options(mut words: impl Iterator<Item = String>) -> Result<(CloudOptions, bool)> {
    let (mut options, mut has_machines) = (CloudOptions::new(), true);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        options = match word.as_str() {
            "--region" => options.region(&value()?),
            "--ssh-port" => options.ssh_port(value()?.parse().context("--ssh-port takes a number")?),
            "--cache" => options.cache(value()?),
            "--gpus" => options.gpus(value()?.parse().context("--gpus takes a number")?),
            "--without-machines" => {
                has_machines = false;
                options.without_machines()
            }
            _ => anyhow::bail!(
                "{word:?} is not known; there are --region, --ssh-port, --cache, --gpus, --without-machines"
            ),
        };
    }
    Ok((options, has_machines))
}

/// The exit code on a host that cannot run the machines; `EX_UNAVAILABLE` of sysexits.h.
const UNAVAILABLE: u8 = 69;
