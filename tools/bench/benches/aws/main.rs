//! Skyward's side of `cargo xtask bench aws`, and `ssh` on the same instances for comparison.
//! Prints one line of JSON. The argument is the program of an EC2 on loopback.
//!
//! ```sh
//! cargo bench -p skyward-bench --features aws --bench aws -- $PWD/target/release/ec2-on-loopback --only aws_offers_warm_ms
//! ```

mod by_hand;
mod emulator;
mod many;
#[path = "../common/processor.rs"]
mod processor;
#[path = "../common/table.rs"]
mod table;
mod watched;

use std::io;
use std::time::{Duration, Instant};

use emulator::Emulator;
use skyward::error::{Error, ErrorKind};
use skyward::prelude::*;
use skyward::provider::Requirements;
use table::{Options, Table, median, timed};
use watched::Watched;

/// Returns the interpreter of the environment.
#[skyward::compute]
fn interpreter() -> String {
    "
    import sys
    return sys.executable
    "
}

#[skyward::compute]
fn nothing() {
    ""
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let (options, words) = Options::read(USAGE);
    let [program] = &words[..] else {
        eprintln!("usage: {USAGE}");
        std::process::exit(2);
    };
    // Calls come from a task of the runtime, as in a service. From `main`, each call would have to
    // wake one more thread.
    let measured = tokio::spawn(measure(Table::new(options), program.clone()));
    measured.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn measure(mut table: Table, program: String) -> skyward::Result<()> {
    many::measure(&mut table, &program).await?;
    if ["aws_offers_cold_ms", "aws_offers_warm_ms", "aws_first_result_s"].iter().any(|row| table.wants(row)) {
        let emulator = Emulator::start(&program, &[]).map_err(beside)?;
        offers(&mut table, &emulator).await?;
        first_result(&mut table, &emulator).await?;
        emulator.check_left().map_err(beside)?;
    }
    table.print();
    Ok(())
}

/// The time to get the offers for an accelerator by name: once with an empty cache, and once with
/// AWS's answers in the cache.
async fn offers(table: &mut Table, emulator: &Emulator) -> skyward::Result<()> {
    let wanted = Requirements::default().accelerator(Accelerator::new("A10G", 1));
    let ask = async |provider: Watched| {
        let (offers, took) = timed(provider.offers(&wanted)).await?;
        assert!(!offers.is_empty());
        Ok::<f64, Error>(took.as_secs_f64() * 1e3)
    };
    table.row("aws_offers_cold_ms", ask(Watched::new(emulator.aws()))).await?;
    if table.wants("aws_offers_warm_ms") {
        let folder = std::env::temp_dir().join(format!("skyward-bench-cache-{}", std::process::id()));
        let cached = || Watched::new(emulator.aws().cache_folder(&folder));
        ask(cached()).await?;
        let mut times = Vec::new();
        for _ in 0..table.times(20) {
            times.push(ask(cached()).await?);
        }
        std::fs::remove_dir_all(&folder).map_err(beside)?;
        table.row("aws_offers_warm_ms", async { Ok(median(times)) }).await?;
    }
    Ok(())
}

/// The time from when an instance is reported as running until the first result, with the
/// environment built before.
async fn first_result(table: &mut Table, emulator: &Emulator) -> skyward::Result<()> {
    if !table.wants("aws_first_result_s") {
        return Ok(());
    }
    let python = Pool::builder().provider(emulator.aws()).scope(async |pool| interpreter().run(pool).await).await?;
    let key = by_hand::Key::make().map_err(beside)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..table.times(5) {
        let provider = Watched::new(emulator.aws());
        let pool: Pool = Pool::builder().provider(provider.clone()).start().await?;
        nothing().run(&pool).await?;
        let end = Instant::now();
        ours.push(end.duration_since(provider.running()?).as_secs_f64());
        pool.shutdown(SHUTDOWN).await?;
        theirs.push(by_hand::first_result_s(emulator, &key, &python).await?);
    }
    table.row("aws_first_result_s", async { Ok(median(ours)) }).await?;
    table.beside("by_hand", "aws_first_result_s", async { Ok(median(theirs)) }).await
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

const USAGE: &str = "aws PROGRAM";
/// How long EC2 may take to report that an instance is gone.
const SHUTDOWN: Duration = Duration::from_secs(180);
