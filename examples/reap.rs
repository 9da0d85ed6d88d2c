//! Ends what clients of this user left behind when they were killed: `cargo run --example reap`.
//!
//! It asks the ledger which pools have lost their client, and their providers to end them. Run it by hand, or from a timer of the host. Pools whose client lives are left alone.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> skyward::Result<ExitCode> {
    // Pools on this host need no more than this; for others give their providers here.
    let reaped = skyward::reap([]).await?;
    println!("{reaped}");
    Ok(if reaped.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
