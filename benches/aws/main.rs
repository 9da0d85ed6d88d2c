//! Our side of `cargo xtask bench aws`, and beside it what `ssh` takes on the same instances: one line of JSON. It is given the program of an EC2 on loopback.
//!
//! ```sh
//! cargo bench --features aws,testkit --bench aws -- target/release/ec2-on-loopback --only aws_offers_warm_ms
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

/// The interpreter of the environment.
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
    // As a service calls: from a task of the runtime. The thread that waits for `main` is one more to wake.
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

/// What is offered for an accelerator's name, by a process that finds nothing in its cache and by one that finds what AWS said there.
async fn offers(table: &mut Table, emulator: &Emulator) -> skyward::Result<()> {
    let mut wanted = Requirements::default();
    wanted.accelerator = Some(Accelerator::new("A10G", 1));
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

/// From the time when an instance is seen to run until the first result, with the environment built before.
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

/// Work that blocks, for what is measured beside ours.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> skyward::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())).map_err(beside)
}

/// The error of what ours is measured beside, or with.
fn beside(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("what ours is measured beside failed: {error}")).with_source(error)
}

const USAGE: &str = "aws PROGRAM";
/// EC2 says late that an instance is gone.
const SHUTDOWN: Duration = Duration::from_secs(180);
