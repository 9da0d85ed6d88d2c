//! The clients of `cargo xtask chaos`, which starts this program in many rounds and kills the
//! program, its machines, agents and workers at random moments.
//!
//! Commands; without one, the program does nothing:
//!
//! - `client SCRIPT` starts a pool, keeps it busy and reports what happens.
//! - `warm PROVIDER` builds the workers' environment.
//! - `reap PROVIDER` ends what a killed client left.

mod client;
#[path = "../../skyward-core/tests/support/freeze.rs"]
mod freeze;
mod recorder;
mod words;

use std::process::ExitCode;

#[tokio::main(worker_threads = 2)] // `client::THREADS`
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["client", script] => client::play(script).await,
        ["warm", provider] => client::warm(provider).await,
        ["reap", provider] => reap(provider).await,
        _ => {
            println!("`cargo xtask chaos` starts this program; without arguments it does nothing");
            ExitCode::SUCCESS
        }
    }
}

/// Reaps, and prints a line for each pool that could not be ended, or that lives elsewhere.
async fn reap(provider: &str) -> ExitCode {
    let Some(provider) = client::read(provider) else { return ExitCode::FAILURE };
    match skyward::reap([provider]).await {
        Ok(reaped) => {
            reaped.unconfirmed.iter().for_each(|left| println!("left {}: {}", left.pool, left.error));
            reaped.elsewhere.iter().for_each(|other| println!("alive {}", other.pool));
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("cannot reap: {error}");
            ExitCode::FAILURE
        }
    }
}
