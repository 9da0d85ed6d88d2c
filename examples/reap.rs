//! Ends what clients of this user left behind when they were killed: `cargo run --example reap`.
//!
//! It asks the ledger which pools have lost their client, and their providers to end them. Run it by hand, or from a timer of the host. Pools whose client lives are left
//! alone. Pools on this host need no more than that; for others it takes the options that say where they are:
//!
//! ```sh
//! cargo run --example reap -- --provider docker
//! cargo run --example reap -- --provider ssh --host alice@gpu1 --host alice@gpu2:2222
//! ```

mod machines;

use std::process::ExitCode;

use machines::{Machines, read_words};

#[tokio::main(flavor = "current_thread")]
async fn main() -> skyward::Result<ExitCode> {
    let mut machines = Machines::default();
    read_words("reap", |word, words| machines.read(word, words));
    let reaped = skyward::reap([machines.provider()]).await?;
    println!("{reaped}");
    Ok(if reaped.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
