//! Skyward's side of `cargo xtask bench ssh`, `bench data` and `bench docker`, and `ssh` and the engine alone for
//! comparison: one line of JSON.
//!
//! ```sh
//! cargo bench -p skyward-bench --bench machines -- ssh --only ssh_call_p50_us --quick
//! cargo bench -p skyward-bench --bench machines -- docker IMAGE
//! ```

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod data;
mod docker;
mod engine;
mod openssh;
mod ssh;

use std::io;

use common::{Options, Table};
use skyward::error::{Error, ErrorKind};

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let (options, words) = Options::read(USAGE);
    let table = Table::new(options);
    // Calls come from a task of the runtime, as in a service. From `main`, each call would have to
    // wake one more thread.
    let measured = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ssh"] => tokio::spawn(ssh::measure(table)),
        ["data"] => tokio::spawn(data::measure(table)),
        ["docker", image] => tokio::spawn(docker::measure(table, image.to_owned())),
        _ => {
            eprintln!("usage: {USAGE}");
            std::process::exit(2);
        }
    };
    measured.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Runs blocking work, for the systems compared with Skyward.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> skyward::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())).map_err(beside)
}

/// An error of a system compared with Skyward.
fn beside(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the system compared with Skyward failed: {error}")).with_source(error)
}

const USAGE: &str = "machines ssh|data|docker IMAGE";
