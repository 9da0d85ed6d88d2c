//! Ends the machines that killed clients of this user have left: `cargo run --example reap`.
//!
//! The program reads from the ledger which pools have lost their client, and makes their providers
//! end them. Pools whose client lives are left alone. Run the program by hand, or from a timer of
//! the host. Pools on other hosts need the options of their provider:
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
    Ok(if reaped.unconfirmed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
